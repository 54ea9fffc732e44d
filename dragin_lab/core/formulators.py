"""Query formulators: what to search for in a ``Gap``. Those of DRAGIN's Tables 1 and 6, and
``@dl.what`` for more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dragin_lab.checks import shown
from dragin_lab.core.episode import Tokenizer
from dragin_lab.core.scores import doubts, pool_words
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.settings import MethodPart, Registry, setting
from dragin_lab.errors import SettingError
from dragin_lab.trace.draft import Span, Word, character_words, find_tokens
from dragin_lab.trace.trace import Draft, Prompt, Query

#: A custom query may have so many characters.
LONGEST_QUERY = 10_000
DEFAULT_TOP_N = 25


@dataclass(frozen=True, eq=False)
class Gap:
    """Where a draft lacks information, and what stands around it. w words and m tokens in the
    sentence.

    A method that searches by the clock has no hits: the last word stands in for them, and ``note``
    says so.
    """

    question: str
    answer: str  # the answer so far, with what is kept of the draft
    draft: Draft = field(repr=False)  # what was written
    prompt: Prompt = field(repr=False)  # what it was written after
    pipeline: Pipeline = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    token: int  # t_i, the token that fired
    cut: int  # character of the draft's text where the word of t_i begins
    span: Span  # the sentence's characters in the draft's text
    hit_spans: tuple[Span, ...]  # the flagged words' characters in the draft's text
    term: str = ""  # what the model itself asked for, where it did
    # how many tokens a method that searches by the clock writes between searches
    chunk_tokens: int | None = None
    note: str = ""  # what stands in for hits, where the trigger gives none

    @property
    def context(self) -> str:
        """Question and answer so far."""
        space = "" if self.answer.startswith(" ") else " "
        return self.question + space + self.answer

    @property
    def sentence(self) -> str:
        """The sentence that lacks information, as far as it was written."""
        return self.draft.text[slice(*self.span)]

    @cached_property
    def inside(self) -> np.ndarray:
        """(m,) int, the places of the sentence's tokens in the draft."""
        return find_tokens(self.draft.offsets, *self.span)

    @cached_property
    def offsets(self) -> np.ndarray:
        """(m, 2) int, the characters of these tokens that are the sentence's, in the draft's
        text.
        """
        return np.clip(self.draft.offsets[self.inside], *self.span)

    @cached_property
    def _words(self) -> list[Word]:
        return character_words(self.draft.text, self.offsets)

    @property
    def words(self) -> tuple[str, ...]:
        """w texts."""
        return tuple(word.text for word in self._words)

    @property
    def hits(self) -> np.ndarray:
        """(w,) bool, the words that were flagged."""
        starts = self.offsets[[word.start for word in self._words], 0]  # (w,)
        stops = self.offsets[[word.stop - 1 for word in self._words], 1]  # (w,)
        hits = np.zeros(len(starts), bool)
        for begin, end in self.hit_spans:
            hits |= (starts < end) & (begin < stops)
        return hits

    @property
    def tokens(self) -> tuple[str, ...]:
        """m texts."""
        return tuple(self.draft.tokens[i] for i in self.inside)

    @property
    def paid(self) -> np.ndarray:
        """(p + n,) float32, what t_i pays to the prompt and the draft, the mean over the heads."""
        assert self.draft.rows is not None
        return self.draft.rows[:, self.token + 1].astype(np.float32).mean(axis=0)

    @property
    def doubt(self) -> np.ndarray:
        """(m,) float64, 1 - p of each token."""
        return doubts(self.draft.logprob[self.inside])


@dataclass(frozen=True)
class Formulator(MethodPart):
    """What to search for. A subclass gives ``text``; ``@dl.what`` makes one. Override ``query``
    for more.
    """

    # what the trigger must give: written "text", or a "call"
    needs = frozenset({"text"})
    reads_attention = False  # whether the attention rows of a draft are kept for it
    reads_hits = False  # whether its query depends on which words were flagged

    def text(self, gap: Gap) -> str:
        """The query for a gap, as a text."""
        return self._call_function(gap)

    def query(self, gap: Gap) -> Query:
        """The query for a gap."""
        text = self.text(gap)
        text = text.strip() if isinstance(text, str) else text
        return Query(text, text, note=gap.note if self.reads_hits else "")


