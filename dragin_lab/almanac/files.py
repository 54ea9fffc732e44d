"""Almanac's files: in a checkout, else unpacked once into the user's cache. `tools/almanac` makes them."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

from dragin_lab.files import user_cache

_VERSION = "1"  # of the files; a cache of another version is not used
_HERE = Path(__file__).resolve().parent


def almanac_folder(cache: Path | None = None) -> Path:
    """The folder of Almanac's files: `corpora/almanac` of a checkout, else in the user's cache."""
    checkout = _HERE.parents[1] / "corpora" / "almanac"
    if cache is None and (checkout / "psgs_w100.tsv").exists():
        return checkout
    folder = (cache or user_cache()) / f"almanac-{_VERSION}"
    if not (folder / "psgs_w100.tsv").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            with tarfile.open(_HERE / "files.tar.xz") as archive:
                archive.extractall(beside, filter="data")
            beside.chmod(0o755)
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(beside, folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return folder


def wordings() -> dict[str, tuple[str, ...]]:
    """For each relation the sentences that state it in Almanac's reasoning; {s} the subject, {v} the value."""
    rows = json.loads((_HERE / "wordings.json").read_text(encoding="utf-8"))
    return {relation: tuple(sentences) for relation, sentences in rows.items()}
