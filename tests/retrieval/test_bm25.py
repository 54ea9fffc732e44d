"""BM25: against the formula written out, and against a published result."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scifact import PUBLISHED_NDCG, mean_ndcg, one_field

from dragin_lab.errors import SettingError
from dragin_lab.retrieval.analysis import list_terms
from dragin_lab.retrieval.bm25 import BM25
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.trace.trace import Passage

PASSAGES = [
    Passage("a", "Alpha", "the cat sat on the mat"),
    Passage("b", "", "a dog chased the cats"),
    Passage("c", "Cats", "dogs bark"),
    Passage("d", "", "nothing here"),
]


@pytest.fixture
def bm25() -> BM25:
    return BM25(Corpus.from_passages(PASSAGES))


# -- analysis --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("The of AND to", []),
        ("Directors' films; the director's FILM", ["director", "film", "director", "film"]),
        ("don't O’Brien’s", ["don", "t", "o", "brien"]),
        (
            "1,000.5 U.S.A x-ray foo_bar C++",
            ["1", "000", "5", "u", "s", "x", "ray", "foo", "bar", "c"],
        ),
        (
            "Wajda’s Ek＇S film, Model S's, the Galaxy S 's",
            ["wajda", "ek", "film", "model", "s", "galaxi", "s", "s"],
        ),
        ("us is as", ["us"]),
        ("MSCs of the MSC, DNAs, gas", ["msc", "msc", "dna", "gas"]),
        (
            "possibly possible technology technological",
            ["possibl", "possibl", "technolog", "technolog"],
        ),
        (
            "東京は333メートル、AIモデル 한국어 👍🏽",
            ["東", "京", "は", "333", "メートル", "ai", "モデル", "한국어"],
        ),
        ("レオナルド・ダ・ヴィンチ 𠮷野 々", ["レオナルド", "ダ", "ヴィンチ", "𠮷", "野", "々"]),
        ("caf\u00e9 cafe\u0301 \u1112\u1161\u11ab", ["café", "café", "한"]),
        (
            "शक्ति दिल्ली Алекса́ндр Ọ̀ṣun พระองค์เจ้า",
            ["शक्ति", "दिल्ली", "алекса́ндр", "ọ̀ṣun", "พระองค์เจ้า"],
        ),
        (
            "İstanbul Zu\u00adrich\u2060 \ufeffB\u200bo ΣΊΣΥΦΟΣ \u0301x",
            ["istanbul", "zurich", "bo", "σίσυφοσ", "x"],
        ),
        ("x" * 255 + " " + "y" * 256, ["x" * 255]),
        (" \n\t.,;-—", []),
    ],
)
def test_terms(text: str, expected: list[str]) -> None:
    assert list_terms(text) == expected


def test_lucenes_stop_words_and_no_others_are_left_out() -> None:
    stop_words = (
        "a an and are as at be but by for if in into is it no not of on or such that the their then"
        " there these they this to was will with"
    )
    assert len(stop_words.split()) == 33
    assert list_terms(stop_words) == []
    kept = (
        "he she we you i from has have had can do does what which who so than too very were been"
        " its about all any"
    )
    assert len(list_terms(kept)) == len(kept.split())


# -- scores ----------------------------------------------------------------------------------------


def field_score(
    documents: list[list[str]], index: int, query: list[str], k1: float, b: float
) -> float:
    """BM25 of one document as Lucene's documentation writes it."""
    avgdl = sum(len(d) for d in documents) / len(documents) or 1
    document = documents[index]
    score = 0.0
    for term in query:
        df = sum(term in d for d in documents)
        idf = math.log(1 + (len(documents) - df + 0.5) / (df + 0.5))
        tf = document.count(term)
        if tf:
            score += idf * tf / (tf + k1 * (1 - b + b * len(document) / avgdl))
    return score


word = st.sampled_from(["cat", "dogs", "dog", "film", "war", "the", "of", "Russia's", "1,000", "é"])
text = st.lists(word, min_size=1, max_size=8).map(" ".join)


@given(
    rows=st.lists(st.tuples(st.one_of(st.just(""), text), text), min_size=1, max_size=8),
    query=st.one_of(st.just(""), text),
    k=st.integers(1, 10),
    k1=st.sampled_from([0.0, 0.9, 1.2, 2.0]),
    b=st.sampled_from([0.0, 0.4, 0.75, 1.0]),
    tie_breaker=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_agrees_with_the_formula(
    rows: list[tuple[str, str]], query: str, k: int, k1: float, b: float, tie_breaker: float
) -> None:
    passages = [Passage(str(i), title, body) for i, (title, body) in enumerate(rows)]
    titles, bodies = [list_terms(t) for t, _ in rows], [list_terms(x) for _, x in rows]
    expected = {}
    for i, passage in enumerate(passages):
        scores = [field_score(field, i, list_terms(query), k1, b) for field in (titles, bodies)]
        if max(scores) > 0:
            expected[passage.id] = max(scores) + tie_breaker * min(scores)
    hits = BM25(Corpus.from_passages(passages), k1=k1, b=b, tie_breaker=tie_breaker).search(
        query, k
    )
    assert len(hits) == min(k, len(expected))
    for passage in hits:
        assert passage.score == pytest.approx(expected[passage.id], rel=1e-9)
        assert (passage.title, passage.text) == rows[int(passage.id)]
    # Best first; equal scores in corpus order; nothing better was left out.
    keys = [(-p.score, int(p.id)) for p in hits]
    assert keys == sorted(keys)
    left = [score for id, score in expected.items() if id not in {p.id for p in hits}]
    assert max(left, default=0.0) <= hits[-1].score * (1 + 1e-9) if hits else not expected


def test_provenance(bm25: BM25) -> None:
    facts = bm25.provenance()
    assert (facts["kind"], facts["k1"], facts["b"], facts["passages"]) == ("bm25", 1.2, 0.75, 4)
    assert facts["corpus_fingerprint"] == bm25.corpus.fingerprint
    others = [
        BM25(bm25.corpus, k1=0.9),
        BM25(bm25.corpus, b=0.4),
        BM25(bm25.corpus, tie_breaker=0.0),
    ]
    others.append(BM25(Corpus.from_passages(PASSAGES[:3])))
    assert all(other.provenance() != facts for other in others)
    assert "k1=1.2" in repr(bm25)


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "three"])
def test_refuses_a_senseless_number_of_passages(bm25: BM25, k: object) -> None:
    with pytest.raises(SettingError, match=r"^k="):
        bm25.search("cat", k)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "setting",
    [
        {"k1": -0.1},
        {"k1": math.nan},
        {"k1": math.inf},
        {"b": 1.5},
        {"b": math.nan},
        {"tie_breaker": -1.0},
    ],
)
def test_refuses_settings_outside_their_range(setting: dict[str, float]) -> None:
    with pytest.raises(SettingError, match=next(iter(setting))):
        BM25(Corpus.from_passages(PASSAGES), **setting)


# -- real data -------------------------------------------------------------------------------------


def real_data(*parts: str) -> Path:
    path = Path(os.environ.get("DRAGIN_LAB_DATA", "data")).joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no {'/'.join(parts)}: set DRAGIN_LAB_DATA to the folder that holds it")
    return path


def test_scifact_as_published() -> None:
    """Anserini's published nDCG@10 for BM25 with k1 0.9 and b 0.4 over title and text is 0.6789."""
    assert mean_ndcg(real_data("scifact"), one_field) == pytest.approx(PUBLISHED_NDCG, abs=0.005)
