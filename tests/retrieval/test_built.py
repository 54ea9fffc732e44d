"""Corpora on disk: the same as in memory, whole or not there, and searched as BM25 in memory
ranks.
"""

from __future__ import annotations

import json
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import Command, environment
from sources import on_disk, some_passages, write_json_lines, write_table

from dragin_lab.cli.app import DONE
from dragin_lab.errors import DataError, SettingError
from dragin_lab.retrieval import stored
from dragin_lab.retrieval.bm25 import Tantivy
from dragin_lab.retrieval.choose import open_retriever
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.stored import MANIFEST, build_corpus
from dragin_lab.trace.trace import Passage


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_json_lines(tmp_path / "p.jsonl", some_passages(200))


@pytest.fixture
def folder(source: Path, tmp_path: Path) -> Path:
    return build_corpus(source, tmp_path / "built").folder


def beside(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.parent.iterdir())


# -- what is built ---------------------------------------------------------------------------------


def test_it_is_the_corpus_that_is_loaded_from_the_source(tmp_path: Path) -> None:
    table = write_table(tmp_path / "p.tsv", some_passages(5000))
    memory, disk = Corpus.load(table), Corpus.build(table, tmp_path / "built")
    assert list(disk) == disk[:] == disk[0:5000] == memory[:]
    assert (disk[4090:4100], disk[9:9], memory[4090:4100:3]) == (
        memory[4090:4100],
        [],
        disk[4090:4100:3],
    )
    assert disk.fingerprint == memory.fingerprint == Corpus.load(tmp_path / "built").fingerprint
    assert (disk[-1], disk[17:12:-2], disk.get("4711")) == (
        memory[-1],
        memory[17:12:-2],
        memory.get("4711"),
    )
    assert (disk.folder, disk.name, len(disk)) == (tmp_path / "built", "built", 5000)
    assert pickle.loads(pickle.dumps(disk))[3] == memory[3]
    with pytest.raises(KeyError):
        disk.get("nowhere")
    with pytest.raises(IndexError):
        disk[5000]


def test_the_manifest_says_what_was_read(folder: Path) -> None:
    about = json.loads((folder / MANIFEST).read_text())
    assert about["source"] == "p.jsonl"
    assert about["passages"] == 200
    assert {"tantivy", "dragin_lab"} == about["versions"].keys()


def test_an_id_that_was_used_before_is_named_with_both_places(tmp_path: Path) -> None:
    source = write_json_lines(tmp_path / "p.jsonl", [*some_passages(30), Passage("7", "", "again")])
    with pytest.raises(
        DataError,
        match=r"p\.jsonl: the passages 7 and 31 have one id; give every passage its own",
    ):
        build_corpus(source, tmp_path / "built")
    assert beside(tmp_path / "built") == ["p.jsonl"]


def test_nothing_is_left_of_a_source_that_is_wrong(
    tmp_path: Path, source: Path, command: Command
) -> None:
    with source.open("a") as file:
        file.write("not JSON\n")
    says = ("p.jsonl, after row 200", "one JSON object a line")
    command.refused("corpus", "build", source, "--output", tmp_path / "built", says=says)
    assert beside(tmp_path / "built") == ["p.jsonl"]


def test_folders_that_hold_something(source: Path, tmp_path: Path, folder: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "note").write_text("mine")
    with pytest.raises(DataError, match="is not empty and holds no corpus"):
        build_corpus(source, tmp_path / "other", force=True)
    with pytest.raises(
        DataError, match="holds a corpus already; give another --output, or --force"
    ):
        build_corpus(source, folder)
    less = write_json_lines(tmp_path / "less.jsonl", some_passages(10))
    assert len(build_corpus(less, folder, force=True)) == 10
    (tmp_path / "empty").mkdir()
    assert len(build_corpus(less, tmp_path / "empty")) == 10
    assert beside(folder) == ["built", "empty", "less.jsonl", "other", "p.jsonl"]


def test_two_builds_of_one_corpus(source: Path, tmp_path: Path) -> None:
    (tmp_path / "built.building").mkdir()
    with pytest.raises(DataError, match=r"is under way, or was killed; .* delete this folder"):
        build_corpus(source, tmp_path / "built")
    assert beside(tmp_path / "built") == ["built.building", "p.jsonl"]


def test_a_disk_that_is_full_leaves_nothing(
    source: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stored, "write_whole", full)
    out = tmp_path / "built"
    says = ("No space left", "free some space")
    command.refused("corpus", "build", source, "--output", out, says=says)
    assert beside(out) == ["p.jsonl"]


def test_an_interrupted_build_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> Iterator[dict[str, str]]:
        yield {"text": "one"}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_corpus(interrupted(), tmp_path / "built")
    assert beside(tmp_path / "built") == []


