"""Needed, asked, found, used: what each retrieval of a trace was good for, as tables, figure and
page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from html import unescape
from typing import Any

import numpy as np
import pandas as pd

from dragin_lab.core.answers import normalize_answer
from dragin_lab.drawn import Drawn
from dragin_lab.errors import SettingError
from dragin_lab.text import fold_letters
from dragin_lab.trace.draft import WORD, Draft
from dragin_lab.trace.kept import cut_off, sentence_end
from dragin_lab.trace.records import AttributedText
from dragin_lab.trace.trace import Passage, Step, Trace

# the bounds of the marks: a probability, and nats
SURE = 0.5
LEAST = 1.0
Row = dict[str, Any]
Place = tuple[int, int]  # of a passage: the position of the step that found it, its rank from 0
#: The columns of ``Attribution.retrievals``.
RETRIEVALS = {
    "step": "int64",
    "query": "string",
    "found": "boolean",
    "holds gold": "boolean",
    "used": "boolean",
    "which": "Int64",
    "words": "int64",
    "nats": "float64",
    "thrown away": "string",
    "came instead": "string",
    "lost": "boolean",
    "effect": "float64",
}
#: The columns of ``Attribution.words``.
WORDS = {
    "step": "Int64",
    "source": "string",
    "start": "int64",
    "stop": "int64",
    "word": "string",
    "mark": "string",
    "passage": "Int64",
    "retrieval": "Int64",
    "nats": "float64",
    "sure": "bool",
    "stands": "boolean",
    "also": "string",
    "use": "bool",
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


def mark_tokens(text: AttributedText, same: np.ndarray, sure: float, least: float) -> np.ndarray:
    """Of each token the place in view of the passage that it is from, from 1; 0 a guess, -1 sure
    without any; (n,) int.

    ``same`` (k, k) says which passages are of equal text: what such have given together counts for
    the first of them.
    """
    gain = text.with_all - text.without  # (n,)
    most = (text.nats @ same).argmax(1) + 1 if same.size else np.zeros(len(gain), int)  # (n,)
    return np.where(np.exp(text.without) >= sure, -1, np.where(gain >= least, most, 0))


class Attribution:
    """What each retrieval of a trace was good for, as ``lab.attribute(trace)`` measured it and the
    trace keeps it.

    A token is **sure** where the model gives it at least ``sure`` without any passage, right or
    wrong; it is from **passage i** where passages give it at least ``least`` nats and i gives the
    most; else it is a **guess**. A word takes the mark of its token with the largest gain. What the
    model may have needed a passage to be sure of counts as the passage's, though it might have
    known it: 1/2 and 1 nat are choices. A retrieval is **used** where a word of content is from one
    of its passages and is either sure with it or stands in it.

    A passage has one number through the whole answer, whichever retrievals brought it: passages
    are counted as they were found for the first time.

    Args:
        trace: an attributed one; it may be saved and loaded.
        gold: titles or ids of the passages that hold what the question needs; None: those that
            were recorded with the attribution.

    Raises ``SettingError`` for a trace that was not attributed, or that was changed since.
    """

    def __init__(self, trace: Trace, gold: Iterable[str] | None = None) -> None:
        if trace.attributed is None:
            raise SettingError(
                "this trace is not attributed; lab.attribute(trace) does it, with the model's lab"
            )
        if trace.attributed.trace != trace.fingerprint:
            raise SettingError(
                "the trace was changed since it was attributed; call lab.attribute(trace) again"
            )
        self.trace = trace
        self.record = trace.attributed
        self.gold = frozenset(map(plain_title, self.record.gold if gold is None else gold))

    @cached_property
    def numbers(self) -> dict[Place, int]:
        """The number of each passage, from 1, by where it was found; of equal title and text, one
        number.
        """
        first: dict[tuple[str, str], int] = {}
        numbers: dict[Place, int] = {}
        for step in self.trace.steps:
            for rank, passage in enumerate(step.passages):
                content = (passage.title, passage.text)
                numbers[step.index, rank] = first.setdefault(content, len(first) + 1)
        return numbers

    @cached_property
    def by_number(self) -> dict[int, Passage]:
        """Each passage by its number."""
        return {number: passage_at(self.trace, place) for place, number in self.numbers.items()}

    @cached_property
    def shades(self) -> dict[int, int]:
        """Which colour each passage has that gave a word, from 0 in the order of the answer."""
        numbers = self.words["passage"].dropna().unique()
        return {int(number): shade for shade, number in enumerate(numbers)}

    def texts(self) -> Iterator[tuple[AttributedText, Draft, np.ndarray]]:
        """Each text with its draft and the marks of its n tokens."""
        for text in self.record.texts:
            draft: Any = self.trace.extraction
            if text.step is not None:
                draft = getattr(self.trace.steps[text.step], text.source)
            shown = [passage_at(self.trace, place).text for place in text.passages]
            texts = np.array(shown, object)  # (k,)
            same = texts[:, None] == texts
            marks = mark_tokens(text, same, self.record.sure, self.record.least)
            yield text, draft, marks

    @cached_property
    def tokens(self) -> pd.DataFrame:
        """One row a token of the answer's texts (pandas.DataFrame).

        ``step`` (missing for the extraction), ``source``, ``index`` in the text and ``word`` (from
        0), ``text``; ``p_with`` and ``p_without`` (probabilities with all passages in view and with
        none), ``mark`` ("sure", "passage", "guess"), ``passage`` (its number) and ``retrieval``
        (the step that found it); then for each number what that passage gave (``passage 1`` …,
        nats) and the attention that it was paid (``attention 1`` …), missing where it was not in
        view.
        """
        parts = []
        seen = set[int]()
        for text, draft, marks in self.texts():
            frame = self._name_marks(text, marks).assign(
                index=range(len(marks)),
                word=draft.word_of_token[: len(marks)],
                text=list(draft.tokens[: len(marks)]),
                p_with=np.exp(text.with_all),
                p_without=np.exp(text.without),
            )
            numbers = [self.numbers[place] for place in text.passages]
            for name, values in (("passage", text.nats), ("attention", text.attention)):
                frame = frame.join(_sum_by_number(name, values, numbers))
            parts.append(frame)
            seen.update(numbers)
        order = [*_TOKEN]
        for name in ("passage", "attention"):
            order += [f"{name} {number}" for number in sorted(seen)]
        tokens = pd.concat(parts or [pd.DataFrame()], ignore_index=True)
        return tokens.reindex(columns=order)

    @cached_property
    def words(self) -> pd.DataFrame:
        """One row a word: step, source, ``start`` and ``stop`` (characters of its text), word,
        mark, passage …

        ``nats`` is what all passages gave to the token that marks it, ``sure`` whether that token
        was likely with them; ``stands`` whether the word stands in the passage named, ``also`` the
        numbers of the others in view in which it stands, for a word of content; ``use`` whether it
        makes its retrieval a used one.
        """
        rows = [
            row
            for text, draft, marks in self.texts()
            for row in self._list_words(text, draft, marks)
        ]
        return pd.DataFrame(rows, columns=list(WORDS)).astype(WORDS)

    def _list_words(self, text: AttributedText, draft: Draft, marks: np.ndarray) -> Iterator[Row]:
        """The words of a text of n tokens, as rows."""
        gain = text.with_all - text.without  # (n,)
        for word in draft.word_list:
            if not word.text or word.start >= len(marks):
                continue
            last = min(word.stop, len(marks))
            best = word.start + int(gain[word.start : last].argmax())
            start = int(draft.offsets[word.start, 0])
            stop = int(draft.offsets[last - 1, 1])
            row = {
                "step": None if text.step is None else text.step + 1,
                "source": text.source,
                "start": start,
                "stop": stop,
                "word": draft.text[start:stop].strip(),
                "mark": name_mark(marks[best]),
                "nats": gain[best],
                "sure": np.exp(text.with_all[best]) >= self.record.sure,
                "also": "",
                "use": False,
            }
            if marks[best] > 0:
                row |= self._name_source(text, text.passages[marks[best] - 1], row)
            yield row

    def _name_source(self, text: AttributedText, place: Place, row: Row) -> Row:
        """Which passage a word is from, and in which of those in view it stands."""
        number = self.numbers[place]
        word = row["word"]
        holding = set[int]()
        for seen in text.passages:
            if stands_in(word, passage_at(self.trace, seen)):
                holding.add(self.numbers[seen])
        content = is_content(word, str(self.trace.method.get("pipeline", "")))
        others = sorted(holding - {number}) if content else []
        return {
            "passage": number,
            "retrieval": place[0] + 1,
            "stands": number in holding,
            "also": ", ".join(map(str, others)),
            "use": content and bool(row["sure"] or number in holding),
        }

    def _name_marks(self, text: AttributedText, marks: np.ndarray) -> pd.DataFrame:
        """Marks as columns; ``retrieval`` is the number of a step."""
        places = [text.passages[mark - 1] if mark > 0 else None for mark in marks]
        columns = {
            "mark": [name_mark(mark) for mark in marks],
            "passage": [None if place is None else self.numbers[place] for place in places],
            "retrieval": [None if place is None else place[0] + 1 for place in places],
        }
        step = None if text.step is None else text.step + 1
        frame = pd.DataFrame(columns).assign(step=step, source=text.source)
        return frame.astype({"step": "Int64", "passage": "Int64", "retrieval": "Int64"})

    @cached_property
    def passages(self) -> pd.DataFrame:
        """One row a passage of a retrieval: retrieval, number, rank, id, title, text, words, nats.

        ``in view`` says whether it stood in the prompt of a text that was kept; ``words`` are those
        that it gave, ``same as`` the number of an earlier one of equal text in view, with which it
        shares.
        """
        rows = self._list_passages()
        for text in self.record.texts:
            first: dict[str, int] = {}  # the number of the first passage of a text in view
            for place, nats in zip(text.passages, text.nats.sum(0), strict=True):
                row = rows[place[0], self.numbers[place]]
                row["nats"] += float(nats)
                row["in view"] = True
                number = first.setdefault(row["text"], row["number"])
                row["same as"] = None if number == row["number"] else number
        marked = self.words[self.words["mark"] == "passage"]
        for (retrieval, number), words in marked.groupby(["retrieval", "passage"])["word"]:
            rows[retrieval - 1, number]["words"] = " ".join(words)
        order = ["retrieval", "number", "rank", "id", "title", "text", "words", "nats", "in view"]
        frame = pd.DataFrame(list(rows.values()), columns=[*order, "same as"])
        return frame.astype({"same as": "Int64", "in view": "bool"})

    def _list_passages(self) -> dict[Place, Row]:
        """A row for each passage of a retrieval, by the step's position and the number."""
        rows: dict[Place, Row] = {}
        for place, number in self.numbers.items():
            passage = passage_at(self.trace, place)
            row = {
                "retrieval": place[0] + 1,
                "number": number,
                "rank": place[1] + 1,
                "id": passage.id,
                "title": passage.title,
                "text": passage.text,
                "words": "",
                "nats": 0.0,
                "in view": False,
            }
            rows.setdefault((place[0], number), row)
        return rows

    @cached_property
    def retrievals(self) -> pd.DataFrame:
        """One row a retrieval: step, query, ``found``, ``used``, ``which`` passage, words and nats
        that it gave …

        ``found``: a labelled passage (``gold``) among the hits, missing where none is labelled;
        ``holds gold``: a gold answer stands in one of them, missing where there is none to look
        for. ``which`` gave the most to the words that make it used, which ``words`` counts, or else
        to any. ``thrown away`` and ``came instead`` are the
        texts before and after it; ``lost`` says that the first held a gold answer and the second
        does not. ``effect`` is the F1 minus what it would be had this retrieval found nothing,
        where that was asked.
        """
        effects = dict(self.record.effects)
        rows = []
        golds = list(filter(None, self.trace.question.golds))
        for step in self.trace.steps:
            if step.query is None:
                continue
            number = step.index + 1
            passages = self.passages[self.passages["retrieval"] == number]
            words = self.words[self.words["retrieval"] == number]
            used = words[words["use"]]
            most = (used if len(used) else words).groupby("passage")["nats"].sum()
            before, after = find_replaced(self.trace, step)
            lost = any_holds([before], golds) and not any_holds([after], golds)
            rows.append(
                {
                    "step": number,
                    "query": step.query.sent,
                    "found": self._found_label(step.passages),
                    "holds gold": self._holds_gold(step.passages),
                    "used": len(used) > 0,
                    "which": most.idxmax() if len(most) else None,
                    "words": len(used),
                    "nats": passages["nats"].sum(),
                    "thrown away": before,
                    "came instead": after,
                    "lost": lost if golds and before else None,
                    "effect": effects.get(step.index),
                }
            )
        return pd.DataFrame(rows, columns=list(RETRIEVALS)).astype(RETRIEVALS)

    def _found_label(self, hits: Sequence[Passage]) -> bool | None:
        if not self.gold:
            return None
        return any({plain_title(hit.title), plain_title(hit.id)} & self.gold for hit in hits)

    def _holds_gold(self, hits: Sequence[Passage]) -> bool | None:
        golds = []
        for gold in self.trace.question.golds:
            if normalize_answer(gold) not in ("", "yes", "no"):
                golds.append(gold)
        return any_holds([hit.text for hit in hits], golds) if golds else None

    # What each passage gave to each word, in nats; one retrieval from look to word; the page.
    plot = Drawn()
    flow = Drawn()
    _repr_html_ = Drawn()

    def __repr__(self) -> str:
        marks = self.words["mark"].value_counts()
        used = int(self.retrievals["used"].sum())
        counted = ", ".join(f"{marks.get(name, 0)} {name}" for name in ("sure", "passage", "guess"))
        return f"Attribution({used} of {len(self.retrievals)} retrievals used; words: {counted})"


