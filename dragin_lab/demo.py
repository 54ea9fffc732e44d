"""``dragin-lab demo``: every method of the paper on the embedded questions, as a table and one trace as a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from tqdm.auto import tqdm

from dragin_lab.almanac import demo_questions
from dragin_lab.corpus import Corpus
from dragin_lab.lm.load import LanguageModel
from dragin_lab.methods import Method
from dragin_lab.retrieval.bm25 import BM25
from dragin_lab.run import run_many
from dragin_lab.trace import Trace
from dragin_lab.views.trace import trace_html

COLUMNS = ("method", "EM", "F1", "retrievals", "pieces", "seconds")


def run_demo(methods: Sequence[Method], limit: int, folder: Path, say: Callable[[str], None]) -> None:
    """Run the methods over the first ``limit`` questions; print the table, write it and a trace into ``folder``."""
    lm = LanguageModel.load()
    retriever = BM25(Corpus.load())
    questions = demo_questions()[:limit]
    say(f"{lm!r}")
    say(f"{len(questions)} questions, {len(retriever.corpus):,} passages, variant {methods[0].variant}\n")
    rows, shown = [], None
    for method in methods:
        bar = tqdm(run_many(method, lm, retriever, questions), total=len(questions), desc=method.name, leave=False)
        traces = list(bar)
        rows.append(_row(method, traces))
        if method.name == "dragin":
            shown = _telling(traces)
    text = table_text(rows)
    say(text)
    (folder / "table.txt").write_text(text + "\n", encoding="utf-8")
    if shown is not None:
        shown.save(folder / "dragin.trace")
        (folder / "dragin.html").write_text(trace_html(shown, full_page=True), encoding="utf-8")
        say(
            "\nEM and F1 are means over the questions, the rest are means a question.\n"
            f"Open {folder / 'dragin.html'}: {shown!r}"
        )


def _row(method: Method, traces: Sequence[Trace]) -> tuple[str, ...]:
    scored = [t.scores for t in traces if t.scores]
    failed = len(traces) - len(scored)
    return (
        method.name + (f" ({failed} failed)" if failed else ""),
        f"{fmean(s['em'] for s in scored):.3f}" if scored else "-",
        f"{fmean(s['f1'] for s in scored):.3f}" if scored else "-",
        f"{fmean(t.counters['retrievals'] for t in traces):.2f}",
        f"{fmean(t.counters['generated'] for t in traces):.1f}",
        f"{fmean(t.seconds for t in traces):.2f}",
    )


def _telling(traces: Sequence[Trace]) -> Trace:
    """The trace that shows most: answered right after a retrieval, else one that retrieved, else the first."""
    retrieved = [t for t in traces if t.counters["retrievals"]]
    right = [t for t in retrieved if t.scores.get("em")]
    return (right or retrieved or list(traces))[0]


def table_text(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows under ``COLUMNS`` as aligned text."""
    lines = [COLUMNS, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    show = [
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    ]
    return "\n".join([show[0], "-" * len(show[0]), *show[1:]])
