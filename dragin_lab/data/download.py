"""Bring a file from the web to its place: with progress, going on where it stopped, and held to a checksum.

The standard library's ``urllib`` does the talking: it follows redirects and the proxy settings of the environment, and
this needs no package that the rest does not (``httpx`` comes along with JupyterLab only).
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dragin_lab import __version__
from dragin_lab.errors import DraginLabError
from dragin_lab.files import not_saved

CHUNK = 1 << 16
#: Times that a connection is tried again without a byte having come, and the seconds before the first of them.
TRIES, PAUSE = 3, 1.0
#: Seconds without a byte after which a connection counts as cut.
SILENCE = 60.0

Advance = Callable[[int, int | None], Any]  # is told how many bytes there are, and of how many, where that is known


class FetchError(DraginLabError):
    """A file that could not be brought: the address, why, and what to do next."""


class ChecksumError(FetchError):
    """A file that is not the one it should be."""


class _CutError(Exception):
    """The connection ended before the file did."""


def sha256_of(path: Path) -> str:
    """SHA-256 (hex) of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def part_of(path: Path) -> Path:
    """Where the bytes of a file stand until all of them are there."""
    return path.with_name(f"{path.name}.part")


def download(url: str, path: Path, *, sha256: str | None = None, advance: Advance = lambda have, total: None) -> str:
    """Bring ``url`` to ``path`` and return its SHA-256 (hex). Its folder must be there.

    Bytes go to ``PATH.part``, which a cut connection, a full disk or Ctrl-C leave as it is: the next call asks for the
    rest of it. It does so where the server can still tell that the file is the same one (its ETag or date), or where
    ``sha256`` will tell; else, and where the server cannot send a rest, it begins again. A cut connection is tried
    again at once, and given up after ``TRIES`` more connections that brought nothing.

    Raises:
        FetchError: the server's answer, no connection, a disk that is full, or other bytes than ``sha256`` says.
    """
    if not re.match(r"https?://[^/]", url):
        raise FetchError(f"{url}: is not a web address; it must begin with http:// or https://")
    part, left = part_of(path), TRIES
    most = _length(part)
    while True:
        try:
            _transfer(url, part, sha256 is not None, advance)
            break
        except _CutError as error:
            now = _length(part)
            left = TRIES if now > most else left - 1
            most = max(most, now)
            if left < 0:
                raise FetchError(f"{url}: {error}; {_kept(part)}check the connection and run it again") from None
            time.sleep(PAUSE * 2 ** (TRIES - 1 - left) if left < TRIES else 0)
        except OSError as error:
            raise FetchError(f"{not_saved(path, error)}; {_kept(part)}then run it again") from None
    found = sha256_of(part)
    if sha256 is not None and found != sha256.lower():
        size = _length(part)
        _discard(part)
        raise ChecksumError(
            f"{url}: the {size:,} bytes it sent have the SHA-256 {found} and not {sha256.lower()}, so this is another "
            "file or a damaged one, and was removed; run it again, or give another address with --url"
        )
    try:
        os.replace(part, path)
    except OSError as error:
        raise FetchError(f"{not_saved(path, error)}; {_kept(part)}then run it again") from None
    _discard(part)
    return found


def _transfer(url: str, part: Path, checked: bool, advance: Advance) -> None:
    """One connection: append to the part what it lacks. ``_CutError`` where the connection ended too soon."""
    mark = _mark(part)
    known = _read_mark(mark)
    same = known.get("same") if known.get("url") == url else None
    have = _length(part) if checked or same else 0
    asked = {"User-Agent": f"dragin-lab/{__version__}", "Accept-Encoding": "identity"}
    if have:
        asked["Range"] = f"bytes={have}-"
        if same:
            asked["If-Range"] = same
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=asked), timeout=SILENCE)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # nothing is left to send: the part is the whole file, or part of another one
            if error.headers.get("Content-Range", "") == f"bytes */{have}":
                return
            _discard(part)
            raise _CutError("the server's file is shorter than what was there of it") from None
        if error.code in (408, 429, 500, 502, 503, 504):
            raise _CutError(f"the server answers {error.code} {error.reason}") from None
        raise FetchError(
            f"{url}: the server answers {error.code} {error.reason}; give another address with --url"
        ) from None
    except (ValueError, http.client.InvalidURL) as error:  # a port that is not a number, a space in the address
        raise FetchError(f"{url}: is not a web address ({error})") from None
    except (OSError, http.client.HTTPException) as error:
        raise _CutError(
            f"cannot be reached ({getattr(error, 'reason', None) or error or type(error).__name__})"
        ) from None
    with response:
        if response.status == 206:
            start = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
            if start is None or int(start[1]) != have:
                _discard(part)
                raise _CutError("the server sent another piece of the file than it was asked for")
        else:
            have = 0
        length = response.headers.get("Content-Length", "")
        total = have + int(length) if length.isdigit() else None
        if total is not None and (free := shutil.disk_usage(part.parent).free) < total - have:
            raise FetchError(
                f"{url}: needs {_size(total - have)} more in {part.parent}, where {_size(free)} are free; "
                f"free some space, or choose another folder; {_kept(part)}then run it again"
            )
        etag = response.headers.get("ETag", "")
        same = etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified")
        mark.write_text(json.dumps({"url": url, "same": same}), encoding="utf-8")
        with part.open("r+b" if have else "wb") as file:
            file.seek(have)
            file.truncate()
            advance(have, total)
            while True:
                try:
                    data = response.read(CHUNK)
                except (OSError, http.client.HTTPException) as error:
                    raise _CutError(f"the connection was cut ({str(error) or type(error).__name__})") from None
                if not data:
                    break
                file.write(data)
                have += len(data)
                advance(have, total)
        if total is not None and have < total:
            raise _CutError(f"the connection was cut after {_size(have)} of {_size(total)}")


def _mark(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _read_mark(mark: Path) -> dict[str, Any]:
    """Where a part comes from; nothing where that is not known, and the part then counts for nothing."""
    try:
        known = json.loads(mark.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _discard(part: Path) -> None:
    for path in (part, _mark(part)):
        with suppress(FileNotFoundError):
            path.unlink()


def _length(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _kept(part: Path) -> str:
    size = _length(part)
    return f"the {_size(size)} so far are kept in {part}; " if size else ""


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count:,} bytes"
