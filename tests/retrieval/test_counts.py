"""Counts of passages that hold names: in memory, on disk, by vectors, and by a retriever of your own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sources import on_disk

from dragin_lab.retrieval.answers import RetrieverError
from dragin_lab.retrieval.bm25 import BM25, Tantivy
from dragin_lab.retrieval.choose import as_retriever
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.counts import count_passages
from dragin_lab.retrieval.dense import Dense
from dragin_lab.trace.trace import Passage

TEXTS = (
    ("Rosa Talquil", "Rosa Talquil was born in Rom in 1905. Rosa  Talquil's aunt, too."),
    ("The Bell", "It was made by Rosa\nTalquil, in 19051 parts."),
    ("rosa talquil", "A rose; the MSCs of Rosa Tal, and U.S. films."),
    ("Nothing", "Rosa met Bo Talquil in Rom."),
    ("東京タワー", "Ren\u00e9's Model S in 東京."),
)
CASES = {
    ("Rosa Talquil",): 2,  # any white space between its words; in the same case
    ("Rosa Tal",): 1,  # no letter next to it
    ("Talquil",): 3,
    ("1905",): 1,
    ("Rosa Talquil", "The Bell"): 1,  # one in the title, the other in the text
    ("Rosa Talquil", "Rom"): 1,  # "Rosa", "Talquil" and "Rom" stand in another passage, too
    ("Rom", "1905", "Rosa Talquil"): 1,
    ("MSC",): 0,
    ("MSCs",): 1,
    ("U.S.",): 1,
    ("The",): 1,  # a word that the index does not hold
    ("Rene\u0301",): 1,  # in either form of the accent
    ("s", "Talquil"): 1,  # also of a possessive
    ("東京", "S"): 1,  # an ideograph is a word
    ("京タ",): 0,
    ("Nobody",): 0,
    ("Rom", "Nobody"): 0,
    ("",): 0,
}


def corpus() -> Corpus:
    return Corpus.from_passages([Passage(str(i), title, text) for i, (title, text) in enumerate(TEXTS)])


def test_names_are_counted_by_passages_in_memory_and_on_disk(tmp_path: Path) -> None:
    held, built = corpus(), on_disk(corpus(), tmp_path / "built")
    for retriever in (BM25(held), Tantivy(built)):
        assert dict(zip(CASES, retriever.count(list(CASES)), strict=True)) == CASES
    for either in (held, built):
        assert Dense.count(SimpleNamespace(corpus=either), list(CASES)) == list(CASES.values())  # type: ignore[arg-type]


_WORDS = "Bo bo Ek Ek's the U.S MSCs 1,000 e_mail Wajda’s - s S Rene\u0301 Ren\u00e9 東京 京 film films"
_WORD = st.sampled_from(_WORDS.split())
_TEXT = st.lists(_WORD, min_size=1, max_size=6).map(" ".join)


@settings(max_examples=20, deadline=None)
@given(st.lists(_TEXT, min_size=1, max_size=5), st.lists(st.lists(_TEXT, min_size=1, max_size=2), max_size=4))
def test_an_index_finds_every_passage_that_reading_all_of_them_does(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], names: list[list[str]]
) -> None:
    held = Corpus.from_passages([Passage(str(i), "", text) for i, text in enumerate(texts)])
    built = on_disk(held, tmp_path_factory.mktemp("corpus") / "built")
    assert count_passages(built, names) == count_passages(held, names)


class Own:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def search(self, query: str, k: int) -> list[str]:
        return ["text"]

    def count(self, names: Any) -> Any:
        return self.answer


def test_a_retriever_of_your_own_may_count() -> None:
    names = [("Bo",), ("Bo", "Ek")]
    assert as_retriever(Own([3, 0])).count(names) == [3, 0]
    assert as_retriever(Own(np.array([3, 0]))).count(names) == [3, 0]
    assert not hasattr(as_retriever(lambda query, k: ["text"]), "count")
    for bad in ([3], [3, -1], [3, 0.5], [True, 1], None, {"Bo": 1}):
        with pytest.raises(RetrieverError, match=r"retriever Own counted 2 tuples .* a list of 2 whole numbers"):
            as_retriever(Own(bad)).count(names)