def formulate(formulator: Formulator, gap: Gap) -> Query:
    """The query of a formulator for a gap; what your own gives is checked.

    Raises ``SettingError`` where it fails, or gives no text, an empty one or one longer than
    ``LONGEST_QUERY``.
    """
    if formulator.built_in:
        return formulator.query(gap)
    who = f"query formulator {formulator.name!r}"
    try:
        query = formulator.query(gap)
    except MemoryError:
        raise
    except Exception as error:
        raise SettingError(
            f"{who} failed at {gap.sentence[:60]!r}: {type(error).__name__}: {error}"
        ) from error
    text = getattr(query, "text", query)
    if not isinstance(query, Query) or not isinstance(text, str) or not text.strip():
        raise SettingError(
            f"{who} returned {shown(text)} at {gap.sentence[:60]!r}; return a text to search for"
        )
    if len(text) > LONGEST_QUERY:
        raise SettingError(
            f"{who} returned {len(text):,} characters; cut its query to {LONGEST_QUERY:,}"
        )
    return query


FORMULATORS: Registry[Formulator] = Registry("what", Formulator)


def what(name: str, *, source: str = "") -> Callable[[Callable[..., str]], type[Formulator]]:
    """Make a query formulator from a function of a ``Gap``, and enter it under ``name``.

    The function gives the query, a text that is not empty. Its further parameters, each with a
    default, become settings. Raises ``SettingError`` for a built-in name and for a parameter
    without a default.
    """
    return FORMULATORS.define(name, source=source)


@FORMULATORS.define("question", source="DRAGIN Table 1 (SR-RAG)", needs=frozenset())
def question(gap: Gap) -> str:
    """The question."""
    return gap.question


@FORMULATORS.define("last-sentence", source="DRAGIN Table 6")
def last_sentence(gap: Gap) -> str:
    """The sentence written last."""
    return (gap.pipeline.split(gap.answer) or [gap.question])[-1]


@FORMULATORS.define("full-context", source="DRAGIN Table 6")
def full_context(gap: Gap) -> str:
    """Question and answer so far."""
    return gap.context


@FORMULATORS.define("current", source="DRAGIN Table 6")
def current(gap: Gap) -> str:
    """The sentence that lacks information, as far as it was written."""
    return gap.sentence


@FORMULATORS.define(
    "current-without-hits",
    source="DRAGIN's released code (reference-behaviour §3)",
    reads_hits=True,
)
def current_without_hits(gap: Gap) -> str:
    """The same sentence without the words that were flagged."""
    text = gap.sentence
    start = gap.span[0]
    for a, b in reversed(gap.hit_spans):
        text = text[: max(a - start, 0)] + " " + text[b - start :]
    return " ".join(text.split())


@FORMULATORS.define("term", source="FLARE Prompts D.2, D.3", needs=frozenset({"text", "call"}))
def term(gap: Gap) -> str:
    """What the model itself asked for."""
    return gap.term


@FORMULATORS.add
@dataclass(frozen=True)
class LastN(Formulator):
    """The last n tokens of question and answer."""

    name = "last-n"
    source = "DRAGIN Table 6 (Last 25 Tokens)"
    #: None: as many as the clock writes between searches, else 25.
    top_n: int | None = setting(None, kind=int, label="tokens in the query", unit="tokens")

    def text(self, gap: Gap) -> str:
        n = self.top_n or gap.chunk_tokens or DEFAULT_TOP_N
        ids = gap.tokenizer.encode(f"{gap.question} {gap.answer.strip()}", special=False)
        return gap.tokenizer.decode(ids[-n:], special=False)


@FORMULATORS.add
@dataclass(frozen=True)
class ConfidentSentence(Formulator):
    """The sentence without the words that hold an improbable token, and without improbable marks
    (FLARE).
    """

    name = "confident-sentence"
    source = "FLARE §3.2 (implicit queries by masking)"
    # 1 - β
    doubt_limit: float = setting(
        0.6, label="1 − probability above which a token is left out", top=1.0
    )

    def text(self, gap: Gap) -> str:
        spans = gap.offsets - gap.span[0]  # (m, 2)
        probability = np.exp(gap.draft.logprob[gap.inside])  # (m,)
        return keep_confident(gap.sentence, spans, probability, 1 - self.doubt_limit)


