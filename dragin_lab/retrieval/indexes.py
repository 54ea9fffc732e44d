"""The index of a corpus on disk: where it lies, and how it knows that it is whole and of this corpus.

An index is a folder. ``index.json`` is written last, so that half an index is none: it says what the index was built
from and with (compared whenever it is opened), and the length and SHA-256 of every file, with a checksum of itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dragin_lab.errors import CorpusError
from dragin_lab.files import user_cache, write_whole
from dragin_lab.retrieval.corpora.store import HASHED_AT_ONCE, sha256_of
from dragin_lab.retrieval.corpus import Corpus

#: In a built corpus's folder: a folder for each of its indexes.
INDEXES = "indexes"
ABOUT = "index.json"
_ANEW = "build it anew"


def index_folder(corpus: Corpus, name: str) -> Path:
    """The folder of an index of this corpus, whether it is there or not.

    A corpus that was not built has no folder of its own; its indexes are found again by its fingerprint.
    """
    if corpus.folder is not None:
        return corpus.folder / INDEXES / name
    return user_cache() / INDEXES / corpus.fingerprint[:32] / name


def write_about(folder: Path, facts: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Describe an index whose files are all written: ``facts``, and the lengths and checksums of the files."""
    files = {name: {"bytes": (folder / name).stat().st_size, "sha256": sha256_of(folder / name)} for name in names}
    about = {**facts, "files": files}
    about["checksum"] = _checksum(about)
    write_whole(folder / ABOUT, (json.dumps(about, indent=1) + "\n").encode())
    return about


def read_about(folder: Path, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What describes the index in a folder, which must say all that is ``wanted``.

    Also holds its files to their lengths, and to their checksums where that takes a moment only. Raises
    ``CorpusError``: no whole index, one of something else, a file that is gone, cut short or damaged.
    """
    path = folder / ABOUT
    try:
        about = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CorpusError(f"{folder}: holds no whole index; build it with 'dragin-lab corpus index'") from None
    except (OSError, ValueError) as error:
        raise CorpusError(f"{path}: cannot be read ({error}); {_ANEW}") from None
    if not isinstance(about, dict):
        raise CorpusError(f"{path}: does not describe an index; {_ANEW}")
    for name, value in wanted.items():
        if about.get(name) != value:
            raise CorpusError(
                f"{folder}: was built with {name} {_short(about.get(name))}, and this is {_short(value)}; {_ANEW}"
            )
    found = dict(about)
    if found.pop("checksum", None) != _checksum(found):
        raise CorpusError(f"{path}: does not match its own checksum, so it was damaged or edited; {_ANEW}")
    for name, facts in about["files"].items():
        try:
            size = (folder / name).stat().st_size
        except OSError as error:
            raise CorpusError(f"{folder / name}: cannot be read ({error.strerror}); build the index anew") from None
        if size != facts["bytes"]:
            raise CorpusError(f"{folder / name}: has {size:,} bytes and not {facts['bytes']:,}; build the index anew")
    if sum(facts["bytes"] for facts in about["files"].values()) <= HASHED_AT_ONCE:
        check_files(folder, about)
    return about


def check_files(folder: Path, about: Mapping[str, Any]) -> None:
    """Whether every file of an index is, to the byte, what was built; ``CorpusError`` names the first that is not."""
    for name, facts in about["files"].items():
        if sha256_of(folder / name) != facts["sha256"]:
            raise CorpusError(f"{folder / name}: does not have the SHA-256 it was built with; build the index anew")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _checksum(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
