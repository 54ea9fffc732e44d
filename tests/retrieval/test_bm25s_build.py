"""A BM25S index built from disk in shares: the same as the one made in memory, resumable, and checked."""

from __future__ import annotations

import json
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
from command import Command
from sources import some_passages, write_json_lines

from dragin_lab.cli import DONE, FAILED
from dragin_lab.core.trace import Passage
from dragin_lab.errors import BrokenOffError, CorpusError
from dragin_lab.files import locked
from dragin_lab.retrieval import analysis, best_fields, bm25s_build
from dragin_lab.retrieval.bm25 import BM25
from dragin_lab.retrieval.bm25s_build import FIELDS, PROGRESS, SHARES
from dragin_lab.retrieval.bm25s_index import BM25S
from dragin_lab.retrieval.choose import open_retriever
from dragin_lab.retrieval.corpora.build import build
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.indexes import ABOUT, INDEXES
from dragin_lab.retrieval.postings import Terms

library = pytest.importorskip("bm25s", reason="bm25s is not installed (extra: corpora)")

QUERIES = ["harbour river", "the bridge's mill", "word7x0 of", "電影 opened 1887", "xyzzy", "", "river river senate"]


@pytest.fixture(autouse=True)
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares of 64 passages, merged a few postings at a time."""
    monkeypatch.setattr(bm25s_build, "SHARE", 64)
    monkeypatch.setattr(bm25s_build, "_PASSAGES_AT_ONCE", 10)
    monkeypatch.setattr(bm25s_build, "_POSTINGS_AT_ONCE", 50)
    monkeypatch.setattr(bm25s_build, "_TERMS_AT_ONCE", 7)


def built(tmp_path: Path, passages: list[Passage], name: str = "built") -> Corpus:
    source = write_json_lines(tmp_path / f"{name}.jsonl", passages)
    return Corpus.load(build(source, tmp_path / name).store.folder)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return built(tmp_path, some_passages(200))


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# -- the same index ---------------------------------------------------------------------------------------------------


def test_it_is_the_index_that_bm25s_makes_in_memory(corpus: Corpus) -> None:
    ours, theirs = BM25S.build(corpus, k1=0.9, b=0.4), BM25S(corpus, k1=0.9, b=0.4)
    for name in FIELDS:
        mine, its = ours._fields[name], theirs._fields[name]
        assert mine is not None
        assert its is not None
        assert [mine.terms[i] for i in range(len(mine.terms))] == [its.terms[i] for i in range(len(its.terms))]
        np.testing.assert_array_equal(mine.scores["indptr"], its.scores["indptr"])
        np.testing.assert_array_equal(mine.scores["indices"], its.scores["indices"])
        np.testing.assert_allclose(mine.scores["data"], its.scores["data"], rtol=1e-6)
        assert isinstance(mine.scores["data"], np.memmap)
    for query in QUERIES:
        found, expected = ours.search(query, 5), theirs.search(query, 5)
        assert [p.id for p in found] == [p.id for p in expected]
        assert [p.score for p in found] == pytest.approx([p.score for p in expected], rel=1e-6)
    assert (ours.k1, ours.b, ours.fingerprint) == (0.9, 0.4, theirs.fingerprint)


def test_bm25s_itself_reads_its_files(corpus: Corpus) -> None:
    assert corpus.folder is not None
    BM25S.build(corpus)
    matrix = library.BM25.load(str(corpus.folder / INDEXES / "bm25s" / "text"), load_vocab=False)
    assert (matrix.method, matrix.k1, matrix.b, matrix.scores["num_docs"]) == ("lucene", 1.2, 0.75, 200)


def test_it_ranks_as_the_index_in_memory(corpus: Corpus) -> None:
    ours, theirs = BM25S.build(corpus), BM25(corpus)
    for query in QUERIES:
        found, expected = ours.search(query, 200), theirs.search(query, 200)
        assert {p.id: p.score for p in found} == pytest.approx({p.id: p.score for p in expected}, rel=1e-5)


def test_several_processes_make_the_same_bytes(corpus: Corpus, tmp_path: Path) -> None:
    for workers in (1, 2):
        BM25S.build(corpus, tmp_path / str(workers), workers=workers)
    assert files(tmp_path / "1") == files(tmp_path / "2")


@pytest.mark.parametrize("text", ["the of", "word"])
def test_a_field_that_no_passage_has(tmp_path: Path, text: str) -> None:
    corpus = built(tmp_path, [Passage(str(i), "", text) for i in range(3)])
    assert len(BM25S.build(corpus).search("word", 5)) == (3 if text == "word" else 0)


def test_terms_are_found_by_their_bytes() -> None:
    words = sorted(["a", "aa", "b", "é", "電影", "\U0001f642", "zz", "ｚ"], key=str.encode)
    terms = Terms.of(words)
    assert [terms.find(word) for word in words] == list(range(len(words)))
    assert [terms.find(word) for word in ("", "0", "ab", "\U0001f643")] == [None] * 4
    assert Terms.of([]).find("a") is None


# -- many queries -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [1, 450, 1 << 23])
def test_queries_find_together_what_they_find_alone(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    backends = [BM25(corpus), BM25S(corpus), BM25S.build(corpus)]
    alone = [[backend.search(query, 3) for query in QUERIES] for backend in backends]
    monkeypatch.setattr(best_fields, "_SCORES_AT_ONCE", together)
    assert [backend.search_many(QUERIES, 3) for backend in backends] == alone
    assert [backend.search_many([], 3) for backend in backends] == [[], [], []]


# -- a build that is stopped ------------------------------------------------------------------------------------------


def test_an_interrupted_build_goes_on_and_ends_with_the_same_bytes(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    BM25S.build(corpus, tmp_path / "whole", workers=1)
    analyse, merge = bm25s_build._analyse, bm25s_build._merge
    seen: list[int] = []

    def counted(folder: Path, first: int, stop: int, target: Path) -> None:
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(first)
        analyse(folder, first, stop, target)

    monkeypatch.setattr(bm25s_build, "_analyse", counted)
    with pytest.raises(KeyboardInterrupt):
        BM25S.build(corpus, tmp_path / "half", workers=1)
    with pytest.raises(CorpusError, match="holds no whole index"):
        BM25S.load(tmp_path / "half", corpus)
    assert len(list((tmp_path / "half" / SHARES).iterdir())) == 2

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bm25s_build, "_analyse", analyse)
    monkeypatch.setattr(bm25s_build, "_merge", broken)
    with pytest.raises(KeyboardInterrupt):
        BM25S.build(corpus, tmp_path / "half", workers=1)
    monkeypatch.setattr(bm25s_build, "_analyse", broken)  # nothing is left to analyse
    monkeypatch.setattr(bm25s_build, "_merge", merge)
    BM25S.build(corpus, tmp_path / "half", workers=1)
    assert files(tmp_path / "half") == files(tmp_path / "whole")


def test_what_is_there_is_not_built_again(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    BM25S.build(corpus)

    def refused(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("dragin_lab.retrieval.bm25s_index.build_fields", refused)
    assert BM25S.build(corpus).search("river", 1)
    with pytest.raises(CorpusError, match=r"built with k1 1\.2, and this is 0\.9"):
        BM25S.build(corpus, k1=0.9)
    with pytest.raises(AssertionError):
        BM25S.build(corpus, k1=0.9, force=True)


def test_an_unfinished_index_of_something_else_is_refused(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(bm25s_build, "_merge", broken)
        with pytest.raises(KeyboardInterrupt):
            BM25S.build(corpus, tmp_path / "i")
    with pytest.raises(CorpusError, match="unfinished index of something else; start over with --force"):
        BM25S.build(built(tmp_path, some_passages(150), "other"), tmp_path / "i")
    (tmp_path / "i" / PROGRESS).write_text("{")
    with pytest.raises(CorpusError, match="is damaged"):
        BM25S.build(corpus, tmp_path / "i")
    assert BM25S.build(corpus, tmp_path / "i", force=True).search("river", 1)


def test_a_disk_that_is_full_keeps_what_was_analysed(corpus: Corpus, tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limit[1]))  # a share, but not the index
        with pytest.raises(BrokenOffError, match="goes on where it stopped"):
            BM25S.build(corpus, tmp_path / "i", workers=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert not (tmp_path / "i" / ABOUT).exists()
    assert BM25S.build(corpus, tmp_path / "i", workers=1).search("river", 1)


def test_two_builds_into_one_folder(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "i").mkdir()
    with locked(tmp_path / "i", ""), pytest.raises(CorpusError, match="another build is writing here"):
        BM25S.build(corpus, tmp_path / "i")


def test_a_corpus_in_memory_is_built_first(tmp_path: Path) -> None:
    source = write_json_lines(tmp_path / "p.jsonl", some_passages(5))
    with pytest.raises(CorpusError, match=f"is no built corpus; dragin-lab corpus build {source} --out FOLDER"):
        BM25S.build(Corpus.load(source))


def test_an_index_by_another_analysis_is_refused(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    BM25S.build(corpus)
    monkeypatch.setattr(analysis, "STOP_WORDS", frozenset())
    analysis._term.cache_clear()
    try:
        with pytest.raises(CorpusError, match="built with analysis_fingerprint"):
            BM25S.open(corpus)
    finally:
        monkeypatch.undo()
        analysis._term.cache_clear()
    assert BM25S.open(corpus)


# -- the command line -------------------------------------------------------------------------------------------------


def test_build_with_index_then_check_and_search(command: Command, tmp_path: Path) -> None:
    source = write_json_lines(tmp_path / "p.jsonl", some_passages(200))
    folder = tmp_path / "built"
    ran = command("corpus", "build", source, "--out", folder, "--index", "bm25s", "--workers", 1)
    assert ran.code == DONE, ran.err
    assert "BM25S(Corpus(built, 200 passages), k1=1.2, b=0.75)" in ran.out
    found = command("corpus", "search", "word7x0", "--corpus", folder, "--retriever", "bm25s", "--json")
    assert json.loads(found.out)["id"] == "7"
    checked = command("corpus", "check", folder, "--full")
    assert checked.code == DONE, checked.out
    assert "ok    index bm25s, of this corpus, every byte" in checked.out
    assert "ok    index bm25s: 8 canary queries, each of which found its passage" in checked.out
    assert command("corpus", "index", folder).code == DONE  # it is there


def test_check_finds_an_index_that_is_not_sound(command: Command, corpus: Corpus, tmp_path: Path) -> None:
    assert corpus.folder is not None
    index = corpus.folder / INDEXES / "bm25s"
    part = built(tmp_path, [*corpus][:190], "part")
    BM25S.build(part, index)
    ran = command("corpus", "check", corpus.folder)
    assert ran.code == FAILED
    assert "FAIL  " in ran.out
    assert "built with corpus_fingerprint" in ran.out
    BM25S.build(corpus, index, force=True)
    data = index / "text" / "data.csc.index.npy"
    raw = bytearray(data.read_bytes())
    raw[-1] ^= 4
    data.write_bytes(raw)
    ran = command("corpus", "check", corpus.folder)
    assert ran.code == FAILED
    assert f"{data}: does not have the SHA-256" in ran.out
    with pytest.raises(CorpusError, match="SHA-256"):
        open_retriever("bm25s", str(corpus.folder))


def test_a_corpus_that_is_built_anew_does_not_believe_its_old_index(command: Command, tmp_path: Path) -> None:
    source = write_json_lines(tmp_path / "p.jsonl", some_passages(20))
    folder = tmp_path / "built"
    assert command("corpus", "build", source, "--out", folder, "--index", "bm25s").code == DONE
    write_json_lines(source, some_passages(20, seed=1))
    assert command("corpus", "build", source, "--out", folder, "--force").code == DONE
    refused = command("corpus", "search", "river", "--corpus", folder, "--retriever", "bm25s")
    assert "built with corpus_fingerprint" in refused.err
    assert command("corpus", "index", folder, "--force").code == DONE
    assert command("corpus", "search", "river", "--corpus", folder, "--retriever", "bm25s").code == DONE
