"""``dragin-lab data fetch`` and ``corpus fetch``: benchmarks, the published exemplars and the paper's corpus.

``origins.yaml`` says where a file comes from and which checksum it has, with the sources of both. What was fetched is
listed with its checksum in ``SHA256SUMS`` beside it (``sha256sum -c`` reads it); a file without a published checksum is
trusted the first time and compared with that checksum from then on.
"""

from __future__ import annotations

import ast
import lzma
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, Any, NamedTuple

import msgspec
import yaml

from dragin_lab.checks import Filled, convert_record
from dragin_lab.core.prompts import Exemplar
from dragin_lab.data.datasets import data_folder
from dragin_lab.data.download import Advance, FetchError, WrongFileError, checksum_of, compare_checksum, download
from dragin_lab.data.exemplars import SHOTS, published_file
from dragin_lab.files import check_unpacked, not_saved, write_whole

SUMS = "SHA256SUMS"


@dataclass(frozen=True)
class Origin:
    """A public file, and the ``files`` that come from it: members of an archive, exemplars in a source file, itself.

    ``checksum`` ("sha256:…" or "md5:…") is of the file as served; ``None`` where none is published. ``passages`` is
    their number in a corpus.
    """

    url: str
    name: str
    files: list[str]
    checksum: str | None = None
    passages: int = 0


_KNOWN = yaml.safe_load(Path(__file__).with_name("origins.yaml").read_text(encoding="utf-8"))
ORIGINS = {name: Origin(**facts) for name, facts in _KNOWN.items()}


@dataclass(frozen=True)
class Fetched:
    """The fetched files, and one line on how far they were checked."""

    files: tuple[Path, ...]
    note: str


def fetch(
    name: str,
    folder: Path | None = None,
    *,
    url: str | None = None,
    sha256: str | None = None,
    again: bool = False,
    advance: Advance = lambda have, total: None,
) -> Fetched:
    """Fetch a benchmark or a corpus into a folder, by default ``folder_of(name)``.

    Args:
        name: a key of ``ORIGINS``.
        url: a mirror of the same file.
        sha256: the checksum of what that mirror serves, where it is not the same byte for byte.
        again: download it even where it is there, and replace it.
        advance: called with the bytes received so far and their total, None if unknown.

    Raises:
        FetchError: what went wrong and what to do; the bytes received are kept, and the next call resumes.
    """
    if name not in ORIGINS:
        raise FetchError(f"nothing is known of {name!r}; what can be fetched is {', '.join(ORIGINS)}")
    if sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise FetchError(f"the checksum {sha256!r} is not a SHA-256; give its 64 hexadecimal digits")
    origin = ORIGINS[name]
    folder = folder_of(name) if folder is None else folder
    targets = tuple(folder / file for file in origin.files)
    published = f"sha256:{sha256}" if sha256 else origin.checksum
    sums = _read_sums(folder)
    known = ({} if published is None else {origin.name: published}) | sums
    if not again and any(path.is_file() for path in targets):
        return _check_present(targets, known)
    served = folder / origin.name
    expected = published or sums.get(origin.name)
    with _explain_saving(folder):
        folder.mkdir(parents=True, exist_ok=True)
    # An earlier call may have ended before it unpacked what it fetched.
    if again or expected is None or not served.is_file() or compare_checksum(served, expected):
        try:
            download(origin.url if url is None else url, served, checksum=expected, advance=advance)
        except WrongFileError as error:
            if published:
                raise
            raise WrongFileError(
                f"{error}. That checksum is of the first download; if the file has rightly changed since, remove "
                f"its line from {folder / SUMS}"
            ) from None
    written = _write_targets(name, served, targets)
    with _explain_saving(folder / SUMS):
        sums |= {path.name: checksum_of(path) for path in (served, *written) if path.is_file()}
        lines = "".join(f"{sum.partition(':')[2]}  {file}\n" for file, sum in sorted(sums.items()))
        write_whole(folder / SUMS, lines.encode())
    if expected is None:
        return Fetched(
            written,
            f"no checksum of {origin.name} is published; later fetches are compared with its line in {folder / SUMS}",
        )
    return Fetched(written, f"the checksum of {origin.name} is right")


