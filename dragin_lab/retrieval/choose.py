"""The retriever that a text names (``bm25``, ``dense:MODEL`` …), or one made from a user's object."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dragin_lab.checks import instance
from dragin_lab.errors import DraginLabError, MissingPackageError, SettingError
from dragin_lab.retrieval.answers import RetrieverError, as_passages
from dragin_lab.retrieval.doors import find_door
from dragin_lab.retrieval.elasticsearch import Elasticsearch
from dragin_lab.text import without_secrets
from dragin_lab.trace.trace import Passage

if TYPE_CHECKING:
    from dragin_lab.core.episode import Retriever

#: Passages up to which BM25 in memory is quick and small; larger corpora are better built.
IN_MEMORY = 200_000
#: What follows the colon; "" where nothing does.
KINDS = {"bm25": "", "tantivy": "", "dense": "MODEL"}
SPECS = tuple(kind + (f":{address}" if address else "") for kind, address in KINDS.items())
#: The package that each needs, its import name, and the extra that installs it.
_NEEDS = {"dense": ("faiss-cpu", "faiss", "dense")}


class Spec(NamedTuple):
    """A retriever's kind and what it is opened with: a model."""

    kind: str
    address: str = ""


def read_spec(text: str) -> Spec:
    """The retriever that a text such as "dense:almanac" names; nothing is loaded.

    Raises ``SettingError`` for a text that names none, ``MissingPackageError`` where its package is not installed.
    """
    kind, colon, address = instance("retriever", text, str, f"give one of {', '.join(SPECS)}").strip().partition(":")
    shown = f"retriever {without_secrets(text)!r}"
    if kind not in KINDS:
        raise SettingError(f"{shown} does not exist; one of {', '.join(SPECS)}")
    wanted = KINDS[kind]
    if wanted and not address:
        raise SettingError(f"{shown}: say which {wanted}, as in {kind}:{wanted}")
    if colon and not wanted:
        raise SettingError(f"{shown}: {kind} takes nothing after it; write {kind}")
    package, module, extra = _NEEDS.get(kind, ("", "", ""))
    if module and importlib.util.find_spec(module) is None:
        raise MissingPackageError(f"{shown} needs {package}; pip install 'dragin-lab[{extra}]'")
    return Spec(kind, address)


def open_retriever(
    spec: str | None = None, corpus: Any = None, fields: str | Mapping[str, str] | None = None
) -> Retriever:
    """The retriever that ``spec`` names over a corpus (a ``Corpus``, or what ``Corpus.load`` takes).

    ``fields`` names the corpus's columns, as for ``Corpus.load``. Without a ``spec``: ``tantivy`` for a built corpus,
    otherwise ``bm25``; its provenance says so.

    Raises ``SettingError`` for a spec that names none, ``CorpusError`` for a corpus or an index that cannot be used.
    """
    kind, address = read_spec(spec) if spec is not None else ("", "")
    from dragin_lab.retrieval.corpus import Corpus

    passages = corpus if isinstance(corpus, Corpus) else Corpus.load(corpus, fields=fields)
    if kind == "dense":
        from dragin_lab.retrieval.dense import Dense

        return Dense.open(passages, address)
    from dragin_lab.retrieval.bm25 import BM25, Tantivy

    on_disk = kind == "tantivy" or (not kind and passages.folder is not None)
    if not on_disk and len(passages) > IN_MEMORY:
        warnings.warn(
            f"{passages.name}: BM25 holds {len(passages):,} passages in memory; above {IN_MEMORY:,} build the "
            "corpus: dragin-lab corpus build SOURCE --output FOLDER",
            stacklevel=3,
        )
    opened = Tantivy(passages) if on_disk else BM25(passages)
    opened.chosen = None if kind else "by default: tantivy for a built corpus, else bm25"
    return opened


def build_index(spec: str, corpus: Any, *, device: str | None = None, force: bool = False) -> Any:
    """Build the index that a retriever searches, or resume building it, and open it.

    Args:
        spec: ``dense:MODEL``.
        device: of the encoder; see ``open_encoder``.
        force: begin again, whatever index is there.

    Raises ``SettingError`` for a retriever without an index of its own, ``CorpusError`` as ``Dense.build`` does.
    """
    kind, address = read_spec(spec)
    if kind != "dense":
        raise SettingError(f"{kind} needs no index of its own; give dense:MODEL")
    from dragin_lab.retrieval.corpus import Corpus
    from dragin_lab.retrieval.dense import Dense, open_encoder

    return Dense.build(Corpus.load(corpus), open_encoder(address, device), force=force)


