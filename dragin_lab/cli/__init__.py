"""The command line; ``dragin_lab.cli.app`` holds the group of commands and the exit status."""

import sys

_INTERRUPTED = 130  # as app.INTERRUPTED, which is not loaded yet


def main() -> None:
    """Run the command line and exit with its status; Ctrl-C ends it with 130 from here to the
    end of the process.
    """
    try:
        import signal

        # A handler of Python's own raises in whatever runs, and what raises in a callback of an
        # import goes unheard.
        # and not ignored, as behind nohup
        raising = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if raising:
            signal.signal(signal.SIGINT, _end_at_once)
        from dragin_lab.cli import app

        if raising:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            app.main()
        finally:  # everything is written, and Python takes its modules down
            if raising:
                signal.signal(signal.SIGINT, _end_at_once)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        sys.exit(_INTERRUPTED)


def _end_at_once(*_: object) -> None:
    """End the process while nothing is under way that could be lost."""
    import os

    os.write(2, b"\ninterrupted\n")
    os._exit(_INTERRUPTED)
