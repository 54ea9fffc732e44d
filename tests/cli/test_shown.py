"""What the command line shows of what it was given, and of what files, servers and models say."""

from __future__ import annotations

import pytest
from command import Command

from dragin_lab.data import web

ADDRESSES = ("http://ann:12/s3cret@127.0.0.1:9/wiki", "ann:s3cret@more@127.0.0.1:9/wiki")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(
    "command",
    [
        ("data", "fetch", "hotpotqa", "--url"),
        ("corpus", "fetch", "wikipedia-dpr", "--url"),
        ("ask", "Who?", "--model"),
        ("ask", "Who?", "--corpus"),
        ("ask", "Who?", "--exemplars"),
        ("ask", "Who?", "--corpus", "almanac", "--retriever"),
        ("ask", "--id", "1", "--dataset"),
        ("run", "--dataset"),
        ("run", "--dataset", "almanac/hotpotqa", "--ray"),
        ("run", "--dataset", "almanac/hotpotqa", "--with"),
        ("run", "--dataset", "almanac/hotpotqa", "--output"),
        ("methods", "--with"),
        ("corpus", "build", "--out", "new"),
        ("show",),
        ("table",),
        ("browse",),
    ],
)
def test_no_message_shows_a_password(
    run: Command, tmp_path: object, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], address: str
) -> None:
    monkeypatch.setenv("DRAGIN_LAB_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(web, "PAUSE", 0)
    ran = run(*command, address)
    assert ran.code
    assert "127.0.0.1:9" in ran.err
    assert "s3cret" not in ran.err + ran.out


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_message_of_the_dense_retriever_shows_a_password(run: Command, address: str) -> None:
    ran = run("ask", "Who?", "--retriever", f"dense:{address}")
    assert ran.code
    assert "s3cret" not in ran.err + ran.out
