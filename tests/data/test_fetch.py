"""``dragin-lab data fetch`` against a server on this machine: what it brings, checks, unpacks,
keeps and refuses.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command import Command, environment
from web import Web, serve

from dragin_lab.cli import app as cli
from dragin_lab.core.prompts import Exemplar
from dragin_lab.data import datasets, fetch
from dragin_lab.data.datasets import BENCHMARKS
from dragin_lab.data.exemplars import SHOTS, load_exemplars, published_file
from dragin_lab.data.fetch import ORIGINS
from dragin_lab.errors import DataError, DraginLabError

TWOWIKI = {
    "_id": "a1",
    "question": "Which film?",
    "answer": "Elm Road",
    "answer_id": None,
    "context": [],
}
HOTPOT = {"_id": "h1", "question": "Who?", "answer": "Ada", "context": []}
STRATEGY = {"qid": "s1", "question": "Is it?", "answer": False}
IIRC = {
    "text": "t",
    "questions": [
        {"qid": "q1", "question": "How old?", "answer": {"type": "value", "answer_value": "6"}}
    ],
}
FILES = {
    "2wikimultihopqa": {
        "dev.json": [TWOWIKI],
        "id_aliases.json": {"Q_id": "Q1", "aliases": ["Elm Road"]},
    },
    "hotpotqa": {"hotpot_dev_distractor_v1.json": [HOTPOT]},
    "strategyqa": {
        "strategyqa_train.json": [STRATEGY],
        "strategyqa_train_paragraphs.json": {},
        "other.json": [],
    },
    "iirc": {"iirc_train_dev/train.json": [], "iirc_train_dev/dev.json": [IIRC]},
}


def packed(files: dict[str, bytes], name: str) -> bytes:
    """An archive of the kind that its name tells."""
    whole = io.BytesIO()
    if name.endswith("zip"):
        with zipfile.ZipFile(whole, "w") as archive:
            for path, data in files.items():
                archive.writestr(path, data)
    else:
        with tarfile.open(fileobj=whole, mode="w:gz") as tar:
            for path, data in files.items():
                entry = tarfile.TarInfo(path)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    return whole.getvalue()


def served(name: str) -> bytes:
    """A small file like the one that is public."""
    if name == "exemplars":
        return source().encode()
    if name == "wikipedia-dpr":
        return gzip.compress(b"id\ttext\ttitle\n1\tone\tT\n2\ttwo\tT\n", mtime=0)
    files = {path: json.dumps(value).encode() for path, value in FILES[name].items()}
    if name == "hotpotqa":
        return files["hotpot_dev_distractor_v1.json"]
    return packed(files, ORIGINS[name].name)


def source(count: int = 12, **parts: str) -> str:
    """A source file built like the one that holds the published prompts, with sentences of our own.

    Running it would end the process.
    """
    lists = {
        known: f"examplars: List[Dict] = {[row(known, i) for i in range(count)]!r}"
        for known in ("StrategyQA", "WikiMultiHopQA", "HotpotQA", "IIRC")
    }
    classes = "\n".join(
        f"class {known}(BaseDataset):\n    {text}\n    template = lambda self, q: f'Question:"
        " {q}'\n"
        for known, text in (lists | parts).items()
        if text
    )
    return (
        f"import os\nos._exit(13)\nnlp = spacy.load('x')\nclass BaseDataset:\n    pass\n\n{classes}"
    )


def row(known: str, number: int) -> dict[str, object]:
    cot: object = f"{known} has «{number}».\tIt's so.\n"
    if known == "StrategyQA":
        cot = (f"One is {number}. ", "Thus, it's that.")
    return {
        "question": f"Is {number}: a number of {known}?",
        "ctxs": [(None, "x")],
        "cot": cot,
        "answer": "yes",
    }


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Web]:
    """A server that has all that can be fetched, in the place of the public ones."""
    monkeypatch.setenv("DRAGIN_LAB_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serve(Web({ORIGINS[name].name: served(name) for name in ORIGINS})) as server:
        for name, origin in list(ORIGINS.items()):
            sum = (
                f"sha256:{hashlib.sha256(server.files[origin.name]).hexdigest()}"
                if origin.checksum
                else None
            )
            monkeypatch.setitem(
                ORIGINS, name, replace(origin, url=server.url(origin.name), checksum=sum)
            )
        yield server


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_every_origin_is_complete() -> None:
    assert set(ORIGINS) == {*BENCHMARKS, "exemplars", "wikipedia-dpr"}
    for name in BENCHMARKS:
        assert datasets.FILES[name] in ORIGINS[name].files
        assert re.fullmatch("sha256:[0-9a-f]{64}", ORIGINS[name].checksum or "")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_comes_and_is_read(web: Web, command: Command, name: str) -> None:
    ran = command("data", "fetch", name)
    assert ran.code == cli.DONE, ran.err
    folder = datasets.data_folder() / name
    assert names(folder) == sorted(ORIGINS[name].files)
    assert ran.out.split() == [str(folder / file) for file in ORIGINS[name].files]
    assert f"the checksum of {ORIGINS[name].name} is right" in ran.err
    assert "questions that can be answered: 1\n" in ran.err
    assert len(datasets.load_questions(name)) == 1
    asked = len(web.asked)
    again = command("data", "fetch", name)
    assert (again.code, again.out) == (cli.DONE, ran.out)
    assert "already there" in again.err
    assert len(web.asked) == asked


def test_what_is_there_is_left_and_checked(web: Web, command: Command) -> None:
    folder = datasets.data_folder() / "2wikimultihopqa"
    folder.mkdir(parents=True)
    (folder / "dev.json").write_text("mine")
    fetch.fetch("2wikimultihopqa")
    assert ((folder / "dev.json").read_text(), names(folder)) == (
        "mine",
        ["dev.json", "id_aliases.json"],
    )
    asked = len(web.asked)
    assert "already there" in fetch.fetch("2wikimultihopqa")[1]
    assert len(web.asked) == asked
    ran = command("data", "fetch", "2wikimultihopqa", "--again")
    assert ran.code == cli.DONE, ran.err
    assert (folder / "dev.json").read_text() != "mine"
    assert command("data", "fetch", "hotpotqa").code == cli.DONE
    (datasets.data_folder() / "hotpotqa" / "hotpot_dev_distractor_v1.json").write_text("changed")
    with pytest.raises(DataError, match=r"v1\.json: has the sha256 .* and not .*; --again"):
        fetch.fetch("hotpotqa")


def test_a_disk_that_is_full_leaves_nothing(
    web: Web, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("shutil.unpack_archive", full)
        says = ("No space left on device; free some space",)
        command.refused("data", "fetch", "strategyqa", code=cli.FAILED, says=says)
    assert names(datasets.data_folder() / "strategyqa") == []
    assert command("data", "fetch", "strategyqa").code == cli.DONE


def test_a_wrong_file_a_cut_one_and_a_server_in_trouble_leave_nothing(
    web: Web, command: Command
) -> None:
    whole = web.files["hotpot_dev_distractor_v1.json"]
    web.files["hotpot_dev_distractor_v1.json"] = whole + b" "
    command.refused(
        "data", "fetch", "hotpotqa", code=cli.FAILED, says=("another file than the released one",)
    )
    web.files["hotpot_dev_distractor_v1.json"], web.cuts = whole, [10]
    command.refused("data", "fetch", "hotpotqa", code=cli.FAILED, says=("run it again",))
    web.answers = [503]
    command.refused("data", "fetch", "hotpotqa", code=cli.FAILED, says=("answers 503",))
    web.files["iirc_train_dev.tgz"] = b"<html>"
    ORIGINS["iirc"] = replace(ORIGINS["iirc"], checksum=None)  # restored with the fixture
    command.refused("data", "fetch", "iirc", code=cli.FAILED, says=("is not a sound archive",))
    assert not [path for path in datasets.data_folder().rglob("*") if path.is_file()]


def test_another_address_and_the_password_for_it_from_netrc(
    web: Web, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ann password s3cret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    web.files["mirror"] = served("iirc")
    gone = web.url("gone")
    command.refused(
        "data", "fetch", "iirc", "--url", gone, code=cli.FAILED, says=("answers 404", "--url")
    )
    assert web.asked[-1]["Authorization"] == "Basic YW5uOnMzY3JldA=="
    command.refused(
        "data", "fetch", "iirc", "--url", "mirror", code=cli.FAILED, says=("cannot be fetched",)
    )
    ran = command("data", "fetch", "iirc", "--url", web.url("mirror"))
    assert ran.code == cli.DONE, ran.err
    command.refused("data", "fetch", "hotpot", says=("did you mean 'hotpotqa'?",))
    with pytest.raises(DataError, match="nothing is known of 'squad'"):
        fetch.fetch("squad")
    with pytest.raises(DraginLabError, match=r"takes no password; .* ~/\.netrc") as caught:
        fetch.fetch("iirc", url=gone.replace("http://", "http://ann:s3cret@"), again=True)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.zip", "a.tgz"])
@pytest.mark.parametrize(
    ("files", "says"),
    [
        (("a/dev.json", "b/dev.json"), "holds 2 files named dev.json"),
        (("x",), "holds no file named dev.json"),
        (("../../dev.json",), ""),  # no name leads out of the folder
    ],
)
def test_archives_that_are_refused(
    web: Web, command: Command, tmp_path: Path, name: str, files: tuple[str, ...], says: str
) -> None:
    web.files[name] = packed(dict.fromkeys(files, b"[]"), name)
    # restored with the fixture
    ORIGINS["iirc"] = replace(ORIGINS["iirc"], url=web.url(name), name=name, checksum=None)
    command.refused("data", "fetch", "iirc", code=cli.FAILED, says=(says,))
    assert not list(tmp_path.rglob("*.json"))


# -- exemplars -------------------------------------------------------------------------------------


def test_published_exemplars_are_read_and_not_run(web: Web, command: Command) -> None:
    command.refused(
        "ask",
        "Who?",
        "--exemplars",
        "published:iirc",
        says=("'dragin-lab data fetch exemplars' first",),
    )
    command.refused(
        "ask",
        "Who?",
        "--exemplars",
        "published:squad",
        says=("'squad' is none of", "2wikimultihopqa"),
    )
    ran = command("data", "fetch", "exemplars")
    assert ran.code == cli.DONE, ran.err
    assert "no checksum of data.py is published" in ran.err
    for name, known in (("2wikimultihopqa", "WikiMultiHopQA"), ("strategyqa", "StrategyQA")):
        fetched = load_exemplars(f"published:{name}")
        assert len(fetched) == SHOTS[name]
        rows = [row(known, i) for i in range(SHOTS[name])]
        cots = [r["cot"] if isinstance(r["cot"], str) else "".join(r["cot"]) for r in rows]  # type: ignore[arg-type]
        assert fetched == tuple(
            Exemplar(str(r["question"]), c, "yes") for r, c in zip(rows, cots, strict=True)
        )
        assert datasets.build_template(name, f"published:{name}").exemplars == fetched
        assert datasets.build_template(name, "published").exemplars == fetched
    assert "already there" in command("data", "fetch", "exemplars").err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def (", "is not the source file"),
        ("x = 1", "class WikiMultiHopQA: is not there"),
        (source(count=5), "examplars holds 5 of them, and 6 are needed"),
        (source(IIRC="examplars = None"), "class IIRC: examplars holds no list"),
        (
            source(IIRC="examplars = [open('/etc/hostname').read()] * 9"),
            "not written out as plain values",
        ),
        (
            source(HotpotQA=f"examplars = {[{'question': 'a', 'cot': 3, 'answer': ''}] * 9!r}"),
            "class HotpotQA, examplars 1: Expected `str | array`, got `int` - at `cot`",
        ),
        ("(" * 5000, "is not the source file"),
    ],
)
def test_sources_that_are_refused(web: Web, command: Command, text: str, says: str) -> None:
    web.files["data.py"] = text.encode()
    command.refused("data", "fetch", "exemplars", code=cli.FAILED, says=(says,))
    assert not list(published_file("x").parent.glob("*"))


def test_importing_it_costs_the_commands_nothing() -> None:
    code = (
        "import sys, dragin_lab.cli; print(*(n for n in ('pooch', 'requests', 'tqdm') if n in"
        " sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == []


def test_the_corpus_is_fetched_checked_and_built(
    web: Web, tmp_path: Path, command: Command
) -> None:
    ran = command("data", "fetch", "wikipedia-dpr")
    path = tmp_path / "data" / "wikipedia-dpr" / "psgs_w100.tsv.gz"
    assert (ran.code, ran.out) == (cli.DONE, f"{path}\n")
    assert "its 21,015,324 passages" in ran.err
    assert path.read_bytes() == served("wikipedia-dpr")
    assert command("corpus", "build", path, "--output", tmp_path / "built").code == cli.DONE
