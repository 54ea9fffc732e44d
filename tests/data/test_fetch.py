"""``dragin-lab data fetch`` against a server on this machine: what it brings, checks, unpacks, keeps and refuses."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import re
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from command import Command, environment
from web import Web, serve

from dragin_lab.cli import app as cli
from dragin_lab.cli import corpus as cli_corpus
from dragin_lab.cli import data as cli_data
from dragin_lab.core.prompts import Exemplar
from dragin_lab.data import datasets, exemplars, fetch
from dragin_lab.data import web as waiting
from dragin_lab.data.datasets import BENCHMARKS
from dragin_lab.data.download import FetchError, WrongFileError
from dragin_lab.data.exemplars import SHOTS, load_exemplars, published_file
from dragin_lab.data.fetch import ORIGINS

TWOWIKI = {"_id": "a1", "question": "Which film?", "answer": "Elm Road", "answer_id": None, "context": []}
HOTPOT = {"_id": "h1", "question": "Who?", "answer": "Ada", "context": []}
STRATEGY = {"qid": "s1", "question": "Is it?", "answer": False}
IIRC = {
    "text": "t",
    "questions": [{"qid": "q1", "question": "How old?", "answer": {"type": "value", "answer_value": "6"}}],
}
FILES = {
    "2wikimultihopqa": {"dev.json": [TWOWIKI], "id_aliases.json": {"Q_id": "Q1", "aliases": ["Elm Road"]}},
    "hotpotqa": {"hotpot_dev_distractor_v1.json": [HOTPOT]},
    "strategyqa": {"strategyqa_train.json": [STRATEGY], "strategyqa_train_paragraphs.json": {}, "other.json": []},
    "iirc": {"iirc_train_dev/train.json": [], "iirc_train_dev/dev.json": [IIRC]},
}


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return packed.getvalue()


def tarred(files: dict[str, bytes], links: dict[str, str] | None = None, method: str = "gz") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=f"w:{method}") as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    return packed.getvalue()


def served(name: str) -> bytes:
    """A small file like the one that is public."""
    if name == "exemplars":
        return source().encode()
    if name == "wikipedia-dpr":
        return gzip.compress(b"id\ttext\ttitle\n1\tone\tT\n2\ttwo\tT\n", mtime=0)
    files = {path: json.dumps(value).encode() for path, value in FILES[name].items()}
    if name == "hotpotqa":
        return files["hotpot_dev_distractor_v1.json"]
    return tarred(files) if name == "iirc" else zipped(files)


def source(count: int = 12, **parts: str) -> str:
    """A source file built like the one that holds the published prompts, with sentences of our own.

    Running it would end the process.
    """
    lists = {
        known: f"examplars: List[Dict] = {[row(known, i) for i in range(count)]!r}"
        for known in ("StrategyQA", "WikiMultiHopQA", "HotpotQA", "IIRC")
    }
    classes = "\n".join(
        f"class {known}(BaseDataset):\n    {text}\n    template = lambda self, q: f'Question: {{q}}'\n"
        for known, text in (lists | parts).items()
        if text
    )
    return f"import os\nos._exit(13)\nnlp = spacy.load('x')\nclass BaseDataset:\n    pass\n\n{classes}"


def row(known: str, number: int) -> dict[str, object]:
    cot: object = f"{known} has «{number}».\tIt's so.\n"
    if known == "StrategyQA":
        cot = (f"One is {number}. ", "Thus, it's that.")
    return {"question": f"Is {number}: a number of {known}?", "ctxs": [(None, "x")], "cot": cot, "answer": "yes"}


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Web]:
    """A server that has all that can be fetched, in the place of the public ones."""
    monkeypatch.setattr(waiting, "PAUSE", 0.0)
    monkeypatch.setenv("DRAGIN_LAB_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serve(Web({ORIGINS[name].name: served(name) for name in ORIGINS})) as server:
        for name, origin in list(ORIGINS.items()):
            sum = f"sha256:{hashlib.sha256(server.files[origin.name]).hexdigest()}" if origin.checksum else None
            monkeypatch.setitem(ORIGINS, name, replace(origin, url=server.url(origin.name), checksum=sum))
        yield server


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "100")
    return Command(capsys)


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_every_origin_is_complete() -> None:
    assert set(ORIGINS) - set(cli_corpus.PUBLISHED) == {*BENCHMARKS, "exemplars"} == set(cli_data.NAMES)
    for name in BENCHMARKS:
        assert datasets.FILES[name] in ORIGINS[name].files
        assert re.fullmatch("sha256:[0-9a-f]{64}", ORIGINS[name].checksum or "")
    assert datasets.ALIASES in ORIGINS["2wikimultihopqa"].files
    assert set(exemplars.SHOTS) == set(BENCHMARKS)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_comes_and_is_read(web: Web, command: Command, name: str) -> None:
    ran = command("data", "fetch", name)
    assert ran.code == cli.DONE, ran.err
    folder = datasets.data_folder() / name
    assert names(folder) == sorted([*ORIGINS[name].files, "SHA256SUMS"])
    assert ran.out.split() == [str(folder / file) for file in ORIGINS[name].files]
    assert f"the checksum of {ORIGINS[name].name} is right" in ran.err
    assert "questions that can be answered: 1\n" in ran.err
    assert len(datasets.load(name)) == 1
    assert subprocess.run(["sha256sum", "-c", "--status", "SHA256SUMS"], cwd=folder).returncode == 0
    asked = len(web.asked)
    again = command("data", "fetch", name)
    assert (again.code, again.out) == (cli.DONE, ran.out)
    assert "already there, with the right checksum" in again.err
    assert len(web.asked) == asked


def test_another_address(web: Web, command: Command) -> None:
    web.files["mirror"] = served("iirc")
    command.refused("data", "fetch", "iirc", "--url", web.url("gone"), code=cli.FAILED, says=("answers 404", "--url"))
    command.refused("data", "fetch", "iirc", "--url", "mirror", code=cli.FAILED, says=("must begin with http",))
    command.refused("data", "fetch", "iirc", "--sha256", "abc", code=cli.FAILED, says=("'abc' is not a SHA-256",))
    ran = command("data", "fetch", "iirc", "--url", web.url("mirror"))
    assert ran.code == cli.DONE, ran.err


def test_names_that_do_not_exist(web: Web, command: Command) -> None:
    command.refused("data", "fetch", "hotpot", says=("'hotpot' is not one of", "Did you mean 'hotpotqa'?"))
    command.refused("data", "fetch", says=("Missing argument",))
    with pytest.raises(FetchError, match="nothing is known of 'squad'"):
        fetch.fetch("squad")


def test_what_is_there_is_left_and_checked(web: Web, command: Command) -> None:
    folder = datasets.data_folder() / "2wikimultihopqa"
    folder.mkdir(parents=True)
    (folder / "dev.json").write_text("mine")
    command.refused(
        "data", "fetch", "2wikimultihopqa", code=cli.FAILED, says=("is there, but id_aliases.json beside it is not",)
    )
    (folder / "id_aliases.json").write_text("mine")
    fetched = fetch.fetch("2wikimultihopqa")
    assert "not from here" in fetched.note
    assert (folder / "dev.json").read_text() == "mine"
    assert web.asked == []
    ran = command("data", "fetch", "2wikimultihopqa", "--again")
    assert ran.code == cli.DONE, ran.err
    (folder / "dev.json").write_text("changed")
    with pytest.raises(FetchError, match=r"dev\.json: has the SHA-256 .* as it was published or fetched; --again"):
        fetch.fetch("2wikimultihopqa")
    (folder / "SHA256SUMS").write_text("nonsense\n")
    with pytest.raises(FetchError, match=r"SHA256SUMS, line 1: is not a checksum and a file name"):
        fetch.fetch("2wikimultihopqa")


def test_an_archive_that_was_not_unpacked_is_not_fetched_twice(
    web: Web, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(fetch, "write_whole", full)
        command.refused(
            "data", "fetch", "strategyqa", code=cli.FAILED, says=("No space left on device; free some space",)
        )
    folder = datasets.data_folder() / "strategyqa"
    assert names(folder) == ["strategyqa_dataset.zip"]
    assert command("data", "fetch", "strategyqa").code == cli.DONE
    assert len(web.asked) == 1
    assert "strategyqa_dataset.zip" not in names(folder)


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_no_name_in_an_archive_leads_out_of_the_folder(tmp_path: Path, pack: object) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    archive = folder / "archive"
    archive.write_bytes(pack({"../../dev.json": b"in", "/tmp/evil.json": b"x", "../../evil.json": b"x"}))  # type: ignore[operator]
    fetch.unpack_members(archive, (folder / "dev.json",))
    assert (folder / "dev.json").read_bytes() == b"in"
    assert names(folder) == ["archive", "dev.json"]
    assert names(tmp_path) == ["a"]
    assert not Path("/tmp/evil.json").exists()


def test_links_in_an_archive_are_not_followed(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(tarred({"other": b"x"}, {"dev.json": "/etc/hostname"}))
    with pytest.raises(FetchError, match=r"holds no file named dev\.json"):
        fetch.unpack_members(archive, (tmp_path / "dev.json",))
    assert names(tmp_path) == ["archive"]


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_members_are_unpacked_in_little_memory_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[..., bytes]
) -> None:
    archive, target = tmp_path / "archive", tmp_path / "dev.json"
    archive.write_bytes(pack({"dev.json": bytes(30_000_000), "other": bytes(10)}))
    monkeypatch.setenv("DRAGIN_LAB_UNPACK_GB", "0.02")
    with pytest.raises(FetchError, match=r"unpacks to more than 0\.02 GB .* set DRAGIN_LAB_UNPACK_GB to more"):
        fetch.unpack_members(archive, (target,))
    assert names(tmp_path) == ["archive"]
    monkeypatch.setenv("DRAGIN_LAB_UNPACK_GB", "0.04")
    tracemalloc.start()
    fetch.unpack_members(archive, (target,))
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    assert target.stat().st_size == 30_000_000


@pytest.mark.parametrize(
    "pack",
    [
        *(partial(zipped, method=one) for one in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)),
        *(partial(tarred, method=one) for one in ("gz", "bz2", "xz")),
    ],
)
def test_of_a_damaged_archive_nothing_is_kept(tmp_path: Path, pack: Callable[..., bytes]) -> None:
    draw = random.Random(37)
    first, second = (draw.randbytes(3000) for _ in range(2))
    data = pack({"first.json": first, "second.json": second})
    archive, targets = tmp_path / "archive", (tmp_path / "first.json", tmp_path / "second.json")
    targets[0].write_bytes(b"old")
    for _ in range(20):
        at = draw.randrange(len(data) // 2, len(data))
        archive.write_bytes(data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :])
        try:
            fetch.unpack_members(archive, targets)
        except WrongFileError:
            assert names(tmp_path) == ["archive", "first.json"]
            assert targets[0].read_bytes() == b"old"
        else:
            targets[0].write_bytes(b"old")
            targets[1].unlink()
    middle = len(data) * 3 // 4  # of the second file
    archive.write_bytes(data[:middle] + bytes(200) + data[middle + 200 :])
    with pytest.raises(WrongFileError, match="is not a sound archive"):
        fetch.unpack_members(archive, targets)


def test_archives_that_are_refused(web: Web, command: Command) -> None:
    for data, says in (
        (zipped({"a/dev.json": b"[]", "b/dev.json": b"[]"}), "holds 2 files named dev.json"),
        (zipped({"x": b""}), "holds no file named dev.json"),
        (b"<html>", "is not a sound archive"),
        (tarred({"dev.json": b"[]" * 50_000})[:-30], "is not a sound archive"),
    ):
        web.files["iirc_train_dev.tgz"] = data
        sha256 = hashlib.sha256(data).hexdigest()
        command.refused("data", "fetch", "iirc", "--sha256", sha256, code=cli.FAILED, says=(says,))
        assert not list(datasets.data_folder().rglob("*.json"))


# -- exemplars --------------------------------------------------------------------------------------------------------


def test_published_exemplars_are_read_and_not_run(web: Web, command: Command) -> None:
    ran = command("data", "fetch", "exemplars")
    assert ran.code == cli.DONE, ran.err
    assert "no checksum of data.py is published" in ran.err
    for name, known in (("2wikimultihopqa", "WikiMultiHopQA"), ("strategyqa", "StrategyQA")):
        fetched = load_exemplars(f"published:{name}")
        assert len(fetched) == SHOTS[name]
        rows = [row(known, i) for i in range(SHOTS[name])]
        cots = [r["cot"] if isinstance(r["cot"], str) else "".join(r["cot"]) for r in rows]  # type: ignore[arg-type]
        assert fetched == tuple(Exemplar(str(r["question"]), c, "yes") for r, c in zip(rows, cots, strict=True))
        assert datasets.template(name, f"published:{name}").exemplars == fetched
        assert datasets.template(name, "published").exemplars == fetched
    assert "already there" in command("data", "fetch", "exemplars").err


def test_a_source_that_changed_is_noticed(web: Web, command: Command) -> None:
    assert command("data", "fetch", "exemplars").code == cli.DONE
    before = load_exemplars("published:iirc")
    web.files["data.py"] = source(count=11).encode()
    command.refused(
        "data", "fetch", "exemplars", "--again", code=cli.FAILED, says=("That checksum is of the first download",)
    )
    assert load_exemplars("published:iirc") == before
    with pytest.raises(WrongFileError):
        fetch.fetch("exemplars", again=True)
    (published_file("x").parent / "SHA256SUMS").unlink()
    assert command("data", "fetch", "exemplars", "--again").code == cli.DONE


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def (", "is not the source file"),
        ("x = 1", "class WikiMultiHopQA: is not there"),
        (source(count=5), "examplars holds 5 of them, and 6 are needed"),
        (source(IIRC="examplars = None"), "class IIRC: examplars holds no list"),
        (source(IIRC="examplars = [open('/etc/hostname').read()] * 9"), "not written out as plain values"),
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
    assert names(published_file("x").parent) == []


def test_published_exemplars_that_are_not_there(web: Web, command: Command) -> None:
    command.refused(
        "ask", "Who?", "--exemplars", "published:iirc", says=("run 'dragin-lab data fetch exemplars' first",)
    )
    command.refused("ask", "Who?", "--exemplars", "published:squad", says=("'squad' is none of", "2wikimultihopqa"))


def test_importing_it_costs_the_commands_nothing() -> None:
    code = "import sys, dragin_lab.cli; print(*(n for n in ('tarfile', 'urllib3', 'tqdm') if n in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


# -- the paper's corpus -----------------------------------------------------------------------------------------------


def test_the_corpus_is_fetched_checked_and_built(web: Web, tmp_path: Path, command: Command) -> None:
    web.cuts = [20]
    ran = command("corpus", "fetch", "wikipedia-dpr")
    path = tmp_path / "data" / "wikipedia-dpr" / "psgs_w100.tsv.gz"
    assert (ran.code, ran.out) == (cli.DONE, f"{path}\n")
    assert "its 21,015,324 passages" in ran.err
    assert "--expect 21015324" in ran.err
    assert path.read_bytes() == served("wikipedia-dpr")
    asked = len(web.asked)
    assert command("corpus", "fetch", "wikipedia-dpr").code == cli.DONE
    assert len(web.asked) == asked, "what is there and right is not fetched twice"
    assert command("corpus", "build", path, "--output", tmp_path / "built", "--expect", 2).code == cli.DONE
