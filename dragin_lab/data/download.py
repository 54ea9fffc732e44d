"""Download a file: with progress, resumed where it stopped, and compared with a checksum.

``pooch`` starts from the beginning after a cut, which is too slow for the 4.7 GB of the paper's corpus.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import urllib3

from dragin_lab.data import web
from dragin_lab.errors import DraginLabError
from dragin_lab.files import not_saved
from dragin_lab.text import split_credentials

CHUNK = 1 << 16

Advance = Callable[[int, int | None], Any]  # called with the bytes received so far and their total, None if unknown


class FetchError(DraginLabError):
    """A file that could not be fetched: the address, why, and what to do next."""


class WrongFileError(FetchError):
    """A file that is damaged, or not the one it should be."""


class _CutError(Exception):
    """The connection ended before the file did."""


def checksum_of(path: Path, algorithm: str = "sha256") -> str:
    """``sha256:…`` or ``md5:…`` (hex) of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{digest.hexdigest()}"


def compare_checksum(path: Path, checksum: str) -> str:
    """How a file's checksum differs from the right one ("sha256:…" or "md5:…"); empty where they are the same."""
    algorithm, _, wanted = checksum.lower().partition(":")
    actual = checksum_of(path, algorithm).partition(":")[2]
    name = {"sha256": "SHA-256", "md5": "MD5"}[algorithm]
    return "" if actual == wanted else f"the {name} {actual} and not {wanted}"


def part_of(path: Path) -> Path:
    """Where the bytes of a file are collected until it is complete."""
    return path.with_name(f"{path.name}.part")


def download(url: str, path: Path, *, checksum: str | None = None, advance: Advance = lambda have, total: None) -> None:
    """Download ``url`` to ``path``, whose folder must exist, and compare its ``checksum`` ("sha256:…" or "md5:…").

    Bytes go to ``PATH.part``, which a cut connection, a full disk or Ctrl-C leave in place, so that the next call asks
    only for the rest. Without a checksum, which tells whether that belongs to the same file, or where the server sends
    no ranges, it starts again. After ``web.TRIES`` connections without progress it gives up. ``user:password@`` in the
    address goes into the header Authorization, and into no message.

    Raises:
        FetchError: the server refuses or cannot be reached; the disk is full; the checksum is wrong.
    """
    credentials, url = split_credentials(url)
    if not re.fullmatch(r"https?://[^/\s]\S*", url):
        raise FetchError(f"{url}: is not a web address; it must begin with http:// or https:// and hold no space")
    part, most, idle = part_of(path), _part_size(part_of(path)), 0
    try:
        while True:
            try:
                _transfer_rest(url, credentials, part, checksum is not None, advance)
                break
            except _CutError as error:
                idle = 0 if _part_size(part) > most else idle + 1
                most = max(most, _part_size(part))
                if idle == web.TRIES:
                    raise FetchError(
                        f"{url}: {error}; {_kept_note(part)}check the connection and run it again"
                    ) from None
        if checksum is not None and (other := compare_checksum(part, checksum)):
            size = _part_size(part)
            part.unlink(missing_ok=True)
            raise WrongFileError(
                f"{url}: the {size:,} bytes it sent have {other}, so this is another file or a damaged one, and was "
                "removed; run it again, or give another address with --url"
            )
        os.replace(part, path)
    except OSError as error:
        raise FetchError(f"{not_saved(path, error)}; {_kept_note(part)}then run it again") from None


def _transfer_rest(url: str, credentials: str, part: Path, checked: bool, advance: Advance) -> None:
    """Append to the part what it lacks, over one connection. Raises ``_CutError`` where that ended too early."""
    have = _part_size(part) if checked else 0
    asked = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    if credentials:
        asked |= urllib3.make_headers(basic_auth=":".join(web.parse_credentials(credentials)))
    try:
        response = web.request("GET", url, asked, redirects=5, stream=True)
    except ValueError as error:  # a port that is not a number, half an IPv6 address
        raise FetchError(f"{url}: is not a web address ({error})") from None
    except urllib3.exceptions.HTTPError as error:
        raise FetchError(
            f"{url}: cannot be reached ({web.reason(error)}); {_kept_note(part)}check the connection and run it again"
        ) from None
    with response:
        if response.status == 416:  # nothing left to send: the part is the whole file, or part of another one
            if response.headers.get("Content-Range") == f"bytes */{have}":
                return
            part.unlink(missing_ok=True)
            raise _CutError("the server's file is shorter than what was there of it")
        if response.status >= 300:
            remedy = "check the connection and run it again" if response.status in web.PASSING else (
                "give another address with --url"
            )  # fmt: skip
            raise FetchError(
                f"{url}: the server answers {response.status} {response.reason}; {_kept_note(part)}{remedy}"
            )
        if response.status != 206:
            have = 0
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            part.unlink(missing_ok=True)
            raise _CutError("the server sent another part of the file than it was asked for")
        length = response.headers.get("Content-Length", "")
        total = have + int(length) if length.isdigit() else None
        if total is not None and (free := shutil.disk_usage(part.parent).free) < total - have:
            raise FetchError(
                f"{url}: needs {_format_size(total - have)} more, and {_format_size(free)} are free in {part.parent}; "
                f"free some space, or choose another folder; {_kept_note(part)}then run it again"
            )
        with part.open("r+b" if have else "wb") as file:
            file.seek(have)
            file.truncate()
            advance(have, total)
            try:
                while data := response.read1(CHUNK, decode_content=False):  # not `stream`, which loses part of a chunk
                    file.write(data)
                    have += len(data)
                    advance(have, total)
            except urllib3.exceptions.HTTPError:
                of = "" if total is None else f" of {_format_size(total)}"
                raise _CutError(f"the connection was cut after {_format_size(have)}{of}") from None


def _part_size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _kept_note(part: Path) -> str:
    size = _part_size(part)
    return f"the {_format_size(size)} so far are kept in {part}; " if size else ""


def _format_size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count:,} bytes"
