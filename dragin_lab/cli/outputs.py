"""Where the command line's results go: the terminal, trace files, pages, folders."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import rich_click as click

from dragin_lab.errors import DraginLabError, ViewError
from dragin_lab.files import as_path
from dragin_lab.run.rundir import CONFIG
from dragin_lab.text import hide_typed_secrets, printable

if TYPE_CHECKING:
    from dragin_lab.core.prompts import PromptTemplate
    from dragin_lab.trace.trace import Trace

WIDE = 160  # columns, where the output is not a terminal


class RunFailedError(Exception):
    """Something failed after the work had begun; what was done is kept."""


#: The words of the command, whose credentials no output repeats.
typed: ContextVar[Sequence[str]] = ContextVar("typed", default=())


def echo(text: object, *, err: bool = False, nl: bool = True, **style: Any) -> None:
    """Print text from anywhere (``printable``), in a ``style`` of ``click.style``; all commands print with this."""
    shown = printable(hide_typed_secrets(str(text), typed.get()))
    click.echo(click.style(shown, **style) if any(style.values()) else shown, err=err, nl=nl)


def check_writable(path: str | None) -> None:
    """Refuse an output that cannot be written before any work is done."""
    if path is None:
        return
    target = as_path(path)
    if not path.strip() or target.is_dir():
        raise click.UsageError(f"{path!r} is a folder; give the name of a file")
    if not target.parent.is_dir():
        raise click.UsageError(f"the folder {target.parent} does not exist; make it first")
    if not os.access(target.parent, os.W_OK):
        raise click.UsageError(f"the folder {target.parent} cannot be written to; choose another")


def check_apart(trace: str | None, page: str | None) -> None:
    """Refuse to write a page over the trace it shows."""
    if trace is not None and page is not None and as_path(trace).resolve() == as_path(page).resolve():
        raise click.UsageError(f"{page} cannot hold both the trace and its page; give --html a name of its own")


def make_folder(path: str) -> Path:
    folder = as_path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"--output {path}: {error.strerror}; give a folder that can be written") from None
    if not os.access(folder, os.W_OK) and not any(folder.rglob(CONFIG)):  # a complete run can be shown all the same
        raise click.UsageError(f"--output {path}: you may not write there; give a folder that can be written")
    return folder


def deliver_trace(trace: Trace, save: str | None, html: str | None) -> bool:
    """Save, write and print a trace; whether all of it could be done. One that fails does not keep the others back."""
    done: list[str] = []
    wrong: list[str] = []
    closed: BrokenPipeError | None = None
    for path, write in ((save, write_trace), (html, write_page)):
        try:
            done += [] if path is None else [write(trace, path)]
        except (DraginLabError, RunFailedError) as error:
            wrong.append(str(error))
    try:
        print_trace(trace)
    except BrokenPipeError as error:
        closed = error
    except RunFailedError as error:
        wrong.append(str(error))
    for line in [*done, *(f"error: {line}" for line in wrong)]:
        echo(line, err=True)
    if closed is not None:
        raise closed
    return not wrong


def exemplars_line(template: PromptTemplate) -> str:
    """Which exemplars stand in the prompt, where nobody asked for them; "" otherwise."""
    return f"{counted(len(template.exemplars), 'exemplar')}: {template.chosen}" if template.chosen else ""


def print_trace(trace: Trace) -> None:
    from dragin_lab.views.texts import trace_text

    width = max(40, min(100, shutil.get_terminal_size((100, 24)).columns))
    try:
        # Not by ``echo``: what it says is printable, and its colours are escape sequences.
        click.echo(trace_text(trace, width=width, color=is_coloured(sys.stdout)))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RunFailedError(f"the trace cannot be printed: {error.strerror or error}") from error


def write_trace(trace: Trace, path: str) -> str:
    return f"trace written to {trace.save(path)}"


def write_page(trace: Trace, path: str | Path) -> str:
    from dragin_lab.views.pages import page

    try:
        return f"page written to {page(path, trace)}"
    except ViewError as error:
        raise RunFailedError(str(error)) from error


def is_coloured(stream: TextIO) -> bool:
    """Whether a stream shows colours: a terminal, unless NO_COLOR (https://no-color.org) says otherwise."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def counted(count: int, thing: str) -> str:
    """``1 question``, ``2 questions``."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def terminal_width() -> int:
    """Columns of the terminal; enough for any table where the output goes elsewhere."""
    shown = sys.stdout.isatty() or "COLUMNS" in os.environ
    return shutil.get_terminal_size((WIDE, 24)).columns if shown else WIDE


def report_findings(findings: Iterable[tuple[str, bool | None]]) -> int:
    """Print what was checked, and count what is wrong; None is what is missing and may be."""
    bad = 0
    for line, good in findings:
        mark = {True: "ok", False: "FAIL", None: "lacks"}[good]
        echo(f"{mark:<5} {line}")
        bad += good is False
    return bad


def warn_of_overrun(trace: Trace, window: int | None) -> None:
    longest = max((len(text.prompt_ids) + len(text) for text in trace.continuations), default=0)
    if window is None or longest <= window:
        return
    drops = "" if trace.method["variant"] == "paper" else ", or use the paper variant, which drops what does not fit"
    echo(
        f"warning: prompt and text grew to {longest:,} tokens and the model's window holds {window:,}, so what it "
        f"wrote means little;\nlower top_k, shorten the passages or the question{drops}",
        err=True,
    )


def describe_failure(error: Exception) -> str:
    """What failed in an episode, in one or two lines."""
    if isinstance(error, DraginLabError):
        return str(error)
    lines = str(error).strip().splitlines() or [""]
    if isinstance(error, MemoryError) or "out of memory" in lines[0].lower() or "allocate memory" in lines[0]:
        return (
            "the prompt is too long for this machine's memory; cut the corpus into shorter passages, lower top_k, "
            "or use the paper variant, which drops what does not fit into the model's window"
        )
    return f"{type(error).__name__}: {lines[0][:300]}\n(run again with --debug for the details)"
