"""Almanac: a fictional encyclopedia, four small benchmarks on it, and a small model trained on half of it."""