@FORMULATORS.add
@dataclass(frozen=True)
class Qfs(Formulator):
    """QFS: the words of question and answer that t_i attends to most, in text order (DRAGIN
    §3.2).
    """

    name = "qfs"
    source = "DRAGIN §3.2"
    reads_attention = True
    top_n: int = setting(DEFAULT_TOP_N, label="words in the query", unit="words")

    def query(self, gap: Gap) -> Query:
        groups = list(_attended_words(gap))
        texts = [word.text for group in groups for word in group.words]
        # The paper ranks tokens and then takes their words, so a word stands where its best token
        # stands.
        pooled = [pool_words(group.paid, group.words, "max") for group in groups]
        weights = np.concatenate(pooled).astype(np.float32)  # (w,)
        eligible = np.array(texts, bool)  # (w,) those with a text
        chosen = choose_top(weights, self.top_n, eligible)  # (w,)
        return Query.of(texts, weights, chosen, gap.note)


class _Attended(NamedTuple):
    """The words of a text, and what is paid to each of its tokens (n,)."""

    words: list[Word]
    paid: np.ndarray


def _attended_words(gap: Gap) -> Iterator[_Attended]:
    """The question, the answer in the prompt, and the draft before t_i."""
    written = gap.draft
    prompt = gap.prompt
    offsets = written.prompt_offsets
    in_prompt, in_draft = np.split(gap.paid, [len(offsets)])  # (p,), (n,)
    for name in ("question", "answer"):
        start, stop = prompt.spans.get(name, (0, 0))
        inside = find_tokens(offsets, start, stop)
        spans = offsets[inside].clip(start, stop)
        yield _weigh_words(prompt.text, spans, in_prompt[inside])
    before = np.flatnonzero(written.offsets[: gap.token, 0] < gap.cut)
    spans = written.offsets[before]
    yield _weigh_words(written.text, spans, in_draft[before])


def _weigh_words(text: str, offsets: np.ndarray, paid: np.ndarray) -> _Attended:
    """The words of tokens; a line break is no part of the word after it."""
    tokens = [text[start:stop] for start, stop in offsets.tolist()]
    breaks = [token.isspace() and "\n" in token for token in tokens]
    return _Attended(character_words(text, offsets), np.where(breaks, 0.0, paid))


# -- what queries are made of (w words, n tokens) --------------------------------------------------


def choose_top(weights: np.ndarray, top_n: int, eligible: np.ndarray | None = None) -> np.ndarray:
    """Steps (2) and (3) of §3.2: the top n by weight, ties to the earlier one, as a mask in text
    order; (w,) bool.

    NaN weights rank as equal, so text order decides (what the released code's sort leaves when
    nothing is flagged).
    """
    candidates = np.arange(len(weights)) if eligible is None else np.flatnonzero(eligible)
    order = np.argsort(-np.nan_to_num(weights[candidates]), kind="stable")
    mask = np.zeros(len(weights), bool)  # (w,)
    mask[candidates[order[:top_n]]] = True
    return mask


def keep_confident(text: str, offsets: np.ndarray, probability: np.ndarray, floor: float) -> str:
    """A text without the words that hold a token of a probability below β (FLARE, implicit query
    formulation).

    An improbable mark is left out alone, without the rest of its word. ``offsets`` is (n, 2) in
    ``text``, ``probability`` (n,); white space is folded to single spaces.
    """
    kept = list(text)  # characters
    for word in character_words(text, offsets):
        tokens = range(word.start, word.stop)
        for token in tokens:
            if probability[token] < floor:
                start, stop = offsets[token]
                if any(map(str.isalnum, text[start:stop])):
                    start = offsets[tokens[0]][0]
                    stop = offsets[tokens[-1]][1]
                kept[start:stop] = " " * (stop - start)
    return " ".join("".join(kept).split())
