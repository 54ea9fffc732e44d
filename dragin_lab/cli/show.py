"""``dragin-lab show``: stored traces, one by one, by question, or as a list."""

from __future__ import annotations

import shlex
from pathlib import Path

import rich_click as click

from dragin_lab.cli.options import debug_option
from dragin_lab.cli.outputs import check_apart, check_writable, echo, print_trace, write_page
from dragin_lab.files import as_path


@click.command(short_help="Print a stored trace, or write it as a page.")
@click.argument("trace")
@click.option("--id", "qid", metavar="ID", help="Show this question's trace from a run.")
@click.option("--method", "name", help="With --id where several methods answered: of this one.")
@click.option("--html", help="Write the trace as a page to this file instead of printing it.")
@debug_option
def show(trace: str, qid: str | None, name: str | None, html: str | None) -> None:
    """Print a stored TRACE, or write it as a page that opens offline. Of a run's folder, list the traces, or print
    that of one question.
    """
    from dragin_lab.trace.trace import Trace

    check_writable(html)
    if name is not None and qid is None:
        raise click.UsageError("--method goes with --id")
    if qid is not None:
        show_question(trace, qid, name, html)
        return
    if (folder := as_path(trace)).is_dir():
        list_traces(folder)
        return
    check_apart(trace, html)
    loaded = Trace.load(trace)
    if html is None:
        print_trace(loaded)
    else:
        echo(write_page(loaded, html), err=True)


def show_question(folder: str, qid: str, name: str | None, html: str | None) -> None:
    """Print the traces of a question by every method, or write that of one as a page."""
    from dragin_lab.study.runs import Runs

    runs = Runs.load(folder)
    names = [name] if name is not None else runs.names
    if html is not None and len(names) > 1:
        raise click.UsageError(f"a page holds one trace, and the methods are {', '.join(names)}; give --method")
    for one in names:
        trace = runs.trace(qid, one)
        if html is not None:
            echo(write_page(trace, html), err=True)
        else:
            print_trace(trace)


def list_traces(folder: Path) -> None:
    """The commands that show the traces below a folder, each with its question."""
    from dragin_lab.run.rundir import TRACES, find_runs, trace_name

    rows = [
        (shlex.join(["dragin-lab", "show", str(path)]), line["question"])
        for record in find_runs(folder)
        for line in record.predictions
        if (path := record.folder / TRACES / trace_name(line["qid"])).is_file()
    ]
    if not rows:
        raise click.UsageError(f"{folder} holds no traces; 'dragin-lab run --traces' saves them")
    echo("\n".join(f"{command}  # {question}" for command, question in rows))
