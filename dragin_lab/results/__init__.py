"""Results over many episodes: runs, tables, tests, causes, curves."""
