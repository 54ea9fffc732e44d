"""Custom retrievers: what is accepted, what is refused by name, and how a run recognises them."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from answering import DRAGIN, AnsweringModel, questions, recorded

from dragin_lab.errors import DataError, RunError, SettingError
from dragin_lab.lab import Lab
from dragin_lab.retrieval.bm25 import BM25
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.doors import Opened, as_retriever
from dragin_lab.trace.trace import Passage


def answering(answer: Any) -> Opened:
    def mine(query: str, k: int) -> Any:
        return answer

    opened: Opened = as_retriever(mine)
    return opened


def test_an_object_with_search_or_a_function_is_a_retriever() -> None:
    class Mine:
        def search(self, query: str, k: int) -> list[Passage]:
            return [Passage("1", "T", query, 2.0)][:k]

    assert as_retriever(Mine()).search("who", 3) == [Passage("1", "T", "who", 2.0)]
    assert repr(as_retriever(Mine())) == "retriever Mine"
    assert as_retriever(lambda query, k: [query]).search("who", 1)[0].text == "who"
    ours = BM25(Corpus.from_passages([Passage("1", "", "x")]))
    assert as_retriever(ours) is ours
    opened = as_retriever(Mine())
    assert as_retriever(opened) is opened


def test_what_is_plainly_meant_is_taken() -> None:
    retriever = answering(
        [
            "one",
            ("T", "two"),
            {"id": 7, "text": "three", "score": np.float32(1), "more": None},
            Passage("p", "", "x"),
        ]
    )
    passages = retriever.search("q", 10)
    assert [p.text for p in passages] == ["one", "two", "three", "x"]
    assert [p.title for p in passages] == ["", "T", "", ""]
    assert (passages[2].id, passages[2].score, passages[3].id) == ("7", 1.0, "p")
    assert math.isnan(passages[0].score)
    assert len({p.id for p in passages}) == 4
    assert retriever.search("q", 10)[0].id == passages[0].id, "made from the text"
    assert [p.text for p in retriever.search("q", 2)] == [
        "one",
        "two",
    ], "of more than k the first k"
    assert [p.text for p in answering(text for text in ("a", "b")).search("q", 3)] == ["a", "b"]
    assert answering([]).search("q", 3) == []


def test_a_dataframe_is_its_rows() -> None:
    frame = pd.DataFrame(
        {"id": [7, 8, 9], "title": ["T", None, math.nan], "text": ["one", "two", "three"]}
    )
    wanted = [("7", "T", "one"), ("8", "", "two")]
    for answer in (
        frame,
        frame.set_index("id"),
        frame.set_index(["id", "title"]),
        frame.to_dict("records"),
    ):
        assert [(p.id, p.title, p.text) for p in answering(answer).search("q", 2)] == wanted
    assert [p.text for p in answering(frame["text"]).search("q", 2)] == ["one", "two"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("a text", "with str 'a text'; it must be a list of dl.Passage"),
        (["one", None], "result 2 is NoneType"),
        (
            [{"text": " "}],
            (
                "{'text': ' '}\": Expected `str` that is not blank - at `text`; give a list of"
                " dl.Passage"
            ),
        ),
        ([{"text": "x", "id": 1.5}], "Expected `int | str | null`, got `float` - at `id`"),
        ([{"text": "x", "id": 1}, {"text": "y", "id": "1"}], "with the id '1' twice"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(answer: Any, says: str) -> None:
    with pytest.raises(DataError, match=r"^retriever mine answered 'who\?'") as caught:
        answering(answer).search("who?", 3)
    assert says in str(caught.value)


def test_a_failure_names_the_retriever_and_the_query() -> None:
    def broken(query: str, k: int) -> list[str]:
        raise KeyError("index")

    with pytest.raises(DataError, match="retriever broken failed for 'who': KeyError: 'index'"):
        as_retriever(broken).search("who", 3)


async def later(query: str, k: int) -> list[str]:
    return []


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        ("bm25", "is str; give an object with search"),
        (3, "is int"),
        (
            Corpus.from_passages([Passage("1", "", "x")]),
            (
                "is Corpus; give an object with search(query, k) or a function, and passages as"
                " corpus="
            ),
        ),
        (BM25.mro()[2], "is a class; give an object of it"),
        (lambda query: [], "must take a query and a number"),
        (later, "is asynchronous"),
    ],
)
def test_what_is_not_a_retriever(thing: Any, says: str) -> None:
    with pytest.raises(SettingError, match=re.escape(says)):
        Lab(retriever=thing) if not isinstance(thing, str) else as_retriever(thing)


def test_it_is_known_by_its_provenance_or_its_source_and_values() -> None:
    class Told:
        def __init__(self, **facts: Any) -> None:
            self.facts = facts

        def search(self, query: str, k: int) -> list[str]:
            return [query]

        def provenance(self) -> dict[str, Any]:
            return self.facts

    assert as_retriever(Told(kind="mine", n=3)).provenance() == {"kind": "mine", "n": 3}
    for facts in ({}, {"f": print}):
        with pytest.raises(DataError, match=r"retriever Told: provenance\(\)"):
            as_retriever(Told(**facts)).provenance()
    one, same, other = (
        as_retriever(lambda query, k, text=text: [text]) for text in ("a", "a", "b")
    )
    assert one.described == same.described != other.described
    assert as_retriever(Told(kind="mine")).described == ""
    assert one.provenance()["kind"] == "<lambda>"


class Index:
    """One's own: the texts, each of which answers whatever holds one of its words."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        words = set(query.lower().split())
        return [
            {"id": i, "text": text}
            for i, text in enumerate(self.texts)
            if words & set(text.lower().split())
        ]


def test_a_run_goes_on_over_the_same_index_and_over_no_other(tmp_path: Path) -> None:
    def run(index: Index, count: int) -> int:
        lm: Any = AnsweringModel()
        recorded(Lab(lm, retriever=index), questions(count), DRAGIN, tmp_path / "run")
        return len(set(lm.asked))

    texts = ("Li made the first thing.", "Bo wrote a book on rivers.")
    assert run(Index(*texts), 3) == 3
    assert run(Index(*texts), 3) == 0
    with pytest.raises(RunError, match=r"retriever Index\.texts\.1: .*another book"):
        run(Index(texts[0], "Bo wrote another book on rivers."), 3)


def test_a_run_says_that_an_index_is_not_known(tmp_path: Path) -> None:
    lm: Any = AnsweringModel()
    lab = Lab(lm, retriever=Index("Li made the first thing."))
    runs = lab.run(["Who made it?"], [DRAGIN], output=tmp_path, progress=False)
    line = "retriever Index: what its index holds is not known"
    assert runs.records[0].config["not_known"] == [line]
    assert line in str(runs.table())
