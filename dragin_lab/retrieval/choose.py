"""Which retriever a text names: ``bm25``, ``tantivy``, ``dense:MODEL``, ``milvus:URI``, ``elasticsearch:URL``."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

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

    def __str__(self) -> str:
        return f"{self.kind}:{self.address}" if self.address else self.kind


def read_spec(text: str) -> Spec:
    """What a text such as "dense:almanac" names; nothing is loaded.

    Raises ``SettingError`` for what names no retriever, ``MissingPackageError`` where its package is not installed.
    """
    kind, colon, address = text.strip().partition(":")
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
    found = None if spec is None else read_spec(spec)
    from dragin_lab.retrieval.corpus import Corpus

    passages = corpus if isinstance(corpus, Corpus) else None
    if found is not None and found.kind in SERVERS:
        if corpus is not None and passages is None:
            passages = Corpus.load(corpus)
        module = importlib.import_module(f"dragin_lab.retrieval.{found.kind}")
        retriever: Retriever = getattr(module, SERVERS[found.kind])(found.address, passages)
        return retriever
    passages = passages or Corpus.load(corpus)
    chosen = found or Spec("bm25" if passages.folder is None else "tantivy")
    opened = _open(chosen, passages)
    if found is None:
        opened.chosen = "by default: tantivy for a built corpus, else bm25"
    result: Retriever = opened
    return result


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
    named, encoder = model or wanted.address, None
    if model is not None or wanted.kind == "dense":
        from dragin_lab.retrieval.dense_encoders import open_encoder

        encoder = open_encoder(named, device)
    if wanted.kind == "milvus":
        from dragin_lab.retrieval.milvus import Milvus
        from dragin_lab.retrieval.milvus_fill import fill

        fill(wanted.address, passages, encoder=encoder, opened=model, force=force, progress=progress)
        return Milvus(wanted.address, passages, encoder=encoder)
    from dragin_lab.retrieval.dense import Dense

    assert encoder is not None
    return Dense.build(passages, encoder, exact=exact, force=force, progress=progress)


def _open(spec: Spec, passages: Any) -> Any:
    if spec.kind == "dense":
        from dragin_lab.retrieval.dense import Dense

        return Dense.open(passages, spec.address)
    from dragin_lab.retrieval.bm25 import BM25, Tantivy

    if spec.kind == "tantivy":
        return Tantivy(passages)
    if len(passages) > IN_MEMORY:
        warnings.warn(
            f"{passages.name}: BM25 holds {len(passages):,} passages in memory; above {IN_MEMORY:,} build the corpus: "
            "dragin-lab corpus build SOURCE --out FOLDER",
            stacklevel=4,
        )
    return BM25(passages)
