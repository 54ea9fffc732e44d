"""``dragin-lab data fetch``: the benchmarks and the published exemplars from their public origins.

Where a file comes from, and the checksum it is known to have, with the sources of both, stand in ``ORIGINS``. What
was fetched is listed with its checksum in ``SHA256SUMS`` beside it (``sha256sum -c`` reads it); a file whose checksum
nobody published is trusted the first time and held to that checksum from then on.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from dragin_lab.data.datasets import data_folder
from dragin_lab.data.download import Advance, ChecksumError, FetchError, download, sha256_of
from dragin_lab.data.exemplars import SHOTS, published_file
from dragin_lab.data.published import read_published, to_yaml
from dragin_lab.files import not_saved, write_whole

SUMS = "SHA256SUMS"


class ArchiveError(FetchError):
    """An archive that is damaged, or does not hold what it should."""


@dataclass(frozen=True)
class Origin:
    """A public file, and the ``files`` that are made of it: taken out of an archive, read out of a source file, itself.

    ``sha256`` is of the file as served; ``None`` where no published checksum is known.
    """

    url: str
    name: str
    files: tuple[str, ...]
    sha256: str | None


#: The addresses are those of the data sets' own pages, and what the README of oneal2000/DRAGIN sends its readers to.
ORIGINS = {
    # Address: README of Alab-NII/2wikimultihop, update of April 7, 2021 (dl=1 asks for the file instead of its page).
    # Checksum: found alike in several public repositories that verify their copy of data_ids_april7.zip
    # (258,968,175 bytes); its authors publish none.
    "2wikimultihopqa": Origin(
        "https://www.dropbox.com/s/ms2m13252h6xubs/data_ids_april7.zip?dl=1",
        "data_ids_april7.zip",
        ("dev.json", "id_aliases.json"),
        "95df2bf56fdabe034e27aebc580e02264232203cf52552f9efe8a919e5529eef",
    ),
    # Address: README of hotpotqa/hotpot. Checksum: facebookresearch/ParlAI, parlai/tasks/hotpotqa/build.py, and
    # huggingface/datasets, datasets/hotpot_qa/dataset_infos.json (46,320,117 bytes).
    "hotpotqa": Origin(
        "http://curtis.ml.cmu.edu/datasets/hotpot/hotpot_dev_distractor_v1.json",
        "hotpot_dev_distractor_v1.json",
        ("hotpot_dev_distractor_v1.json",),
        "4e9ecb5c8d3b719f624d66b60f8d56bf227f03914f5f0753d6fa1b359d7104ea",
    ),
    # Address: README of oneal2000/DRAGIN, the archive of https://allenai.org/data/strategyqa. Checksum: found alike in
    # two public repositories that verify their copy of strategyqa_dataset.zip (3,434,332 bytes); none by its authors.
    "strategyqa": Origin(
        "https://storage.googleapis.com/ai2i/strategyqa/data/strategyqa_dataset.zip",
        "strategyqa_dataset.zip",
        ("strategyqa_train.json", "strategyqa_train_paragraphs.json"),
        "4911d85eb6721a93bed7645419df77e721808b32b9785dee14ad80e6249e0a90",
    ),
    # Address: StonyBrookNLP/ircot, download/raw_data.sh, and README of oneal2000/DRAGIN. Checksum: roee-fs/keepsake,
    # bench/iirc.py, and alike in two more public repositories; its authors publish none.
    "iirc": Origin(
        "https://iirc-dataset.s3.us-west-2.amazonaws.com/iirc_train_dev.tgz",
        "iirc_train_dev.tgz",
        ("dev.json",),
        "adfc34c8180337467105b2f534410c34e4fe43a82e6da03922440387802ca441",
    ),
    # Address: oneal2000/DRAGIN, the file that holds the prompts, on its default branch. No checksum is published.
    "exemplars": Origin(
        "https://raw.githubusercontent.com/oneal2000/DRAGIN/HEAD/src/data.py",
        "data.py",
        tuple(f"{name}.yaml" for name in SHOTS),
        None,
    ),
}


@dataclass(frozen=True)
class Fetched:
    """What a fetch left: the files, and one line on how far they were checked."""

    files: tuple[Path, ...]
    note: str


def fetch(
    name: str,
    *,
    url: str | None = None,
    sha256: str | None = None,
    again: bool = False,
    advance: Advance = lambda have, total: None,
) -> Fetched:
    """Bring a benchmark into ``data_folder()``, or the published exemplars into the user's cache.

    Args:
        name: a key of ``ORIGINS``.
        url: another address of the same file, a mirror.
        sha256: the checksum of what that mirror serves, where it is not the same file byte for byte.
        again: download it although it is there, and replace what is there.
        advance: is told the bytes that are there and their number, where that is known.

    Raises:
        FetchError: what went wrong and what to do; the bytes received are kept, and the next call goes on from there.
    """
    if name not in ORIGINS:
        raise FetchError(f"nothing is known of {name!r}; what can be fetched is {', '.join(ORIGINS)}")
    if sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise FetchError(f"the checksum {sha256!r} is not a SHA-256; give its 64 hexadecimal digits")
    origin = ORIGINS[name]
    folder = folder_of(name)
    targets = tuple(folder / file for file in origin.files)
    known = _read_sums(folder)
    there = [path for path in targets if path.is_file()]
    if there and not again:
        return _check(targets, there, known)
    served = folder / origin.name
    expected = sha256 or origin.sha256 or known.get(origin.name)
    with _saving(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if again or not _is(served, expected):  # what is there was not yet unpacked when an earlier call ended
        try:
            found = download(url or origin.url, served, sha256=expected, advance=advance)
        except ChecksumError as error:
            if sha256 or origin.sha256:
                raise
            raise ChecksumError(
                f"{error}. That checksum is of the first download; where the file was rightly changed since, remove "
                f"its line from {folder / SUMS}"
            ) from None
    else:
        found = str(expected)
    made = _make(name, served, targets)
    kept = [path for path in (served, *made) if path.is_file()]
    with _saving(folder / SUMS):
        sums = known | {path.name: sha256_of(path) for path in kept}
        lines = "".join(f"{digest}  {file}\n" for file, digest in sorted(sums.items()))
        write_whole(folder / SUMS, lines.encode())
    if expected is None:
        return Fetched(made, f"no checksum of {origin.name} is published; {found} is in {folder / SUMS} from now on")
    return Fetched(made, f"the checksum of {origin.name} is right")


def folder_of(name: str) -> Path:
    """Where a thing of ``ORIGINS`` is put."""
    return published_file("any").parent if name == "exemplars" else data_folder() / name


# -- what is there already --------------------------------------------------------------------------------------------


def _check(targets: tuple[Path, ...], there: list[Path], known: dict[str, str]) -> Fetched:
    """Whether the files that are there are all, and those that were fetched."""
    missing = [path.name for path in targets if path not in there]
    if missing:
        raise FetchError(
            f"{there[0]}: is there, but {', '.join(missing)} beside it is not; --again fetches and replaces all of them"
        )
    for path in there:
        if path.name in known and (found := sha256_of(path)) != known[path.name]:
            raise FetchError(
                f"{path}: has the SHA-256 {found} and not {known[path.name]}, with which it was fetched; "
                "--again fetches it again"
            )
    if all(path.name in known for path in there):
        return Fetched(targets, "already there, as it was fetched")
    return Fetched(
        targets, f"already there, and not from here: no checksum to hold it to in {targets[0].parent / SUMS}"
    )


def _read_sums(folder: Path) -> dict[str, str]:
    """File -> SHA-256 (hex) of what was fetched into a folder."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise FetchError(f"{folder / SUMS}: cannot be read ({error}); remove it to fetch without it") from None
    sums = {}
    for number, line in enumerate(lines, 1):
        match = re.fullmatch(r"([0-9a-fA-F]{64}) [ *](.+)", line)
        if match is None:
            where = f"{folder / SUMS}, line {number}"
            raise FetchError(f"{where}: is not a checksum and a file name; mend it, or remove the file")
        sums[match[2]] = match[1].lower()
    return sums