def folder_of(name: str) -> Path:
    """The folder for an entry of ``ORIGINS``."""
    return published_file("any").parent if name == "exemplars" else data_folder() / name


# -- what is there already --------------------------------------------------------------------------------------------


def _check_present(targets: tuple[Path, ...], known: dict[str, str]) -> Fetched:
    """Check that no file is missing and that each has its checksum."""
    there = [path for path in targets if path.is_file()]
    if missing := [path.name for path in targets if path not in there]:
        raise FetchError(
            f"{there[0]}: is there, but {', '.join(missing)} beside it is not; --again fetches and replaces all of them"
        )
    for path in there:
        if path.name in known and (other := compare_checksum(path, known[path.name])):
            raise WrongFileError(f"{path}: has {other}, as it was published or fetched; --again fetches it again")
    if all(path.name in known for path in there):
        return Fetched(targets, "already there, with the right checksum")
    return Fetched(
        targets, f"already there, and not from here: no checksum to compare it with in {targets[0].parent / SUMS}"
    )


def _read_sums(folder: Path) -> dict[str, str]:
    """File name -> "sha256:…" of what was fetched into a folder."""
    path = folder / SUMS
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise FetchError(f"{path}: cannot be read ({error}); remove it to fetch without it") from None
    sums = {}
    for number, line in enumerate(lines, 1):
        match = re.fullmatch(r"([0-9a-fA-F]{64}) [ *](.+)", line)
        if match is None:
            raise FetchError(f"{path}, line {number}: is not a checksum and a file name; mend it, or remove the file")
        sums[match[2]] = f"sha256:{match[1]}"
    return sums


# -- from the served file to the files ------------------------------------------------------------------------------


def _write_targets(name: str, served: Path, targets: tuple[Path, ...]) -> tuple[Path, ...]:
    """Write the files from the one that was served; an archive is removed once it is unpacked."""
    if targets == (served,):
        return targets
    try:
        if name == "exemplars":
            sets = read_published(served)
            for path in targets:
                with _explain_saving(path):
                    write_whole(path, to_yaml(sets[path.stem], served.name).encode())
            return targets
        unpack_members(served, targets)
    except WrongFileError:
        served.unlink()
        raise
    served.unlink()
    return targets


def unpack_members(archive: Path, targets: tuple[Path, ...]) -> None:
    """Unpack the members of a zip or tar file that have the targets' names, in one folder: all of them, or none.

    Members are found by the last part of their names and written to the targets only, so no name in an archive can
    lead elsewhere; links and folders are ignored.

    Raises:
        WrongFileError: a damaged archive; a member that is missing, or there more than once.
        FetchError: a disk that is full; members that are too large (``files.check_unpacked``).
    """
    try:
        with _list_members(archive) as members:
            wanted: list[_Member] = []
            for target in targets:
                matches = [member for member in members if PurePosixPath(member.name).name == target.name]
                if len(matches) != 1:
                    count = "no file" if not matches else f"{len(matches)} files"
                    raise WrongFileError(
                        f"{archive}: holds {count} named {target.name}; give the address of the released one"
                    )
                wanted += matches
            check_unpacked(archive, (member.size for member in wanted), FetchError)
            folder = targets[0].parent
            with _explain_saving(folder), TemporaryDirectory(dir=folder, prefix=".") as drafts:
                for target, member in zip(targets, wanted, strict=True):
                    with _explain_saving(target), member.open() as data:
                        write_whole(Path(drafts, target.name), data)
                for target in targets:
                    os.replace(Path(drafts, target.name), target)
    except (*_UNSOUND, OSError) as error:
        why = " ".join(str(error).split())
        if getattr(error, "errno", None) is not None:
            raise FetchError(f"{archive}: cannot be read ({why}); run it again") from None
        raise WrongFileError(f"{archive}: is not a sound archive ({why}); run it again") from None


