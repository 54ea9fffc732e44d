"""Built corpora that are not whole any more: found when they are opened, read or checked, and said loudly."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from command import Command
from sources import some_passages, write_json_lines

from dragin_lab.cli import DONE, FAILED
from dragin_lab.core.trace import Passage
from dragin_lab.errors import CorpusError
from dragin_lab.retrieval.bm25 import BM25
from dragin_lab.retrieval.corpora import check as corpus_check
from dragin_lab.retrieval.corpora import parse as corpus_parse
from dragin_lab.retrieval.corpora import store as corpus_store
from dragin_lab.retrieval.corpora.build import build
from dragin_lab.retrieval.corpora.check import ask_canaries, check
from dragin_lab.retrieval.corpora.store import MANIFEST, ORDER, PASSAGES, PROGRESS, ROWS, Store
from dragin_lab.retrieval.corpus import Corpus


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = write_json_lines(tmp_path / "p.jsonl", some_passages(200))
    return build(source, tmp_path / "built").store.folder


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every corpus were too large to be hashed when it is opened."""
    monkeypatch.setattr(corpus_store, "HASHED_AT_ONCE", 0)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def wrong(findings: Iterator[tuple[str, bool]]) -> list[str]:
    return [line for line, good in findings if not good]


def test_a_sound_corpus(folder: Path) -> None:
    assert wrong(check(folder, full=True)) == []
    assert wrong(ask_canaries(folder, BM25(Corpus.load(folder)))) == []
    assert len(Store(folder).manifest.canaries) == 8


