"""The command line; ``dragin_lab.cli.app`` holds the group of commands and the exit status."""

import sys


def main() -> None:
    """Run the command line and exit with its status; Ctrl-C while it is being loaded ends it as it does later."""
    try:
        from dragin_lab.cli import app

        app.main()
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        sys.exit(130)
