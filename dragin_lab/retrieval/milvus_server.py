"""A collection of passages on a Milvus server, or in the file of Milvus Lite: what is asked of it, and its errors."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from dragin_lab.core.method import without_secrets
from dragin_lab.errors import ClusterError, MissingPackageError, SettingError

#: Seconds until a server must have answered; what is lost on the way is asked again until then.
TIMEOUT = 60  # a whole number, as pymilvus passes over others where it waits for an index
CONNECT = 10.0
#: Of a string, in bytes (https://milvus.io/docs/limitations.md), and of what one search returns.
LONGEST, MOST_HITS = 65_535, 16_384
COLLECTION = "passages"
#: gRPC's pauses before it connects again: at most two seconds, where it would grow to two minutes.
_CHANNEL = {
    "grpc.use_local_subchannel_pool": 1,
    "grpc.initial_reconnect_backoff_ms": 500,
    "grpc.max_reconnect_backoff_ms": 2000,
}
FIELDS = ("id", "title", "text")
_FORMS = "milvus:./wiki.db or milvus:http://host:19530, with #collection if it is not 'passages'"


_users: Counter[str] = Counter()  # open connections of this process


@dataclass(frozen=True)
class Address:
    """Where a collection is. ``token`` is no part of ``str``, so it comes into no message, trace or record."""

    uri: str
    collection: str = COLLECTION
    token: str = field(default="", repr=False)
    file: Path | None = None  # Milvus Lite's, which is a folder

    @classmethod
    def parse(cls, text: str) -> Address:
        """``./wiki.db`` or ``http[s]://host:port[/database]``, with ``milvus:`` before and ``#collection`` behind.

        Who asks stands in the address (``http://user:password@host``) or in ``MILVUS_TOKEN``.
        """
        uri, _, collection = text.removeprefix("milvus:").partition("#")
        collection = collection or COLLECTION
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", collection):
            raise SettingError(f"collection {collection!r}: give letters, digits and _, not beginning with a digit")
        if re.match(r"https?://", uri):
            parts = urlsplit(uri)
            try:
                port = parts.port or (443 if parts.scheme == "https" else 19530)
            except ValueError as error:
                raise SettingError(f"milvus: the address is none ({error}); give {_FORMS}") from None
            if parts.hostname:
                place = f"{parts.hostname}:{port}"
                token = ":".join(unquote(part) for part in (parts.username, parts.password) if part)
                plain = urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
                return cls(plain, collection, token or os.environ.get("MILVUS_TOKEN", ""))
        elif uri.endswith(".db") and "://" not in uri:
            return cls(uri, collection, file=Path(uri).expanduser())
        shown = without_secrets(text)
        raise SettingError(f"{shown}: is no address of Milvus; give {_FORMS}")

    def __str__(self) -> str:
        return f"milvus:{self.uri}" + (f"#{self.collection}" if self.collection != COLLECTION else "")


class Server:
    """The collection at an address; connected until ``close``, or the end of a ``with``.

    Raises ``ClusterError`` for a server that is down, does not answer in ``TIMEOUT`` seconds, or answers with an error.
    """

    def __init__(self, address: Address, *, create: bool = False) -> None:
        self.address = address
        milvus, self._errors = _library()
        if address.file is not None:
            _check_file(address.file, create)
        uri = address.uri if address.file is None else str(address.file)
        with self._asking(), _refusal(address):
            self._client = milvus.MilvusClient(uri, token=address.token, timeout=CONNECT, grpc_options=_CHANNEL)
        self._open = True
        _users[uri] += 1

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the server; Milvus Lite's ends with the last who uses it, and lets go of its file."""
        if not self._open:
            return
        self._open = False
        self._client.close()
        file = str(self.address.file or self.address.uri)
        _users[file] -= 1
        if self.address.file is not None and not _users[file]:
            from milvus_lite.server_manager import server_manager_instance

            server_manager_instance.release_server(file)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            # gRPC's own errors have their reason in a method, pymilvus' in an attribute.
            reason = error.details() if hasattr(error, "details") else getattr(error, "message", "")
            text = (str(reason or error).strip().splitlines() or [type(error).__name__])[0]
            text = text.replace(self.address.token, "***") if self.address.token else text
            remedy = "free some space" if "No space left" in text else "check that it runs and has room"
            raise ClusterError(f"{self.address}: Milvus fails ({text[:300]}); {remedy}") from error

    # -- the collection -----------------------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        with self._asking():
            return str(self._client.get_server_version(timeout=TIMEOUT))

    def exists(self) -> bool:
        with self._asking():
            return bool(self._client.has_collection(self.address.collection, timeout=TIMEOUT))

    def fields(self) -> set[str]:
        """The names of the collection's fields."""
        with self._asking():
            described = self._client.describe_collection(self.address.collection, timeout=TIMEOUT)
            return {field["name"] for field in described["fields"]}

    def drop(self) -> None:
        with self._asking():
            self._client.drop_collection(self.address.collection, timeout=TIMEOUT)

    def create(self, vectors: dict[str, int | None], *, exact: bool = True) -> None:
        """A collection of passages with these vectors: their dimensions by field, None for sparse ones.

        Inner products of sparse vectors are always exact; those of dense ones are, or by an index that Milvus chooses.
        """
        from pymilvus import DataType, MilvusClient

        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("row", DataType.INT64, is_primary=True)
        for name in FIELDS:
            schema.add_field(name, DataType.VARCHAR, max_length=LONGEST)
        indexes = MilvusClient.prepare_index_params()
        for name, dim in vectors.items():
            if dim is None:
                schema.add_field(name, DataType.SPARSE_FLOAT_VECTOR)
                indexes.add_index(field_name=name, index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
            else:
                schema.add_field(name, DataType.FLOAT_VECTOR, dim=dim)
                indexes.add_index(field_name=name, metric_type="IP", index_type="FLAT" if exact else "AUTOINDEX")
        with self._asking():
            self._client.create_collection(
                self.address.collection, schema=schema, index_params=indexes, consistency_level="Strong",
                timeout=TIMEOUT,
            )  # fmt: skip

    def load(self) -> None:
        """Have the collection ready to be searched."""
        with self._asking():
            self._client.load_collection(self.address.collection, timeout=TIMEOUT)

    def count(self) -> int:
        """The rows that are there now."""
        with self._asking():
            found = self._client.query(self.address.collection, filter="", output_fields=["count(*)"], timeout=TIMEOUT)
            return int(found[0]["count(*)"])

    def put(self, rows: list[dict[str, Any]]) -> None:
        """Write rows; one that is there already is replaced, so that the same may be sent twice."""
        with self._asking():
            self._client.upsert(self.address.collection, rows, timeout=TIMEOUT)

    def finish(self) -> None:
        """Bring all rows to where they stay."""
        with self._asking():
            self._client.flush(self.address.collection, timeout=TIMEOUT)

    def get(self, start: int, stop: int, fields: Sequence[str] = ("row",)) -> list[dict[str, Any]]:
        """Those of the rows ``start`` to ``stop`` that are there, as they are now."""
        with self._asking():
            found = self._client.query(
                self.address.collection, filter=f"row >= {start} and row < {stop}", output_fields=list(fields),
                timeout=TIMEOUT,
            )  # fmt: skip
            return sorted((dict(each) for each in found), key=lambda each: each["row"])

    def pick(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Those of some rows that are there, with the passage's fields."""
        with self._asking():
            found = self._client.query(
                self.address.collection, ids=list(rows), output_fields=["row", *FIELDS], timeout=TIMEOUT
            )
            return [dict(each) for each in found]

    def search(self, vector: str, queries: Sequence[Any], limit: int) -> list[list[tuple[float, int, dict[str, str]]]]:
        """For each query, the at most ``limit`` largest inner products: score, row, and the passage's fields.

        What is there is not waited for, so what was written a moment ago may be missed.
        """
        with self._asking():
            found = self._client.search(
                self.address.collection, list(queries), limit=limit, output_fields=list(FIELDS), anns_field=vector,
                search_params={"metric_type": "IP", "params": {}}, consistency_level="Eventually", timeout=TIMEOUT,
            )  # fmt: skip
            return [[(float(hit["distance"]), int(hit["row"]), hit["entity"]) for hit in hits] for hits in found]


def _library() -> tuple[Any, tuple[type[Exception], ...]]:
    """``pymilvus``, and what it raises where a server is at fault."""
    try:
        import grpc
        import pymilvus
    except ImportError:
        raise MissingPackageError("Milvus needs pymilvus: pip install 'dragin_lab[cluster]'") from None
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it prints a traceback of what it also raises
    return pymilvus, (pymilvus.MilvusException, grpc.RpcError)


def _check_file(file: Path, create: bool) -> None:
    """Keep Milvus Lite from making a new database where one is looked for, and from writing into what is none."""
    if file.is_file():
        raise ClusterError(f"{file}: is not of this Milvus Lite, whose database is a folder; give another path")
    if not file.exists():
        if not create:
            raise ClusterError(
                f"{file}: no such database; fill one with 'dragin-lab corpus index --into milvus:{file}'"
            )
        if not file.absolute().parent.is_dir():
            raise ClusterError(f"{file}: its folder does not exist; create it first")
    elif any(file.iterdir()) and not (file / "collections").is_dir():
        raise ClusterError(f"{file}: is a folder of something else; give another path")


@contextmanager
def _refusal(address: Address) -> Iterator[None]:
    """Give Milvus Lite's reason for not opening a file, which it only logs."""
    if address.file is None:
        yield
        return
    reasons: list[BaseException] = []

    def keep(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1]:
            reasons.append(record.exc_info[1])
        return False

    logger = logging.getLogger("milvus_lite.server_manager")
    logger.addFilter(keep)
    try:
        yield
    except Exception as error:
        if any(type(reason).__name__ == "DataDirLockedError" for reason in reasons):
            raise ClusterError(
                f"{address}: another process has it open, and Milvus Lite serves one at a time; end that one first"
            ) from None
        if isinstance(error, ImportError) or "milvus-lite is required" in str(error):
            raise MissingPackageError("a .db file needs Milvus Lite: pip install 'dragin_lab[cluster]'") from None
        if reasons:
            raise ClusterError(f"{address}: cannot be opened ({reasons[-1]})") from error
        raise
    finally:
        logger.removeFilter(keep)