# -- a retriever of your own ------------------------------------------------------------------------------------------

#: Queries that identify a retriever without ``provenance``, so that a run is never continued over another index.
PROBES = ("the first king", "a river in the north", "who wrote the book", "music and film", "1900")
_PROBE_K = 3


class Opened:
    """A ``Retriever`` around a user's own: its answers as passages, its identity as ``provenance``."""

    def __init__(
        self, own: Any, search: Callable[[str, int], Any], name: str, facts: Mapping[str, Any] | None = None
    ) -> None:
        self.own = own
        self.name = name
        self._search = search
        self._facts = dict(facts or {"kind": name})
        self._identity: dict[str, Any] | None = None
        if callable(many := getattr(own, "search_many", None)):
            self.search_many = lambda queries, k: [
                as_passages(answer, k, name, query) for query, answer in zip(queries, many(queries, k), strict=True)
            ]

    def search(self, query: str, k: int) -> list[Passage]:
        """At most k passages, best first.

        Raises ``RetrieverError`` naming the retriever, the query and what it answered.
        """
        try:
            answer = self._search(query, k)
        except DraginLabError:
            raise
        except Exception as error:  # a user's code may raise anything
            raise RetrieverError(
                f"retriever {self.name} failed for {query[:80]!r}: {type(error).__name__}: {str(error)[:200]}"
            ) from error
        return as_passages(answer, k, self.name, query)

    def provenance(self) -> dict[str, Any]:
        """Its own ``provenance``, as plain data; otherwise its name, or what its library says of it."""
        provenance = getattr(self.own, "provenance", None)
        return _check_facts(provenance(), self.name) if callable(provenance) else dict(self._facts)

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

    An object of LangChain, LlamaIndex or Haystack that searches will do, and a client of Elasticsearch or OpenSearch
    with the name of its index: ``(client, "wiki")``. The package's own are returned unchanged. Raises ``SettingError``
    for anything else.
    """
    if type(thing).__module__.startswith("dragin_lab.") and callable(getattr(thing, "search", None)):
        return thing
    if isinstance(thing, type):
        raise SettingError(f"retriever {thing.__name__} is a class; give an object of it: {thing.__name__}(...)")
    if isinstance(thing, tuple) and len(thing) == 2 and isinstance(thing[1], str):
        return Elasticsearch(*thing)
    if (door := find_door(thing)) is not None:
        return Opened(thing, door.search, type(thing).__name__, door.facts)
    search = getattr(thing, "search", thing)
    if not callable(search):
        raise SettingError(
            f"retriever {str(thing)[:60]!r} is {type(thing).__name__}; give an object with search(query, k) or a "
            "function, and passages as corpus=; what searches in LangChain, LlamaIndex or Haystack will do, too"
        )
    name = getattr(thing, "__name__", type(thing).__name__)
    if inspect.iscoroutinefunction(search):
        raise SettingError(f"retriever {name} is asynchronous; give a plain function, such as one that awaits it")
    try:
        inspect.signature(search).bind("query", 1)
    except TypeError as error:
        raise SettingError(
            f"retriever {name} must take a query and a number, as in search(query, k): {error}; of a client of "
            "Elasticsearch or OpenSearch give (client, 'name of the index')"
        ) from None
    except ValueError:
        pass  # a C function, whose parameters are unknown
    return Opened(thing, search, name)


def _check_facts(facts: Any, name: str) -> dict[str, Any]:
    try:
        plain: Any = json.loads(json.dumps(facts))
    except (TypeError, ValueError) as error:
        raise RetrieverError(f"retriever {name}: provenance() is not plain data ({error})") from None
    if not isinstance(plain, dict) or not plain:
        raise RetrieverError(
            f"retriever {name}: provenance() gives {str(facts)[:60]!r}; it must be a dictionary of facts"
        )
    return plain
