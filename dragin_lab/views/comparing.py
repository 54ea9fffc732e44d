"""Traces of one question side by side, what differs marked; and runs as a page of all their questions."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pandas as pd

from dragin_lab.checks import several
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.errors import MissingPackageError, SettingError
from dragin_lab.study.conditions import tell_apart
from dragin_lab.study.runs import Runs
from dragin_lab.text import printable
from dragin_lab.trace.kept import arrivals, cut_off, origins
from dragin_lab.trace.trace import Step, Trace
from dragin_lab.views import facts
from dragin_lab.views.html import clip, count, esc
from dragin_lab.views.pages import Page, load_stylesheet, open_traces, render, show_or_explain
from dragin_lab.views.pages import page as write_page

MAX_TRACES = 16
MAX_SENTENCES = 40
SENTENCE_CHARS = 1500
ALIKE = 0.15  # sentences less alike than this do not stand in one slot
#: (number of a step whose passages came in, "" …), or (0, word, whether it is new, whether passages were in view).
Drawn = tuple[int, str, bool, bool]


@dataclass
class TraceColumn:
    """One trace of the comparison."""

    trace: Trace
    label: str
    spans: list[tuple[int, int]]  # characters of its sentences
    left_out: int  # sentences after the last one drawn
    came: list[tuple[int, Step]]  # where passages came in: a character, and the step that fetched them
    fresh: list[tuple[int, int]]  # characters written with passages in view

    @property
    def sentences(self) -> list[str]:
        """The texts of its sentences."""
        return [self.trace.text[a:b] for a, b in self.spans]

    def arrivals_at(self, at: int) -> list[tuple[int, Step]]:
        """The retrievals that came in within a sentence or since the one before it; the last takes the rest."""
        low = self.spans[at - 1][1] if at else -1
        high = self.spans[at][1] if at < len(self.spans) - 1 else len(self.trace.text) + 1
        return [(place, step) for place, step in self.came if low <= place < high]

    def sentence(self, at: int, base: str) -> tuple[list[Drawn], str]:
        """One sentence as it is drawn, and what is left out; words that ``base`` lacks are new."""
        start, stop = self.spans[at]
        shown, left_out = clip(self.trace.text[start:stop], SENTENCE_CHARS)
        words = [(start + m.start(), m[0]) for m in re.finditer(r"\S+", shown)]
        new = _find_new_words([word for _, word in words], base.split()) if base else frozenset()
        parts: list[tuple[float, Drawn]] = [
            (place, (0, word, number in new, any(a <= place < b for a, b in self.fresh)))
            for number, (place, word) in enumerate(words)
        ]
        parts += [(place - 0.5, (step.index + 1, "", False, False)) for place, step in self.arrivals_at(at)]
        return [part for _, part in sorted(parts, key=lambda pair: pair[0])], left_out


def compare(
    traces: Iterable[Trace | str | Path], *others: Trace | str | Path, labels: Sequence[str] | None = None
) -> Page:
    """Several traces of one question, sentence under sentence; words that the first one does not have are marked.

    Give them as a list, or one after the other. ``labels`` name the traces; without them a name is the method's and,
    where two share it, what differs in their settings. Raises ``SettingError`` for no trace, more than ``MAX_TRACES``,
    traces of different questions, or other than one label each; ``TraceFileError`` for a path that holds no trace.
    """
    single = isinstance(traces, Trace | str | Path)
    if single and not others:
        raise SettingError("a comparison takes several traces; give a list of them")
    opened = open_traces([traces, *others] if single else traces)  # type: ignore[list-item]
    if not 1 <= len(opened) <= MAX_TRACES:
        raise SettingError(f"{len(opened)} traces cannot be compared; give 1 to {MAX_TRACES} of one question")
    columns = read_columns(opened, labels)
    return Page(opened[0].question.text, partial(_draw_page, columns), partial(_write_text, columns))


def read_columns(traces: Sequence[Trace], labels: Sequence[str] | None) -> list[TraceColumn]:
    """The traces as columns, each in at most ``MAX_SENTENCES`` sentences; errors as for ``compare``."""
    questions = dict.fromkeys(trace.question.text.strip() for trace in traces)
    if len(questions) > 1:
        first, other, *_ = (clip(question, 80)[0] for question in questions)
        raise SettingError(f"the traces ask different questions, {first!r} and {other!r}; compare traces of one")
    names = tell_apart([trace.method for trace in traces])
    if labels is not None and len(names := several("labels", labels, str, "give a list of texts")) != len(traces):
        raise SettingError(f"{len(names)} labels do not go with {len(traces)} traces; give one each")
    columns = []
    for trace, name in zip(traces, names, strict=True):
        spans = load_pipeline().spans(printable(trace.text))  # as many characters, none that spaCy refuses
        fresh = [(origin.start, origin.stop) for origin in origins(trace) if origin.with_passages]
        came, more = sorted(arrivals(trace), key=lambda pair: pair[0]), max(len(spans) - MAX_SENTENCES, 0)
        columns.append(TraceColumn(trace, name, spans[:MAX_SENTENCES], more, came, fresh))
    return columns


def _find_new_words(words: list[str], base: list[str]) -> frozenset[int]:
    matcher = difflib.SequenceMatcher(None, base, words, autojunk=False)
    return frozenset(i for op, _, _, a, b in matcher.get_opcodes() if op in ("insert", "replace") for i in range(a, b))


def _draw_page(columns: list[TraceColumn]) -> str:
    rest = "; ".join(f"{t.label}: {count(t.left_out, 'more sentence')}" for t in columns if t.left_out)
    slots = align_sentences([t.sentences for t in columns])
    return render("compare.html", columns=columns, slots=slots, left_out=rest, cut_off=cut_off, facts=facts)


def _write_text(columns: list[TraceColumn]) -> str:
    """The comparison as text."""
    labels = [clip(t.label, 40)[0] for t in columns]
    labels = [label.ljust(max(map(len, labels))) for label in labels]
    lines = [f"Question      {columns[0].trace.question.text}"]
    for label, t in zip(labels, columns, strict=True):
        counted, answer = t.trace.counters, t.trace.answer or facts.no_answer(t.trace)
        costs = f"{count(counted['retrievals'], 'retrieval')}, {count(counted['generated'], 'token')}"
        lines.append(f"{label}  {answer} ({facts.judge_answer(t.trace)[1]}), {costs}")
    for number, slot in enumerate(align_sentences([t.sentences for t in columns]), 1):
        lines += ["", f"Sentence {number}"]
        for label, t, at in zip(labels, columns, slot, strict=True):
            signs = "" if at is None else "".join(f"◆{step.index + 1} " for _, step in t.arrivals_at(at))
            sentence = "–" if at is None else signs + clip(t.sentences[at], SENTENCE_CHARS)[0]
            lines.append(f"{label}  {sentence}")
    return printable("\n".join(lines)) + "\n"


def sentence_likeness(one: str, other: str) -> float:
    """How alike two sentences are, 0 to 1: the Dice coefficient of their character trigrams, case aside."""
    a, b = _letter_trigrams(one), _letter_trigrams(other)
    return 2 * len(a & b) / (len(a) + len(b)) if a and b else float(one.strip() == other.strip())


def _letter_trigrams(text: str) -> frozenset[str]:
    flat = f" {' '.join(text.casefold().split())} "
    return frozenset(flat[i : i + 3] for i in range(len(flat) - 2))


def align_sentences(texts: Sequence[Sequence[str]]) -> list[list[int | None]]:
    """Slots in reading order; each holds for every text the number of the sentence in it, None for none.

    The texts are added one after another. Each keeps its order; a sentence joins a slot, so
    the most alike pairs stand together, or gets a slot of its own.
    """
    slots: list[list[int | None]] = []
    for number, sentences in enumerate(texts):
        likeness = np.zeros((len(slots), len(sentences)))  # (slots, sentences)
        for (row, slot), (column, sentence) in product(enumerate(slots), enumerate(sentences)):
            others = [texts[text][at] for text, at in enumerate(slot) if at is not None]
            likeness[row, column] = max(sentence_likeness(other, sentence) for other in others)
        pairs = _pair_alike(likeness)
        merged: list[list[int | None]] = []
        for (i, j), (k, m) in pairwise([(-1, -1), *pairs, (len(slots), len(sentences))]):
            merged += [[*slot, None] for slot in slots[i + 1 : k]]
            merged += [[*[None] * number, s] for s in range(j + 1, m)]
            if k < len(slots):
                merged.append([*slots[k], m])
        slots = merged
    return slots


def _pair_alike(likeness: np.ndarray) -> list[tuple[int, int]]:
    """Pairs (row, column), rising in both: the two most alike, then those before and those behind them."""
    if not likeness.size or likeness.max() < ALIKE:
        return []
    row, column = (int(at) for at in np.unravel_index(likeness.argmax(), likeness.shape))
    before, behind = _pair_alike(likeness[:row, :column]), _pair_alike(likeness[row + 1 :, column + 1 :])
    return [*before, (row, column), *((row + 1 + i, column + 1 + j) for i, j in behind)]


COLUMNS = [
    "dataset", "qid", "question", "method", "right", "cause", "answer", "gold", "em", "f1", "retrievals", "tokens",
]  # fmt: skip


def question_table(runs: Runs) -> pd.DataFrame:
    """A row for each question and method: outcome, cause of a wrong answer, what it took."""
    rows = runs.questions
    right = rows["right"].map({True: "✓", False: "✗"}).fillna("")
    return rows.assign(right=right, cause=rows["cause"].fillna(""))[COLUMNS]


def describe_answers(runs: Runs, dataset: str, qid: str, names: Sequence[str]) -> str:
    """The answers of methods to one question side by side, with why they are wrong and where they first part."""
    lines, traces = [], {}
    for name in names:
        record, line = runs.record(qid, name, dataset)
        cause = runs.cause(qid, name, dataset)
        lines.append(f"<b>{esc(name)}</b>: {esc(line['answer'])}" + (f" – {esc(cause.why)}" if cause else ""))
        if (kept := runs.kept_trace(record, qid)) is not None:
            traces[name] = kept
    head = "<br>".join(lines) + ("" if len(traces) == len(names) else "<br>A run kept no trace of it.")
    html = f'<div class="dl-out mathjax_ignore"><style>{load_stylesheet()}</style><p>{head}</p></div>'
    if len(traces) > 1:
        first, second = list(traces.values())[:2]
        html += compare([first, second], labels=list(traces)[:2]).html
        written = [line for line in first.diff(second).splitlines() if line.startswith(("steps", "text", "answer"))]
        differs = clip(next(iter(written), "nothing that was written"), 300)[0]
        html += f'<p class="mathjax_ignore">First difference: {esc(differs)}</p>'
    return html + "".join(show_or_explain(trace._repr_html_, "the trace") for trace in traces.values())


def browse_page(runs: Runs | str | Path | Iterable[str | Path], path: str | Path) -> Path:
    """Write runs as a page that opens offline: means, causes, and every question in a table to sort and search.

    Returns its path. Raises ``MissingPackageError`` without itables; otherwise as ``Runs.load`` and ``views.page``.
    """
    loaded = runs if isinstance(runs, Runs) else Runs.load(runs)
    try:
        from IPython.display import HTML
        from itables import options, to_html_datatable
        from itables.javascript import generate_init_offline_itables_html
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "a page of runs needs itables, which is not installed; run pip install 'dragin-lab[notebooks]'"
        ) from error
    rows = question_table(loaded)
    table = to_html_datatable(rows, connected=False, maxBytes=0, showIndex=False, column_filters="header")
    page = f'<div style="overflow-x:auto">{generate_init_offline_itables_html(options.dt_bundle)}{table}</div>'
    title = f"{', '.join(loaded.names)} on {', '.join(loaded.datasets)}"
    return write_page(path, loaded.table(), loaded.causes, HTML(page), loaded.plot(), title=title)
