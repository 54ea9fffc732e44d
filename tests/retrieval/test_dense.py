"""Dense retrieval: what is found, an index that knows what it is of, and an encoding that
survives being killed.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command import Command
from encoding import WordEncoder
from sources import some_passages, write_json_lines

from dragin_lab.errors import (
    BrokenOffError,
    CorpusError,
    MissingPackageError,
    ModelError,
    SettingError,
)
from dragin_lab.retrieval import dense
from dragin_lab.retrieval.choose import open_retriever
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.dense import PROGRESS, VECTORS, Dense, index_folder, open_encoder
from dragin_lab.retrieval.stored import ABOUT, build_corpus
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


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every few passages were a block that is made to last."""
    monkeypatch.setattr(dense, "_BLOCK", 8)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


# -- what is found ---------------------------------------------------------------------------------


def test_finds_the_nearest_with_their_cosines(corpus: Corpus, tmp_path: Path) -> None:
    encoder = WordEncoder()
    hits = Dense.build(corpus, encoder, tmp_path).search("who directed the film", 3)
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


def test_many_queries_at_once_find_what_each_does_alone(corpus: Corpus, tmp_path: Path) -> None:
    opened = Dense.build(corpus, WordEncoder(), tmp_path)
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


def test_equal_passages_stand_in_corpus_order(tmp_path: Path) -> None:
    corpus = Corpus.from_passages([Passage(str(i), "", "the same text") for i in range(20)])
    hits = Dense.build(corpus, WordEncoder(), tmp_path).search("same text", 20)
    assert [p.id for p in hits] == [str(i) for i in range(20)]


def test_both_forms_of_an_accent_have_one_vector(tmp_path: Path) -> None:
    corpus = Corpus.from_passages(
        [Passage("a", "Rene\u0301", "a film"), Passage("b", "Bo", "a film")]
    )
    names = ["Ren\u00e9", "Rene\u0301"]
    hits = Dense.build(corpus, open_encoder("almanac"), tmp_path).search_many(names, 2)
    assert hits[0] == hits[1]


def test_provenance_says_what_was_searched(corpus: Corpus, tmp_path: Path) -> None:
    opened = Dense.build(corpus, WordEncoder(), tmp_path)
    facts = opened.provenance()
    assert (facts["kind"], facts["model"], facts["passages"]) == ("dense", "words", 4)
    assert facts["corpus_fingerprint"] == corpus.fingerprint
    assert json.loads(json.dumps(facts)) == facts
    assert repr(opened) == "Dense(Corpus(passages, 4 passages), words)"


# -- an index knows what it is of ------------------------------------------------------------------


def test_opened_again_it_finds_the_same(corpus: Corpus, tmp_path: Path) -> None:
    built = Dense.build(corpus, WordEncoder(), tmp_path)
    opened = Dense(corpus, WordEncoder(), tmp_path)
    assert opened.search("dog", 3) == built.search("dog", 3)
    assert opened.provenance() == built.provenance()
    assert not (tmp_path / PROGRESS).exists()
    encoder = WordEncoder()
    Dense.build(corpus, encoder, tmp_path)
    assert encoder.seen == 0  # it is there


def test_an_index_of_something_else_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="cannot be read"):
        Dense(corpus, WordEncoder(), tmp_path)
    Dense.build(corpus, WordEncoder(), tmp_path)
    with pytest.raises(CorpusError, match="built with corpus_fingerprint"):
        Dense(Corpus.from_passages(PASSAGES[:3]), WordEncoder(), tmp_path)
    with pytest.raises(CorpusError, match="built with model 'words', and this is 'others'"):
        Dense(corpus, WordEncoder("others"), tmp_path)
    with pytest.raises(CorpusError, match="built with weights_sha256"):
        Dense.build(corpus, WordEncoder(weights="1" * 64), tmp_path)
    about = json.loads((tmp_path / ABOUT).read_text())
    (tmp_path / ABOUT).write_text(json.dumps(about | {"format": 0}))
    with pytest.raises(CorpusError, match="built with format 0, and this is 4"):
        Dense(corpus, WordEncoder(), tmp_path)


def test_a_file_that_is_cut_short_or_gone_is_detected(corpus: Corpus, tmp_path: Path) -> None:
    Dense.build(corpus, WordEncoder(), tmp_path)
    path = tmp_path / VECTORS
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    with pytest.raises(CorpusError, match="is damaged"):
        Dense(corpus, WordEncoder(), tmp_path)
    path.unlink()
    with pytest.raises(CorpusError, match="cannot be read"):
        Dense(corpus, WordEncoder(), tmp_path)
    assert len(Dense.build(corpus, WordEncoder(), tmp_path, force=True).search("cat", 2)) == 2


