"""Records of passages and questions from anything with rows: files, folders, DataFrames, Hugging
Face data sets.

Each record comes with its place ("FILE, row 3") for messages. Files are read in parts; a ``.json``
file alone, which is one value, as a whole.
"""

from __future__ import annotations

import csv
import json
import math
import numbers
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from dragin_lab.checks import shown
from dragin_lab.data.json_files import read_objects
from dragin_lab.data.tables import OPTIONS, SOUND, open_packed, read_table
from dragin_lab.errors import DataError, DraginLabError, MissingPackageError
from dragin_lab.files import as_path, cache_remedy
from dragin_lab.trace.trace import Passage, Question

T = TypeVar("T")
FieldNames = Mapping[str, str]  # what a field is called in a source
#: The same as a user writes it: "id=doc_id,text=contents", or a mapping.
Fields = str | FieldNames | None
#: The type of a text in a record that must not be blank, for ``convert_record``.
Filled = Annotated[str, msgspec.Meta(pattern=r"\S")]
HUB = "hub:"
JSON_LINES = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")
JSON = (".json",)
TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
PARQUET = (".parquet",)
_SAVED = ("dataset_dict.json", "state.json")  # one is in every folder that `datasets` saves
_ARROW = "__arrow_c_stream__"  # of Arrow's PyCapsule interface
_AT_ONCE = 1000  # rows of a table
_NONE: Mapping[Any, Any] = {}
ACCEPTED = (
    f"a {', '.join(JSON_LINES + JSON + TABLES + PARQUET)} file, a folder saved by datasets,"
    f" {HUB}OWNER/NAME[/CONFIG][#SPLIT], a DataFrame, a table of Arrow, a datasets.Dataset, or an"
    " iterable of dictionaries or of dl.Passage or dl.Question"
)


class Placed(NamedTuple):
    """A record and where it is: ``place`` for messages, ``number`` its row from 1."""

    place: str
    number: int
    record: Mapping[str, Any]


def is_tabular(source: object) -> bool:
    """Whether ``read_rows`` accepts this; a path is judged by its name and the names in it."""
    if not isinstance(source, str | Path):
        if hasattr(source, _ARROW) or _is_splits(source):
            return True
        return isinstance(source, Iterable) and not isinstance(source, bytes | Mapping)
    if str(source).startswith(HUB):
        return True
    path = as_path(source, DataError)
    if path.is_dir():
        return any((path / name).is_file() for name in _SAVED)
    return path.name.lower().endswith(JSON_LINES + JSON + TABLES + PARQUET)


def read_rows(
    source: Any,
    fields: FieldNames = _NONE,
    usual: Mapping[str, Iterable[str]] = _NONE,
    bare: Mapping[int, Sequence[str]] = _NONE,
    limit: int | None = None,
) -> Iterator[Placed]:
    """The records of a source (``is_tabular``), in order; the values of CSV and TSV files are all
    texts.

    No more than ``limit`` are read, and of a data set on the Hub no more is fetched.
    ``fields`` (``parse_fields``) and ``usual`` are the names that fields may have, ``bare`` those
    of the columns of a table without a header, by their number. Hugging Face's classes come by
    their names, not their numbers.

    Raises ``DataError`` with the file and the row that is wrong and what would be accepted,
    ``MissingPackageError`` where the package that reads the source is not installed.
    """
    is_named = isinstance(source, str | Path)
    name = str(source) if is_named else type(source).__name__
    options = {key: fields[key] for key in OPTIONS if key in fields}
    if options and not name.lower().endswith(TABLES):
        raise DataError(
            f"fields {options}: {str(source)[:60]} is no {', '.join(TABLES)} file; leave them out"
        )
    if not is_named:
        rows = _list_rows(source)
    elif name.startswith(HUB):
        rows = _load_data_set(name, limit is not None)
    elif (path := as_path(source, DataError)).is_dir():
        rows = _load_saved(path)
    elif name.lower().endswith(TABLES):
        known = {*fields.values(), *chain.from_iterable(usual.values())}
        name = str(path)
        rows = read_table(path, options, known, bare)
    else:
        name = str(path)
        rows = _read_records(path)
    return islice(_place_rows(name, rows), limit)


def _read_records(path: Path) -> Iterable[Any]:
    """The rows of a file that says itself what its fields are."""
    name = path.name.lower()
    if name.endswith(JSON_LINES):
        return _read_json(path)
    return read_objects(path) if name.endswith(JSON) else _read_parquet(path)


def _list_rows(source: Any) -> Iterable[Any]:
    """The rows of a table or data set of another library, or of anything that has some."""
    if _is_splits(source):
        return _only_split("DatasetDict", source)
    if hasattr(source, "itertuples"):
        return list_records(source)
    if hasattr(source, _ARROW) and not hasattr(source, "features"):
        return _read_arrow(source)
    return _name_classes(source)