def name_mark(mark: int) -> str:
    """The mark of a token in words."""
    if mark > 0:
        return "passage"
    return "sure" if mark < 0 else "guess"


def _sum_by_number(name: str, values: np.ndarray, numbers: Sequence[int]) -> pd.DataFrame:
    """(n, k) values of passages in view as a column a number; one that is in view twice has the
    sum.
    """
    frame = pd.DataFrame(values, columns=[f"{name} {number}" for number in numbers])
    return frame.T.groupby(level=0).sum(min_count=1).T


# -- words and the passages in which they stand ----------------------------------------------------


def plain_words(text: str) -> str:
    """The words of a text in small letters, without marks and possessives, with a space around
    each.
    """
    folded = re.sub("['’]s\\b", "", fold_letters(text).casefold())
    pieces = []
    for word in WORD.findall(folded):
        pieces += re.findall(r"\w+", word)
    return f" {' '.join(pieces)} "


_plain_passage = cache(plain_words)


def stands_in(word: str, passage: Passage) -> bool:
    """Whether a word stands in a passage's title or text, whatever its case and the marks around
    it.
    """
    plain = plain_words(word)
    if not plain.strip():  # marks alone
        return word in passage.text
    return plain in _plain_passage(f"{passage.title}\n{passage.text}")


