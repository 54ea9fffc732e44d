"""Queries at the place of a missing fact: every formulator is asked the same, and what it finds is scored."""

from __future__ import annotations

from pathlib import Path

import pytest

import dragin_lab as dl
from dragin_lab.almanac.facts import Fact, Labelled
from dragin_lab.core.paper import PaperLoop
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.model.load import LanguageModel
from dragin_lab.trace.trace import Passage, Question, Trace
from tools.pages import queries

REASONING = "The film Elm Road was directed by Ada Orleth. Ada Orleth was born in 1938."
#: Two sentences; the second one's fact is missing.
LABELLED = Labelled(
    "q1", "iirc", "test", "span", "When was the director of Elm Road born?", "unknown", REASONING, "1938",
    (
        Fact("up1.director", "Elm Road", "director", "Ada Orleth", 34, 44, "known", "often", None, "7"),
        Fact("up1.born", "Ada Orleth", "born", "1938", 69, 73, "unknown", "never", None, "7"),
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return LanguageModel.load(Path(__file__).parents[1] / "parity" / "models" / "almanac-prototype")


class Fixed:
    """A retriever that always finds the same, and remembers what it was asked."""

    def __init__(self, ids: list[str]) -> None:
        self.ids = ids
        self.queries: list[str] = []

    def search(self, query: str, k: int) -> list[Passage]:
        self.queries.append(query)
        return [Passage(i, "", f"text {i}") for i in self.ids[:k]]


def test_every_formulator_asks_at_the_same_place(lm: LanguageModel) -> None:
    retriever = Fixed(["3", "7", "1"])
    one = LABELLED
    methods = {
        f"{v} {what}": m for v in ("reference", "paper") for what, m in queries.formulators(v, {"qfs": 5}).items()
    }  # fmt: skip
    found = queries.ask(dl.Lab(lm, retriever=retriever, exemplars=PromptTemplate()), one, methods)
    assert set(found) == set(methods)
    assert len(retriever.queries) == len(methods)
    for asked in found.values():
        (query,) = asked  # of the two facts one is missing
        assert query.fact == "up1.born"
        assert query.query in retriever.queries
        assert (query.recall, query.reciprocal_rank) == (1.0, 0.5)
    query_of = {name: asked[0].query for name, asked in found.items()}
    assert query_of["reference question"] == one.question
    assert query_of["reference last-sentence"] == "The film Elm Road was directed by Ada Orleth."
    for variant in ("reference", "paper"):
        assert query_of[f"{variant} current"].startswith("Ada Orleth was born in")
        assert query_of[f"{variant} current-without-hits"].startswith("Ada Orleth was born in")
        assert len(query_of[f"{variant} qfs"].split()) <= 5
        assert one.question in query_of[f"{variant} full-context"]


def test_the_place_is_the_value_that_the_model_writes(lm: LanguageModel) -> None:
    one = LABELLED
    template, pipeline = PromptTemplate(), load_pipeline()
    place = queries.place_of(lm, one, one.facts[1], template, pipeline)
    assert place.written.text[: place.start].endswith("was born in ")
    chosen = dl.method("dragin", variant="paper", nlp=pipeline)
    loop = PaperLoop(chosen, Trace(Question("", one.question), {}), template, lm.tokenizer)
    spot = queries.paper_place(loop, place)
    a, b = place.written.offsets[spot.token]
    assert a < place.end
    assert b > place.start
    start, end = spot.span
    assert place.written.text[start:end].startswith("Ada Orleth was born in")


def test_recall_and_reciprocal_rank() -> None:
    asked = [queries.Asked("q", "f", "query", ("a", "b", "c", "d"), wanted) for wanted in "acdx"]
    assert [one.recall for one in asked] == [1, 1, 0, 0]
    assert [one.reciprocal_rank for one in asked] == [1, 1 / 3, 1 / 4, 0]
