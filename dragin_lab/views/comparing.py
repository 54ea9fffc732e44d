"""Traces of one question side by side, what differs marked; and the answers of runs to one
question.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pandas as pd

from dragin_lab.catalog.by_name import label_of
from dragin_lab.checks import several
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.drawn import draws
from dragin_lab.errors import SettingError
from dragin_lab.study.differing import Difference
from dragin_lab.study.runs import Runs
from dragin_lab.text import printable
from dragin_lab.trace.kept import arrivals, cut_off, origins
from dragin_lab.trace.trace import Step, Trace
from dragin_lab.views.facts import clip, count, esc
from dragin_lab.views.pages import Page, open_trace, render, styled

MAX_TRACES = 16
MAX_SENTENCES = 40
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

    def pieces(self, base: Sentence | None) -> list[tuple[int, str, bool, bool]]:
        """The sentence in order: (step, "", …) or (0, word, whether ``base`` lacks it, whether
        with passages).
        """
        old, words = base.text.split() if base else [], [word for _, word, _ in self.words]
        same = {
            i
            for match in SequenceMatcher(None, old, words, autojunk=False).get_matching_blocks()
            for i in range(match.b, match.b + match.size)
        }
        parts: list[tuple[float, int, str, bool, bool]] = [
            (place, 0, word, bool(base) and number not in same, fresh)
            for number, (place, word, fresh) in enumerate(self.words)
        ]
        parts += [(place - 0.5, step.index + 1, "", False, False) for place, step in self.came]
        return [piece for _, *piece in sorted(parts, key=lambda part: part[0])]  # type: ignore[misc]


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
    given = several(
        "traces", traces, Trace | str | Path, "give a list of traces or of paths", alone=True
    )
    opened = [open_trace(one) for one in (*given, *others)]
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
    names = number_equal([label_of(trace.method) for trace in opened])
    if labels is not None and len(
        names := several("labels", labels, str, "give a list of texts")
    ) != len(opened):
        raise SettingError(
            f"{len(names)} labels do not go with {len(opened)} traces; give one each"
        )
    texts = [read_sentences(trace) for trace in opened]
    slots = [
        [None if at is None else text[at] for text, at in zip(texts, slot, strict=True)]
        for slot in align_sentences(
            [[sentence.text for sentence in text[:MAX_SENTENCES]] for text in texts]
        )
    ]
    more = [(name, len(text) - MAX_SENTENCES) for name, text in zip(names, texts, strict=True)]
    left_out = "; ".join(f"{name}: {count(n, 'more sentence')}" for name, n in more if n > 0)
    columns = list(zip(names, opened, strict=True))
    inner = render("compare.html", columns=columns, slots=slots, left_out=left_out, cut_off=cut_off)
    return Page(questions[0], inner)


@draws(Difference, "compare")
def compare_flipped(difference: Difference, id: str, dataset: str | None = None) -> Page:
    """Both traces of a question side by side (``dl.compare``). Raises ``RunError`` where one was
    not kept.
    """
    rows = difference.table[difference.table["id"] == id]
    sets = sorted({*rows["dataset"]}) if dataset is None else [dataset]
    if len(sets) != 1:
        what = f"is in the data sets {', '.join(sets)}; name one" if sets else "did not flip"
        raise SettingError(f"question {id!r} {what}; ids are in .table")
    runs, one, other = difference.runs, difference.one, difference.other
    ids = {one: id, other: str(runs.same(id, one, other, sets[0]))}
    return compare([runs.trace(own, name, sets[0]) for name, own in ids.items()], labels=[*ids])


def number_equal(names: Sequence[str]) -> list[str]:
    """Names, with ``#1``, ``#2`` … after those that stand there more than once."""
    counted = ((name, names[: at + 1].count(name)) for at, name in enumerate(names))
    return [f"{name} #{number}" if names.count(name) > 1 else name for name, number in counted]