@pytest.mark.parametrize("name", [PASSAGES, ROWS, ORDER, MANIFEST])
def test_a_flipped_bit_is_found_when_a_small_corpus_is_opened(folder: Path, name: str) -> None:
    size = (folder / name).stat().st_size
    for at in {0, size // 3, size // 2, size - 2}:
        flip(folder / name, at)
        with pytest.raises(CorpusError, match=name):
            Corpus.load(folder)
        flip(folder / name, at)
    assert len(Corpus.load(folder)) == 200


@pytest.mark.usefixtures("large")
def test_a_flipped_bit_of_a_large_corpus_is_found_when_it_is_read(folder: Path) -> None:
    flip(folder / PASSAGES, 5000)
    corpus = Corpus.load(folder)
    with pytest.raises(CorpusError, match=r"passage \d+ is damaged"):
        BM25(corpus)
    read: list[str] = []
    for row in range(200):
        try:
            read.append(corpus[row].id)
        except CorpusError as error:
            read.append(str(error).split(": ")[1].split(" (")[0])
    damaged = [row for row in range(200) if read[row] != str(row + 1)]
    assert [read[row] for row in damaged] == [f"passage {damaged[0] + 1} is damaged"]
    assert any("SHA-256" in line for line in wrong(check(folder, full=True)))


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("name", [PASSAGES, ROWS, ORDER])
def test_the_check_finds_every_flipped_bit(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(folder / name, (folder / name).stat().st_size // 2)
    monkeypatch.setattr(corpus_check, "GLANCES", 3)
    findings = wrong(check(folder, full=True))
    assert any(name in line and "SHA-256" in line for line in findings)
    assert len(findings) > 1, "and by its content too"


@pytest.mark.usefixtures("large")
def test_files_that_are_cut_off_or_missing(folder: Path, command: Command) -> None:
    for name in (PASSAGES, ROWS, ORDER):
        whole = (folder / name).read_bytes()
        for data in (whole[:-1], whole[: len(whole) // 2], b"", whole + b"\0"):
            (folder / name).write_bytes(data)
            with pytest.raises(CorpusError, match=rf"{name}: has [\d,]+ bytes and not"):
                Corpus.load(folder)
            assert len(wrong(check(folder))) == 1
        (folder / name).unlink()
        with pytest.raises(CorpusError, match=rf"{name}: cannot be read"):
            Corpus.load(folder)
        ran = command("corpus", "check", folder)
        assert ran.code == FAILED
        assert "FAIL" in ran.out
        (folder / name).write_bytes(whole)
    assert wrong(check(folder)) == []


@pytest.mark.usefixtures("large")
def test_files_of_another_corpus(folder: Path, tmp_path: Path) -> None:
    other = build(write_json_lines(tmp_path / "q.jsonl", some_passages(200, seed=1)), tmp_path / "other").store.folder
    shutil.copy(other / PASSAGES, folder / PASSAGES)
    with pytest.raises(CorpusError, match="bytes and not"):
        Corpus.load(folder)
    shutil.copy(other / MANIFEST, folder / MANIFEST)
    with pytest.raises(CorpusError, match=r"rows\.bin"):
        Corpus.load(folder)
    shutil.copy(other / ROWS, folder / ROWS)
    Corpus.load(folder)
    assert wrong(check(folder, full=True)) == []  # ids and their order are the same


def test_manifests_that_were_damaged_or_edited(folder: Path) -> None:
    path = folder / MANIFEST
    facts = json.loads(path.read_text())
    for changed, message in (
        (facts | {"passages": 199}, "checksum"),
        (facts | {"format": 99}, "format 99"),
        ({}, "is damaged"),
        ([], "is damaged"),
    ):
        path.write_text(json.dumps(changed))
        with pytest.raises(CorpusError, match=message):
            Corpus.load(folder)
    path.write_bytes(b"\xff{")
    with pytest.raises(CorpusError, match="is damaged"):
        Corpus.load(folder)
    path.unlink()
    (folder / PROGRESS).write_text("{}")
    with pytest.raises(CorpusError, match="was not finished; run the same command"):
        Corpus.load(folder)


def test_empty_passages_and_repeated_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No build makes these; a folder written by something else may hold them."""
    source = write_json_lines(tmp_path / "p.jsonl", [*some_passages(5), Passage("6", "T", " ")])
    monkeypatch.setattr(corpus_parse, "check_row", lambda row: None)
    monkeypatch.setattr(
        "dragin_lab.retrieval.corpora.writer.Writer._first_of_each", lambda self, b, p, bad: ([0, 1, 0, 5], 0)
    )
    folder = build(source, tmp_path / "out").store.folder
    findings = wrong(check(folder, full=True))
    assert any("passage 4 (id '6') is empty" in line for line in findings)
    assert any("passages 1 and 3 have one id, '1'" in line for line in findings)


def test_order_that_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_store, "HASHED_AT_ONCE", 0)
    np.arange(200, dtype="<i4").tofile(folder / ORDER)
    findings = wrong(check(folder, full=True))
    assert any("is not sorted" in line for line in findings)
    assert any("and 1" in line and "more" in line for line in findings)


def test_an_index_that_holds_a_part_of_the_corpus(folder: Path) -> None:
    corpus = Corpus.load(folder)
    half = BM25(Corpus.from_passages(corpus[:190]))
    findings = wrong(ask_canaries(folder, half))
    assert len(findings) == 1
    assert "must find passage '1" in findings[0]
    lost = set(range(40, 90))
    holes = BM25(Corpus.from_passages(p for i, p in enumerate(corpus) if i not in lost))
    assert wrong(ask_canaries(folder, holes))


def test_passages_that_are_all_alike_make_no_canaries(tmp_path: Path) -> None:
    alike = [Passage(str(i), "T", "the very same words " + ("again" if i < 50 else "once")) for i in range(51)]
    store = build(write_json_lines(tmp_path / "p.jsonl", alike), tmp_path / "out").store
    assert {canary["id"] for canary in store.manifest.canaries} == {"50"}
    assert wrong(ask_canaries(store.folder, BM25(Corpus.load(store.folder)))) == []


# -- the commands -----------------------------------------------------------------------------------------------------


def test_build_and_check_from_the_command_line(tmp_path: Path, command: Command) -> None:
    source = write_json_lines(tmp_path / "p.jsonl", some_passages(50))
    with source.open("a") as file:
        file.write("not JSON\n")
    out = tmp_path / "out"
    command.refused("corpus", "build", source, "--out", out, says=("p.jsonl, line 51", "not JSON"))
    ran = command("corpus", "build", source, "--out", out, "--skip-bad", "--force")
    assert ran.code == DONE
    assert "50 passages in" in ran.out
    assert "1 bad records" in ran.err
    assert "line 51" in ran.err
    again = command("corpus", "build", source, "--out", out, "--skip-bad")
    assert "nothing was left to do" in again.err
    ran = command("corpus", "check", out, "--full")
    assert ran.code == DONE, ran.out
    assert ran.out.count("ok ") == 5
    assert "canary queries, each of which found" in ran.out
    flip(out / PASSAGES, 700)
    ran = command("corpus", "check", out)
    assert ran.code == FAILED
    assert "FAIL" in ran.out
    command.refused("corpus", "check", tmp_path, says=("holds no corpus", "corpus build"))
    command.refused("corpus", "build", source, says=("--out",))


def test_a_damaged_corpus_ends_a_run_before_its_model_is_loaded(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(folder / PASSAGES, 700)
    monkeypatch.setattr("dragin_lab.cli.app.load_model", lambda options: pytest.fail("the model was loaded first"))
    command.refused("ask", "Who?", "--corpus", folder, says=(PASSAGES, "SHA-256"))


def test_a_full_disk_is_a_failure_and_not_wrong_usage(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dragin_lab.retrieval.corpora.writer.os.fsync", full)
    source = write_json_lines(tmp_path / "p.jsonl", some_passages(50))
    command.refused("corpus", "build", source, "--out", tmp_path / "out", says=("No space left",), code=FAILED)