def _is(path: Path, expected: str | None) -> bool:
    return expected is not None and path.is_file() and sha256_of(path) == expected.lower()


# -- what is made of it -----------------------------------------------------------------------------------------------


def _make(name: str, served: Path, targets: tuple[Path, ...]) -> tuple[Path, ...]:
    """The files of a thing out of the one that was served; an archive is removed once it is unpacked."""
    if targets == (served,):
        return targets
    if name == "exemplars":
        try:
            sets = read_published(served)
        except FetchError:
            served.unlink()
            raise
        for path in targets:
            with _saving(path):
                write_whole(path, to_yaml(sets[path.stem], served.name).encode())
        return targets
    try:
        unpack(served, targets)
    except ArchiveError:
        served.unlink()
        raise
    served.unlink()
    return targets


def unpack(archive: Path, targets: tuple[Path, ...]) -> None:
    """Copy the members of a zip or tar file that are named like the targets to the targets, whole or not at all.

    Members are found by the last part of their names and written to the targets only, so no name in an archive can
    lead anywhere else; links and folders are not looked at.

    Raises:
        ArchiveError: a damaged archive; a member that is not there, or there more than once.
        FetchError: a disk that is full.
    """
    try:
        _unpack(archive, targets)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        why = " ".join(str(error).split())
        raise ArchiveError(f"{archive}: is not a sound archive ({why}); run it again") from None


def _unpack(archive: Path, targets: tuple[Path, ...]) -> None:
    with ExitStack() as stack:
        members = _members(archive, stack)
        for target in targets:
            found = [read for name, read in members if PurePosixPath(name).name == target.name]
            if len(found) != 1:
                count = "no file" if not found else f"{len(found)} files"
                raise ArchiveError(
                    f"{archive}: holds {count} named {target.name}; give the address of the released one"
                )
            draft = target.with_name(f".{target.name}.unpacked")
            with _saving(target):
                try:
                    with found[0]() as source, draft.open("wb") as file:
                        shutil.copyfileobj(source, file, 1 << 20)
                    os.replace(draft, target)
                finally:
                    with suppress(OSError):  # it is not there, or the error that is under way says more
                        draft.unlink()


def _members(archive: Path, stack: ExitStack) -> list[tuple[str, Callable[[], IO[bytes]]]]:
    if zipfile.is_zipfile(archive):
        packed = stack.enter_context(zipfile.ZipFile(archive))
        return [(info.filename, partial(packed.open, info)) for info in packed.infolist() if not info.is_dir()]
    tar = stack.enter_context(closing(tarfile.open(archive)))  # noqa: SIM115 - the stack closes it
    return [(info.name, partial(_extract, tar, info)) for info in tar.getmembers() if info.isfile()]


def _extract(tar: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    source = tar.extractfile(info)
    assert source is not None  # it is a file
    return source


@contextmanager
def _saving(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FetchError(not_saved(path, error)) from None
