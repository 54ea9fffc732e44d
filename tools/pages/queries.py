"""Ground truth of *what*: does a query find the passage that states the missing fact?

For each fact that the model cannot know, the gold reasoning stands up to its value; from there the model finishes the
sentence by itself, as it would in a draft. The words it writes for the value are the hits, and every formulator makes
its query of that one place. So *when* is right by construction, and *what* is all that differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.almanac.facts import Fact, Labelled
from dragin_lab.catalog.methods import find_conflict
from dragin_lab.catalog.methods import method as make_method
from dragin_lab.core.draft import Gap
from dragin_lab.core.episode import Attend, Episode, Retriever, Write
from dragin_lab.core.formulators import FORMULATORS
from dragin_lab.core.method import Method
from dragin_lab.core.paper import PaperLoop
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.scores import doubts
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.settings import Registry
from dragin_lab.core.stops import FirstSentence
from dragin_lab.core.triggers import Rind
from dragin_lab.reference.dragin import ReferenceLoop
from dragin_lab.reference.measures import assign_tokens
from dragin_lab.reference.rules import FORMULATIONS, ReleasedGap
from dragin_lab.run.lab import Lab
from dragin_lab.trace.trace import Continuation, Prompt, Query, Step, Trace
from dragin_lab.trace.trace import Question as AskedQuestion

if TYPE_CHECKING:
    from dragin_lab.model.load import LanguageModel

DEPTH = 10  # passages searched, so that ranks after the third are known


@dataclass(frozen=True)
class Asked:
    """One query for one missing fact: the ids found, best first, and the id wanted."""

    qid: str
    fact: str
    query: str
    found: tuple[str, ...]
    wanted: str

    @property
    def recall(self) -> float:
        """Whether the wanted passage is among the first three."""
        return float(self.wanted in self.found[:3])

    @property
    def reciprocal_rank(self) -> float:
        """1 / rank of the wanted passage; 0 where it is not among the first ten."""
        return 1 / (1 + self.found.index(self.wanted)) if self.wanted in self.found else 0.0


@dataclass(frozen=True)
class Stated:
    """The sentence with the missing fact, written; what stands for its value are characters ``start`` to ``end``."""

    written: Continuation
    prompt: Prompt
    start: int
    end: int


def formulators(variant: str, top_n: Mapping[str, int] | None = None, nlp: Any = None) -> dict[str, Method]:
    """Every formulator of a variant in DRAGIN's loop, for ``DEPTH`` passages; ``top_n`` by name (qfs, last-n)."""
    sizes = top_n or {}
    table: Registry[Any] = FORMULATIONS if variant == "reference" else FORMULATORS
    usable = [
        name for name in table.names() if variant == "reference" or not find_conflict(Rind, FORMULATORS.named(name))
    ]
    parts = {name: table.make(name, **({"top_n": sizes[name]} if name in sizes else {})) for name in usable}
    return {
        name: make_method("dragin", variant=variant, what=part, top_k=DEPTH, nlp=nlp) for name, part in parts.items()
    }


def place_of(
    lm: LanguageModel, labelled: Labelled, fact: Fact, template: PromptTemplate, pipeline: Pipeline, max_new: int = 32
) -> Stated:
    """The gold reasoning up to a fact's value, with the sentence as the model itself ends it."""
    before = labelled.reasoning[: fact.start].rstrip()
    own = lm.generate(Write(template.render(labelled.question, f" {before}"), max_new, FirstSentence(pipeline)))
    spans = pipeline.spans(own.text)
    ending = own.text[spans[0][0] : spans[0][1]] if spans else "."
    prompt = template.render(labelled.question)
    written = lm.score(prompt, f" {before} {ending}", attention=True)
    start = written.text.index(before) + len(before) + 1
    rest = labelled.reasoning[fact.end :]
    behind = rest[: pipeline.spans(rest)[0][1]] if rest.strip() else ""
    value = ending.removesuffix(behind) if behind and ending.endswith(behind) else ending.rstrip(".")
    return Stated(written, prompt, start, start + max(len(value), 1))


