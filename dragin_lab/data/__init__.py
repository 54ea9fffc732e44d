"""Benchmarks, exemplars, presets, the papers' figures and downloads."""
