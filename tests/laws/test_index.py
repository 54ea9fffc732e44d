"""A built index finds what BM25 in memory finds, with the same scores, in any script."""

from __future__ import annotations

import pytest
from given import some
from hypothesis import given
from hypothesis import strategies as st
from sources import on_disk

from dragin_lab.retrieval.bm25 import BM25, Tantivy
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.trace.trace import Passage

usual = [
    "cat",
    "dogs",
    "dog",
    "film",
    "the",
    "of",
    "Russia's",
    "1,000",
    "é",
    "e\u0301",
    "İzmir",
    "Zu\u00adrich",
    "MSCs",
]
scripts = [
    *(
        "दिल्ली",
        "Алекса́ндр",
        "Ọ̀ṣun",
        "東京タワー",
        "か\u3099",
        "พระองค์",
        "ΣΊΣΥΦΟΣ",
        "שלום",
        "x" * 300,
        "👍🏽",
        "\u0301",
    ),
]
word = st.one_of(
    st.sampled_from(usual + scripts), st.text(st.characters(exclude_categories=("Cs",)), max_size=4)
)
# of up to 40 terms, counted exactly
text = st.lists(word, min_size=1, max_size=9).map(" ".join).filter(str.strip)


@some(8)
@given(
    rows=st.lists(st.tuples(st.one_of(st.just(""), text), text), min_size=1, max_size=12),
    queries=st.lists(text, min_size=1, max_size=5),
    k=st.integers(1, 14),
)
def test_a_built_index_ranks_as_bm25_in_memory_does(
    rows: list[tuple[str, str]],
    queries: list[str],
    k: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    passages = [Passage(str(i), title, body) for i, (title, body) in enumerate(rows)]
    tantivy = Tantivy(on_disk(passages, tmp_path_factory.mktemp("any")))
    one, other = (
        BM25(Corpus.from_passages(passages)).search_many(queries, k),
        tantivy.search_many(queries, k),
    )
    for left, right in zip(one, other, strict=True):
        assert [p.score for p in left] == pytest.approx([p.score for p in right], rel=1e-6)
        assert [passages[int(p.id)].text for p in right] == [p.text for p in right]