def test_models_of_one_name_and_other_weights_have_folders_of_their_own(corpus: Corpus) -> None:
    assert index_folder(corpus, WordEncoder()) != index_folder(
        corpus, WordEncoder(weights="1" * 64)
    )
    assert index_folder(corpus, WordEncoder("org/my model")).name == "dense-org-my-model-00000000"


# -- an encoding that is stopped -------------------------------------------------------------------


class Broken(WordEncoder):
    """An encoder that fails after some passages."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def encode_passages(self, passages: list[Passage]) -> np.ndarray:
        if self.seen >= self.after:
            raise KeyboardInterrupt
        return super().encode_passages(passages)


@pytest.mark.usefixtures("small_blocks")
def test_an_interrupted_encoding_goes_on_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    corpus = Corpus.from_passages(some_passages(50))
    Dense.build(corpus, WordEncoder(), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        Dense.build(corpus, Broken(30), tmp_path / "half")
    with (tmp_path / "half" / VECTORS).open("ab") as file:
        file.write(b"torn")
    encoder = WordEncoder()
    Dense.build(corpus, encoder, tmp_path / "half")
    assert encoder.seen == 50 - 32
    assert files(tmp_path / "half") == files(tmp_path / "whole")


@pytest.mark.usefixtures("small_blocks")
def test_an_unfinished_encoding_of_something_else_is_refused(tmp_path: Path) -> None:
    corpus = Corpus.from_passages(some_passages(50))
    with pytest.raises(KeyboardInterrupt):
        Dense.build(corpus, Broken(30), tmp_path)
    with pytest.raises(
        CorpusError, match="unfinished encoding of another corpus or by another encoder"
    ):
        Dense.build(corpus, WordEncoder("others"), tmp_path)
    assert Dense.build(corpus, WordEncoder(), tmp_path, force=True).search("river", 1)


def test_a_folder_with_other_files_is_left_alone(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(CorpusError, match="is not empty and holds no index"):
        Dense.build(corpus, WordEncoder(), tmp_path)
    assert os.listdir(tmp_path) == ["letters.txt"]


@pytest.mark.usefixtures("small_blocks")
def test_a_disk_that_is_full_keeps_what_was_encoded(tmp_path: Path) -> None:
    corpus = Corpus.from_passages(some_passages(50))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limit[1]))  # 31 vectors
        with pytest.raises(
            BrokenOffError, match=r"limit on a file's size.*goes on where it stopped"
        ):
            Dense.build(corpus, WordEncoder(), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    encoder = WordEncoder()
    Dense.build(corpus, encoder, tmp_path)
    assert encoder.seen == 50 - 24


def test_two_encodings_into_one_folder(corpus: Corpus, tmp_path: Path) -> None:
    class Second(WordEncoder):
        def encode_passages(self, passages: list[Passage]) -> np.ndarray:
            with pytest.raises(CorpusError, match="another encoding is writing here"):
                Dense.build(corpus, WordEncoder(), tmp_path)
            return super().encode_passages(passages)

    Dense.build(corpus, Second(), tmp_path)


def test_without_faiss(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'dragin-lab\[dense\]'"):
        Dense.build(corpus, WordEncoder(), tmp_path)


# -- the embedded model's hidden states, from the command line -------------------------------------


def test_the_whole_path_on_the_embedded_model(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    passages = Corpus.load()[:12]
    source = write_json_lines(tmp_path / "p.jsonl", passages)
    folder = build_corpus(source, tmp_path / "built").folder
    with pytest.raises(
        CorpusError, match=f"dragin-lab corpus build {folder} --index dense:almanac"
    ):
        open_retriever("dense:almanac", folder)
    indexed = command("corpus", "build", folder, "--index", "dense:almanac")
    assert indexed.code == 0, indexed.err
    assert "Dense(Corpus(built, 12 passages), almanac)" in indexed.out
    (hit,) = open_retriever("dense:almanac", folder).search(passages[7].text, 1)
    assert hit.id == passages[7].id
    assert hit.score > 0.9
    assert not (tmp_path / "cache").exists()
    # encoded on the spot, and kept
    (loose,) = open_retriever("dense:almanac", str(source)).search(passages[7].text, 1)
    assert (loose.id, loose.score) == (hit.id, pytest.approx(hit.score, abs=1e-6))
    assert list((tmp_path / "cache").rglob(ABOUT))
    assert open_retriever("dense:almanac", str(source)).provenance()["model"] == "almanac"
