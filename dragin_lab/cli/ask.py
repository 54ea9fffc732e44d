"""``dragin-lab ask``: one question by ``Lab.stream``."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

import rich_click as click
from click.exceptions import Exit

import dragin_lab as dl
from dragin_lab.cli import options as shared
from dragin_lab.cli.outputs import echo, is_coloured
from dragin_lab.errors import DraginLabError, RunError, SettingError
from dragin_lab.files import as_path
from dragin_lab.run.episodes import check_question
from dragin_lab.run.sweeps import describe_losses

if TYPE_CHECKING:
    from dragin_lab.run.episodes import Stream


@click.command(short_help="Answer a question and show where the method retrieved.")
@click.argument("question")
@shared.method_options
@shared.lab_options
@shared.model_option
@shared.option(
    "Output", "--gold", "A right answer, to score against; may be repeated.", multiple=True
)
@shared.option("Output", "--save", "Write the trace to this file; dl.Trace.load reads it.")
@shared.option("Output", "--html", "Write the trace as a page to this file.")
def ask(
    question: str, gold: tuple[str, ...], save: str | None, html: str | None, **options: Any
) -> None:
    """Answer QUESTION and show where the method retrieved, what it searched for, and the passages.

    On a terminal the tokens appear as they are written. Ctrl-C ends it; what was done by then is
    shown and saved.
    """
    shared.check_parts(options)
    methods = shared.build_methods(options["names"], shared.gather_settings(options))
    if len(methods) > 1:
        raise click.UsageError(
            f"{', '.join(method.label for method in methods)}: this command takes one method with"
            " one value of each setting"
        )
    check_writable(save, html)
    asked = check_question(question, gold or None)
    lab = shared.open_lab(options, exemplars=options["exemplars"])
    events = lab.stream(asked, methods[0])
    trace = events.trace
    delivered = True
    try:
        follow_events(events)
    except DraginLabError as error:
        if isinstance(error, SettingError) and not trace.continuations:
            raise
        raise RunError(str(error), begun=True) from error
    finally:
        events.close()
        if trace.continuations or trace.ended != "error":
            delivered = deliver_trace(trace, save, html)
        if lost := describe_losses([trace.lost]):
            echo(f"warning: {lost}", err=True)
    if not delivered:
        raise Exit(1)


def follow_events(events: Stream) -> None:
    """Run an episode to its end; on a terminal, tokens appear as they are written.

    Every text that the model writes has a line of its own: a draft, what is written with passages,
    the answer. What is written with passages may go on after the sentence that is kept, and the
    next draft writes that part again.
    """
    from dragin_lab.run.episodes import Decided, Retrieved, StepDone, TokenWritten

    live = sys.stderr.isatty()
    dim = is_coloured(sys.stderr)
    writing: tuple[int, str] | None = None
    try:
        for event in events if live else ():
            match event:
                case TokenWritten(step=step, kind=kind, text=text):
                    begins = writing not in (None, (step, kind))
                    echo("\n" * begins + text, nl=False, err=True, dim=dim)
                    writing = step, kind
                    continue
                case Decided() if event.decision.retrieve:
                    line = f"  retrieving: {event.decision.reason}"
                case Retrieved():
                    line = f"  {len(event.passages)} passages for: {event.query}"
                case StepDone() if event.step.continuation is not None:
                    line = f"  kept: {event.step.kept.strip()}"
                case _:
                    continue
            echo("\n" * (writing is not None) + line, err=True, dim=dim)
            writing = None
        for _ in events:  # to its end, where nobody watches
            pass
    finally:
        if live:
            echo("\n", err=True)


# -- where a trace goes ----------------------------------------------------------------------------


def check_writable(*paths: str | None) -> None:
    """Refuse files that cannot be written, or that are one, before any work is done."""
    targets = [as_path(path) for path in paths if path is not None]
    for target in targets:
        if target.is_dir():
            raise click.UsageError(f"{str(target)!r} is a folder; give the name of a file")
        if not target.parent.is_dir():
            raise click.UsageError(f"the folder {target.parent} does not exist; make it first")
        if not os.access(target.parent, os.W_OK):
            raise click.UsageError(
                f"the folder {target.parent} cannot be written to; choose another"
            )
    if len({path.resolve() for path in targets}) < len(targets):
        raise click.UsageError(
            f"{paths[-1]} cannot hold both the trace and its page; give --html a name of its own"
        )


def deliver_trace(trace: dl.Trace, save: str | None, html: str | None) -> bool:
    """Save, write and print a trace; whether all of it could be done. One that fails does not
    keep the others back.
    """
    done = []
    wrong = []
    for path, says, write in (
        (save, "trace", trace.save),
        (html, "page", lambda path: dl.page(path, trace)),
    ):
        try:
            if path is not None:
                done.append(f"{says} written to {write(path)}")
        except DraginLabError as error:
            wrong.append(f"error: {error}")
    try:
        print_trace(trace)
    finally:  # its reader may have gone
        for line in done + wrong:
            echo(line, err=True)
    return not wrong


def print_trace(trace: dl.Trace) -> None:
    from dragin_lab.views.trace_page import trace_text

    width = max(40, min(100, shutil.get_terminal_size((100, 24)).columns))
    # Not by ``echo``: what it says is printable, and its colours are escape sequences.
    click.echo(trace_text(trace, width=width, color=is_coloured(sys.stdout)))