#: Builds in a process of its own for each line that it reads, and kills that after as many seconds.
KILLED = """
import os, signal, sys, time
from dragin_lab.retrieval.stored import build_corpus
for seconds in sys.stdin:
    child = os.fork()
    if not child:
        build_corpus(sys.argv[1], sys.argv[2], force=True)
        os._exit(0)
    time.sleep(float(seconds))
    os.kill(child, signal.SIGKILL)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.mark.slow
def test_a_build_killed_at_any_moment_is_whole_or_not_there(tmp_path: Path) -> None:
    """Kills between the first passage and the last file, over nothing and over a corpus that is
    there.
    """
    source = write_json_lines(tmp_path / "p.jsonl", some_passages(5_000))
    out, work, draw = tmp_path / "built", tmp_path / "built.building", random.Random(0)
    began = time.monotonic()
    whole = Corpus.build(source, out).fingerprint
    took = time.monotonic() - began
    shutil.rmtree(out)
    command = [sys.executable, "-c", KILLED, str(source), str(out)]
    ends = []
    with subprocess.Popen(
        command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        for number in range(12):
            print(draw.uniform(0, 1.2 * took), file=process.stdin, flush=True)
            ends.append(int(process.stdout.readline()))
            assert not out.exists() or Corpus.load(out).fingerprint == whole, number
            shutil.rmtree(work, ignore_errors=True)
        process.stdin.close()
    assert {signal.SIGKILL} <= {*ends} <= {0, signal.SIGKILL}
    assert Corpus.build(source, out, force=True).fingerprint == whole
    assert beside(out) == ["built", "p.jsonl"]


# -- damage ----------------------------------------------------------------------------------------


def cut_short(path: Path, draw: random.Random) -> None:
    data = path.read_bytes()
    path.unlink()  # an index that is still open has the old file mapped
    path.write_bytes(data[: draw.randrange(len(data.rstrip()))])


def test_cuts_over_all_files_are_each_found(folder: Path) -> None:
    draw = random.Random(0)
    for path in [
        path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size
    ]:
        sound = path.read_bytes()
        cut_short(path, draw)
        with pytest.raises(DataError, match="build it again"):
            Corpus.load(folder)
        path.write_bytes(sound)
    assert len(Corpus.load(folder)) == 200


@pytest.mark.parametrize("name", [MANIFEST, "meta.json", ".idx", ".store"])
def test_a_file_that_is_cut_short_is_found_when_the_corpus_is_opened(
    folder: Path, name: str, command: Command
) -> None:
    path = next(path for path in folder.rglob("*") if path.name.endswith(name))
    cut_short(path, random.Random(0))
    with pytest.raises(DataError, match=r"build it again: dragin-lab corpus build SOURCE"):
        Corpus.load(folder)
    command.refused("ask", "Who?", "--corpus", folder, says=("build it again",))


def test_what_is_there_but_was_not_built(folder: Path, tmp_path: Path) -> None:
    about = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(about | {"analysis": "english-3"}))
    with pytest.raises(
        DataError,
        match="was built with analysis 'english-3', and this is 'english-5'; build it again",
    ):
        Corpus.load(folder)
    (folder / MANIFEST).write_text(json.dumps(about | {"format": 1}))
    with pytest.raises(DataError, match="was built with format 1, and this is 3"):
        Corpus.load(folder)
    (folder / MANIFEST).unlink()
    with pytest.raises(DataError, match="holds no passages"):
        Corpus.load(folder)
    for manifest in ("[1]", "{", "null", "1" * 9999):
        (folder / MANIFEST).write_text(manifest)
        with pytest.raises(DataError, match=r"corpus\.json: cannot be read"):
            Corpus.load(folder)


# -- searches --------------------------------------------------------------------------------------


def test_equal_scores_are_in_corpus_order_however_many_there_are(tmp_path: Path) -> None:
    passages = [Passage(str(i), "", "same text") for i in range(300)] + [
        Passage("best", "", "same")
    ]
    tantivy = Tantivy(on_disk(passages, tmp_path))
    assert [p.id for p in tantivy.search("same", 5)] == ["best", "0", "1", "2", "3"]
    assert len(tantivy.search("same", 1000)) == 301
    assert tantivy.search("the of", 3) == tantivy.search("unheard", 3) == []
    tantivy.threads = 2
    assert tantivy.search_many(["same", "the", "same"], 5) == [
        tantivy.search("same", 5),
        [],
        tantivy.search("same", 5),
    ]


def test_an_id_is_the_same_in_both_forms_of_an_accent(tmp_path: Path) -> None:
    rows = [{"id": "Beyonce\u0301", "text": "one"}, {"id": "Beyonc\u00e9", "text": "two"}]
    for corpus in (Corpus.load(rows[:1]), Corpus.build(rows[:1], tmp_path / "built")):
        assert (
            corpus.get(rows[0]["id"])
            == corpus.get(rows[1]["id"])
            == Passage(rows[0]["id"], "", "one")
        )
    for read in (Corpus.load, lambda twice: Corpus.build(twice, tmp_path / "twice")):
        with pytest.raises(
            DataError,
            match=r"row 2: the id .* was used before, at list, row 1|1 and 2 have one id",
        ):
            read(rows)


def test_provenance_and_names(folder: Path) -> None:
    tantivy = open_retriever(None, folder)
    assert tantivy.provenance()["passages"] == 200  # type: ignore[attr-defined]
    assert repr(tantivy) == "Tantivy(Corpus(built, 200 passages), k1=1.2, b=0.75)"
    with pytest.raises(SettingError, match="held in memory; search it with BM25, or build it"):
        Tantivy(Corpus.from_passages(some_passages(3)))
    with pytest.raises(SettingError, match="at least 1"):
        tantivy.search("x", 0)


# -- the commands ----------------------------------------------------------------------------------


def test_build_and_search_from_the_command_line(
    tmp_path: Path, source: Path, command: Command
) -> None:
    out = tmp_path / "out"
    ran = command("corpus", "build", source, "--output", out)
    assert ran.code == DONE, ran.err
    assert f"200 passages in {out}" in ran.out
    assert "MiB on disk" in ran.err
    assert len(Tantivy(Corpus.load(out)).search("river", 3)) == 3
    command.refused("corpus", "build", source, says=("--output",))
