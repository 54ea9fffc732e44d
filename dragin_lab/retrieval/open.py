"""A retriever made from anything that finds passages: an object with ``search``, or a function of query and k."""

from __future__ import annotations

import hashlib
import inspect
import json
import warnings
from collections.abc import Callable
from typing import Any

from dragin_lab.core.trace import Passage
from dragin_lab.errors import DraginLabError, SettingError
from dragin_lab.retrieval.answers import RetrieverError, as_passages

#: Queries that identify a retriever without ``provenance``, so that a run is never continued over another index.
PROBES = ("the first king", "a river in the north", "who wrote the book", "music and film", "1900")
_PROBE_K = 3


class Opened:
    """A ``Retriever`` around a user's own: its answers as passages, its identity as ``provenance``."""

    def __init__(self, own: Any, search: Callable[[str, int], Any], name: str) -> None:
        self.own = own
        self.name = name
        self._search = search
        self._identity: dict[str, Any] | None = None
        if callable(many := getattr(own, "search_many", None)):
            self.search_many = lambda queries, k: [
                as_passages(found, k, name, query) for query, found in zip(queries, many(queries, k), strict=True)
            ]

    def search(self, query: str, k: int) -> list[Passage]:
        """The first k passages that it finds, or fewer, best first.

        Raises ``RetrieverError`` naming the retriever, the query and what it answered.
        """
        try:
            found = self._search(query, k)
        except DraginLabError:
            raise
        except Exception as error:  # a user's code may raise anything
            raise RetrieverError(
                f"retriever {self.name} failed for {query[:80]!r}: {type(error).__name__}: {str(error)[:200]}"
            ) from error
        return as_passages(found, k, self.name, query)

    def provenance(self) -> dict[str, Any]:
        """Its own ``provenance``, as plain data; otherwise its name."""
        said = getattr(self.own, "provenance", None)
        return _plain(said(), self.name) if callable(said) else {"kind": self.name}

    def identity(self) -> dict[str, Any]:
        """What distinguishes it: its ``provenance``, or its name and a hash of its answers to ``PROBES``.

        Computed when a run directory is first written, as ``PROBES`` take five searches.
        """
        if self._identity is None:
            self._identity = self.provenance()
            if not callable(getattr(self.own, "provenance", None)):
                answers = [[(p.id, p.title, p.text) for p in self.search(query, _PROBE_K)] for query in PROBES]
                if not any(answers):
                    warnings.warn(
                        f"retriever {self.name} finds nothing for {', '.join(map(repr, PROBES))}, so a run cannot tell "
                        "its index from another; give it provenance()",
                        stacklevel=3,
                    )
                self._identity["answers_sha256"] = hashlib.sha256(json.dumps(answers).encode()).hexdigest()
        return dict(self._identity)

    def __repr__(self) -> str:
        return f"retriever {self.name}"


def as_retriever(thing: Any) -> Any:
    """A retriever made from an object with ``search(query, k)``, or from a function of a query and k.

    The package's own are returned unchanged. Raises ``SettingError`` for anything else.
    """
    if type(thing).__module__.startswith("dragin_lab.") and callable(getattr(thing, "search", None)):
        return thing
    if isinstance(thing, type):
        raise SettingError(f"retriever {thing.__name__} is a class; give an object of it: {thing.__name__}(...)")
    search = getattr(thing, "search", thing)
    if not callable(search):
        raise SettingError(
            f"retriever {str(thing)[:60]!r} is {type(thing).__name__}; give an object with search(query, k) or a "
            "function, and passages as corpus="
        )
    name = getattr(thing, "__name__", type(thing).__name__)
    if inspect.iscoroutinefunction(search):
        raise SettingError(f"retriever {name} is asynchronous; give a plain function, such as one that awaits it")
    try:
        inspect.signature(search).bind("query", 1)
    except TypeError as error:
        raise SettingError(
            f"retriever {name} must take a query and a number, as in search(query, k): {error}"
        ) from None
    except ValueError:
        pass  # a C function, whose parameters are unknown
    return Opened(thing, search, name)


def _plain(said: Any, name: str) -> dict[str, Any]:
    try:
        plain: Any = json.loads(json.dumps(said))
    except (TypeError, ValueError) as error:
        raise RetrieverError(f"retriever {name}: provenance() is not plain data ({error})") from None
    if not isinstance(plain, dict) or not plain:
        raise RetrieverError(
            f"retriever {name}: provenance() gives {str(said)[:60]!r}; it must be a dictionary of facts"
        )
    return plain
