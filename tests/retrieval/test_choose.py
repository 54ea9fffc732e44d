"""A retriever by its name: what is opened, what is refused, and what a run is called then."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from run_folders import read_config, write_run
from sources import some_passages, write_json_lines

from dragin_lab.catalog.by_name import method
from dragin_lab.errors import MissingPackageError
from dragin_lab.retrieval import choose
from dragin_lab.retrieval.bm25 import BM25
from dragin_lab.retrieval.choose import open_retriever, read_spec
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.run.benchmark import run_label
from dragin_lab.run.runwriter import check_settings


@pytest.fixture
def passages(tmp_path: Path) -> str:
    return str(write_json_lines(tmp_path / "p.jsonl", some_passages(20)))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'dragin-lab\[dense\]'"):
        read_spec("dense:x")


def test_by_default_a_built_corpus_is_searched_on_disk_and_it_is_said(
    passages: str, tmp_path: Path
) -> None:
    assert open_retriever("bm25", passages).provenance() == BM25(Corpus.load(passages)).provenance()
    Corpus.build(passages, tmp_path / "built")
    built = tmp_path / "built"
    for corpus, kind in ((passages, "bm25"), (built, "tantivy"), (Corpus.load(built), "tantivy")):
        facts = open_retriever(None, corpus).provenance()
        assert (facts["kind"], facts["chosen"]) == (
            kind,
            "by default: tantivy for a built corpus, else bm25",
        )


def test_bm25_of_many_passages_says_what_would_be_better(
    passages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "IN_MEMORY", 19)
    with pytest.warns(UserWarning, match="holds 20 passages in memory; above 19 build the corpus"):
        open_retriever(None, passages)


def test_a_run_is_called_by_its_retriever_where_it_is_not_the_usual_one() -> None:
    dragin, never = method("dragin"), method("wo-rag")
    assert run_label(dragin) == run_label(dragin, "bm25") == "dragin"
    assert run_label(dragin, "tantivy") == "dragin-tantivy"
    assert run_label(dragin, "dense:Muennighoff/SGPT-125M") == "dragin-dense-SGPT-125M"
    assert run_label(dragin, "dense:/models/my encoder/") == "dragin-dense-my-encoder"
    assert run_label(never, "tantivy") == "wo-rag"


def test_who_chose_the_retriever_is_no_other_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path, em=[1.0])
    there = read_config(folder)
    check_settings(folder, there | {"retriever": there["retriever"] | {"chosen": "by default"}})
    check_settings(folder, there)
