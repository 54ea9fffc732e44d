"""Traces of one question side by side, what differs marked; and the answers of runs to one
question.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from operator import itemgetter
from pathlib import Path

import numpy as np
import pandas as pd

from dragin_lab.catalog.exchanged import label_of
from dragin_lab.checks import several
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.drawn import draws
from dragin_lab.errors import SettingError
from dragin_lab.results.differing import Difference
from dragin_lab.results.runs import Runs
from dragin_lab.text import printable
from dragin_lab.trace.kept import cut_off, list_arrivals, list_kept_parts
from dragin_lab.trace.trace import Step, Trace
from dragin_lab.views.facts import clip, plural
from dragin_lab.views.pages import Page, open_trace, render, styled

MAX_TRACES = 16
MAX_SENTENCES = 40
WRITTEN = re.compile(r"\S+")
ALIKE = 0.15  # sentences less alike than this do not stand in one slot


@dataclass
class Sentence:
    """A sentence of a trace's answer, and the retrievals that came in within it or since the one
    before it.
    """

    text: str
    # where each word begins, and whether it was written with passages in view
    words: list[tuple[int, str, bool]]
    came: list[tuple[int, Step]]  # where passages came in, and the step that fetched them

    @cached_property
    def trigrams(self) -> Counter[str]:
        """Its character trigrams, case aside: those of languages that set no spaces too."""
        text = f" {' '.join(self.text.casefold().split())} "
        return Counter(text[place : place + 3] for place in range(len(text) - 2))

    def likeness(self, other: Sentence) -> float:
        """Dice's coefficient of both sentences' trigrams."""
        both = self.trigrams & other.trigrams
        all = self.trigrams + other.trigrams
        return 2 * both.total() / all.total()

    def pieces(self, base: Sentence | None) -> list[tuple[int, str, bool, bool]]:
        """The sentence in order: (step, "", …) or (0, word, whether ``base`` lacks it, whether
        with passages).
        """
        new = [base is not None] * len(self.words)
        if base is not None:
            words = [word for _, word, _ in self.words]
            matcher = SequenceMatcher(None, base.text.split(), words, autojunk=False)
            for match in matcher.get_matching_blocks():
                stop = match.b + match.size
                new[match.b : stop] = [False] * match.size
        pieces = []
        for place, step in self.came:
            pieces.append((place, (step.index + 1, "", False, False)))
        for (place, word, fresh), is_new in zip(self.words, new, strict=True):
            pieces.append((place, (0, word, is_new, fresh)))
        pieces.sort(key=itemgetter(0))
        return [piece for _, piece in pieces]


def compare(
    traces: Iterable[Trace | str | Path] | Trace | str | Path,
    *others: Trace | str | Path,
    labels: Sequence[str] | None = None,
) -> Page:
    """Several traces of one question, sentence under sentence; words that the first one does not
    have are marked.

    Give them as a list, or one after the other. ``labels`` name the traces; without them a trace
    has its method's label, with a number where several share it. Raises ``SettingError`` for no
    trace, more than ``MAX_TRACES``, traces of different questions, or other than one label each;
    ``TraceFileError`` for a path that holds no trace.
    """
    remedy = "give a list of traces or of paths"
    given = several("traces", traces, Trace | str | Path, remedy, alone=True)
    opened = [open_trace(trace) for trace in (*given, *others)]
    if not 1 <= len(opened) <= MAX_TRACES:
        raise SettingError(
            f"{len(opened)} traces cannot be compared; give 1 to {MAX_TRACES} of one question"
        )
    questions = list(dict.fromkeys(trace.question.text.strip() for trace in opened))
    if len(questions) > 1:
        first, other = (clip(question, 80)[0] for question in questions[:2])
        raise SettingError(
            f"the traces ask different questions, {first!r} and {other!r}; compare traces of one"
        )
    if labels is None:
        labels = number_equal([label_of(trace.method) for trace in opened])
    names = several("labels", labels, str, "give a list of texts")
    if len(names) != len(opened):
        raise SettingError(
            f"{len(names)} labels do not go with {len(opened)} traces; give one each"
        )
    texts = [read_sentences(trace) for trace in opened]
    left_out = []
    for name, sentences in zip(names, texts, strict=True):
        if len(sentences) > MAX_SENTENCES:
            left_out.append(f"{name}: {plural(len(sentences) - MAX_SENTENCES, 'more sentence')}")
    slots = align_sentences([sentences[:MAX_SENTENCES] for sentences in texts])
    inner = render(
        "compare.html",
        columns=list(zip(names, opened, strict=True)),
        slots=slots,
        left_out="; ".join(left_out),
        cut_off=cut_off,
    )
    return Page(questions[0], inner)


@draws(Difference, "compare")
def compare_flipped(difference: Difference, id: str, dataset: str | None = None) -> Page:
    """Both traces of a question side by side (``dl.compare``). Raises ``RunError`` where one was
    not kept.
    """
    if dataset is None:
        rows = difference.table[difference.table["id"] == id]
        datasets = sorted({*rows["dataset"]})
        if len(datasets) != 1:
            what = f"is in the data sets {', '.join(datasets)}; name one"
            if not datasets:
                what = "did not flip"
            raise SettingError(f"question {id!r} {what}; ids are in .table")
        dataset = datasets[0]
    names = [difference.one, difference.other]
    traces = []
    for name in names:
        same = difference.runs.same(id, difference.one, name, dataset)
        traces.append(difference.runs.trace(str(same), name, dataset))
    return compare(traces, labels=names)


def number_equal(names: Sequence[str]) -> list[str]:
    """Names, with ``#1``, ``#2`` … after those that stand there more than once."""
    numbered = []
    for place, name in enumerate(names):
        number = names[: place + 1].count(name)
        numbered.append(f"{name} #{number}" if names.count(name) > 1 else name)
    return numbered


