"""BM25 as inner products of sparse vectors: the same scores as BM25's, whatever the passages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragin_lab.core.trace import Passage
from dragin_lab.retrieval.bm25 import BM25, NOTHING, Sparse, Weigher, dimension, query_vectors
from dragin_lab.retrieval.corpus import Corpus

word = st.sampled_from(["cat", "dogs", "dog", "film", "war", "the", "of", "Russia's", "1,000", "é"])
text = st.lists(word, max_size=8).map(" ".join)


def product(a: Sparse, b: Sparse) -> float:
    return sum(weight * b[place] for place, weight in a.items() if place in b)


@given(
    rows=st.lists(st.tuples(text, text.map("x {}".format)), min_size=1, max_size=8),
    query=text,
)
def test_the_larger_product_is_the_score(rows: list[tuple[str, str]], query: str) -> None:
    corpus = Corpus.from_passages(Passage(str(i), *row) for i, row in enumerate(rows))
    weigher, found = Weigher(corpus), BM25(corpus).search(query, len(corpus))
    asked, expected = query_vectors(query), {passage.id: passage.score for passage in found}
    for passage in corpus:
        score = max(product(led, weigher.vector(passage)) for led in asked)
        assert score == pytest.approx(expected.get(passage.id, 0.0), rel=1e-9)


def test_a_dimension_is_the_same_everywhere_and_no_term_has_that_of_nothing() -> None:
    assert [dimension("text", term) for term in ("cat", "電影")] == [1760188421, 1005245797]
    assert all(0 < dimension("title", f"term{i}") <= 2**32 - 2 for i in range(2000))
    assert NOTHING == 0


def test_a_query_counts_its_terms_and_a_passage_without_any_has_a_vector_that_none_meets() -> None:
    cat, dog = ((dimension("title", term), dimension("text", term)) for term in ("cat", "dog"))
    title_led, text_led = query_vectors("Cats cat, the dog")
    assert title_led == {cat[0]: 2.0, cat[1]: 1.0, dog[0]: 1.0, dog[1]: 0.5}
    assert text_led == {cat[0]: 1.0, cat[1]: 2.0, dog[0]: 0.5, dog[1]: 1.0}
    assert query_vectors("the of") == ({}, {})
    passages = [Passage("1", "The", "of the"), Passage("2", "A cat", "cat")]
    assert Weigher(passages).vector(passages[0]) == {NOTHING: 1.0}
