"""Downloads from a server on this machine: whole, cut, without ranges, wrong, refused, on a full disk, broken off."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import environment
from web import Web, serve

from dragin_lab.data import download as module
from dragin_lab.data import web as waiting
from dragin_lab.data.download import FetchError, WrongFileError, checksum_of, download, part_of

DATA = random.Random(0).randbytes(300_000)
SUM = hashlib.sha256(DATA).hexdigest()
RIGHT = f"sha256:{SUM}"
MD5 = f"md5:{hashlib.md5(DATA).hexdigest()}"


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setattr(waiting, "PAUSE", 0.0)
    with serve(Web({"file": DATA})) as server:
        yield server


def bring(address: str, path: Path, checksum: str | None = None, **options: Any) -> str:
    """Download; the SHA-256 of what came."""
    download(address, path, checksum=checksum, **options)
    return checksum_of(path).removeprefix("sha256:")


def begin(web: Web, path: Path, count: int) -> None:
    """A download that ended after so many bytes."""
    web.cuts = [count] + [0] * waiting.TRIES
    with pytest.raises(FetchError, match="the connection was cut after"):
        download(web.url("file"), path, checksum=RIGHT)
    assert part_of(path).read_bytes() == DATA[:count]
    web.cuts.clear()
    web.asked.clear()


def left(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize("checksum", [None, RIGHT.replace(SUM, SUM.upper()), MD5])
def test_a_file_comes_whole(web: Web, tmp_path: Path, checksum: str | None) -> None:
    seen: list[tuple[int, int | None]] = []
    received = bring(web.url("file"), tmp_path / "f", checksum=checksum, advance=lambda *at: seen.append(at))
    assert received == SUM
    assert (tmp_path / "f").read_bytes() == DATA
    assert left(tmp_path) == ["f"]
    assert seen[0] == (0, len(DATA))
    assert seen[-1] == (len(DATA), len(DATA))
    assert [have for have, _ in seen] == sorted(have for have, _ in seen)
    assert "Range" not in web.asked[0]
    assert web.asked[0]["Accept-Encoding"] == "identity"


def test_an_empty_file_and_a_redirect(web: Web, tmp_path: Path) -> None:
    web.files["nothing"] = b""
    download(web.url("nothing"), tmp_path / "e")
    assert (tmp_path / "e").read_bytes() == b""
    assert bring(web.url("moved/file"), tmp_path / "f") == SUM


def test_user_and_password_go_into_a_header(web: Web, tmp_path: Path) -> None:
    bring(web.url("file").replace("http://", "http://ann:s3cret/%40@"), tmp_path / "file")
    assert b64decode(web.asked[0]["authorization"].removeprefix("Basic ")) == b"ann:s3cret/@"


def test_the_proxy_of_the_environment_is_asked(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = "http://elsewhere.invalid/file"
    web.files[there] = DATA
    monkeypatch.setenv("http_proxy", web.address.replace("http://", "ann:s3cr%3At@"))
    assert bring(there, tmp_path / "f") == SUM
    assert web.asked[-1]["proxy-authorization"] == "Basic YW5uOnMzY3I6dA=="
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert bring(web.url("file"), tmp_path / "g") == SUM
    assert "proxy-authorization" not in web.asked[-1]


def test_a_cut_connection_goes_on_by_itself(web: Web, tmp_path: Path) -> None:
    web.cuts = [100_000, 70_000]
    assert bring(web.url("file"), tmp_path / "f", checksum=RIGHT) == SUM
    assert [asked.get("Range") for asked in web.asked] == [None, "bytes=100000-", "bytes=170000-"]
    assert left(tmp_path) == ["f"]


def test_the_next_call_goes_on(web: Web, tmp_path: Path) -> None:
    begin(web, tmp_path / "f", 120_000)
    seen: list[int] = []
    assert bring(web.url("file"), tmp_path / "f", RIGHT, advance=lambda have, _: seen.append(have)) == SUM
    assert web.asked[0]["Range"] == "bytes=120000-"
    assert seen[0] == 120_000


def test_without_a_checksum_it_begins_again(web: Web, tmp_path: Path) -> None:
    begin(web, tmp_path / "f", 120_000)
    assert bring(web.url("file"), tmp_path / "f") == SUM
    assert "Range" not in web.asked[0]
    web.cuts = [100_000]
    assert bring(web.url("file"), tmp_path / "g") == SUM
    assert [asked.get("Range") for asked in web.asked] == [None] * 3


def test_a_file_that_changed_meanwhile_is_refused_and_then_comes_whole(web: Web, tmp_path: Path) -> None:
    begin(web, tmp_path / "f", 120_000)
    web.files["file"] = DATA[::-1]
    right = f"sha256:{hashlib.sha256(DATA[::-1]).hexdigest()}"
    with pytest.raises(WrongFileError):
        download(web.url("file"), tmp_path / "f", checksum=right)
    assert f"sha256:{bring(web.url('file'), tmp_path / 'f', right)}" == right


def test_a_server_that_sends_no_rest_sends_all(web: Web, tmp_path: Path) -> None:
    begin(web, tmp_path / "f", 120_000)
    web.ranges = False
    assert bring(web.url("file"), tmp_path / "f", RIGHT) == SUM
    assert len(web.asked) == 1


def test_a_part_that_was_whole(web: Web, tmp_path: Path) -> None:
    begin(web, tmp_path / "f", 120_000)
    part_of(tmp_path / "f").write_bytes(DATA)
    assert bring(web.url("file"), tmp_path / "f", RIGHT) == SUM
    begin(web, tmp_path / "g", 120_000)
    part_of(tmp_path / "g").write_bytes(DATA + b"more")
    assert bring(web.url("file"), tmp_path / "g", RIGHT) == SUM


def test_a_server_that_sends_another_part_is_not_believed(web: Web, tmp_path: Path) -> None:
    begin(web, tmp_path / "f", 120_000)
    web.skew = 1
    assert bring(web.url("file"), tmp_path / "f", RIGHT) == SUM
    assert [asked.get("Range") for asked in web.asked] == ["bytes=120000-", None]


def test_a_wrong_checksum_leaves_nothing(web: Web, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"what was there")
    with pytest.raises(WrongFileError, match=rf"300,000 bytes it sent have the SHA-256 {SUM} and not {'0' * 64}"):
        download(web.url("file"), tmp_path / "f", checksum=f"sha256:{'0' * 64}")
    assert left(tmp_path) == ["f"]
    assert (tmp_path / "f").read_bytes() == b"what was there"


def test_a_server_in_trouble_is_asked_again(web: Web, tmp_path: Path) -> None:
    web.answers = [503, 500]
    assert bring(web.url("file"), tmp_path / "f") == SUM
    web.answers = [503] * 9
    with pytest.raises(FetchError, match=r"the server answers 503 .*check the connection"):
        download(web.url("file"), tmp_path / "f")
    assert len(web.asked) == 3 + waiting.TRIES


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("{web}/no-such", "the server answers 404"),
        ("http://127.0.0.1:1/file", "cannot be reached"),
        ("http://127.0.0.1:port/file", "not a web address"),
        ("http://127.0.0.1:1/a b", "not a web address"),
        ("file:///etc/hostname", "must begin with http"),
    ],
)
def test_what_is_refused(web: Web, tmp_path: Path, address: str, says: str) -> None:
    url = address.format(web=web.address)
    with pytest.raises(FetchError, match=says) as caught:
        download(url, tmp_path / "f")
    assert str(caught.value).startswith(url)
    assert left(tmp_path) == []


def test_a_disk_that_will_not_hold_it_is_seen_before(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil._ntuple_diskusage(10**6, 10**6 - 1000, 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(FetchError, match=r"needs 0\.3 MB more, and 1,000 bytes are free"):
        download(web.url("file"), tmp_path / "f")


CHILD = """
import sys
from pathlib import Path
from dragin_lab.data.download import download
download({url!r}, Path({path!r}))
"""


def test_the_systems_own_limit_on_a_file(web: Web, tmp_path: Path) -> None:
    code = CHILD.format(url=web.url("file"), path=str(tmp_path / "f"))
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
    )  # fmt: skip
    assert "FetchError" in ran.stderr
    assert "ulimit -f" in ran.stderr
    assert part_of(tmp_path / "f").read_bytes() == DATA[: part_of(tmp_path / "f").stat().st_size]
    assert bring(web.url("file"), tmp_path / "f", RIGHT) == SUM


def test_breaking_it_off_keeps_the_part(web: Web, tmp_path: Path) -> None:
    def interrupt(have: int, total: int | None) -> None:
        if have >= 2 * module.CHUNK:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        download(web.url("file"), tmp_path / "f", advance=interrupt)
    kept = part_of(tmp_path / "f").read_bytes()
    assert kept == DATA[: len(kept)]
    assert len(kept) >= 2 * module.CHUNK
    assert bring(web.url("file"), tmp_path / "f", checksum=RIGHT) == SUM
    assert web.asked[-1]["Range"] == f"bytes={len(kept)}-"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to(web: Web, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(FetchError, match="save it in a folder that you may write to"):
        download(web.url("file"), tmp_path / "f")
