"""One difference between paper and released code at a time: the methods, models and queries that have only it swapped.

Where a setting of ``dragin_lab.method`` makes a difference it is used. Elsewhere the model in between is made to answer
a request otherwise, so that the method's own code stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np

import dragin_lab as dl
from dragin_lab.core.episode import Write
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.sentences import Pipeline, load_pipeline
from dragin_lab.core.triggers import Rind as OurRind
from dragin_lab.core.words import character_words
from dragin_lab.reference.rules import ReferenceMethod
from dragin_lab.study.needs_query import DEPTH, Gap
from dragin_lab.trace.trace import Continuation, Prompt
from tools.pages.variants_rind import PAPER, REFERENCE, Rind


class RindAtSentence(OurRind):
    """RIND of the paper variant, cutting at the sentence that fired, as the released code does."""

    name, cut = "rind-at-sentence", "sentence"


# -- models that answer otherwise ---------------------------------------------------------------------------------


class Between:
    """Stands before a model and hands on whatever it does not answer itself."""

    def __init__(self, lm: Any) -> None:
        self.lm = lm

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)


class Retyped(Between):
    """Every prompt with one string in place of another."""

    def __init__(self, lm: Any, old: str, new: str) -> None:
        super().__init__(lm)
        self.old, self.new = old, new

    def stream(self, draft: Write, seed: int | None = None) -> Generator[Any, None, Continuation]:
        prompt = Prompt(draft.prompt.text.replace(self.old, self.new))
        return self.lm.stream(replace(draft, prompt=prompt), seed)


class InContext(Between):
    """The attention of the draft written last is what it was behind its prompt; of any other ids, as ever."""

    def __init__(self, lm: Any) -> None:
        super().__init__(lm)
        self.last: Continuation | None = None

    def stream(self, draft: Write, seed: int | None = None) -> Generator[Any, None, Continuation]:
        self.last = yield from self.lm.stream(replace(draft, attention=True), seed)
        return self.last

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        if self.last is None or self.last.attention is None or list(ids) != self.last.ids.tolist():
            attention: np.ndarray = self.lm.attend(ids)
            return attention
        return self.last.attention[:, 1:, len(self.last.prompt_ids) :].astype(np.float32)  # (h, n, n)


class OwnRows(Between):
    """Each row of an attention map is that of the position behind it: t_i's own stands where t_i was predicted."""

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        return np.roll(self.lm.attend(ids), -1, axis=1)  # (h, n, n)


@dataclass(frozen=True)
class EveryWord(Pipeline):
    """A pipeline that finds content in every word."""

    def content_words(self, text: str) -> list[str]:
        return [""]


def every_word() -> Pipeline:
    plain = load_pipeline()
    return EveryWord(f"{plain.name}; every word has content", plain.nlp, plain.tags)


@dataclass(frozen=True)
class WholeQueries(ReferenceMethod):
    """A method of the released code whose queries are not cut."""

    query_tokens: ClassVar[int | None] = None


def with_whole_queries(method: Method) -> Method:
    """The same method of the released code, with whole queries."""
    return WholeQueries(**{one.name: getattr(method, one.name) for one in fields(method)})


