"""The bm25s back end: the same formula and the same order as rank-bm25's, in memory and mapped from a folder."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragin_lab.core.trace import Passage
from dragin_lab.errors import CorpusError, SettingError
from dragin_lab.retrieval.best_fields import best_positions
from dragin_lab.retrieval.bm25 import BM25
from dragin_lab.retrieval.corpus import Corpus

pytest.importorskip("bm25s", reason="bm25s is not installed (extra: corpora)")

from dragin_lab.retrieval.bm25s_index import BM25S
from dragin_lab.retrieval.postings import Terms

PASSAGES = [
    Passage("a", "Alpha", "the cat sat on the mat"),
    Passage("b", "", "a dog chased the cats"),
    Passage("c", "Cats", "dogs bark"),
    Passage("d", "", "of the"),
]
QUERIES = ("cat", "cats dogs", "alpha mat", "bark bark", "the of", "", "unheard")


def order(passages: list[Passage]) -> list[str]:
    return [passage.id for passage in passages]


@pytest.fixture
def corpus() -> Corpus:
    return Corpus.from_passages(PASSAGES)


def test_ranks_and_scores_as_rank_bm25(corpus: Corpus) -> None:
    ours, theirs = BM25S(corpus), BM25(corpus)
    for query in QUERIES:
        found, expected = ours.search(query, 3), theirs.search(query, 3)
        assert order(found) == order(expected)
        assert [p.score for p in found] == pytest.approx([p.score for p in expected], rel=1e-6)
    assert ours.search_many(QUERIES, 2) == [ours.search(query, 2) for query in QUERIES]


word = st.sampled_from(["cat", "dogs", "dog", "film", "war", "the", "of", "Russia's", "1,000", "é"])
text = st.lists(word, min_size=1, max_size=8).map(" ".join)


@given(
    rows=st.lists(st.tuples(st.one_of(st.just(""), text), text), min_size=1, max_size=8),
    query=text,
    k=st.integers(1, 10),
    k1=st.sampled_from([0.0, 0.9, 1.2]),
    b=st.sampled_from([0.0, 0.75, 1.0]),
    tie_breaker=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_agrees_with_rank_bm25_on_anything(
    rows: list[tuple[str, str]], query: str, k: int, k1: float, b: float, tie_breaker: float
) -> None:
    corpus = Corpus.from_passages(Passage(str(i), title, body) for i, (title, body) in enumerate(rows))
    chosen: dict[str, Any] = {"k1": k1, "b": b, "tie_breaker": tie_breaker}
    everything = {p.id: p.score for p in BM25(corpus, **chosen).search(query, len(rows))}
    found = BM25S(corpus, **chosen).search(query, k)
    assert len(found) == min(k, len(everything))
    for passage, best in zip(found, sorted(everything.values(), reverse=True), strict=False):
        assert passage.score == pytest.approx(everything[passage.id], rel=1e-5)
        assert passage.score == pytest.approx(best, rel=1e-5)  # in its place but for ties in float32


@given(scores=st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0]), min_size=0, max_size=30), k=st.integers(1, 12))
def test_the_best_positions_are_those_of_a_full_sort(scores: list[float], k: int) -> None:
    array = np.array(scores, np.float32)
    expected = [i for i in np.argsort(-array, kind="stable").tolist() if scores[i] > 0][:k]
    assert best_positions(array, k).tolist() == expected


# -- on disk ----------------------------------------------------------------------------------------------------------


def test_saved_and_mapped_it_finds_the_same(corpus: Corpus, tmp_path: Path) -> None:
    built = BM25S(corpus, k1=0.9, b=0.4, tie_breaker=0.25)
    folder = built.save(tmp_path / "deep" / "index")
    loaded = BM25S.load(folder, Corpus.from_passages(PASSAGES, name="another name"))
    for query in QUERIES:
        assert loaded.search(query, 4) == built.search(query, 4)
    assert loaded.fingerprint == built.fingerprint
    assert loaded.fingerprint != BM25(corpus, k1=0.9, b=0.4, tie_breaker=0.25).fingerprint
    assert {k: v for k, v in loaded.provenance().items() if k != "corpus"}.items() <= built.provenance().items()
    text = loaded._fields["text"]
    assert all(isinstance(text.scores[part], np.memmap) for part in ("data", "indices"))


def test_a_corpus_without_titles_or_without_terms(tmp_path: Path) -> None:
    for passages, hits in (([Passage("1", "", "word")], ["1"]), ([Passage("1", "", "the of")], [])):
        corpus = Corpus.from_passages(passages)
        built = BM25S(corpus)
        loaded = BM25S.load(built.save(tmp_path / str(len(hits))), corpus)
        assert order(built.search("word", 3)) == order(loaded.search("word", 3)) == hits


def test_saving_again_replaces_it(corpus: Corpus, tmp_path: Path) -> None:
    BM25S(Corpus.from_passages(PASSAGES[:2])).save(tmp_path)
    BM25S(corpus).save(tmp_path)
    assert order(BM25S.load(tmp_path, corpus).search("cats", 3)) == order(BM25(corpus).search("cats", 3))


def test_what_is_no_index_of_this_corpus_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="holds no whole index"):
        BM25S.load(tmp_path, corpus)
    BM25S(corpus).save(tmp_path)
    with pytest.raises(CorpusError, match="built with corpus_fingerprint"):
        BM25S.load(tmp_path, Corpus.from_passages(PASSAGES[:3]))
    about = tmp_path / "index.json"
    whole = about.read_text()
    for name, value in (("format", 0), ("analysis", "french")):
        about.write_text(json.dumps(json.loads(whole) | {name: value}))
        with pytest.raises(CorpusError, match=f"built with {name} {value!r}"):
            BM25S.load(tmp_path, corpus)
    for broken in (whole[:20], "[]"):
        about.write_text(broken)
        with pytest.raises(CorpusError, match=r"index\.json"):
            BM25S.load(tmp_path, corpus)


@pytest.mark.parametrize("name", ["data.csc.index.npy", "indices.csc.index.npy", "terms.bin", "params.index.json"])
def test_files_that_are_cut_short_or_gone_are_found(corpus: Corpus, tmp_path: Path, name: str) -> None:
    path = BM25S(corpus).save(tmp_path) / "text" / name
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(CorpusError, match="build the index anew"):
        BM25S.load(tmp_path, corpus)
    path.unlink()
    with pytest.raises(CorpusError, match="build the index anew"):
        BM25S.load(tmp_path, corpus)


def test_an_interrupted_save_is_no_index(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = BM25S(corpus)
    index.save(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Terms, "save", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(CorpusError, match="free some space"):
            index.save(tmp_path)
    with pytest.raises(CorpusError, match="holds no whole index"):
        BM25S.load(tmp_path, corpus)


def test_without_the_library(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(SettingError, match=r"pip install 'dragin-lab\[corpora\]'"):
        BM25S(corpus)


# -- real passages ----------------------------------------------------------------------------------------------------


def test_the_first_three_are_rank_bm25s_on_real_passages() -> None:
    """But for ties: where the order differs, the scores are equal to six digits."""
    data = Path(os.environ.get("DRAGIN_LAB_DATA", "data"))
    if not (data / "passages").is_dir() or not (data / "hotpotqa").is_dir():
        pytest.skip("no real passages: set DRAGIN_LAB_DATA to the folder that holds passages/ and hotpotqa/")
    corpus = Corpus.load(data / "passages" / "psgs_w100.tsv.gz")
    rows = json.loads((data / "hotpotqa" / "hotpot_dev_distractor_v1.json").read_text(encoding="utf-8"))
    ours, theirs = BM25S(corpus), BM25(corpus)
    for row in rows[:100]:
        found, expected = ours.search(row["question"], 3), theirs.search(row["question"], 3)
        scores = [p.score for p in expected]
        assert [p.score for p in found] == pytest.approx(scores, rel=1e-6)
        for a, b in zip(found, expected, strict=True):
            assert a.id == b.id or scores.count(pytest.approx(b.score, rel=1e-6)) > 1
