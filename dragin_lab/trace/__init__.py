"""What an episode leaves behind: records, the trace, its file."""
