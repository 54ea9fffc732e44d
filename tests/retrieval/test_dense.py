"""Dense retrieval: what is found, and a file of vectors that is whole or not there."""

from __future__ import annotations

import json
import math
import os
import pickle
import resource
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from encoding import WordEncoder
from sources import some_passages, write_json_lines

from dragin_lab.errors import (
    DataError,
    MissingPackageError,
    ModelError,
    SettingError,
)
from dragin_lab.retrieval import dense
from dragin_lab.retrieval.choose import open_retriever
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.dense import Dense, index_file, open_encoder
from dragin_lab.retrieval.stored import build_corpus
from dragin_lab.trace.trace import Passage

pytest.importorskip("faiss", reason="faiss-cpu is not installed (extra: dense)")

PASSAGES = [
    Passage("a", "Cats", "the cat sat on the mat"),
    Passage("b", "Dogs", "a dog chased the cats"),
    Passage("c", "Film", "directed by Ann Lee"),
    Passage("d", "", "void"),
]


@pytest.fixture
def corpus() -> Corpus:
    return Corpus.from_passages(PASSAGES)


# -- what is found ---------------------------------------------------------------------------------


def test_finds_the_nearest_with_their_cosines(corpus: Corpus) -> None:
    encoder = WordEncoder()
    hits = Dense(corpus, encoder).search("who directed the film", 3)
    query, passages = (
        encoder.encode_queries(["who directed the film"])[0],
        encoder.encode_passages(PASSAGES),
    )
    cosines = passages @ query
    assert [p.id for p in hits] == [PASSAGES[i].id for i in np.argsort(-cosines, kind="stable")[:3]]
    assert [p.score for p in hits] == pytest.approx(
        sorted(cosines.tolist(), reverse=True)[:3], abs=1e-6
    )
    assert (hits[0].title, hits[0].text) == ("Film", "directed by Ann Lee")


def test_many_queries_at_once_find_what_each_does_alone(corpus: Corpus) -> None:
    opened = Dense(corpus, WordEncoder())
    queries = ["cat", "dogs and cats", "", "Ann Lee"]
    assert opened.search_many(queries, 2) == [opened.search(query, 2) for query in queries]
    assert opened.search_many([], 2) == []
    assert len(opened.search("cat", 99)) == 4
    assert opened.search(" ", 2) == []
    with pytest.raises(SettingError, match="query"):
        opened.search(7, 2)  # type: ignore[arg-type]


def test_a_vector_that_is_not_finite_is_refused() -> None:
    facts = {"get_embedding_dimension": lambda: 2, "similarity_fn_name": "dot", "max_seq_length": 9}
    broken = SimpleNamespace(
        encode_query=lambda texts, **_: [[1.0, 0.0], [1.0, math.nan]][: len(texts)], **facts
    )
    encoder = dense.Encoder("broken", broken, weights_sha256="0")
    assert encoder.encode_queries(["a"]).tolist() == [[1.0, 0.0]]
    with pytest.raises(ModelError, match="no finite vector for 'b'; use another encoder or dtype"):
        encoder.encode_queries(["a", "b"])


def test_equal_passages_stand_in_corpus_order() -> None:
    corpus = Corpus.from_passages([Passage(str(i), "", "the same text") for i in range(20)])
    hits = Dense(corpus, WordEncoder()).search("same text", 20)
    assert [p.id for p in hits] == [str(i) for i in range(20)]


def test_both_forms_of_an_accent_have_one_vector() -> None:
    corpus = Corpus.from_passages(
        [Passage("a", "Rene\u0301", "a film"), Passage("b", "Bo", "a film")]
    )
    names = ["Ren\u00e9", "Rene\u0301"]
    hits = Dense(corpus, open_encoder("almanac")).search_many(names, 2)
    assert hits[0] == hits[1]


def test_provenance_says_what_was_searched(corpus: Corpus) -> None:
    opened = Dense(corpus, WordEncoder())
    facts = opened.provenance()
    assert (facts["kind"], facts["model"], facts["passages"]) == ("dense", "words", 4)
    assert facts["corpus_fingerprint"] == corpus.fingerprint
    assert json.loads(json.dumps(facts)) == facts
    assert repr(opened) == "Dense(Corpus(passages, 4 passages), words)"


# -- a file of vectors -----------------------------------------------------------------------------


def test_opened_again_it_finds_the_same_and_encodes_nothing(corpus: Corpus, tmp_path: Path) -> None:
    file = tmp_path / "below" / "vectors.faiss"
    built = Dense(corpus, WordEncoder(), file)
    encoder = WordEncoder()
    opened = Dense(corpus, encoder, file)
    assert encoder.seen == 0
    assert opened.search("dog", 3) == built.search("dog", 3)
    assert pickle.loads(pickle.dumps(opened)).search("dog", 3) == built.search("dog", 3)
    assert os.listdir(file.parent) == [file.name]


def test_a_file_is_of_one_corpus_and_one_encoder(corpus: Corpus) -> None:
    less = Corpus.from_passages(PASSAGES[:3])
    encoders = WordEncoder(), WordEncoder("others"), WordEncoder(weights="1" * 64)
    files = {index_file(one, encoder) for one in (corpus, less) for encoder in encoders}
    assert len(files) == 6
    assert index_file(corpus, WordEncoder()) in files


def test_a_file_that_is_cut_short_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    file = tmp_path / "vectors.faiss"
    Dense(corpus, WordEncoder(), file)
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(DataError, match="delete it, and it is made again"):
        Dense(corpus, WordEncoder(), file)


class Broken(WordEncoder):
    """An encoder that is interrupted after some passages."""

    def encode_passages(self, passages: list[Passage]) -> np.ndarray:
        if self.seen:
            raise KeyboardInterrupt
        return super().encode_passages(passages)


def test_what_is_not_finished_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = Corpus.from_passages(some_passages(50))
    monkeypatch.setattr(dense, "_BLOCK", 8)
    with pytest.raises(KeyboardInterrupt):
        Dense(corpus, Broken(), tmp_path / "vectors.faiss")
    assert os.listdir(tmp_path) == []


def test_a_disk_that_is_full_says_what_to_do(tmp_path: Path) -> None:
    corpus = Corpus.from_passages(some_passages(50))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limit[1]))  # 31 vectors
        with pytest.raises(DataError, match="limit on a file's size"):
            Dense(corpus, WordEncoder(), tmp_path / "vectors.faiss")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert os.listdir(tmp_path) == []


def test_without_faiss(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'dragin-lab\[dense\]'"):
        Dense(corpus, WordEncoder())


# -- the embedded model's hidden states ------------------------------------------------------------


def test_the_whole_path_on_the_embedded_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    passages = Corpus.load()[:12]
    source = write_json_lines(tmp_path / "p.jsonl", passages)
    folder = build_corpus(source, tmp_path / "built").folder
    (hit,) = open_retriever("dense:almanac", folder).search(passages[7].text, 1)
    assert hit.id == passages[7].id
    assert hit.score > 0.9
    assert len(list((tmp_path / "cache").rglob("*.faiss"))) == 1
    again = open_retriever("dense:almanac", str(source))
    assert again.search(passages[7].text, 1) == [hit]
    assert len(list((tmp_path / "cache").rglob("*.faiss"))) == 1
    assert again.provenance()["model"] == "almanac"  # type: ignore[attr-defined]
