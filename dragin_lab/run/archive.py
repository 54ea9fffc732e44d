"""Run directories as one file, a .tar.xz that is unpacked once, into the user's cache."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from dragin_lab.errors import DraginLabError
from dragin_lab.files import user_cache

ENDING = ".tar.xz"


class PackedRunsError(DraginLabError):
    """An archive of runs that cannot be read."""


def unpacked(path: Path) -> Path:
    """The folder that holds what is in an archive: below the user's cache, under a name made of its content.

    Raises ``PackedRunsError`` for a file that is not such an archive.
    """
    import tarfile  # where an archive is read, and not with every command

    try:
        name = sha256(path.read_bytes()).hexdigest()[:16]
        folder = user_cache() / "runs" / name
        if not (folder / ".whole").exists():
            folder.mkdir(parents=True, exist_ok=True)
            with tarfile.open(path, "r:xz") as archive:
                archive.extractall(folder, filter="data")
            (folder / ".whole").touch()
    except (OSError, EOFError, tarfile.TarError) as error:
        raise PackedRunsError(f"{path}: cannot be unpacked ({error}); get it again, or give a folder of runs") from None
    return folder
