"""Records of passages and questions from anything with rows: files, folders, DataFrames, Hugging Face data sets.

Each record comes with its place ("FILE, line 3") for messages. Files are read row by row, never as a whole.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import numbers
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dragin_lab.errors import DataError, MissingPackageError, SettingError
from dragin_lab.files import as_path
from dragin_lab.text import compose
from dragin_lab.trace.trace import Question

Record = Mapping[str, Any]
Advance = Callable[[int], Any]  # called with the bytes of a file that were read, compressed or not

HUB = "hub:"
JSON_LINES, TABLES, PARQUET = (".jsonl", ".jsonl.gz"), (".csv", ".csv.gz", ".tsv", ".tsv.gz"), (".parquet",)
#: A file in every folder that `datasets` saves.
_SAVED = ("dataset_dict.json", "state.json")
_LONGEST_FIELD = 8 << 20
#: Bytes of a line; a longer one is refused before it is read into memory.
LONGEST_LINE = 64 << 20
_LINES_AT_ONCE = 1000  # between two reports of progress
_QUOTING = "where a text holds quotation marks, quote the whole field and double the quotes inside it"
_NOT_ROWS = (str, bytes, Mapping, numbers.Number)
ACCEPTED = (
    f"a {', '.join(JSON_LINES + TABLES + PARQUET)} file, a folder saved by datasets, {HUB}OWNER/NAME[/CONFIG][#SPLIT], "
    "a DataFrame, a datasets.Dataset or an iterable of dictionaries"
)


class Placed(NamedTuple):
    """A record and where it is: ``place`` for messages, ``number`` its row from 1."""

    place: str
    number: int
    record: Record


def is_tabular(source: object) -> bool:
    """Whether ``read_rows`` accepts this; a path is judged by its name and the names in it."""
    if not isinstance(source, str | Path):
        return not isinstance(source, _NOT_ROWS) and isinstance(source, Iterable)
    path = as_path(source, DataError)
    if path.is_dir():
        return any((path / name).is_file() for name in _SAVED)
    return str(source).startswith(HUB) or path.name.lower().endswith(JSON_LINES + TABLES + PARQUET)


def read_rows(source: Any, advance: Advance = lambda count: None) -> Iterator[Placed]:
    """The records of a source (``ACCEPTED``), in order.

    Raises ``DataError`` with the file and the line or row that is wrong and what would be accepted,
    ``MissingPackageError`` where the package that reads the source is not installed.
    """
    if not is_tabular(source):
        shown = source if isinstance(source, str | Path) else f"{type(source).__name__} {str(source)[:40]!r}"
        raise DataError(f"{shown}: holds no rows that can be read; give {ACCEPTED}")
    if not isinstance(source, str | Path):
        return _read_objects(source)
    name, path = str(source).lower(), as_path(source, DataError)
    if name.startswith(HUB) or path.is_dir():
        return _read_data_set(source)
    if name.endswith(PARQUET):
        return _read_parquet(path, advance)
    return (json_rows if name.endswith(JSON_LINES) else _read_table)(path, advance)


# -- files ------------------------------------------------------------------------------------------------------------


def read_lines(path: Path, advance: Advance = lambda count: None) -> Iterator[str]:
    """The lines of a UTF-8 file with their line ends, decompressed where its name ends in .gz."""
    number = 0
    try:
        with path.open("rb") as raw:
            file = gzip.open(raw) if path.name.lower().endswith(".gz") else raw  # noqa: SIM115 - `raw` is closed
            read = 0
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), 1):
                if len(line) > LONGEST_LINE:
                    raise DataError(
                        f"{path}, line {number}: is longer than {LONGEST_LINE >> 20:,} MiB; every record has a line of "
                        "its own, and a passage about 100 words"
                    )
                if not number % _LINES_AT_ONCE:
                    read, before = raw.tell(), read
                    advance(read - before)
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            advance(raw.tell() - read)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number}: byte {error.start + 1} is not UTF-8; save it as UTF-8, or name it .gz if it "
            "is compressed"
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}, after line {number}: is not a sound .gz file ({error}); fetch it again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None


def json_rows(path: Path, advance: Advance = lambda count: None) -> Iterator[Placed]:
    """The objects of a file of JSON lines, whatever its name; blank lines are skipped."""
    count = 0
    for number, line in enumerate(read_lines(path, advance), 1):
        if not line.strip():
            continue
        count += 1
        place = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            why = error.msg if isinstance(error, json.JSONDecodeError) else "a number too long or lists too deep"
            raise DataError(f"{place}: is not JSON ({why}); every line is one JSON object") from None
        if not isinstance(record, dict):
            raise DataError(f"{place}: is a JSON {type(record).__name__}; every line is one JSON object")
        yield Placed(place, count, record)


def _read_table(path: Path, advance: Advance) -> Iterator[Placed]:
    """Rows below a header, separated by commas or tabs and quoted as CSV writers do.

    A quotation mark that is part of a text hides the rows up to the next one: where each line of a row could be a row,
    a TSV is refused and a CSV warned of. Other rows over several lines of a TSV are warned of too.
    """
    tabs = ".tsv" in path.name.lower()
    between = "\t" if tabs else ","
    folded: list[str] = []
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))  # for the whole process, and only ever raised
    reader = csv.reader(read_lines(path, advance), delimiter=between, strict=True)
    names: list[str] = []
    begun, count = 1, 0  # the line on which the current record starts; the records so far
    try:
        for fields in reader:
            place, several, begun = f"{path}, line {begun}", reader.line_num > begun, reader.line_num + 1
            if not fields:
                continue
            if not names:
                names = fields
            elif len(fields) == len(names):
                if several:
                    widths = {line.count(between) + 1 for line in between.join(fields).split("\n")}
                    hides = widths == {len(names)} and len(names) > 1
                    if hides and tabs:
                        raise DataError(f"{place}: its quotation mark hides the rows after it; {_QUOTING}")
                    folded += [place] if hides or tabs else []
                count += 1
                yield Placed(place, count, dict(zip(names, fields, strict=True)))
            else:
                marks = "tabs" if tabs else "commas"
                raise DataError(
                    f"{place}: has {len(fields)} fields between {marks} and not {len(names)} as the first line; "
                    f"quote fields that hold {marks} or line ends"
                )
        if folded:
            warnings.warn(f"{folded[0]}: a row over several lines, {len(folded)} in all; {_QUOTING}", stacklevel=2)
    except csv.Error as error:
        raise DataError(
            f"{path}, line {begun}: a field is not closed or not quoted as CSV writers do ({error}); {_QUOTING}"
        ) from None


def _read_parquet(path: Path, advance: Advance) -> Iterator[Placed]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingPackageError(f"{path}: needs pyarrow; pip install 'dragin-lab[corpora]'") from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            count, size, number = max(file.metadata.num_rows, 1), path.stat().st_size, 0
            for batch in file.iter_batches(4096):
                for record in batch.to_pylist():
                    number += 1
                    yield Placed(f"{path}, row {number}", number, record)
                advance(size * batch.num_rows // count)
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path}: is not a sound parquet file ({str(error)[:200]}); fetch or write it again") from None


# -- objects ----------------------------------------------------------------------------------------------------------


def _read_objects(source: Any) -> Iterator[Placed]:
    """The rows of a DataFrame, a data set, or an iterable of dictionaries."""
    name = type(source).__name__
    for number, record in enumerate(list_records(source) if hasattr(source, "itertuples") else source, 1):
        place = f"{name}, row {number}"
        if not isinstance(record, Mapping):
            raise DataError(f"{place}: is {type(record).__name__} {str(record)[:40]!r}; every row is a dictionary")
        yield Placed(place, number, record)


def list_records(frame: Any) -> Iterator[dict[str, Any]]:
    """The rows of a DataFrame by column; an index that has a name is a column too."""
    named = [name for name in frame.index.names if name is not None and name not in frame.columns]
    frame = frame.reset_index(named) if named else frame
    columns = [str(column) for column in frame.columns]
    return (dict(zip(columns, row, strict=True)) for row in frame.itertuples(index=False))


def _read_data_set(source: str | Path) -> Iterator[Placed]:
    """The rows of a folder saved by ``datasets``, or of a data set on the Hub."""
    try:
        import datasets
    except ImportError:
        raise MissingPackageError(f"{source}: needs datasets; pip install 'dragin-lab[corpora]'") from None
    name = str(source)
    try:
        if name.startswith(HUB):
            title, _, split = name.removeprefix(HUB).partition("#")
            if not title.strip():
                raise DataError(f"{name}: names no data set; write {HUB}NAME or {HUB}NAME#SPLIT")
            parts = [title] if Path(title).exists() else title.split("/", 2)  # owner, name, configuration
            data_set = datasets.load_dataset("/".join(parts[:2]), *parts[2:], split=split or None)
        else:
            data_set = datasets.load_from_disk(str(as_path(source, DataError)))
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise DataError(f"{name}: cannot be loaded by datasets ({' '.join(str(error).split())[:200]})") from None
    if isinstance(data_set, datasets.DatasetDict | datasets.IterableDatasetDict):
        if len(data_set) != 1:
            raise DataError(
                f"{name}: holds the splits {', '.join(data_set)}; say which, as {HUB}NAME#SPLIT, or give it"
            )
        data_set = next(iter(data_set.values()))
    for placed in _read_objects(data_set):
        yield placed._replace(place=f"{name}, row {placed.number}")


# -- fields -----------------------------------------------------------------------------------------------------------


def parse_fields(text: str | Mapping[str, str] | None, names: Iterable[str]) -> dict[str, str]:
    """``"id=doc_id,text=contents"`` as {"id": "doc_id", "text": "contents"}; the keys must be among ``names``."""
    if isinstance(text, str):
        pairs = [part.partition("=") for part in text.split(",")]
        fields = {key.strip(): value.strip() for key, _, value in pairs}
    else:
        if text is not None and not isinstance(text, Mapping):
            raise DataError(f"fields={str(text)[:60]!r}: give a text such as {next(iter(names))}=COLUMN, or a mapping")
        fields = dict(text or {})
    known = list(names)
    wrong = [key for key, value in fields.items() if key not in known or not value]
    if wrong:
        form = ",".join(f"{name}=COLUMN" for name in known)
        raise DataError(f"fields {text!r}: {wrong[0]!r} cannot be set so; write {form}, as many of them as needed")
    return fields


def pick_value(placed: Placed, name: str, usual: Iterable[str], fields: Mapping[str, str]) -> Any:
    """A record's value for a field: by its name in ``fields``, or by the first ``usual`` name that it has.

    None where there is none, and for missing values (NaN, pandas' NA). Raises ``DataError`` where the record lacks a
    field named in ``fields``.
    """
    record = placed.record
    key = fields.get(name) or next((key for key in usual if key in record), None)
    if key is None:
        return None
    if key not in record:
        raise DataError(f"{placed.place}: has no field {key!r} ({name}); {list_fields(placed)}")
    return None if is_missing(record[key]) else record[key]


def is_missing(value: Any) -> bool:
    """Whether a value is one of pandas' for what is missing."""
    return type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and math.isnan(value))


def text_of(placed: Placed, name: str, value: Any) -> str:
    """A value that must be a text or a whole number, as a text. Raises ``DataError`` naming place and field."""
    if isinstance(value, str):
        return value
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return str(int(value))
    raise DataError(f"{placed.place}: the {name} is {type(value).__name__} {str(value)[:40]!r}; it must be a text")


def question_at(place: str, id: str, text: str, golds: tuple[str, ...]) -> Question:
    """A question of a file; its id in composed form. Raises ``DataError`` with its place where ``Question`` refuses."""
    try:
        return Question(compose(id), text, golds)
    except SettingError as error:
        raise DataError(f"{place}: {error}") from None


def list_fields(placed: Placed) -> str:
    """The fields of a record, and how to say which is which."""
    return f"its fields are {', '.join(map(str, placed.record))[:200] or 'none'}; say which is which with fields"
