"""Which retriever a text names: ``bm25``, ``tantivy``, ``dense:MODEL``, ``milvus:URI``, ``elasticsearch:URL``."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from dragin_lab.core.given import instance
from dragin_lab.core.method import without_secrets
from dragin_lab.errors import MissingPackageError, SettingError

if TYPE_CHECKING:
    from dragin_lab.core.episode import Retriever

#: Passages up to which BM25 in memory is quick and small; above, a corpus is better built.
IN_MEMORY = 200_000
#: What follows the colon; "" where nothing does.
KINDS = {"bm25": "", "tantivy": "", "dense": "MODEL", "milvus": "URI", "elasticsearch": "URL"}
SPECS = tuple(kind + (f":{address}" if address else "") for kind, address in KINDS.items())
#: Those that search an index elsewhere: the class of each, in the module of its name.
SERVERS = {"milvus": "Milvus", "elasticsearch": "Elasticsearch"}
#: The package that each needs, its name for ``import``, and the extra of this package that brings it.
_NEEDS = {"dense": ("faiss-cpu", "faiss", "dense"), "milvus": ("pymilvus", "pymilvus", "cluster")}


class Spec(NamedTuple):
    """A retriever's kind and what it is opened with: a model, or an address."""

    kind: str
    address: str = ""


def read_spec(text: str) -> Spec:
    """What a text such as "dense:almanac" names; nothing is loaded.

    Raises ``SettingError`` for what names no retriever, ``MissingPackageError`` where its package is not installed.
    """
    kind, colon, address = instance("retriever", text, str, f"give one of {', '.join(SPECS)}").strip().partition(":")
    text = without_secrets(text)
    if kind not in KINDS:
        raise SettingError(f"retriever {text!r} does not exist; one of {', '.join(SPECS)}")
    wanted = KINDS[kind]
    if wanted and not address:
        raise SettingError(f"retriever {text!r}: say which {wanted}, as in {kind}:{wanted}")
    if colon and not wanted:
        raise SettingError(f"retriever {text!r}: {kind} takes nothing after it; write {kind}")
    if kind in _NEEDS:
        package, module, extra = _NEEDS[kind]
        if importlib.util.find_spec(module) is None:
            raise MissingPackageError(f"retriever {text!r} needs {package}; pip install 'dragin-lab[{extra}]'")
    return Spec(kind, address)


def open_retriever(spec: str | None = None, corpus: Any = None) -> Retriever:
    """The retriever that ``spec`` names over a corpus (a ``Corpus``, or what ``Corpus.load`` takes).

    Without a ``spec``: ``tantivy`` for a built corpus, else ``bm25``; its provenance says so. A server's retriever is
    given the corpus as it is, and may do without.

    Raises ``SettingError`` for what names no retriever, ``CorpusError`` for a corpus or an index that cannot be used.
    """
    kind, address = read_spec(spec) if spec is not None else ("", "")
    from dragin_lab.retrieval.corpus import Corpus

    loaded = isinstance(corpus, Corpus) or (corpus is None and kind in SERVERS)
    passages: Any = corpus if loaded else Corpus.load(corpus)
    if kind in SERVERS:
        server = getattr(importlib.import_module(f"dragin_lab.retrieval.{kind}"), SERVERS[kind])
        searched: Retriever = server(address, passages)
        return searched
    if kind == "dense":
        from dragin_lab.retrieval.dense import Dense

        return Dense.open(passages, address)
    from dragin_lab.retrieval.bm25 import BM25, Tantivy

    if kind == "tantivy" or (not kind and passages.folder is not None):
        opened: BM25 | Tantivy = Tantivy(passages)
    else:
        if len(passages) > IN_MEMORY:
            warnings.warn(
                f"{passages.name}: BM25 holds {len(passages):,} passages in memory; above {IN_MEMORY:,} build the "
                "corpus: dragin-lab corpus build SOURCE --out FOLDER",
                stacklevel=3,
            )
        opened = BM25(passages)
    opened.chosen = None if kind else "by default: tantivy for a built corpus, else bm25"
    return opened


def build_index(
    spec: str, corpus: Any, *, exact: bool | None = None, model: str | None = None, device: str | None = None,
    force: bool = False, progress: bool | None = None,
) -> Any:  # fmt: skip
    """Build the index that a retriever searches, or go on with one; and open it.

    Args:
        spec: ``dense:MODEL`` or ``milvus:URI``.
        exact, device: of a dense index; see ``Dense.build`` and ``open_encoder``.
        model: fill Milvus with this model's vectors, and not for BM25.
        force: begin again, whatever index is there.

    Raises ``SettingError`` for a retriever without an index of its own, ``CorpusError`` as ``Dense.build`` does.
    """
    wanted = read_spec(spec)
    if model is not None and wanted.kind != "milvus":
        raise SettingError(f"model={model!r}: is for milvus:URI; write dense:{model} for an index beside the corpus")
    if wanted.kind not in ("dense", "milvus"):
        raise SettingError(f"{wanted.kind} needs no index of its own; one of dense:MODEL, milvus:URI")
    from dragin_lab.retrieval.corpus import Corpus

    passages = Corpus.load(corpus)
    from dragin_lab.retrieval.dense_encoders import open_encoder

    if wanted.kind == "dense":
        from dragin_lab.retrieval.dense import Dense

        return Dense.build(passages, open_encoder(wanted.address, device), exact=exact, force=force, progress=progress)
    from dragin_lab.retrieval.milvus import Milvus
    from dragin_lab.retrieval.milvus_fill import fill

    encoder = None if model is None else open_encoder(model, device)
    fill(wanted.address, passages, encoder=encoder, opened=model, force=force, progress=progress)
    return Milvus(wanted.address, passages, encoder=encoder)
