"""What commands print, and what they say of an error that nobody expected."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TextIO

import rich_click as click

from dragin_lab.text import printable

WIDE = 160  # columns, where the output is not a terminal


def echo(text: object, *, err: bool = False, nl: bool = True, dim: bool = False) -> None:
    """Print text from anywhere (``printable``); all commands print with this."""
    shown = printable(text)
    click.echo(click.style(shown, dim=True) if dim else shown, err=err, nl=nl)


def is_coloured(stream: TextIO) -> bool:
    """Whether a stream shows colours: a terminal, unless NO_COLOR (https://no-color.org) says
    otherwise.
    """
    return stream.isatty() and not os.environ.get("NO_COLOR")


def terminal_width() -> int:
    """Columns of the terminal; enough for any table where the output goes elsewhere."""
    shown = sys.stdout.isatty() or "COLUMNS" in os.environ
    return shutil.get_terminal_size((WIDE, 24)).columns if shown else WIDE


def describe_failure(error: Exception) -> str:
    """An unexpected error, in one or two lines."""
    lines = str(error).strip().splitlines() or [""]
    if (
        isinstance(error, MemoryError)
        or "out of memory" in lines[0].lower()
        or "allocate memory" in lines[0]
    ):
        return (
            "the prompt is too long for this machine's memory; cut the corpus into shorter"
            " passages, lower top_k, or use the paper variant, which drops what does not fit into"
            " the model's window"
        )
    return f"{type(error).__name__}: {lines[0][:300]}\n(run again with --debug for the details)"
