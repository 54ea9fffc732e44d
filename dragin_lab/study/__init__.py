"""Results over many episodes: tables, tests, causes, replays."""
