"""Runs as one file: a zip of the three files of each run, without traces."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from dragin_lab.errors import SettingError
from dragin_lab.files import LARGEST, as_path, not_saved, write_whole
from dragin_lab.run.rundir import (
    ARCHIVE,
    CONFIG,
    GIVE,
    PREDICTIONS,
    TIMINGS,
    RunError,
    RunRecord,
    encode,
    read_files,
)


def is_archive(path: Path) -> bool:
    return path.suffix == ARCHIVE and path.is_file()


def save_archive(path: str | Path, records: Mapping[tuple[str, str], RunRecord]) -> Path:
    """Write runs, by data set and method, as one zip of their three files each; the same runs give
    the same bytes.

    Raises ``SettingError`` for another ending, ``RunError`` where the file cannot be written.
    """
    target, data = as_path(path, local=True), io.BytesIO()
    if target.suffix != ARCHIVE:
        raise SettingError(
            f"{path}: runs are saved as {ARCHIVE}; .questions and .table() are DataFrames to write"
        )
    with ZipFile(data, "w") as archive:
        for (dataset, method), record in records.items():
            more: dict[str, dict[str, object]] = {
                q: {"cause": list(cause)} for q, cause in record.causes.items()
            }
            for id, rows in record.attributed.items():
                more[id] = more.get(id, {}) | {"attributed": rows}
            files = {
                CONFIG: (json.dumps(record.config, indent=1) + "\n").encode(),
                PREDICTIONS: encode(line | more.get(line["id"], {}) for line in record.predictions),
                TIMINGS: encode(record.timings.values()),
            }
            for name, content in files.items():
                member = ZipInfo(f"{dataset}/{method.replace('/', '-')}/{name}")  # dated 1980
                archive.writestr(member, content, ZIP_DEFLATED)
    try:
        write_whole(target, data.getvalue())
    except OSError as error:
        raise RunError(not_saved(target, error)) from error
    return target


def read_archive(path: Path) -> list[RunRecord]:
    """The runs of a zip, which are read as those of folders.

    Raises ``RunError`` for a file that is damaged, and for one that unpacks to more than
    ``LARGEST`` bytes.
    """
    try:
        with ZipFile(path) as archive:
            if (size := sum(member.file_size for member in archive.infolist())) > LARGEST:
                raise RunError(
                    f"{path}: unpacks to {size:,} bytes, and at most {LARGEST:,} are read; save"
                    " fewer runs"
                )
            if damaged := archive.testzip():
                raise BadZipFile(f"{damaged} is not what was written")
            folders = [
                at.parent
                for name in archive.namelist()
                if (at := PurePosixPath(name)).name == CONFIG
            ]
            if not folders:
                raise RunError(f"{path}: holds no run; {GIVE}, or that runs.save wrote")
            return [read_files(path / at, zipfile.Path(archive, f"{at}/")) for at in folders]
    except (BadZipFile, OSError, EOFError, ValueError, RuntimeError, zlib.error) as error:
        raise RunError(f"{path}: cannot be read ({error}); get the file again") from None
