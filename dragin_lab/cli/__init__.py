"""The command line; ``dragin_lab.cli.app`` holds the group of commands and the exit status."""

from dragin_lab.cli.app import DONE, FAILED, INTERRUPTED, USAGE, cli, main, status

__all__ = ["DONE", "FAILED", "INTERRUPTED", "USAGE", "cli", "main", "status"]