def _is_splits(source: Any) -> bool:
    """Whether it is a ``DatasetDict``: data sets by the names of their splits."""
    return isinstance(source, Mapping) and hasattr(source, "column_names")


def _read_arrow(source: Any) -> Iterator[Any]:
    """The rows of a table of Arrow, or of polars, duckdb and what else gives a stream of it."""
    reader = _import_package("pyarrow", type(source).__name__).RecordBatchReader.from_stream(source)
    for batch in reader:
        yield from batch.to_pylist()


def read_json_lines(path: Path) -> Iterator[Placed]:
    """The objects of a file of JSON lines, whatever its name; blank lines are skipped. Errors as
    for ``read_rows``.
    """
    return _place_rows(str(path), _read_json(path))


def _read_json(path: Path) -> Iterator[Any]:
    with open_packed(path, "rt", encoding="utf-8-sig", newline="\n") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def _place_rows(name: str, records: Iterable[Any]) -> Iterator[Placed]:
    number = 0
    try:
        for number, record in enumerate(records, 1):
            place = f"{name}, row {number}"
            match record:
                case Passage(id, title, text):
                    record = {"id": id, "title": title, "text": text}
                case Question(id, text, golds):
                    record = {"id": id, "question": text, "answers": list(golds) or None}
            if not isinstance(record, Mapping):
                raise DataError(
                    f"{place}: is {type(record).__name__} {str(record)[:40]!r}; every row is a"
                    " dictionary or JSON object"
                )
            yield Placed(place, number, record)
    except (ValueError, OSError, EOFError, RecursionError, zlib.error, csv.Error) as error:
        why = (
            error.msg
            if isinstance(error, json.JSONDecodeError)
            else " ".join(str(error).split())[:200]
        )
        raise DataError(
            f"{name}, after row {number}: cannot be read ({why}); give {SOUND}"
        ) from error


def _read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    with _import_package("pyarrow.parquet", path).ParquetFile(path) as file:
        schema = file.schema_arrow
        features = None
        if b'"ClassLabel"' in (schema.metadata or {}).get(b"huggingface", b""):
            features = _import_package("datasets", path).Features.from_arrow_schema(schema)
        for batch in file.iter_batches(_AT_ONCE):
            yield from _name_classes(batch.to_pylist(), features)


def _name_classes(rows: Iterable[Any], features: Any = None) -> Iterable[Any]:
    """Rows of ``datasets`` with the names of classes in place of the numbers that it stores; -1
    is none.
    """
    features = features or getattr(rows, "features", None)
    if not isinstance(features, Mapping) or "ClassLabel(" not in str(features):
        return rows
    return (_name_class(dict(features), row) for row in rows)


def _name_class(feature: Any, value: Any) -> Any:
    if hasattr(feature, "int2str") and isinstance(value, numbers.Integral):
        number = int(value)
        return feature.int2str(number) if number >= 0 else None
    if isinstance(feature, Mapping) and isinstance(value, Mapping):
        return {key: _name_class(feature.get(key), item) for key, item in value.items()}
    if isinstance(value, list) and hasattr(feature, "feature"):
        return [_name_class(feature.feature, item) for item in value]
    return value


def list_records(frame: Any) -> Iterator[dict[str, Any]]:
    """The rows of a DataFrame by column; an index that has a name is a column too."""
    named = [name for name in frame.index.names if name is not None and name not in frame.columns]
    frame = frame.reset_index(named) if named else frame
    columns = [*map(str, frame.columns)]
    for row in frame.itertuples(index=False, name=None):
        yield dict(zip(columns, row, strict=True))


def _load_data_set(name: str, streamed: bool) -> Any:
    """The rows of a data set on the Hub, which is fetched as a whole unless it is ``streamed``."""
    title, _, split = name.removeprefix(HUB).partition("#")
    if not title.strip():
        raise DataError(f"{name}: names no data set; write {HUB}NAME or {HUB}NAME#SPLIT")
    # owner, name, configuration
    parts = [title] if Path(title).exists() else title.split("/", 2)
    where = "/".join(parts[:2])
    with _naming(name) as datasets:
        data_set = datasets.load_dataset(where, *parts[2:], split=split or None, streaming=streamed)
    return _only_split(name, data_set)


def _load_saved(folder: Path) -> Any:
    """The rows of a folder saved by ``datasets``."""
    with _naming(str(folder)) as datasets:
        data_set = datasets.load_from_disk(str(folder))
    return _only_split(str(folder), data_set)


@contextmanager
def _naming(name: str) -> Iterator[Any]:
    """Give ``datasets``, and name what it cannot load."""
    datasets = _import_package("datasets", name)
    try:
        yield datasets
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        why = " ".join(str(error).split())[:200]
        todo = cache_remedy(error)
        then = f"; {todo}" if todo else ""
        raise DataError(f"{name}: cannot be loaded by datasets ({why}){then}") from None


