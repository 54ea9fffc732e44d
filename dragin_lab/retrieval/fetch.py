"""``dragin-lab corpus fetch``: the paper's corpus from its public origin."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragin_lab.data.datasets import data_folder
from dragin_lab.data.download import Advance, ChecksumError, FetchError, download
from dragin_lab.files import not_saved


@dataclass(frozen=True)
class Published:
    """A corpus as its authors serve it: one packed file."""

    url: str
    name: str
    bytes: int
    md5: str
    passages: int


#: Address: facebookresearch/DPR, dpr/data/download_data.py (data.wikipedia_split.psgs_w100), which the README of
#: oneal2000/DRAGIN repeats. Passages: Karpukhin et al. (2020), section 4.1. Bytes and MD5: allenai/ir_datasets,
#: ir_datasets/etc/downloads.json (dpr-w100); the authors publish no checksum.
PUBLISHED = {
    "wikipedia-dpr": Published(
        "https://dl.fbaipublicfiles.com/dpr/wikipedia_split/psgs_w100.tsv.gz",
        "psgs_w100.tsv.gz",
        4_694_541_059,
        "612fe66e0b6b41ee28f806140226c563",
        21_015_324,
    ),
}


def fetch(
    name: str,
    folder: Path | None = None,
    *,
    url: str | None = None,
    again: bool = False,
    advance: Advance = lambda have, total: None,
    say: Callable[[str], Any] = lambda line: None,
) -> Path:
    """Bring a published corpus into a folder, by default NAME below ``data_folder()``; returns its file.

    Args:
        name: a key of ``PUBLISHED``.
        url: another address of the same file, a mirror.
        again: download it although it is there.
        advance: is told the bytes that are there and their number.
        say: is told, in a line, what takes long without a download.

    Raises:
        FetchError: what went wrong and what to do; the bytes that came are kept, and the next call goes on from there.
    """
    if name not in PUBLISHED:
        raise FetchError(f"{name!r} cannot be fetched; one of {', '.join(PUBLISHED)}")
    published = PUBLISHED[name]
    folder = data_folder() / name if folder is None else folder
    path = folder / published.name
    if path.is_file() and not again:
        say(f"{path} is there; comparing its checksum")
        if problem := _problem(path, published):
            raise ChecksumError(f"{path}: {problem}; --again fetches it again")
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FetchError(not_saved(folder, error)) from None
    download(url or published.url, path, advance=advance)
    say("comparing the checksum")
    if problem := _problem(path, published):
        path.unlink()
        raise ChecksumError(f"{url or published.url}: what it sent {problem}, and was removed; give another --url")
    return path


def _problem(path: Path, published: Published) -> str:
    """What tells a file from the published one; empty where nothing does."""
    if (size := path.stat().st_size) != published.bytes:
        return f"has {size:,} bytes and not {published.bytes:,}"
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    return "" if found == published.md5 else f"has the MD5 {found} and not {published.md5}"
