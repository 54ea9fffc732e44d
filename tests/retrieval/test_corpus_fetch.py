"""Fetching the paper's corpus: from a server of the test's own, held to its length and checksum."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from command import Command
from web import Web, serve

from dragin_lab.cli import DONE, FAILED, USAGE
from dragin_lab.data.download import FetchError
from dragin_lab.retrieval import fetch as corpus_fetch
from dragin_lab.retrieval.fetch import PUBLISHED, fetch

DATA = gzip.compress(b"id\ttext\ttitle\n1\tone\tT\n2\ttwo\tT\n")


@pytest.fixture(autouse=True)
def published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRAGIN_LAB_DATA", str(tmp_path / "data"))
    md5 = hashlib.md5(DATA).hexdigest()
    small = replace(PUBLISHED["wikipedia-dpr"], bytes=len(DATA), md5=md5, passages=2)
    monkeypatch.setitem(corpus_fetch.PUBLISHED, "wikipedia-dpr", small)


def test_it_is_fetched_checked_and_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = Command(capsys)
    with serve(Web({"psgs": DATA}, cuts=[20])) as web:
        ran = command("corpus", "fetch", "wikipedia-dpr", "--url", web.url("psgs"))
        path = tmp_path / "data" / "wikipedia-dpr" / "psgs_w100.tsv.gz"
        assert (ran.code, ran.out) == (DONE, f"{path}\n")
        assert "--expect 2" in ran.err
        assert path.read_bytes() == DATA
        asked = len(web.asked)
        assert command("corpus", "fetch", "wikipedia-dpr", "--url", web.url("psgs")).code == DONE
        assert len(web.asked) == asked, "what is there and right is not fetched twice"
    assert command("corpus", "build", path, "--out", tmp_path / "built", "--expect", 2).code == DONE


@pytest.mark.parametrize("data", [DATA[:-1], DATA[:-1] + b"x"], ids=["cut short", "altered"])
def test_another_file_is_refused(tmp_path: Path, data: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    command = Command(capsys)
    with serve(Web({"psgs": data})) as web:
        arguments = ("corpus", "fetch", "wikipedia-dpr", "--url", web.url("psgs"), "--out", tmp_path)
        ran = command(*arguments)
        assert ran.code == FAILED
        assert "bytes and not" in ran.err or "MD5" in ran.err
        path = tmp_path / "psgs_w100.tsv.gz"
        assert not path.exists()
        path.write_bytes(data)
        assert "--again" in command(*arguments).err
        web.files["psgs"] = DATA
        assert command(*arguments, "--again").code == DONE
        assert path.read_bytes() == DATA


def test_names_that_are_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    Command(capsys).refused("corpus", "fetch", "wikipedia", says=("wikipedia-dpr",), code=USAGE)
    with pytest.raises(FetchError, match="'wikipedia' cannot be fetched"):
        fetch("wikipedia")
