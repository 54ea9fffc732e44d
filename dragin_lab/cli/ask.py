"""``dragin-lab ask``: one question, by ``Lab.stream``; its trace is printed, saved and written as a page."""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING, Any

import rich_click as click
from click.exceptions import Exit

from dragin_lab.cli.methods import build_method, method_options
from dragin_lab.cli.options import (
    check_parts,
    corpus_option,
    debug_option,
    layout_option,
    model_option,
    open_lab,
    retriever_option,
)
from dragin_lab.cli.outputs import (
    RunFailedError,
    check_apart,
    check_writable,
    deliver_trace,
    describe_failure,
    echo,
    is_coloured,
    warn_of_overrun,
)
from dragin_lab.errors import DraginLabError, SettingError
from dragin_lab.text import compose

if TYPE_CHECKING:
    from dragin_lab.run.benchmark import Benchmark
    from dragin_lab.run.drivers import Stream
    from dragin_lab.trace.trace import Question


@click.command(short_help="Answer a question and show where the method retrieved.")
@click.argument("question", required=False)
@click.option(
    "--dataset", panel="Question", help="Instead of QUESTION: the benchmark or file that it is in, with --id."
)
@click.option("--id", "qid", metavar="ID", panel="Question", help="The id of the question in --dataset.")
@click.option("--split", panel="Question", help="Of --dataset: Almanac's train, dev or test; default test.")
@method_options
@corpus_option
@retriever_option
@click.option(
    "--exemplars",
    panel="Prompt",
    help="Worked examples: a YAML file (question, rationale, answer), a benchmark's name for this package's own set, "
    "or published:NAME for the set published with the paper.",
)
@layout_option
@model_option
@click.option("--seed", type=int, default=0, show_default=True, panel="Model", help="Seed of sampled decoding.")
@click.option("--gold", multiple=True, panel="Output", help="A right answer, to score against; may be repeated.")
@click.option("--save", panel="Output", help="Write the trace to this file; 'dragin-lab show' reads it.")
@click.option("--html", panel="Output", help="Write the trace as a page to this file.")
@debug_option
def ask(
    question: str | None,
    dataset: str | None,
    qid: str | None,
    split: str | None,
    exemplars: str | None,
    save: str | None,
    html: str | None,
    gold: tuple[str, ...],
    **options: Any,
) -> None:
    """Answer QUESTION and show where the method retrieved, what it searched for, and the passages.

    With --dataset and --id it is asked as 'dragin-lab run' asks it, and answered the same.

    On a terminal the tokens appear as they are written. Ctrl-C ends it; what was done by then is shown and saved.
    """
    method = build_method(options["names"], options["given"])
    if (dataset is None) != (qid is None) or (question is None) == (qid is None):
        raise click.UsageError("give a QUESTION between quotes, or --dataset and --id")
    for path in (save, html):
        check_writable(path)
    check_apart(save, html)
    check_parts(options)
    from dragin_lab.run.benchmark import benchmark
    from dragin_lab.run.serving import check_question

    asked: str | Question = question or ""
    prompt: Any = exemplars
    if dataset is not None:
        read = benchmark(dataset, exemplars=exemplars, split=split)
        asked, prompt = find_question(read, str(qid)), read.template
    asked = check_question(asked, gold or None)
    lab = open_lab(options, exemplars=prompt)
    events = lab.stream(asked, method)
    trace, delivered = events.trace, True
    try:
        follow_events(events)
    except (DraginLabError, MemoryError, RuntimeError) as error:
        if isinstance(error, SettingError) and not trace.continuations:
            raise
        raise RunFailedError(describe_failure(error)) from error
    finally:
        events.close()
        if trace.continuations or trace.ended != "error":
            delivered = deliver_trace(trace, save, html)
            warn_of_overrun(trace, lab.model.context_window)
    if not delivered:
        raise Exit(1)


def find_question(benchmark: Benchmark, qid: str) -> Question:
    """The question of that id. Raises ``SettingError`` with the nearest id where there is none."""
    questions, qid = {question.id: question for question in benchmark.questions}, compose(qid)
    if qid not in questions:
        near = difflib.get_close_matches(qid, questions, n=1) or list(questions)[:1]
        raise SettingError(f"{benchmark.name} has no question {qid!r}; did you mean {near[0]!r}?")
    return questions[qid]


def follow_events(events: Stream) -> None:
    """Run an episode to its end; on a terminal, tokens appear as they are written.

    Every text that the model writes has a line of its own: a draft, what is written with passages, the answer. What is
    written with passages may go on after the sentence that is kept, and the next draft writes that part again.
    """
    from dragin_lab.run.drivers import Decided, Retrieved, StepDone, TokenWritten

    live, dim = sys.stderr.isatty(), is_coloured(sys.stderr)
    writing: tuple[int, str] | None = None

    def say(text: str, nl: bool = True) -> None:
        echo(text, nl=nl, err=True, dim=dim)

    try:
        for event in events if live else ():
            if isinstance(event, TokenWritten):
                begins = writing not in (None, (event.step, event.kind))
                say("\n" * begins + event.text, nl=False)
                writing = event.step, event.kind
                continue
            if isinstance(event, Decided) and event.decision.retrieve:
                line = f"  retrieving: {event.decision.reason}"
            elif isinstance(event, Retrieved):
                line = f"  {len(event.passages)} passages for: {event.query}"
            elif isinstance(event, StepDone) and event.step.continuation is not None:
                line = f"  kept: {event.step.kept.strip()}"
            else:
                continue
            say("\n" * (writing is not None) + line)
            writing = None
        for _ in events:  # to its end, where nobody watches
            pass
    finally:
        if live:
            echo("\n", err=True)