#: What is raised by reading a damaged archive.
_UNSOUND = (
    zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, RuntimeError, NotImplementedError,
    ValueError,
)  # fmt: skip


class _Member(NamedTuple):
    """A file in an archive; ``size`` is in bytes, unpacked."""

    name: str
    size: int
    open: Callable[[], IO[bytes]]


@contextmanager
def _list_members(archive: Path) -> Iterator[list[_Member]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            files = [info for info in packed.infolist() if not info.is_dir()]
            yield [_Member(info.filename, info.file_size, partial(packed.open, info)) for info in files]
        return
    with tarfile.open(archive) as tar:
        entries = [entry for entry in tar if entry.isfile()]
        assert tar.fileobj is not None  # it is open
        while tar.fileobj.read(2**20):  # gzip's checksum stands after what tarfile reads
            pass
        yield [_Member(entry.name, entry.size, partial(_open_entry, tar, entry)) for entry in entries]


def _open_entry(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    member = tar.extractfile(entry)
    assert member is not None  # it is a file
    return member


@contextmanager
def _explain_saving(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno is None:  # not from the system: bz2 says so of damaged data that is read meanwhile
            raise
        raise FetchError(not_saved(path, error)) from None


# -- the exemplars published with the paper, from a source file that is never run -------------------------------------

#: In ``src/data.py`` of oneal2000/DRAGIN every data set is a class with a list ``examplars`` of mappings: ``question``,
#: ``cot`` (a text, or several in order), ``answer``. A prompt takes the first of them (``exemplars.SHOTS``).
CLASSES = {
    "2wikimultihopqa": "WikiMultiHopQA",
    "hotpotqa": "HotpotQA",
    "strategyqa": "StrategyQA",
    "iirc": "IIRC",
}
LIST = "examplars"


def read_published(path: Path) -> dict[str, tuple[Exemplar, ...]]:
    """The exemplars of each benchmark, as many as its prompt takes.

    Raises:
        WrongFileError: the file, class or entry that is not as described above.
    """
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # ValueError: not UTF-8, or a NUL in it
        raise WrongFileError(
            f"{path}: is not the source file that holds the prompts ({error}); give it with --url"
        ) from None
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    return {
        name: _read_class(f"{path}, class {known}", classes.get(known), SHOTS[name]) for name, known in CLASSES.items()
    }


def to_yaml(exemplars: Sequence[Exemplar], source: str) -> str:
    """Exemplars as ``load_exemplars`` reads them, with a line on where they come from."""
    rows = [{"question": e.question, "rationale": e.rationale, "answer": e.answer} for e in exemplars]
    return f"# Read out of {source}.\n" + yaml.safe_dump(rows, allow_unicode=True, sort_keys=False, width=110)


def _read_class(where: str, node: ast.ClassDef | None, count: int) -> tuple[Exemplar, ...]:
    if node is None:
        raise WrongFileError(f"{where}: is not there; give the address of the source file that holds it with --url")
    values = [
        statement.value
        for statement in node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
        if isinstance(target, ast.Name) and target.id == LIST and statement.value is not None
    ]
    try:
        rows = ast.literal_eval(values[-1]) if values else None
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise WrongFileError(f"{where}: {LIST} is not written out as plain values ({error})") from None
    if not isinstance(rows, list) or len(rows) < count:
        held = f"{len(rows)} of them" if isinstance(rows, list) else "no list"
        raise WrongFileError(f"{where}: {LIST} holds {held}, and {count} are needed; give another address with --url")
    return tuple(_convert_entry(f"{where}, {LIST} {number}", row) for number, row in enumerate(rows[:count], 1))


class _Entry(msgspec.Struct):
    question: Filled
    cot: Filled | list[str]
    answer: Filled


def _convert_entry(where: str, entry: Any) -> Exemplar:
    fields = convert_record(where, entry, _Entry, WrongFileError)
    return Exemplar(fields.question, fields.cot if isinstance(fields.cot, str) else "".join(fields.cot), fields.answer)
