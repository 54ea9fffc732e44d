"""The manifest of a built corpus or an index, by which an unfinished, damaged or different folder is recognised.

It is written last: a folder without one is unfinished. It holds facts, the length and CRC-32 of every file, which are
quick enough to compare whenever the folder is opened, and a checksum of itself.
"""

from __future__ import annotations

import hashlib
import json
import textwrap
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dragin_lab.errors import CorpusError
from dragin_lab.files import write_whole

_CHUNK = 1 << 20


def write_manifest(path: Path, facts: Mapping[str, Any], files: Iterable[Path]) -> None:
    """Write ``facts`` and a description of each file, all of which must be written already."""
    described = {one.relative_to(path.parent).as_posix(): _describe(one, "run it again") for one in files}
    write_whole(path, _serialized({**facts, "files": described}))


def read_manifest(path: Path, remedy: str, wanted: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The facts of a manifest, which must include all that is ``wanted`` and describe the files beside it.

    Raises ``CorpusError``, ending in the ``remedy``: no manifest, one that was damaged or edited or describes something
    else, a file that is missing, cut short or changed.
    """
    try:
        data = path.read_bytes()
        about = dict(json.loads(data))
    except FileNotFoundError:
        raise CorpusError(f"{path.parent}: holds nothing that was finished; {remedy}") from None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise CorpusError(f"{path}: cannot be read ({str(error)[:100]}); {remedy}") from None
    for name, value in (wanted or {}).items():
        if about.get(name) != value:
            was, wants = (textwrap.shorten(repr(one), 80, placeholder="...") for one in (about.get(name), value))
            raise CorpusError(f"{path.parent}: was built with {name} {was}, and this is {wants}; {remedy}")
    if data != _serialized(about):
        raise CorpusError(f"{path}: does not match its own checksum, so it was damaged or edited; {remedy}")
    for name, facts in about["files"].items():
        if (now := _describe(path.parent / name, remedy)) != facts:
            size = f"{now['bytes']:,} bytes and not {facts['bytes']:,}" if now["bytes"] != facts["bytes"] else "changed"
            raise CorpusError(f"{path.parent / name}: is damaged ({size}); {remedy}")
    return about


def _serialized(facts: Mapping[str, Any]) -> bytes:
    """The bytes of a manifest of these facts, with their checksum."""
    plain = {name: value for name, value in facts.items() if name != "checksum"}
    checksum = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    return (json.dumps(plain | {"checksum": checksum}, indent=1, ensure_ascii=False) + "\n").encode()


def _describe(path: Path, remedy: str) -> dict[str, Any]:
    crc = size = 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                crc, size = zlib.crc32(chunk, crc), size + len(chunk)
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
    return {"bytes": size, "crc32": f"{crc:08x}"}
