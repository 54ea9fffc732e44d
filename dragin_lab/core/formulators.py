"""What to retrieve: the query formulators of the DRAGIN paper's Tables 1 and 6, and what makes a custom one.

Each makes a query of the ``Gap`` where information is missing. Where the paper and the released code differ, a
formulator has both, and the place says which variant asks (reference-behaviour §3, §5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dragin_lab.checks import count, number
from dragin_lab.core.episode import Episode, attend
from dragin_lab.core.gap import Gap
from dragin_lab.core.parts import Part, Registry, part_of_function
from dragin_lab.core.queries import (
    confident_text,
    reference_confident_sentence,
    reference_word_attention,
    top_words,
    word_weights,
)
from dragin_lab.core.scores import contains_any
from dragin_lab.core.words import character_words, reference_words
from dragin_lab.errors import SettingError, TriggerError
from dragin_lab.trace.trace import Query

#: A custom query may have so many characters.
LONGEST_QUERY = 10_000
DEFAULT_TOP_N = 25


@dataclass(frozen=True)
class Formulator(Part):
    """What to retrieve. A subclass gives ``text``; ``@dl.what`` makes one. Override ``formulate`` for more."""

    needs: ClassVar[frozenset[str]] = frozenset({"text"})  # what the trigger must give: written "text", or a "call"
    reads_attention: ClassVar[bool] = False  # whether the paper variant keeps a draft's attention rows for it
    reads_hits: ClassVar[bool] = False  # whether its query depends on which words were flagged

    def text(self, place: Gap) -> str:
        """The query for a place."""
        raise SettingError(f"what {self.name!r} defines no text; write one that gives a query for a place")

    def formulate(self, place: Gap) -> Episode[Query]:
        """The query for a place, as an episode: a formulator may ask for an attention map."""
        yield from ()
        text = self.text(place)
        text = text.strip() if place.variant == "paper" else text
        return Query(text, text, note=place.note if self.reads_hits else "")


FORMULATORS: Registry[Formulator] = Registry("what", Formulator, "dragin_lab.whats", ())


def what(name: str, *, source: str = "") -> Callable[[Callable[..., str]], type[Formulator]]:
    """Make a query formulator from a function of a ``Gap``, and enter it under ``name``.

    The function gives the query, a text that is not empty. Its further parameters, each with a default, become
    settings. Raises ``SettingError`` for a name of the package's own and for a parameter without a default.
    """

    def define(function: Callable[..., str]) -> type[Formulator]:
        return FORMULATORS.add(part_of_function(function, Written, name, settings={}, source=source))

    return define


@dataclass(frozen=True)
class Plain(Formulator):
    """A formulator around a function of a place."""

    function = staticmethod(lambda place: place.sentence)
    parameters: ClassVar[tuple[str, ...]] = ()

    def text(self, place: Gap) -> str:
        return self.function(place, **{key: getattr(self, key) for key in self.parameters})


@dataclass(frozen=True)
class Written(Plain):
    """A custom formulator, as ``@dl.what`` makes it; its function's result is checked."""

    def text(self, place: Gap) -> str:
        try:
            found = super().text(place)
        except MemoryError:
            raise
        except Exception as error:
            raise TriggerError(
                f"query formulator {self.name!r} failed at {place.sentence[:60]!r}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(found, str) or not found.strip():
            raise TriggerError(
                f"query formulator {self.name!r} returned {found!r} at {place.sentence[:60]!r}; "
                "return a text to search for"
            )
        if len(found) > LONGEST_QUERY:
            raise TriggerError(
                f"query formulator {self.name!r} returned {len(found):,} characters; cut its query to {LONGEST_QUERY:,}"
            )
        return found


def _shipped(name: str, source: str, **attributes: Any) -> Callable[[Callable[..., str]], type[Formulator]]:
    """``what`` for those of the package, whose queries need no check."""
    return lambda function: FORMULATORS.add(
        part_of_function(function, Plain, name, settings={}, source=source, **attributes)
    )


@_shipped("question", "DRAGIN Table 1 (SR-RAG)", needs=frozenset())
def question(place: Gap) -> str:
    """The question."""
    return place.question


@_shipped("last-sentence", "DRAGIN Table 6; reference-behaviour §3")
def last_sentence(place: Gap) -> str:
    """The sentence written last."""
    if place.variant == "paper":
        return (place.pipeline.split(place.answer) or [place.question])[-1]
    return place.chunk if place.chunk is not None else (place.pipeline.split(place.context) or [""])[-1]


@_shipped("full-context", "DRAGIN Table 6; reference-behaviour §3")
def full_context(place: Gap) -> str:
    """Question and answer so far."""
    return place.context


@_shipped("current", "reference-behaviour §3")
def current(place: Gap) -> str:
    """The sentence that lacks information, as far as it was written."""
    return " ".join(place.words) if place.variant == "reference" and place.chunk is None else place.sentence


@_shipped("current-without-hits", "reference-behaviour §3", reads_hits=True)
def current_without_hits(place: Gap) -> str:
    """The same sentence without the words that were flagged."""
    if place.variant == "reference":
        return " ".join("" if hit else word for word, hit in zip(place.words, place.hits, strict=True))
    text, start = place.sentence, place.span[0]
    for a, b in reversed(place.hit_spans):
        text = text[: max(a - start, 0)] + " " + text[b - start :]
    return " ".join(text.split())


@_shipped("term", "FLARE Prompts D.2, D.3", needs=frozenset({"text", "call"}))
def term(place: Gap) -> str:
    """What the model itself asked for."""
    return place.term


@FORMULATORS.add
@dataclass(frozen=True)
class LastN(Formulator):
    """The last n tokens, or the whole chunk that a method which searches by the clock wrote last."""

    name, source, shorthand = "last-n", "DRAGIN Table 6 (Last 25 Tokens); reference-behaviour §3", "top_n"
    top_n: int | None = None  # tokens; None: what the clock writes in a turn, else 25

    def resolved(self, variant: str) -> LastN:
        return self if self.top_n is None else replace(self, top_n=count("top_n", self.top_n))

    def text(self, place: Gap) -> str:
        tokenizer = place.tokenizer
        if place.variant == "paper":
            n = self.top_n or place.chunk_tokens or DEFAULT_TOP_N
            ids = tokenizer.encode(f"{place.question} {place.answer.strip()}", special=False)
            return tokenizer.decode(ids[-n:], special=False)
        if place.chunk is not None and self.top_n is None:
            return place.chunk
        n = self.top_n or DEFAULT_TOP_N
        tokens = tokenizer.tokens(tokenizer.encode(place.context, special=False))
        return " ".join(tokens[-n:]) if len(tokens) > n else place.context


@FORMULATORS.add
@dataclass(frozen=True)
class ConfidentSentence(Formulator):
    """The sentence without its improbable tokens (FLARE)."""

    name, source = "confident-sentence", "FLARE §3.2; reference-behaviour §5"
    #: Tokens of 1 - p above this are dropped; None: θ of a trigger on 1 - p, else 0.1, and 0.6 in the paper variant.
    doubt_limit: float | None = None

    def resolved(self, variant: str) -> ConfidentSentence:
        given = self.doubt_limit
        return self if given is None else replace(self, doubt_limit=number("doubt_limit", given))

    def text(self, place: Gap) -> str:
        if place.variant == "paper":
            made, (start, end) = place.written, place.span
            assert made is not None
            limit = 0.6 if self.doubt_limit is None else self.doubt_limit
            inside = (made.offsets[:, 1] > start) & (made.offsets[:, 0] < end)
            spans = np.clip(made.offsets[inside], start, end) - start
            return confident_text(made.text[start:end], spans, np.exp(made.logprob[inside]), 1 - limit)
        limit = 0.1 if place.doubt_limit is None else place.doubt_limit
        limit = limit if self.doubt_limit is None else self.doubt_limit
        return reference_confident_sentence(place.sentence, place.tokens, place.doubt, limit)


@FORMULATORS.add
@dataclass(frozen=True)
class Qfs(Formulator):
    """QFS: the words that the model attended to most where it lacked information."""

    name, source, shorthand = "qfs", "DRAGIN §3.2; reference-behaviour §3", "top_n"
    reads_attention: ClassVar[bool] = True
    top_n: int = DEFAULT_TOP_N  # words

    def resolved(self, variant: str) -> Qfs:
        return replace(self, top_n=count("top_n", DEFAULT_TOP_N if self.top_n is None else self.top_n))

    def formulate(self, place: Gap) -> Episode[Query]:
        if place.variant == "paper":
            return self._paper(place)
        return (yield from self._released(place))

    def _paper(self, place: Gap) -> Query:
        """§3.2: the words of question and answer, ranked by the attention t_i pays them; the top n in text order."""
        made, prompt = place.written, place.prompt
        assert made is not None
        assert made.attention is not None
        assert prompt is not None
        p = len(made.prompt_ids)
        row = made.attention[:, place.token + 1, :].astype(np.float32).mean(axis=0)  # (p + n,)
        parts = []  # text, offsets of its tokens in it, attention paid to them
        for name in ("question", "answer"):
            a, b = prompt.spans.get(name, (0, 0))
            inside = np.flatnonzero((made.prompt_offsets[:, 1] > a) & (made.prompt_offsets[:, 0] < b))
            parts.append((prompt.text, np.clip(made.prompt_offsets[inside], a, b), row[inside]))
        before = np.flatnonzero(made.offsets[: place.token, 0] < place.cut)
        parts.append((made.text, made.offsets[before], row[p + before]))
        laid = [(character_words(text, offsets), attention) for text, offsets, attention in parts]
        texts = [word.text for words, _ in laid for word in words]
        paid = np.concatenate([word_weights(attention, words) for words, attention in laid])  # (w,)
        chosen = top_words(paid, self.top_n, np.array([bool(t) for t in texts], dtype=bool))
        return Query.of(texts, paid, chosen, place.note)

    def _released(self, place: Gap) -> Episode[Query]:
        """``real_words``: the words that the flagged ones were predicted from (reference-behaviour §3)."""
        text = place.before + " ".join(place.words)
        ids = place.tokenizer.encode(text, special=True)
        words = reference_words(place.tokenizer.tokens(ids), ids, place.tokenizer.marker, eos=None)
        texts = [word.text for word in words]
        paid = reference_word_attention((yield from attend(ids)), words)  # (w, w)
        first = len(words) - len(place.words)
        flagged = [first + i for i in np.flatnonzero(place.hits) if first + i >= 0]
        weights = paid[flagged].mean(axis=0) if flagged else np.full(len(words), np.nan)  # (w,)
        eligible = contains_any(texts, place.pipeline.content_words(text))
        eligible[flagged] = False
        chosen = top_words(weights, self.top_n, eligible)
        note = place.note if flagged else "no flagged word is left, so text order ranks the words"
        shown = np.flatnonzero(eligible)
        return Query.of([texts[i] for i in shown], weights[shown], chosen[shown], note)


@FORMULATORS.add
@dataclass(frozen=True)
class EtcQfs(Qfs):
    """QFS as ETC's released code has it: all words that fired in the sentence count, and what they pay is summed."""

    name, source = "qfs-etc", "ETC (arXiv 2511.09980), released code"
    top_n: int = 35  # words

    def _released(self, place: Gap) -> Episode[Query]:
        ranked = place.ranked
        if ranked is None:
            return (yield from super()._released(place))
        chosen = top_words(ranked.weights, self.top_n, ranked.content)
        return Query.of(ranked.words, ranked.weights, chosen, place.note)