def _only_split(name: str, data_set: Any) -> Iterable[Any]:
    """The rows of a data set, or of the one that a ``DatasetDict`` holds."""
    if not isinstance(data_set, Mapping):
        return _name_classes(data_set)
    if len(data_set) != 1:
        raise DataError(
            f"{name}: holds the splits {', '.join(data_set)}; say which, as {HUB}NAME#SPLIT, or"
            " give it"
        )
    return _name_classes(*data_set.values())


def _import_package(package: str, source: str | Path) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise MissingPackageError(
            f"{source}: needs {package}; pip install 'dragin-lab[corpora]'"
        ) from None


def parse_fields(text: Fields, names: Iterable[str]) -> dict[str, str]:
    """``"id=doc_id,text=contents"`` as {"id": "doc_id", "text": "contents"}; the keys must be among
    ``names``.

    Of a table they may say more (``OPTIONS``): "delimiter=;,encoding=cp1252,header=no".
    """
    if isinstance(text, str):
        pairs = [part.partition("=") for part in re.split(r",(?=\s*\w+\s*=)", text)]
        # a tab is a delimiter
        text = {key.strip(): value.strip() or value for key, _, value in pairs}
    if text is not None and not isinstance(text, Mapping):
        raise DataError(
            f"fields={str(text)[:60]!r}: give a text such as {next(iter(names))}=COLUMN, or a"
            " mapping"
        )
    fields = dict(text or {})
    for key, value in fields.items():
        if not value or key not in {*names, *OPTIONS}:
            form = ",".join(f"{name}=COLUMN" for name in names)
            raise DataError(
                f"fields {fields}: {key!r} cannot be set so; write {form}, as many of them as"
                " needed"
            )
    return fields


def pick_value(placed: Placed, name: str, usual: Iterable[str], fields: FieldNames) -> Any:
    """A record's value for a field: by its name in ``fields``, or by the first ``usual`` name that
    it has.

    None where there is none, and for missing values (NaN, pandas' NA). Raises ``DataError`` where
    the record lacks a field named in ``fields``.
    """
    record = placed.record
    key = fields.get(name) or next((key for key in usual if key in record), None)
    if key is None:
        return None
    key = name_column(placed, key)
    if key not in record:
        raise DataError(f"{placed.place}: has no field {key!r} ({name}); {list_fields(placed)}")
    return None if is_missing(record[key]) else record[key]


def name_column(placed: Placed, name: str) -> str:
    """The name of a column that is called by its number, where none is called so."""
    numbered = (
        name not in placed.record and name.isdecimal() and 0 < int(name) <= len(placed.record)
    )
    return list(placed.record)[int(name) - 1] if numbered else name


def is_missing(value: Any) -> bool:
    return type(value).__name__ in ("NAType", "NaTType") or (
        isinstance(value, float) and math.isnan(value)
    )


def text_of(placed: Placed, name: str, value: Any) -> str:
    """A value that must be a text or a whole number, as a text. Raises ``DataError`` naming
    place and field.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return str(int(value))
    raise DataError(
        f"{placed.place}: the {name} is {type(value).__name__} {str(value)[:40]!r}; it must be a"
        " text"
    )


def id_of(placed: Placed, value: Any) -> str:
    """An id as a text, the row's number where there is none; 1 for the 1.0 that pandas makes of 1
    where another row has none.
    """
    if value is None:
        return str(placed.number)
    whole = isinstance(value, float) and value.is_integer()
    return text_of(placed, "id", int(value) if whole else value)


def list_fields(placed: Placed) -> str:
    """The fields of a record, and how to say which is which; of a table both ways to read its
    first line.
    """
    names = [str(name) for name in placed.record]
    listed = f"its fields are {', '.join(names)[:200] or 'none'}"
    if any(f"{kind}, row" in placed.place.lower() for kind in TABLES):
        if names == [str(number) for number in range(1, len(names) + 1)]:
            listed += " (its first line was read as data; where it is a header, say header=yes)"
        else:
            listed += " (its first line; where that is data, say header=no, and numbers for names)"
    return f"{listed}; say which is which with fields"


def convert_record(
    place: str, record: Any, kind: type[T], error: type[DraginLabError], remedy: str = ""
) -> T:
    """A record of a file as an object of a type; ``error`` names the place, the field and what
    it must be.
    """
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError as refused:
        reason = (
            str(refused).replace("`$.", "`").replace("matching regex '\\\\S'", "that is not blank")
        )
        raise error(f"{place}: {reason}{remedy}") from None
    except UnicodeEncodeError as half:
        raise error(
            f"{place}: half a character at {half.start} of {shown(half.object)}{remedy}"
        ) from None
