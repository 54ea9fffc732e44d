"""Files that are written whole or not at all, and the remedies for those that cannot be written."""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dragin_lab.checks import refuse_password
from dragin_lab.errors import DataError, DraginLabError, SettingError

LOCK = ".lock"  # in a folder that one process at a time may write to

_ELSEWHERE = "set XDG_CACHE_HOME to a folder that you may write to"
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # a drive of Windows has one letter
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space, or save it on another disk"),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS), "save it in a folder that you may write to"
    ),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), "create the folder first"),
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EFBIG: (
        "the limit on a file's size (ulimit -f) is too low; raise it, or save it on another disk"
    ),
}


def as_path(given: Any, error: type[DraginLabError] = SettingError, *, local: bool = False) -> Path:
    """The path that a caller gave, with ``~`` expanded.

    Raises ``error`` for what no file can be called, and for an address with a password. Where a
    ``local`` path is asked for, as for runs, only a scheme makes an address:
    "smollm:rind@0.5" is a name.
    """
    text = str(given)
    is_address = "://" in text if local else not os.path.lexists(text)
    if is_address:
        refuse_password("the path", text, error)
    if _ADDRESS.match(text):  # Path makes one slash of two
        raise error(
            f"{text[:60]!r} is an address, and files are read and written in folders here; give a"
            " folder of this machine, and copy it there or from there"
        )
    try:
        path = Path(given).expanduser()
        if not text.strip():
            raise ValueError("it is empty")
        path.lstat()
    except OSError as refused:
        if refused.errno == errno.ENAMETOOLONG:
            raise error(
                f"{text[:60]!r} … is not a path: {refused.strerror}; choose a shorter name"
            ) from None
    except (
        TypeError,
        ValueError,
        RuntimeError,
    ) as refused:  # ValueError: \0, half a character; the last: no such home
        raise error(
            f"{text[:60]!r} is not a path ({refused}); give the name of a file or a folder"
        ) from None
    return path


def user_cache() -> Path:
    """The folder of what is made or fetched once for a user: below ``XDG_CACHE_HOME``, by default
    ``~/.cache``.

    Raises ``SettingError`` where neither is known, as in a container that runs as a number, and
    where nobody may look into it.
    """
    folder = _all_caches() / "dragin_lab"
    try:
        os.stat(f"{folder}/.")
    except (PermissionError, NotADirectoryError) as error:
        raise SettingError(f"{folder}: cannot be opened ({error.strerror}); {_ELSEWHERE}") from None
    except OSError:
        pass  # it is made where something is kept in it
    return folder


def _all_caches() -> Path:
    """The folder of this user's caches, those of other libraries among them."""
    if folder := os.environ.get("XDG_CACHE_HOME"):
        return Path(folder)
    try:
        return Path.home() / ".cache"
    except RuntimeError:
        raise SettingError(
            f"this user has no home folder, so nothing can be kept for it; {_ELSEWHERE}"
        ) from None


def write_whole(path: str | Path, data: bytes) -> None:
    """Write a file under another name and rename it, so that an old file is replaced whole or not
    at all.

    Anything but a regular file (a pipe, a terminal) is written to directly. Raises ``OSError``; see
    ``not_saved``.
    """
    # unlike Path's methods, these never raise
    if os.path.exists(path) and not os.path.isfile(path):
        Path(path).write_bytes(data)
        return
    target = Path(os.path.realpath(path))  # through a link, not over it
    draft = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, target)
    finally:
        with suppress(OSError):  # it is not there, or the error that is under way says more
            draft.unlink()


def is_set_aside(name: str) -> bool:
    """Whether a folder holds what was deleted, or an earlier state: .Trash-1000, .snapshot,
    .ipynb_checkpoints, #recycle, @eaDir, $RECYCLE.BIN, ~snapshot, __MACOSX.
    """
    return name.startswith((".", "#", "@", "$", "~", "__MACOSX")) or name == "lost+found"


def clear_drafts(folder: Path) -> None:
    """Remove the drafts of a killed ``write_whole`` from a folder that no other process writes
    to.
    """
    for draft in folder.glob(f".{'[0-9a-f]' * 16}.tmp"):
        with suppress(OSError):  # what stays there does no harm
            draft.unlink()


@contextmanager
def locked(folder: Path, busy: str) -> Iterator[None]:
    """Keep other writers out of a folder; the system releases the lock when this process ends,
    however it ends.

    While it is held, the file ``LOCK`` is in the folder. Raises ``DataError`` saying ``busy``
    where another process holds it.
    """
    from filelock import FileLock, Timeout

    path = folder / LOCK
    try:
        lock = FileLock(path).acquire(blocking=False)
    except Timeout:
        raise DataError(f"{folder}: {busy}") from None
    with lock:
        try:
            clear_drafts(folder)
            yield
        finally:
            # safe while the lock is held: a waiter checks that its file is still there
            path.unlink(missing_ok=True)


def not_saved(path: str | Path, error: OSError) -> str:
    """One line on a file that could not be written: which, why, what to do, and what became of
    the old one.
    """
    todo = _ELSEWHERE if _is_in_cache(path) else remedy(error)
    kept = "; the file that was there is unchanged" if os.path.isfile(path) else ""
    return f"{path}: not saved: {error.strerror or error}; {todo}{kept}"


def cache_remedy(error: BaseException | None) -> str:
    """What to do where an error, or what caused it, is of a file in this user's caches, ours or
    another library's; "" for any other.
    """
    while error is not None:
        path = error.filename if isinstance(error, OSError) else None
        if isinstance(path, str) and _is_in_cache(path):
            return _ELSEWHERE
        error = error.__cause__ or error.__context__
    return ""


def _is_in_cache(path: str | Path) -> bool:
    """Whether a file is in the folder of caches, or one above it that is not there."""
    try:
        folder = _all_caches()
    except SettingError:  # there is none
        return False
    above = folder.is_relative_to(path) and not os.path.isdir(path)
    return above or Path(path).is_relative_to(folder)


def remedy(error: OSError) -> str:
    """What to do about a file that cannot be written."""
    return _REMEDIES.get(error.errno or 0, "try another path")
