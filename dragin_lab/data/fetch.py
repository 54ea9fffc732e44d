"""``dragin-lab data fetch``: benchmarks, the published exemplars and the paper's corpus, downloaded
by pooch.

``origins.yaml`` says where a file comes from and which checksum it has, with the sources of both.
"""

from __future__ import annotations

import ast
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import yaml

from dragin_lab.checks import refuse_password
from dragin_lab.core.prompts import Exemplar
from dragin_lab.data.datasets import data_folder
from dragin_lab.data.exemplars import SHOTS, published_file
from dragin_lab.data.tabular import Filled, convert_record
from dragin_lab.errors import DataError
from dragin_lab.files import not_saved


@dataclass(frozen=True)
class PublishedFile:
    """A public file, and the ``files`` that come from it: members of an archive, exemplars in a
    source file, itself.

    ``checksum`` ("sha256:…" or "md5:…") is of the file as served; ``None`` where none is published.
    ``passages`` is their number in a corpus.
    """

    url: str
    name: str
    files: list[str]
    checksum: str | None = None
    passages: int = 0


_KNOWN = yaml.safe_load(Path(__file__).with_name("origins.yaml").read_text(encoding="utf-8"))
ORIGINS = {name: PublishedFile(**facts) for name, facts in _KNOWN.items()}


def fetch(
    name: str,
    folder: Path | None = None,
    *,
    url: str | None = None,
    again: bool = False,
    progress: bool = False,
) -> tuple[tuple[Path, ...], str]:
    """Fetch what ``ORIGINS`` has by a name into a folder, by default where it is looked for;
    ``url`` is a mirror.

    Returns the files, and a line on how they were checked. Files that are there stay as they are
    unless ``again``. Raises ``DataError`` with what went wrong and what to do; nothing is left
    behind, and what was there is unchanged.
    """
    if name not in ORIGINS:
        raise DataError(
            f"nothing is known of {name!r}; what can be fetched is {', '.join(ORIGINS)}"
        )
    origin = ORIGINS[name]
    if folder is None:
        folder = published_file("any").parent if name == "exemplars" else data_folder() / name
    targets = tuple(folder / file for file in origin.files)
    wanted = [path for path in targets if again or not path.is_file()]
    if not wanted:
        return targets, _check_present(origin, targets[0])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".") as drafts:
            served = Path(drafts, origin.name)
            note = _download(origin.url if url is None else url, served, origin.checksum, progress)
            if name == "exemplars":
                for kind, exemplars in read_published(served).items():
                    text = yaml.safe_dump(
                        [*map(asdict, exemplars)], allow_unicode=True, sort_keys=False, width=110
                    )
                    Path(drafts, f"{kind}.yaml").write_text(text, encoding="utf-8")
            elif origin.files != [origin.name]:
                _unpack_members(served, origin.files)
            for target in wanted:
                os.replace(Path(drafts, target.name), target)
    except OSError as error:
        raise DataError(not_saved(error.filename or folder, error)) from None
    return targets, note


def _check_present(origin: PublishedFile, path: Path) -> str:
    import pooch

    if origin.checksum is None or origin.files != [origin.name]:
        return "already there; --again fetches and replaces it"
    algorithm, _, wanted = origin.checksum.partition(":")
    if (actual := pooch.file_hash(path, algorithm)) != wanted:
        raise DataError(
            f"{path}: has the {algorithm} {actual} and not {wanted}; --again fetches it again"
        )
    return "already there, with the right checksum"


def _download(url: str, target: Path, known: str | None, progress: bool) -> str:
    """Download and compare the checksum. A user and a password are those of ``~/.netrc``."""
    import pooch
    import requests

    refuse_password("url", url)
    downloader = pooch.HTTPDownloader(progressbar=progress)
    pooch.get_logger().setLevel("ERROR")
    try:
        pooch.retrieve(url, known, target.name, target.parent, downloader=downloader)
    except requests.HTTPError as error:
        raise DataError(
            f"{url}: the server answers {' '.join(str(error).split()[:2])}; give another address"
            " with --url"
        ) from None
    except requests.RequestException as error:
        raise DataError(
            f"{url}: cannot be fetched ({' '.join(str(error).split())[-200:]}); check address and"
            " connection, run it again"
        ) from None
    except ValueError as error:  # from pooch: another checksum
        raise DataError(
            f"{url}: sent another file than the released one, or a damaged one"
            f" ({str(error)[:300]}); run it again, or give another address with --url"
        ) from None
    return (
        f"the checksum of {target.name} is right"
        if known
        else f"no checksum of {target.name} is published"
    )


def _unpack_members(archive: Path, names: Sequence[str]) -> None:
    """Unpack the members of these names, wherever they stand in a zip or tar file, beside it."""
    inside = archive.parent / "unpacked"
    try:
        shutil.unpack_archive(archive, inside, filter=None if archive.suffix == ".zip" else "data")
    except (
        shutil.ReadError,
        zipfile.BadZipFile,
        tarfile.TarError,
        zlib.error,
        EOFError,
        ValueError,
    ) as error:
        raise DataError(
            f"{archive.name}: is not a sound archive ({str(error)[:200]}); run it again"
        ) from None
    for name in names:
        matches = [path for path in inside.rglob(name) if path.is_file()]
        if len(matches) != 1:
            count = "no file" if not matches else f"{len(matches)} files"
            raise DataError(
                f"{archive.name}: holds {count} named {name}; give the address of the released one"
            )
        os.replace(matches[0], archive.with_name(name))


# -- the exemplars published with the paper, from a source file that is never run ------------------

#: In ``src/data.py`` of oneal2000/DRAGIN every data set is a class with a list ``examplars`` of
#: mappings: ``question``, ``cot`` (a text, or several in order), ``answer``. A prompt takes the
#: first of them (``exemplars.SHOTS``).
CLASSES = {
    "2wikimultihopqa": "WikiMultiHopQA",
    "hotpotqa": "HotpotQA",
    "strategyqa": "StrategyQA",
    "iirc": "IIRC",
}
LIST = "examplars"


def read_published(path: Path) -> dict[str, tuple[Exemplar, ...]]:
    """The exemplars of each benchmark, as many as its prompt takes; ``DataError`` for what is
    not as described.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(
            f"{path}: is not the source file that holds the prompts ({error}); give it with --url"
        ) from None
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    return {
        name: _read_class(f"{path}, class {known}", classes.get(known), SHOTS[name])
        for name, known in CLASSES.items()
    }


def _read_class(where: str, node: ast.ClassDef | None, count: int) -> tuple[Exemplar, ...]:
    if node is None:
        raise DataError(
            f"{where}: is not there; give the address of the source file that holds it with --url"
        )
    values = {}
    for statement in node.body:
        match statement:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, value):
                values[name] = value
    try:
        rows = ast.literal_eval(value) if (value := values.get(LIST)) else None
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise DataError(f"{where}: {LIST} is not written out as plain values ({error})") from None
    if not isinstance(rows, list) or len(rows) < count:
        held = f"{len(rows)} of them" if isinstance(rows, list) else "no list"
        raise DataError(
            f"{where}: {LIST} holds {held}, and {count} are needed; give another address with --url"
        )
    places = ((f"{where}, {LIST} {number}", row) for number, row in enumerate(rows[:count], 1))
    entries = [convert_record(place, row, _Entry, DataError) for place, row in places]
    return tuple(Exemplar(entry.question, "".join(entry.cot), entry.answer) for entry in entries)


class _Entry(msgspec.Struct):
    question: Filled
    cot: Filled | list[str]
    answer: Filled