# -- whole episodes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A method over questions. ``difference`` is the number on the page of what it has swapped against ``base``.

    ``rind`` says by whose scores θ is chosen; without it θ is ``threshold``, or the method's own default.
    """

    key: str
    name: str
    variant: str = "reference"
    base: str | None = None
    difference: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    threshold: float | None = None
    rind: Rind | None = None
    whole_queries: bool = False
    layout: str = "dragin"
    model: Callable[[Any], Any] | None = None

    def method(self, theta: float | None, max_new_tokens: int) -> Method:
        made = dl.method(
            self.name, variant=self.variant, threshold=theta, max_new_tokens=max_new_tokens, **self.settings
        )
        return with_whole_queries(made) if self.whole_queries else made

    def template(self, template: PromptTemplate) -> PromptTemplate:
        return replace(template, layout=self.layout)

    def asked(self, lm: Any) -> Any:
        return lm if self.model is None else self.model(lm)


def _without_stray_space(lm: Any) -> Any:
    return Retyped(lm, "Answer in t he same", "Answer in the same")


def _single_spaces(lm: Any) -> Any:
    return Retyped(lm, "Answer:  ", "Answer: ")


def _runs() -> tuple[Run, ...]:
    whole = [
        Run(name if variant == "reference" else f"{name}, paper variant", name, variant,
            base=None if variant == "reference" else name, difference="" if variant == "reference" else f"whole {name}",
            rind={"reference": REFERENCE, "paper": PAPER}[variant] if name == "dragin" else None)
        for name in ("wo-rag", "sr-rag", "fl-rag", "fs-rag", "flare", "dragin")
        for variant in ("reference", "paper")
    ]  # fmt: skip

    def dragin(key: str, difference: str, **rest: Any) -> Run:
        return Run(f"dragin, {key}", "dragin", base="dragin", difference=difference, **{"rind": REFERENCE} | rest)

    def paper(key: str, difference: str, **rest: Any) -> Run:
        base = "dragin, paper variant"
        return Run(f"{base}, {key}", "dragin", "paper", base, difference, **{"rind": PAPER} | rest)

    def flare(key: str, difference: str, **rest: Any) -> Run:
        return Run(f"flare, {key}", "flare", base="flare", difference=difference, **rest)

    def flare_paper(key: str, difference: str, **rest: Any) -> Run:
        base = "flare, paper variant"
        return Run(f"{base}, {key}", "flare", "paper", base, difference, **rest)

    scaled = replace(PAPER, scale="sentence")
    return (
        *whole,
        dragin("attention in context", "R3", rind=replace(REFERENCE, view="context"), model=InContext),
        dragin("no filter of content words", "R9", settings={"check_content_words": False}),
        dragin("θ 1.2", "R14", rind=None, threshold=1.2),
        dragin("θ 1.0", "R14", rind=None, threshold=1.0),
        dragin("single spaces", "C3", model=_single_spaces),
        dragin("40 words a query", "Q6", settings={"top_n": 40}),
        dragin("whole queries", "Q8", whole_queries=True),
        dragin("FLARE's layout", "P1", layout="flare"),
        paper("scaled by sentence", "R8", rind=scaled, settings={"scale": "sentence"}),
        paper("cut at the sentence", "C1", settings={"when": RindAtSentence}),
        paper("FLARE's layout", "P1", layout="flare"),
        Run("fl-rag, no stray space", "fl-rag", base="fl-rag", difference="P2", model=_without_stray_space),
        Run("fs-rag, no stray space", "fs-rag", base="fs-rag", difference="P2", model=_without_stray_space),
        flare("max over the sentence", "F3", settings={"sentence_solver": "max"}),
        flare("min over the sentence", "F3", settings={"sentence_solver": "min"}),
        flare("β of the FLARE paper", "F4", settings={"doubt_limit": 0.6}),
        flare("nothing left out", "F4", settings={"what": "current"}),
        flare("the whole context asked", "F8", settings={"what": "full-context"}),
        flare_paper("nothing left out", "F4", settings={"what": "current"}),
        flare_paper("3 passages", "F7", settings={"top_k": 3}),
    )  # fmt: skip


SWAPPED = _runs()

# -- queries ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WhatSwap:
    """A query formulator; ``place`` and ``model`` swap what it sees. A base has no ``difference``."""

    key: str
    method: Method
    base: str | None = None
    difference: str = ""
    place: Callable[[Any, Gap], Gap] | None = None
    model: Callable[[Any], Any] | None = None


def _predicting_row(lm: Any, place: Gap) -> Gap:
    attention = place.written.attention
    assert attention is not None
    return replace(place, written=replace(place.written, attention=np.roll(attention, 1, axis=1)))


def _first_word(lm: Any, place: Gap) -> Gap:
    value = place.written.text[place.start : place.end]
    return replace(place, end=place.start + max(len(value.split(" ")[0]), 1))


def _without_exemplars(lm: Any, place: Gap) -> Gap:
    bare = PromptTemplate().render(place.prompt.part("question"))
    written = lm.score(bare, f" {place.written.text.lstrip()}", attention=True)
    return replace(place, prompt=bare, written=written)


def _summed(lm: Any, place: Gap) -> Gap:
    """Every token of a word is paid what its tokens are paid together."""
    made = place.written
    assert made.attention is not None
    paid = made.attention.astype(np.float32)  # (h, n + 1, p + n)
    p = len(made.prompt_ids)
    behind = character_words(place.prompt.text, made.prompt_offsets)
    written = character_words(made.text, made.offsets)
    for first, words in ((0, behind), (p, written)):
        for word in words:
            columns = slice(first + word.start, first + word.stop)
            paid[:, :, columns] = paid[:, :, columns].sum(axis=2, keepdims=True)
    return replace(place, written=replace(made, attention=paid))


def whats() -> tuple[WhatSwap, ...]:
    """Every formulator that is measured; those of both variants, and QFS with one part swapped."""

    def made(variant: str, what: str = "qfs", **settings: Any) -> Method:
        return dl.method("dragin", variant=variant, what=what, top_k=DEPTH, **settings)

    reference, paper = made("reference"), made("paper")
    shared = ("confident-sentence", "current", "current-without-hits", "last-sentence", "last-n", "full-context")
    # The same limit in both variants, so that they differ only in how tokens are left out.
    limit = {"confident-sentence": {"doubt_limit": 0.4}}
    return (
        WhatSwap("reference qfs", reference),
        WhatSwap("paper qfs", paper, "reference qfs", "whole qfs"),
        WhatSwap("reference qfs, t_i's own row", reference, "reference qfs", "Q1", model=OwnRows),
        WhatSwap("paper qfs, the row that predicted t_i", paper, "paper qfs", "Q1", place=_predicting_row),
        WhatSwap("paper qfs, no exemplars in view", paper, "paper qfs", "Q2", place=_without_exemplars),
        WhatSwap("reference qfs, the first flagged word only", reference, "reference qfs", "Q3", place=_first_word),
        WhatSwap("paper qfs, a word's tokens summed", paper, "paper qfs", "Q4", place=_summed),
        WhatSwap("reference qfs, every word may be asked", made("reference", nlp=every_word()), "reference qfs", "Q5"),
        WhatSwap("reference qfs, 40 words", made("reference", top_n=40), "reference qfs", "Q6"),
        WhatSwap("reference qfs, 5 words", made("reference", top_n=5), "reference qfs", "Q6"),
        WhatSwap("paper qfs, 40 words", made("paper", top_n=40), "paper qfs", "Q6"),
        WhatSwap("paper qfs, 5 words", made("paper", top_n=5), "paper qfs", "Q6"),
        WhatSwap("reference qfs, whole queries", with_whole_queries(reference), "reference qfs", "Q8"),
        *(
            swap
            for what in shared
            for swap in (
                WhatSwap(f"reference {what}", made("reference", what, **limit.get(what, {}))),
                WhatSwap(
                    f"paper {what}", made("paper", what, **limit.get(what, {})), f"reference {what}",
                    "F5" if what == "confident-sentence" else "B4",
                ),
            )
        ),
    )  # fmt: skip
