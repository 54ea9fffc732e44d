"""Run directories as one file, a .tar.xz that is unpacked once, into the user's cache."""

from __future__ import annotations

import shutil
from hashlib import file_digest
from pathlib import Path

from dragin_lab.errors import DraginLabError
from dragin_lab.files import check_unpacked, remedy, user_cache

ENDING = ".tar.xz"


class PackedRunsError(DraginLabError):
    """An archive of runs that cannot be read."""


def unpack_archive(path: Path) -> Path:
    """The folder that holds what is in an archive: below the user's cache, under a name made of its content.

    Raises ``PackedRunsError`` for a file that is not such an archive, or that unpacks to too much
    (``files.check_unpacked``); nothing of it stays then.
    """
    import lzma  # where an archive is read, and not with every command
    import tarfile

    from filelock import FileLock

    try:
        with path.open("rb") as file:
            name = file_digest(file, "sha256").hexdigest()[:16]
        folder = user_cache() / "runs" / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = folder.with_name(f"{name}.part")
        with FileLock(folder.with_name(f"{name}.lock")):
            if not folder.exists():
                shutil.rmtree(draft, ignore_errors=True)  # of a process that was killed
                try:
                    with tarfile.open(path, "r:xz") as archive:
                        check_unpacked(path, (member.size for member in archive), PackedRunsError)
                        archive.extractall(draft, filter="data")
                    draft.rename(folder)
                finally:
                    shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        why = error.strerror or error
        raise PackedRunsError(f"{path}: cannot be unpacked into {user_cache()}: {why}; {remedy(error)}") from None
    except (EOFError, ValueError, lzma.LZMAError, tarfile.TarError) as error:
        raise PackedRunsError(f"{path}: cannot be unpacked ({error}); get it again, or give a folder of runs") from None
    return folder