@cache
def _defaults_of(pipeline: str) -> Any:
    """spaCy's defaults of the language with which a pipeline's name begins; English without."""
    from spacy.util import get_lang_class

    code = re.match("[a-z]{2,3}(?=_)", pipeline)
    return get_lang_class(code[0] if code else "en").Defaults


def is_content(word: str, pipeline: str = "") -> bool:
    """Whether a word says something by itself: numbers do, and names that are written as stop
    words, "US" and "May".
    """
    from spacy.attrs import LIKE_NUM

    defaults = _defaults_of(pipeline)
    is_number = defaults.lex_attr_getters.get(LIKE_NUM, str.isdigit)  # German's has none
    for piece in re.findall(r"\w+", re.sub(r"(n['’]t|['’]\w{1,2})$", "", word.strip(".,;:!?"))):
        named = piece == "May" or (len(piece) > 1 and piece.isupper())
        if named or is_number(piece) or piece.lower() not in defaults.stop_words:
            return True
    return False


# -- what else is asked of an attributed trace -----------------------------------------------------


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


def any_holds(texts: Sequence[str], values: Sequence[str]) -> bool:
    """Whether some value stands in some text."""
    return any(holds_value(text, value) for text in texts for value in values)


def passage_at(trace: Trace, place: Place) -> Passage:
    """The passage of a (step, rank)."""
    return trace.steps[place[0]].passages[place[1]]


def plain_title(title: str) -> str:
    """A title in small letters (IIRC's are), without HTML's entities (HotpotQA's have some) and the
    quotation marks that other dumps write.
    """
    return re.sub('["“”„‟«»]', "", fold_letters(unescape(title))).strip().casefold()