def read_sentences(trace: Trace) -> list[Sentence]:
    """The sentences of a trace's answer; its last one takes all retrievals that came in after
    it.
    """
    # as many characters, none that spaCy refuses
    spans = load_pipeline().spans(printable(trace.text))
    fresh = [(origin.start, origin.stop) for origin in origins(trace) if origin.with_passages]
    came, ends = arrivals(trace), [stop for _, stop in spans[:-1]] + [len(trace.text) + 1]
    sentences = []
    for (start, stop), low, high in zip(spans, [-1, *ends], ends, strict=False):
        places = [
            (start + match.start(), match[0])
            for match in re.finditer(r"\S+", trace.text[start:stop])
        ]
        words = [(at, word, any(a <= at < b for a, b in fresh)) for at, word in places]
        sentences.append(
            Sentence(
                trace.text[start:stop], words, [pair for pair in came if low <= pair[0] < high]
            )
        )
    return sentences


def count_trigrams(sentence: str) -> Counter[str]:
    """The character trigrams of a sentence, case aside: those of languages that set no spaces
    too.
    """
    text = f" {' '.join(sentence.casefold().split())} "
    return Counter(text[at : at + 3] for at in range(max(len(text) - 2, 1)))


def align_sentences(texts: Sequence[Sequence[str]]) -> list[list[int | None]]:
    """Slots in reading order; each holds for every text the number of the sentence in it, None for
    none.

    The texts are added one after another. Each keeps its order; a sentence joins a slot, so
    the most alike pairs (Dice's coefficient) stand together, or gets a slot of its own.
    """
    slots: list[list[int | None]] = []
    trigrams = [[count_trigrams(sentence) for sentence in sentences] for sentences in texts]
    for number, sentences in enumerate(trigrams):
        likeness = np.zeros((len(slots), len(sentences)))  # (slots, sentences)
        for (row, slot), (column, sentence) in product(enumerate(slots), enumerate(sentences)):
            others = [trigrams[text][at] for text, at in enumerate(slot) if at is not None]
            likeness[row, column] = max(
                2 * (one & sentence).total() / (one + sentence).total() for one in others
            )
        merged: list[list[int | None]] = []
        for (i, j), (k, m) in pairwise(
            [(-1, -1), *_pair_alike(likeness), (len(slots), len(sentences))]
        ):
            merged += [[*slot, None] for slot in slots[i + 1 : k]]
            merged += [[*[None] * number, s] for s in range(j + 1, m)]
            if k < len(slots):
                merged.append([*slots[k], m])
        slots = merged
    return slots


def _pair_alike(likeness: np.ndarray) -> list[tuple[int, int]]:
    """Pairs (row, column), rising in both: the two most alike, then those before and those
    behind them.
    """
    if not likeness.size or likeness.max() < ALIKE:
        return []
    row, column = (int(at) for at in np.unravel_index(likeness.argmax(), likeness.shape))
    before, behind = (
        _pair_alike(likeness[:row, :column]),
        _pair_alike(likeness[row + 1 :, column + 1 :]),
    )
    return [*before, (row, column), *((row + 1 + i, column + 1 + j) for i, j in behind)]


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
    lines, traces, compared = [], dict[str, Trace](), ""
    for dataset, own, name in answers:
        record, line = runs.record(own, name, dataset)
        cause = runs.cause(own, name, dataset)
        lines.append(
            f"<b>{esc(name)}</b>: {esc(line['answer'])}" + (f" – {esc(cause.why)}" if cause else "")
        )
        if (kept := runs.kept_trace(record, own)) is not None:
            traces[name] = kept
    head = "<br>".join(lines) + (
        "" if len(traces) == len(answers) else "<br>A run kept no trace of it."
    )
    if len(traces) > 1:
        first, second = list(traces.values())[:2]
        written = [
            line
            for line in first.diff(second).splitlines()
            if line.startswith(("step", "text", "answer"))
        ]
        differs = clip(next(iter(written), "nothing that was written"), 300)[0]
        head += f"<br>First difference: {esc(differs)}"
        compared = compare(first, second, labels=list(traces)[:2]).html
    return (
        styled(f"<p>{head}</p>")
        + compared
        + "".join(trace._repr_html_() for trace in traces.values())
    )
