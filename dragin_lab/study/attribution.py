"""Needed, asked, found, used: what each retrieval of a trace was good for, as tables, figure and
page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from html import unescape
from typing import Any

import numpy as np
import pandas as pd

from dragin_lab.core.answers import normalize_answer
from dragin_lab.drawn import Drawn
from dragin_lab.errors import SettingError
from dragin_lab.text import fold_letters
from dragin_lab.trace.draft import Draft
from dragin_lab.trace.kept import cut_off, sentence_end
from dragin_lab.trace.records import AttributedText
from dragin_lab.trace.trace import Passage, Step, Trace

KNOWN, LEAST = 0.5, 1.0  # the bounds of the marks: a probability, and nats
#: The columns of ``Attribution.retrievals``.
RETRIEVALS = {
    "step": "int64",
    "query": "string",
    "found": "boolean",
    "used": "boolean",
    "which": "Int64",
    "words": "int64",
    "nats": "float64",
    "thrown away": "string",
    "came instead": "string",
    "lost": "boolean",
    "effect": "float64",
}
#: The columns of ``Attribution.tokens`` before those of each passage.
_TOKEN = (
    "step",
    "source",
    "index",
    "word",
    "text",
    "p_with",
    "p_without",
    "mark",
    "passage",
    "retrieval",
)


def mark_tokens(text: AttributedText, same: np.ndarray, known: float, least: float) -> np.ndarray:
    """Of each token the number of the passage that it is from, from 1; 0 a guess, -1 known without
    any; (n,) int.

    ``same`` (k, k) says which passages are of equal text: what such have given together counts for
    the first of them.
    """
    gain = text.with_all - text.without  # (n,)
    most = (text.nats @ same).argmax(1) + 1 if same.size else np.zeros(len(gain), int)  # (n,)
    return np.where(np.exp(text.without) >= known, -1, np.where(gain >= least, most, 0))


class Attribution:
    """What each retrieval of a trace was good for, as ``lab.attribute(trace)`` measured it and the
    trace keeps it.

    A token is **known** where the model gives it at least ``known`` without any passage; it is from
    **passage i** where passages give it at least ``least`` nats and i gives the most; else it is a
    **guess**. A passage's number is that of its place in the prompt. A word takes the mark of its
    token with the largest gain. What the model may have needed a passage to be sure of counts as
    the passage's, though it might have known it: 1/2 and 1 nat are choices.

    Args:
        trace: an attributed one; it may be saved and loaded.
        gold: titles or ids of the passages that hold what the question needs, where they are known.

    Raises ``SettingError`` for a trace that was not attributed, or that was changed since.
    """

    def __init__(self, trace: Trace, gold: Iterable[str] = ()) -> None:
        if trace.attributed is None:
            raise SettingError(
                "this trace is not attributed; lab.attribute(trace) does it, with the model's lab"
            )
        if trace.attributed.trace != trace.fingerprint:
            raise SettingError(
                "the trace was changed since it was attributed; call lab.attribute(trace) again"
            )
        self.trace, self.record, self.gold = (
            trace,
            trace.attributed,
            frozenset(map(plain_title, gold)),
        )

    def texts(self) -> Iterator[tuple[AttributedText, Draft, np.ndarray]]:
        """Each text with its draft and the marks of its n tokens."""
        for text in self.record.texts:
            step = None if text.step is None else self.trace.steps[text.step]
            draft: Any = self.trace.extraction if step is None else getattr(step, text.source)
            texts = np.array(
                [passage_at(self.trace, place).text for place in text.passages], object
            )
            yield (
                text,
                draft,
                mark_tokens(text, texts[:, None] == texts, self.record.known, self.record.least),
            )

    @cached_property
    def tokens(self) -> pd.DataFrame:
        """One row a token of the answer's texts (pandas.DataFrame).

        ``step`` (missing for the extraction), ``source``, ``index`` in the text and ``word`` (from
        0), ``text``; ``p_with`` and ``p_without`` (probabilities with all passages in view and with
        none), ``mark`` ("known", "passage", "guess"), ``passage`` (its number) and ``retrieval``
        (the step that found it); then for each number what that passage gave (``passage 1`` …,
        nats) and the attention that it was paid (``attention 1`` …).
        """
        parts = []
        for text, draft, marks in self.texts():
            frame = self._name_marks(text, marks).assign(
                index=range(len(marks)),
                word=draft.word_of_token[: len(marks)],
                text=list(draft.tokens[: len(marks)]),
                p_with=np.exp(text.with_all),
                p_without=np.exp(text.without),
            )
            for name, values in (("passage", text.nats), ("attention", text.attention)):
                columns = [f"{name} {i + 1}" for i in range(values.shape[1])]
                frame = frame.join(pd.DataFrame(values, columns=columns))
            parts.append(frame)
        most = max((len(text.passages) for text in self.record.texts), default=0)
        order = [
            *_TOKEN,
            *(f"{name} {i + 1}" for name in ("passage", "attention") for i in range(most)),
        ]
        return pd.concat(parts or [pd.DataFrame(columns=order)], ignore_index=True).reindex(
            columns=order
        )

    @cached_property
    def words(self) -> pd.DataFrame:
        """One row a word: step, source, ``start`` and ``stop`` (characters of its text), word,
        mark, passage …

        ``nats`` is what all passages gave to the token that marks it, ``sure`` whether that token
        was likely with them.
        """
        parts = []
        for text, draft, marks in self.texts():
            gain = text.with_all - text.without  # (n,)
            spans = [
                (w.start, min(w.stop, len(marks)))
                for w in draft.word_list
                if w.text and w.start < len(marks)
            ]
            best = np.array([a + int(gain[a:b].argmax()) for a, b in spans], int)  # (w,)
            parts.append(
                self._name_marks(text, marks[best]).assign(
                    word=[
                        draft.text[draft.offsets[a, 0] : draft.offsets[b - 1, 1]].strip()
                        for a, b in spans
                    ],
                    start=[int(draft.offsets[a, 0]) for a, _ in spans],
                    stop=[int(draft.offsets[b - 1, 1]) for _, b in spans],
                    nats=gain[best],
                    sure=np.exp(text.with_all[best]) >= self.record.known,
                )
            )
        order = [
            "step",
            "source",
            "start",
            "stop",
            "word",
            "mark",
            "passage",
            "retrieval",
            "nats",
            "sure",
        ]
        return pd.concat(parts or [pd.DataFrame(columns=order)], ignore_index=True)[order]

    def _name_marks(self, text: AttributedText, marks: np.ndarray) -> pd.DataFrame:
        """Marks as columns; ``retrieval`` is the number of a step."""
        found = [None if m < 1 else text.passages[m - 1][0] + 1 for m in marks]
        names = ["known" if m < 0 else "passage" if m else "guess" for m in marks]
        columns = {
            "mark": names,
            "passage": [m if m > 0 else None for m in marks],
            "retrieval": found,
        }
        step = None if text.step is None else text.step + 1
        frame = pd.DataFrame(columns).assign(step=step, source=text.source)
        return frame.astype({"step": "Int64", "passage": "Int64", "retrieval": "Int64"})

    @cached_property
    def passages(self) -> pd.DataFrame:
        """One row a passage that was in view: retrieval, number, rank in its retrieval, id, title,
        words, nats.

        ``words`` are those that it gave, ``same as`` the number of an earlier one of equal text,
        with which it shares.
        """
        rows: dict[tuple[int, int], dict[str, Any]] = {}
        for text in self.record.texts:
            texts = [passage_at(self.trace, place).text for place in text.passages]
            for i, place in enumerate(text.passages):
                row = rows.setdefault(
                    place,
                    {"retrieval": place[0] + 1, "number": i + 1, "rank": place[1] + 1, "nats": 0.0},
                )
                row["nats"] += float(text.nats[:, i].sum())
                row["same as"] = first + 1 if (first := texts.index(texts[i])) < i else None
        used = self.words[self.words["mark"] == "passage"]
        for place, row in rows.items():
            passage = passage_at(self.trace, place)
            mine = used[
                (used["retrieval"] == row["retrieval"]) & (used["passage"] == row["number"])
            ]
            row |= {
                "id": passage.id,
                "title": passage.title,
                "text": passage.text,
                "words": " ".join(mine["word"]),
            }
        order = ["retrieval", "number", "rank", "id", "title", "text", "words", "nats", "same as"]
        return pd.DataFrame(list(rows.values()), columns=order).astype({"same as": "Int64"})

    @cached_property
    def retrievals(self) -> pd.DataFrame:
        """One row a retrieval: step, query, ``found``, ``used``, ``which`` passage, words and nats
        that it gave …

        ``found``: a gold passage or gold answer among the hits, missing where none is known.
        ``thrown away`` and ``came instead`` are the texts before and after it; ``lost`` says that
        the first held a gold answer and the second does not. ``effect`` is the F1 minus what it
        would be had this retrieval found nothing, where that was asked.
        """
        effects, rows = dict(self.record.effects), []
        for step in self.trace.steps:
            if step.query is None:
                continue
            mine = self.passages[self.passages["retrieval"] == step.index + 1]
            used = self.words[
                (self.words["mark"] == "passage") & (self.words["retrieval"] == step.index + 1)
            ]
            which = used.groupby("passage")["nats"].sum().idxmax() if len(used) else None
            before, after = find_replaced(self.trace, step)
            golds = list(filter(None, self.trace.question.golds))
            lost = any(holds_value(before, g) for g in golds) and not any(
                holds_value(after, g) for g in golds
            )
            rows.append(
                {
                    "step": step.index + 1,
                    "query": step.query.sent,
                    "found": self._found(step.passages),
                    "used": len(used) > 0,
                    "which": which,
                    "words": len(used),
                    "nats": mine["nats"].sum(),
                    "thrown away": before,
                    "came instead": after,
                    "lost": lost if golds and before else None,
                    "effect": effects.get(step.index),
                }
            )
        return pd.DataFrame(rows, columns=list(RETRIEVALS)).astype(RETRIEVALS)

    def _found(self, hits: Sequence[Passage]) -> bool | None:
        if self.gold:
            return any({plain_title(hit.title), plain_title(hit.id)} & self.gold for hit in hits)
        golds = [
            gold
            for gold in self.trace.question.golds
            if normalize_answer(gold) not in ("", "yes", "no")
        ]
        return any(holds_value(hit.text, gold) for hit in hits for gold in golds) if golds else None

    # What each passage gave to each word, in nats; the page.
    plot, _repr_html_ = Drawn(), Drawn()

    def __repr__(self) -> str:
        marks, used = self.words["mark"].value_counts(), int(self.retrievals["used"].sum())
        counted = ", ".join(
            f"{marks.get(name, 0)} {name}" for name in ("known", "passage", "guess")
        )
        return f"Attribution({used} of {len(self.retrievals)} retrievals used; words: {counted})"


def find_replaced(trace: Trace, step: Step) -> tuple[str, str]:
    """What a retrieval replaced, and by what; ("", text) where nothing was thrown away.

    A search call that was taken out is not a text that another one has replaced.
    """
    before = cut_off(step)
    if step.continuation is not None:
        after = step.continuation.text[: step.continuation_kept or 0].strip()
        return before if after else "", after
    following = next(iter(trace.steps[step.index + 1 :]), None)
    if following is None or following.draft is None:
        return before, ""
    first = following.words.sentence[0] if len(following.words) else None
    sentence = following.draft.text[: sentence_end(following, first, 0)].strip()
    if before and sentence and trace.method.get("stays") is not False:
        return before, sentence
    return before, following.draft.text[: following.kept_end("draft") or 0].strip()


def is_attributed(trace: Trace) -> bool:
    """Whether a trace is attributed, as it is now."""
    return trace.attributed is not None and trace.attributed.trace == trace.fingerprint


def holds_value(text: str, value: str) -> bool:
    """Whether a value stands in a text as words of its own, in normal form."""
    return bool(inner := normalize_answer(value)) and f" {inner} " in f" {normalize_answer(text)} "


def passage_at(trace: Trace, place: tuple[int, int]) -> Passage:
    """The passage of a (step, rank)."""
    return trace.steps[place[0]].passages[place[1]]


def plain_title(title: str) -> str:
    """A title without HTML's entities (HotpotQA's have some) and the quotation marks that other
    dumps write.
    """
    return re.sub('["“”„‟«»]', "", fold_letters(unescape(title))).strip()