def ask(lab: Lab, labelled: Labelled, methods: Mapping[str, Method]) -> dict[str, list[Asked]]:
    """For each method, by its key, the query for every missing fact of a question and what it finds.

    The lab's prompt is that of the first method; all of them have one spaCy pipeline. Raises as ``Lab.template``.
    """
    asked: dict[str, list[Asked]] = {name: [] for name in methods}
    first = next(iter(methods.values()))
    lm, template = lab.writer, lab.template(first)
    for fact in (fact for fact in labelled.facts if fact.missing):
        place = place_of(lm, labelled, fact, template, first.pipeline)
        for name, method in methods.items():
            step = Step(0)
            query = _serve(_formulate(method, labelled, place, template, lm, step), lm, lab.retriever)
            ids = tuple(passage.id for passage in step.passages)
            asked[name].append(Asked(labelled.qid, fact.id, query.sent, ids, fact.passage))
    return asked


def _formulate(
    chosen: Method, labelled: Labelled, place: Stated, template: PromptTemplate, lm: LanguageModel, step: Step
) -> Episode[Query]:
    """The episode of one query: formulated by the method's own loop, cut and searched as the loop does it."""
    trace = Trace(AskedQuestion(labelled.qid, labelled.question), chosen.settings)
    if chosen.variant == "reference":
        loop = ReferenceLoop(chosen, trace, template, lm.tokenizer)
        query = yield from chosen.formulator.query(reference_place(loop, place))
        yield from loop.retrieve(step, query)
    else:
        paper = PaperLoop(chosen, trace, template, lm.tokenizer)
        query = chosen.formulator.query(paper_place(paper, place))
        yield from paper.retrieve(step, query)
    return query


def _serve(episode: Episode[Query], lm: LanguageModel, retriever: Retriever) -> Query:
    answer: Any = None
    while True:
        try:
            request = episode.send(answer)
        except StopIteration as end:
            query: Query = end.value
            return query
        if isinstance(request, Attend):
            answer = lm.attend(request.ids)
        else:
            assert not isinstance(request, Write)
            answer = retriever.search(request.query, request.k)


def reference_place(loop: ReferenceLoop, stated: Stated) -> ReleasedGap:
    """The place as the released code's formulators see it (reference-behaviour §2, §3): nothing kept from before."""
    written, question = stated.written, loop.question
    draft = loop.cut_draft(written)
    spans = loop.method.pipeline.spans(written.text)
    number = _sentence_number(spans, stated.start)
    sentences = [written.text[a:b] for a, b in spans]
    (first, last), (a, b) = draft.ranges[number], assign_tokens(sentences, draft.tokens)[number]
    inside = [written.offsets[word.start : word.stop] for word in draft.words[first:last]]
    hits = [bool(((o[:, 0] < stated.end) & (o[:, 1] > stated.start)).any()) for o in inside]
    kept = " ".join(sentences[:number])
    return ReleasedGap(
        question=question,
        answer=kept,
        context=f"{question} {kept}" if kept else question,
        sentence=sentences[number],
        words=tuple(word.text for word in draft.words[first:last]),
        hits=np.array(hits, dtype=bool),
        tokens=tuple(draft.tokens[a:b]),
        doubt=doubts(written.logprob)[a:b],
        pipeline=loop.method.pipeline,
        tokenizer=loop.tokenizer,
        before=f"{question}  {kept} ",
    )


def paper_place(loop: PaperLoop, stated: Stated) -> Gap:
    """The place as the paper's formulators see it: t_i is the value's first visible token."""
    written = stated.written
    spans = loop.method.pipeline.spans(written.text)
    inside = (written.offsets[:, 1] > stated.start) & (written.offsets[:, 0] < stated.end)
    token, value = int(np.flatnonzero(inside)[0]), (stated.start, stated.end)
    sentence = spans[_sentence_number(spans, stated.start)]
    answer = loop.text + loop.lead(written) + written.text[: stated.start]
    return loop.gap(written, stated.prompt, token, stated.start, sentence, (value,), answer=answer)


def _sentence_number(spans: Sequence[tuple[int, int]], place: int) -> int:
    return next((number for number, (_, end) in enumerate(spans) if end > place), len(spans) - 1)
