"""Triggers after DRAGIN, one idea a file."""
