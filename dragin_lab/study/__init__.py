"""One trace, looked into: replays under other settings, attribution, the other way."""
