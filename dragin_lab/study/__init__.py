"""What many episodes say: tables, needs, thresholds."""
