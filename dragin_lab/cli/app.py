"""The command line: ``dragin-lab ask``, ``run``, ``table`` and others.

Exit status: 0 done, 1 something failed on the way, 2 wrong usage or input, 130 interrupted.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from functools import partial
from typing import Any

import rich_click as click

from dragin_lab import __version__
from dragin_lab.checks import refuse_password
from dragin_lab.cli.ask import ask
from dragin_lab.cli.outputs import describe_failure, echo
from dragin_lab.cli.run import demo, run, table
from dragin_lab.cli.setup import corpus, data, doctor
from dragin_lab.errors import DraginLabError
from dragin_lab.warning import LabWarning

DONE = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130
LONGEST = 1000  # characters of a line of an error, which may repeat what was given


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.rich_config(
    {
        "max_width": 100,
        "style_options_panel_box": "SIMPLE",
        "style_commands_panel_box": "SIMPLE",
        "options_table_column_types": ["required", "opt_all", "help"],
        "options_table_help_sections": [
            "help",
            "deprecated",
            "envvar",
            "default",
            "required",
            "metavar",
        ],
        "text_paragraph_linebreaks": "\n\n",
        "padding_helptext_first_line": (0, 0, 1, 0),
    }
)
@click.version_option(__version__, prog_name="dragin-lab")
def cli() -> None:
    """See, token by token, where a language model lacks information, what it looks for, and what
    that changes.

    Start with 'dragin-lab demo', or 'dragin-lab ask "Who …?"'. Exit status: 0 done, 1 something
    failed on the way, 2 wrong usage or input, 130 interrupted.
    """


add_debug = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    help="Show the traceback of an error, and libraries' warnings.",
)
add_debug(cli)
for command in (ask, run, demo, table, data, corpus, doctor):
    cli.add_command(command)
    for subcommand in getattr(command, "commands", {"": command}).values():
        add_debug(subcommand)


def main(args: list[str] | None = None) -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal that lacks a character still shows the rest
            stream.reconfigure(errors="replace")
    code = status(args if args is not None else sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:
        # What could not be written would be tried, and complained about, once more when Python
        # ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def status(args: list[str]) -> int:
    """Run one command; errors become one or two lines, with ``--debug`` a traceback too."""
    with warnings.catch_warnings():
        warnings.showwarning = partial(_show_warning, "--debug" in args)
        try:
            for word in args:
                if not os.path.lexists(word):
                    refuse_password("argument", word)
            code = cli.main(args=args, prog_name="dragin-lab", standalone_mode=False)
        except (click.Abort, KeyboardInterrupt) as error:
            return _print_error(error, args, INTERRUPTED)
        except (
            SystemExit
        ) as ended:  # by rich-click: no command was given, or nobody reads the output any more
            return (
                DONE if isinstance(ended.__context__, BrokenPipeError) else int(ended.code or DONE)
            )
        except click.ClickException as error:
            context = getattr(error, "ctx", None)
            name = "dragin-lab" if context is None else context.command_path
            text = f"{error.format_message()}\n('{name} --help' lists what can be given)"
            return _print_error(error, args, USAGE, text)
        except DraginLabError as error:
            return _print_error(error, args, FAILED if error.begun else USAGE)
        except BrokenPipeError:  # as in '… | head': the reader has all that it wanted
            return DONE
        except Exception as error:  # noqa: BLE001 - the last line of defence names the error instead of a traceback
            return _print_error(error, args, FAILED, describe_failure(error))
    return code if isinstance(code, int) else DONE


def _print_error(error: BaseException, args: list[str], code: int, text: str | None = None) -> int:
    if "--debug" in args:
        echo("".join(traceback.format_exception(error)), err=True, nl=False)
    lines = (text or str(error)).split("\n")
    cut = [
        line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
        for line in lines
    ]
    echo("\ninterrupted" if code == INTERRUPTED else "error: " + "\n".join(cut), err=True)
    return code


def _show_warning(
    debug: bool, message: Warning | str, category: type[Warning], filename: str, *_: Any, **__: Any
) -> None:
    """Show our own warnings; those of libraries are for ``--debug``, which shows where each is
    from.
    """
    if debug:
        echo(f"warning: {message} ({category.__name__}, {filename})", err=True)
    elif issubclass(category, LabWarning):
        echo(f"warning: {message}", err=True)
