"""Which retriever a text names: ``bm25``, ``tantivy``, ``dense:MODEL``, ``milvus:URI``, ``elasticsearch:URL``."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dragin_lab.core.given import instance
from dragin_lab.errors import MissingPackageError, SettingError
from dragin_lab.text import without_secrets

if TYPE_CHECKING:
    from dragin_lab.core.episode import Retriever

#: Passages up to which BM25 in memory is quick and small; larger corpora are better built.
IN_MEMORY = 200_000
#: What follows the colon; "" where nothing does.
KINDS = {"bm25": "", "tantivy": "", "dense": "MODEL", "milvus": "URI", "elasticsearch": "URL"}
SPECS = tuple(kind + (f":{address}" if address else "") for kind, address in KINDS.items())
#: Those that search an index elsewhere, and the class of each in the module of that name.
SERVERS = {"milvus": "Milvus", "elasticsearch": "Elasticsearch"}
#: The package that each needs, its import name, and the extra that installs it.
_NEEDS = {"dense": ("faiss-cpu", "faiss", "dense"), "milvus": ("pymilvus", "pymilvus", "cluster")}


class Spec(NamedTuple):
    """A retriever's kind and what it is opened with: a model, or an address."""

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
    otherwise ``bm25``; its provenance says so. A server's retriever does not need a corpus.

    Raises ``SettingError`` for a spec that names none, ``CorpusError`` for a corpus or an index that cannot be used.
    """
    kind, address = read_spec(spec) if spec is not None else ("", "")
    from dragin_lab.retrieval.corpus import Corpus

    given = isinstance(corpus, Corpus) or (corpus is None and kind in SERVERS)
    passages: Any = corpus if given else Corpus.load(corpus, fields=fields)
    if kind in SERVERS:
        module = importlib.import_module(f"dragin_lab.retrieval.{kind}")
        searched: Retriever = getattr(module, SERVERS[kind])(address, passages)
        return searched
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


def build_index(
    spec: str, corpus: Any, *, model: str | None = None, device: str | None = None, force: bool = False,
    progress: bool | None = None,
) -> Any:  # fmt: skip
    """Build the index that a retriever searches, or resume building it, and open it.

    Args:
        spec: ``dense:MODEL`` or ``milvus:URI``.
        device: of the encoder; see ``open_encoder``.
        model: fill Milvus with this model's vectors instead of BM25's.
        force: begin again, whatever index is there.

    Raises ``SettingError`` for a retriever without an index of its own, ``CorpusError`` as ``Dense.build`` does.
    """
    kind, address = read_spec(spec)
    if model is not None and kind != "milvus":
        raise SettingError(f"model={model!r}: is for milvus:URI; write dense:{model} for an index beside the corpus")
    if kind not in ("dense", "milvus"):
        raise SettingError(f"{kind} needs no index of its own; one of dense:MODEL, milvus:URI")
    from dragin_lab.retrieval.corpus import Corpus
    from dragin_lab.retrieval.dense_encoders import open_encoder

    passages = Corpus.load(corpus)
    if kind == "dense":
        from dragin_lab.retrieval.dense import Dense

        return Dense.build(passages, open_encoder(address, device), force=force, progress=progress)
    from dragin_lab.retrieval.milvus import Milvus, fill

    encoder = None if model is None else open_encoder(model, device)
    fill(address, passages, encoder=encoder, opened=model, force=force, progress=progress)
    return Milvus(address, passages, encoder=encoder)
