"""``dragin-lab demo``: every method of the paper on the embedded questions, as a table and one trace as a page."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from tqdm.auto import tqdm

from dragin_lab.cli.outputs import WIDE, counted, table_text, write_page, write_text
from dragin_lab.core.method import Method
from dragin_lab.data.datasets import demo_questions
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.run.lab import Lab
from dragin_lab.trace.trace import Trace

#: Questions answered side by side: a forward of many costs a small model little more than one of one.
BATCH = 20
COLUMNS = ("method", "EM", "F1", "retrievals", "tokens", "seconds")


@dataclass
class Answered:
    """What one method has answered so far, and in how many seconds."""

    method: Method
    traces: list[Trace]
    began: float
    seconds: float = 0.0


def run_demo(methods: Sequence[Method], limit: int, folder: Path, say: Callable[[str], None]) -> list[str]:
    """Run the methods over the first ``limit`` questions; print the table, write it and a trace into ``folder``.

    What was done when it is interrupted, or when something breaks, is printed and written all the same. Returns the
    errors of the questions that failed. Raises ``RunFailedError`` and ``TraceFileError`` where nothing can be written.
    """
    lab = Lab()
    questions = demo_questions()
    if limit > len(questions):
        say(f"the embedded set has {counted(len(questions), 'question')}, fewer than the {limit} asked for")
    questions = questions[:limit]
    say(f"{lab.model!r}")
    say(f"{counted(len(questions), 'question')}, {len(Corpus.load()):,} passages, variant {methods[0].variant}\n")
    place = {question.id: i for i, question in enumerate(questions)}
    done: list[Answered] = []
    try:
        for method in methods:
            done.append(Answered(method, [], time.perf_counter()))
            answers = lab.ask_many(questions, method, batch_size=BATCH)
            for trace in tqdm(answers, method.name, len(questions), leave=False, disable=None):  # None: on a terminal
                done[-1].traces.append(trace)
                done[-1].seconds = time.perf_counter() - done[-1].began
    finally:
        for one in done:  # they come as they end
            one.traces.sort(key=lambda trace: place[trace.question.id])
        _report(done, len(questions), folder, say)
    return [t.error for one in done for t in one.traces if t.ended == "error"]


def _report(done: Sequence[Answered], asked: int, folder: Path, say: Callable[[str], None]) -> None:
    """Print and write the table of what was done, and the trace that shows most."""
    rows = [_row(one, asked) for one in done if one.traces]
    if not rows:
        return
    say(table_text(COLUMNS, rows))
    say("\nEM and F1 are means over the questions, the rest are means per question.")
    write_text(table_text(COLUMNS, rows, WIDE) + "\n", folder / "table.txt")
    alone = {t.question.id for one in done if not one.method.retrieves for t in one.traces if t.scores.get("em")}
    shown = next((_telling(one.traces, alone) for one in done if one.method.name == "dragin" and one.traces), None)
    if shown is not None:
        shown.save(folder / "dragin.trace")
        write_page(shown, folder / "dragin.html")
        say(f"Open {folder / 'dragin.html'}: {shown!r}")


def _row(one: Answered, asked: int) -> tuple[str, ...]:
    traces = one.traces
    scored = [t.scores for t in traces if t.scores]
    failed = sum(t.ended == "error" for t in traces)
    remarks = [f"{len(traces)} of {asked}"] * (len(traces) < asked) + [f"{failed} failed"] * (failed > 0)
    return (
        one.method.name + (f" ({', '.join(remarks)})" if remarks else ""),
        f"{fmean(s['em'] for s in scored):.3f}" if scored else "-",
        f"{fmean(s['f1'] for s in scored):.3f}" if scored else "-",
        f"{fmean(t.counters['retrievals'] for t in traces):.2f}",
        f"{fmean(t.counters['generated'] for t in traces):.1f}",
        f"{one.seconds / len(traces):.2f}",
    )


def _telling(traces: Sequence[Trace], alone: set[str]) -> Trace:
    """The trace that shows most: right after a retrieval, best where the model ``alone`` (question ids) was not."""
    retrieved = [t for t in traces if t.counters["retrievals"]]
    right = [t for t in retrieved if t.scores.get("em")]
    changed = [t for t in right if t.question.id not in alone]
    return (changed or right or retrieved or list(traces))[0]