def read_sentences(trace: Trace) -> list[Sentence]:
    """The sentences of a trace's answer; its last one takes all retrievals that came in after
    it.
    """
    # as many characters, none that spaCy refuses
    spans = load_pipeline().spans(printable(trace.text))
    fresh: set[int] = set()  # characters that were written with passages in view
    for origin in list_kept_parts(trace):
        if origin.with_passages:
            fresh |= {*range(origin.start, origin.stop)}
    sentences = []
    for start, stop in spans:
        sentence = Sentence(trace.text[start:stop], [], [])
        for match in WRITTEN.finditer(trace.text, start, stop):
            sentence.words.append((match.start(), match[0], match.start() in fresh))
        sentences.append(sentence)
    stops = [stop for _, stop in spans[:-1]]
    for place, step in list_arrivals(trace) if sentences else ():
        sentences[bisect_right(stops, place)].came.append((place, step))
    return sentences


def align_sentences(texts: Sequence[Sequence[Sentence]]) -> list[list[Sentence | None]]:
    """Slots in reading order; each holds a sentence of every text, None for none.

    The texts are added one after another. Each keeps its order; a sentence joins a slot, so
    the most alike pairs (Dice's coefficient) stand together, or gets a slot of its own.
    """
    slots: list[list[Sentence | None]] = []
    for number, sentences in enumerate(texts):
        merged: list[list[Sentence | None]] = []
        row = column = 0
        pairs = _pair_alike(_compare_all(slots, sentences))
        for next_row, next_column in [*pairs, (len(slots), len(sentences))]:
            for slot in slots[row:next_row]:
                merged.append([*slot, None])
            for new in sentences[column:next_column]:
                merged.append([None] * number + [new])
            if next_row < len(slots):
                merged.append([*slots[next_row], sentences[next_column]])
            row = next_row + 1
            column = next_column + 1
        slots = merged
    return slots


def _compare_all(
    slots: Sequence[Sequence[Sentence | None]], sentences: Sequence[Sentence]
) -> np.ndarray:
    """How alike each sentence and the likest one of each slot are, (slots, sentences)."""
    likeness = np.zeros((len(slots), len(sentences)))
    for row, slot in enumerate(slots):
        for column, sentence in enumerate(sentences):
            alike = [sentence.likeness(other) for other in slot if other is not None]
            likeness[row, column] = max(alike)
    return likeness


def _pair_alike(likeness: np.ndarray) -> list[tuple[int, int]]:
    """Pairs (row, column), rising in both: the two most alike, then those before and those
    behind them.
    """
    if not likeness.size or likeness.max() < ALIKE:
        return []
    width = likeness.shape[1]
    row, column = divmod(int(likeness.argmax()), width)
    pairs = _pair_alike(likeness[:row, :column])
    pairs.append((row, column))
    row = row + 1
    column = column + 1
    for i, j in _pair_alike(likeness[row:, column:]):
        pairs.append((row + i, column + j))
    return pairs


COLUMNS = [
    "dataset",
    "id",
    "question",
    "method",
    "right",
    "answer",
    "gold",
    "em",
    "f1",
    "retrievals",
    "tokens",
]


def question_table(runs: Runs) -> pd.DataFrame:
    """A row for each question and method: outcome, and what it took. Causes need the traces:
    ``describe_answers``.
    """
    rows = runs.outcomes
    right = rows["right"].map({True: "✓", False: "✗"}).fillna("")
    return rows.assign(right=right, em=rows["em"].round(3), f1=rows["f1"].round(3))[COLUMNS]


def describe_answers(runs: Runs, answers: Sequence[tuple[str, str, str]]) -> str:
    """Answers to one question, by data set, id and method: why they are wrong, where they first
    part, both traces.
    """
    answered = []
    traces = {}
    for dataset, id, name in answers:
        record, line = runs.record(id, name, dataset)
        answered.append((name, line["answer"], runs.cause(id, name, dataset)))
        trace = runs.kept_trace(record, id)
        if trace is not None:
            traces[name] = trace
    missing = len(traces) < len(answers)
    difference = ""
    compared = ""
    if len(traces) > 1:
        first, second, *_ = traces.values()
        difference = _find_difference(first, second)
        compared = compare(first, second, labels=[*traces][:2]).html
    summary = render("answers.html", answers=answered, missing=missing, difference=difference)
    pages = [trace._repr_html_() for trace in traces.values()]
    return "".join([styled(summary), compared, *pages])


def _find_difference(first: Trace, second: Trace) -> str:
    """The first difference of what two traces wrote."""
    for line in first.diff(second).splitlines():
        if line.startswith(("step", "text", "answer")):
            return clip(line, 300)[0]
    return "nothing that was written"
