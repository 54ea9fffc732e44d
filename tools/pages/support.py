"""Does the corpus see the changed facts, which the model states without doubt? For docs/triggers.md.

On Almanac's labelled facts: the areas of ``corpus`` by the passages that are searched and by what training taught, and
of ``search-risk``, beside those of every other trigger.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dragin_lab as dl
from dragin_lab import almanac
from dragin_lab.almanac.facts import Labelled
from dragin_lab.catalog.methods import method as make_method
from dragin_lab.core.draft import Draft
from dragin_lab.core.trigger import TRIGGERS, Trigger
from dragin_lab.data import datasets
from dragin_lab.retrieval.counts import holds_names
from dragin_lab.run.serving import search_all
from dragin_lab.study import needs
from dragin_lab.trace.trace import Passage
from tools.almanac.world import World, build_world, memory, text_of
from tools.pages.base import bracketed, markdown_table

#: What ``corpus`` is called with the counts of training; ``corpus`` itself counts in the passages that are searched.
IN_TRAINING = "corpus, training"


class TrainingCounts:
    """Counts of what training taught, in the place of a retriever's: how often the facts that hold the names came.

    A taught fact is a subject and the value that training gives it, the old one where the fact has changed.
    """

    def __init__(self, world: World, exposures: Mapping[str, int]) -> None:
        taught = [
            (exposures.get(f"{entity.id} {relation}", 0), entity, memory(entity, relation))
            for entity in world.entities
            for relation in entity.facts
        ]
        self._taught = [
            (n, Passage("", of.title, text_of(value))) for n, of, value in taught if n and value is not None
        ]

    @classmethod
    def load(cls) -> TrainingCounts:
        """Of the embedded model."""
        path = almanac.embedded_model_path() / "exposures.json"
        return cls(build_world().known, json.loads(path.read_text(encoding="utf-8")))

    def count(self, names: Sequence[Sequence[str]]) -> list[int]:
        """How often training taught facts whose subject and value hold all names of a tuple."""
        return [sum(n for n, fact in self._taught if holds_names(fact, group)) for group in names]


def consult(trigger: Trigger, draft: Draft, retriever: Any) -> Draft:
    """The draft with what the trigger consults a retriever for. Raises what the retriever raises."""
    asking, answer = trigger.consult(draft), None
    while True:
        try:
            request = asking.send(answer)
        except StopIteration as end:
            return Draft(draft.written, draft.pipeline, draft.question, draft.answer_so_far, evidence=end.value)
        (answer,) = search_all(retriever, [request])  # type: ignore[list-item]
        if isinstance(answer, Exception):
            raise answer


def score_consulting(draft: Draft, retriever: Any, training: Any) -> dict[str, np.ndarray]:
    """The scores of the triggers that consult, each (n,): ``corpus`` twice, by passages and by training."""
    asked = {
        "corpus": ("corpus", retriever),
        IN_TRAINING: ("corpus", training),
        "search-risk": ("search-risk", retriever),
    }
    triggers = {name: (TRIGGERS.make(form), source) for name, (form, source) in asked.items()}
    return {name: one.score_tokens(consult(one, draft, source)) for name, (one, source) in triggers.items()}


@dataclass(frozen=True)
class View:
    """A column of the table: some items, and which of them a trigger should find."""

    title: str
    items: Sequence[needs.Item]
    changed: bool  # whether changed facts are to be found among known ones, or else all that is missing

    def rows(self, samples: int) -> dict[str, needs.Row]:
        """The areas, by trigger."""
        if not self.changed:
            return {row.trigger: row for row in needs.when_table(self.items, {}, samples=samples)}
        kept = [item for item in self.items if item.degree != "never"]
        rows = needs.when_table(kept, {}, lambda item: item.degree == "changed", samples=samples)
        return {row.trigger: row for row in rows}


def support_views(forced: Sequence[needs.Item], written: Sequence[needs.Item]) -> list[View]:
    """The four columns: the gold reasoning, in which a changed fact has its new value, and what the model writes."""
    return [
        View("gold text: changed facts among known", forced, True),
        View("gold text: missing facts among all", forced, False),
        View("own text: changed facts among known", written, True),
        View("own text: wrong facts among all", written, False),
    ]


def support_table(columns: Mapping[str, Mapping[str, needs.Row]], names: Sequence[str]) -> str:
    """The areas of the triggers ``names`` by column, with 95 % intervals, as a table in Markdown."""
    rows = [
        [f"`{name}`", *(bracketed(of[name].area, of[name].low, of[name].high) for of in columns.values())]
        for name in names
    ]
    return markdown_table(["trigger", *columns], rows)


def choose_labels(limit: int) -> list[Labelled]:
    """Test questions of all benchmarks: ``limit`` with a changed fact, and as many without one."""
    every = [one for name in datasets.BENCHMARKS for one in almanac.labels(name, "test")]
    changed = [one for one in every if any(fact.degree == "changed" for fact in one.facts)]
    others = [one for one in every if one not in changed]
    return [*_spread(changed, limit), *_spread(others, limit)]


def _spread(labels: Sequence[Labelled], limit: int) -> list[Labelled]:
    places = np.unique(np.linspace(0, len(labels) - 1, min(limit, len(labels))).astype(int))
    return [labels[place] for place in places]


def measure_question(
    lm: dl.LanguageModel, labelled: Labelled, more: needs.More
) -> tuple[list[needs.Item], list[needs.Item]]:
    """The facts of a question's gold reasoning, and those that the model states without passages, all scored."""
    alone = make_method("wo-rag")
    template = dl.Lab(lm, exemplars=datasets.template(f"almanac/{labelled.benchmark}")).template(alone)
    forced, _ = needs.forced_items(lm, labelled, template, alone.pipeline, more=more)
    written, _ = needs.free_items(lm, labelled, template, alone.pipeline, almanac.wordings(), more=more)
    return forced, written
