"""What a corpus says about the names in a sentence (QuCo-RAG, arXiv 2512.19134), whatever the model's own doubt.

The counts are those of the retriever (``episode.Count``): passages in which the names stand, where QuCo-RAG counts the
places of a training corpus at which they stand within 1,000 tokens of each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dragin_lab.core.draft import Draft
from dragin_lab.core.episode import Count, Episode
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.settings import setting
from dragin_lab.core.trigger import TRIGGERS, Trigger, Verdict
from dragin_lab.errors import SettingError
from dragin_lab.triggers.entities import find_names
from dragin_lab.triggers.prefix import Prefix

_SOURCE = "QuCo-RAG (arXiv 2512.19134), with a stand-in for its extractor"
#: What marks a sentence that is not checked: it concludes, or says that something is not known.
UNCHECKED = (
    "the answer is", "does not", "not provide", "not mention", "not available", "not include", "not specif",
    "not explicitly", "not publicly", "No information",
)  # fmt: skip


#: What opens a name as well as a sentence.
_ARTICLES = ("The", "A", "An")
#: A name, and its half-open characters in the text.
Name = tuple[str, tuple[int, int]]


@dataclass(frozen=True)
class Claim:
    """What a sentence says of a subject, as far as its names tell: a pair, or the subject alone."""

    names: tuple[str, ...]  # the subject, and the other name if there is one
    span: tuple[int, int]  # half-open characters of the last of them


def list_names(pipeline: Pipeline, text: str) -> list[list[Name]]:
    """The names in each sentence: runs of capitalised words and numbers (``find_names``).

    A stop word that opens the sentence is no part of a name ("Did Bo Ek"), unless it is an article, nor is the mark of
    a possessive.
    """
    sentences = []
    for start, end in pipeline.spans(text):
        names: list[Name] = []
        for a, b in find_names(pipeline, text[start:end]):
            opening, _, rest = text[start + a : start + b].partition(" ")
            opens = rest and not text[start : start + a].strip() and opening not in _ARTICLES
            first = start + b - len(rest) if opens and pipeline.is_stop(opening) else start + a
            name = text[first : start + b].removesuffix("'s").removesuffix("’s").strip("'’ \n")
            names.append((name, (first, start + b)))
        sentences.append(names)
    return sentences


def pair_names(pipeline: Pipeline, text: str) -> list[Claim]:
    """The first name of each sentence with each later one; with none, the first alone.

    It stands in for QuCo-RAG's extractor, a language model that reads triples of head, relation and tail from a
    sentence. It reads no relation: names are found by their capitals, the first is the subject of all that follow,
    and a pronoun is nobody.
    """
    claims: list[Claim] = []
    for (start, end), names in zip(pipeline.spans(text), list_names(pipeline, text), strict=True):
        if not names or any(mark in text[start:end] for mark in UNCHECKED):
            continue
        subject = names[0][0]
        later = [(name, span) for name, span in names if name != subject]
        claims += [Claim((subject, name), span) for name, span in later] or [Claim((subject,), names[0][1])]
    return claims


def grade(count: float, tau: float) -> float:
    """τ / (τ + count): 1 for no passage, above 1/2 for fewer than τ, falling to 0 with more. τ = 0 is never short."""
    return tau / (tau + count) if tau else 0.0


def read_evidence(trigger: Trigger, draft: Draft, key: str) -> Any:
    """What a trigger consulted for a draft. Raises ``SettingError`` where it did not."""
    if key not in draft.evidence:
        raise SettingError(
            f"draft.evidence has no {key!r}: {trigger.name!r} asks the retriever once a sentence is written, so judge "
            "drafts of lab.ask, or give Draft(…, evidence=…)"
        )
    return draft.evidence[key]


def _passages(count: int) -> str:
    return "1 passage" if count == 1 else f"{count} passages"


def _read_counts(trigger: Trigger, draft: Draft) -> dict[tuple[str, ...], int]:
    return {tuple(names): count for names, count in read_evidence(trigger, draft, "counts")}


def _count(groups: list[tuple[str, ...]]) -> Episode[Mapping[str, Any]]:
    """Counts of tuples of names, as evidence; nothing is asked where there is no name."""
    unique = tuple(dict.fromkeys(groups))
    counts: list[int] = (yield Count(unique)) if unique else []
    return {"counts": [[list(names), count] for names, count in zip(unique, counts, strict=True)]}


@TRIGGERS.add
@dataclass(frozen=True)
class CorpusSupport(Trigger):
    """No passage holds the sentence's names together, or too few hold the only one (QuCo-RAG after a sentence).

    A pair is short of support below ``ternary_tuple_threshold`` passages, a lone subject below
    ``binary_tuple_threshold``; 0 switches one off. A pair's grade stands on the tokens of its second name, as the
    subject is what a query has to keep; every other token scores 0.
    """

    name, source, unit, cut = "corpus", _SOURCE, "sentence", "sentence"
    needs: ClassVar[tuple[str, ...]] = ("counts",)
    threshold: float = setting(0.5, label="lack of support", top=1.0)
    ternary_tuple_threshold: int = setting(1, ge=0, label="τ of a pair", unit="passages")
    binary_tuple_threshold: int = setting(20, ge=0, label="τ of a lone subject", unit="passages")

    def consult(self, draft: Draft) -> Episode[Mapping[str, Any]]:
        return (yield from _count([claim.names for claim in pair_names(draft.pipeline, draft.text)]))

    def score(self, draft: Draft) -> np.ndarray:
        starts, stops = draft.offsets.T  # (n,), (n,)
        scores = np.zeros(len(draft))  # (n,)
        for claim, _, value in self._grades(draft):
            inside = (starts < claim.span[1]) & (stops > claim.span[0])  # (n,)
            scores[inside] = np.maximum(scores[inside], value)
        return scores

    def describe_hit(self, verdict: Verdict) -> str:
        reason = super().describe_hit(verdict)
        for claim, count, _ in sorted(self._grades(verdict.draft), key=lambda graded: -graded[2])[:1]:
            together = "stand together" if len(claim.names) > 1 else "stands"
            reason += (
                f": {' and '.join(map(repr, claim.names))} {together} in {_passages(count)} (τ {self._tau(claim)})"
            )
        return reason

    def _tau(self, claim: Claim) -> int:
        return self.ternary_tuple_threshold if len(claim.names) > 1 else self.binary_tuple_threshold

    def _grades(self, draft: Draft) -> list[tuple[Claim, int, float]]:
        """Each claim with its count and its grade."""
        counts = _read_counts(self, draft)
        claims = pair_names(draft.pipeline, draft.text)
        return [(claim, counts[claim.names], grade(counts[claim.names], self._tau(claim))) for claim in claims]


@TRIGGERS.add
@dataclass(frozen=True)
class CorpusQuestion(Prefix):
    """The question's names stand in few passages, on average (QuCo-RAG before the answer).

    The model writes one token before it is asked, as a score stands on a token. A question without a name never fires.
    """

    name, source, pool = "corpus-question", _SOURCE, "max"
    needs: ClassVar[tuple[str, ...]] = ("counts",)
    threshold: float = setting(0.5, label="lack of support", top=1.0)
    first: int = setting(1, label="tokens judged", unit="tokens")
    ngram_threshold_question: int = setting(1000, ge=0, label="τ of a question", unit="passages")

    def consult(self, draft: Draft) -> Episode[Mapping[str, Any]]:
        names = [name for sentence in list_names(draft.pipeline, draft.question) for name, _ in sentence]
        return (yield from _count([(name,) for name in names]))

    def score(self, draft: Draft) -> np.ndarray:
        counts = list(_read_counts(self, draft).values())
        lack = grade(float(np.mean(counts)), self.ngram_threshold_question) if counts else 0.0
        return np.full(len(draft), lack)

    def describe_hit(self, verdict: Verdict) -> str:
        counts = _read_counts(self, verdict.draft)
        shown = ", ".join(f"{names[0]!r} {count}" for names, count in counts.items())
        return f"{super().describe_hit(verdict)}: passages by name: {shown} (τ {self.ngram_threshold_question})"
