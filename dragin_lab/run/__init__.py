"""What answers many questions: drivers, run directories, caches, replays, clusters."""
