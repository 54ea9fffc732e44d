"""Which retriever a text names: ``bm25``, ``bm25s``, ``dense:MODEL``, ``milvus:URI``, ``elasticsearch:URL``."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dragin_lab.core.method import without_secrets
from dragin_lab.errors import DraginLabError, MissingPackageError, SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dragin_lab.core.episode import Retriever
    from dragin_lab.retrieval.corpora.check import Finding
    from dragin_lab.retrieval.corpus import Corpus

#: Passages up to which BM25 in memory is taken where nothing else is asked for; above, bm25s mapped from disk.
IN_MEMORY = 200_000
#: What follows the colon; "" where nothing does.
KINDS = {"bm25": "", "bm25s": "", "dense": "MODEL", "milvus": "URI", "elasticsearch": "URL"}
SPECS = tuple(kind + (f":{address}" if address else "") for kind, address in KINDS.items())
#: Those that search an index elsewhere: each has a module of its name with ``open_retriever(address, corpus)``.
SERVERS = ("milvus", "elasticsearch")
#: The package that each needs, its name for ``import``, and the extra of this package that brings it.
_NEEDS = {
    "bm25s": ("bm25s", "bm25s", "corpora"),
    "dense": ("faiss-cpu", "faiss", "dense"),
    "milvus": ("pymilvus", "pymilvus", "cluster"),
}


@dataclass(frozen=True)
class Spec:
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
        raise SettingError(f"retriever {text!r}: {kind} takes nothing behind it; write {kind}")
    if kind in SERVERS and importlib.util.find_spec(f"dragin_lab.retrieval.{kind}") is None:
        raise SettingError(f"retriever {text!r}: this dragin_lab has no {kind} back end; one of {', '.join(SPECS[:3])}")
    if kind in _NEEDS:
        package, module, extra = _NEEDS[kind]
        if importlib.util.find_spec(module) is None:
            raise MissingPackageError(f"retriever {text!r} needs {package}; pip install 'dragin_lab[{extra}]'")
    return Spec(kind, address)


def open_retriever(spec: str | None = None, corpus: str | None = None) -> Retriever:
    """The retriever that ``spec`` names over a corpus (``Corpus.load``; None is the embedded one).

    Without a ``spec``: ``bm25`` up to ``IN_MEMORY`` passages, ``bm25s`` above; its provenance says so. A server's
    retriever is given the corpus's name as it is, and may do without.

    Raises ``SettingError`` for what names no retriever, ``CorpusError`` for a corpus or an index that cannot be used.
    """
    found = None if spec is None else read_spec(spec)
    if found is not None and found.kind in SERVERS:
        module = importlib.import_module(f"dragin_lab.retrieval.{found.kind}")
        retriever: Retriever = module.open_retriever(found.address, corpus)
        return retriever
    from dragin_lab.retrieval.corpus import Corpus

    passages = Corpus.load(corpus)
    chosen = found or read_spec("bm25" if len(passages) <= IN_MEMORY else "bm25s")
    opened: Any = _open(chosen, passages)
    if found is None:
        opened.chosen = f"by default: bm25 up to {IN_MEMORY:,} passages, bm25s above"
    result: Retriever = opened
    return result


def build_index(
    spec: str,
    corpus: str | None,
    *,
    exact: bool | None = None,
    workers: int | None = None,
    model: str | None = None,
    device: str | None = None,
    force: bool = False,
    progress: bool | None = None,
) -> Any:
    """Build the index that a retriever searches, or go on with one; and open it.

    Args:
        spec: ``bm25s``, ``dense:MODEL`` or ``milvus:URI``.
        exact, device: of a dense index; see ``Dense.build`` and ``open_encoder``.
        model: fill Milvus with this model's vectors, and not for BM25.
        workers: processes that analyse the text for bm25s; by default one a core.
        force: begin anew, whatever index is there.

    Raises ``SettingError`` for a retriever without an index of its own, ``CorpusError`` as ``Dense.build`` does.
    """
    wanted = read_spec(spec)
    if model is not None and wanted.kind != "milvus":
        raise SettingError(f"model={model!r}: is for milvus:URI; write dense:{model} for an index beside the corpus")
    if wanted.kind == "milvus":
        from dragin_lab.retrieval import milvus

        return milvus.build_index(wanted.address, corpus, model=model, device=device, force=force, progress=progress)
    from dragin_lab.retrieval.corpus import Corpus

    if wanted.kind == "bm25s":
        from dragin_lab.retrieval.bm25s_index import BM25S

        return BM25S.build(Corpus.load(corpus), workers=workers, force=force, progress=progress)
    if wanted.kind == "dense":
        from dragin_lab.retrieval.dense import Dense
        from dragin_lab.retrieval.dense_encoders import open_encoder

        passages = Corpus.load(corpus)
        return Dense.build(passages, open_encoder(wanted.address, device), exact=exact, force=force, progress=progress)
    raise SettingError(f"{wanted.kind} is not filled from here; one of bm25s, dense:MODEL, milvus:URI")


def check_indexes(corpus: Corpus, *, full: bool = False) -> Iterator[Finding]:
    """Whether each index in a built corpus's folder is whole, of this corpus, and, with ``full``, to the byte what it
    was; and whether canary queries find their passages by bm25s. (By vectors they need not: those are not of words.)
    """
    from dragin_lab.retrieval.corpora.check import ask_canaries
    from dragin_lab.retrieval.indexes import INDEXES, check_files, read_about

    assert corpus.folder is not None
    for folder in sorted((corpus.folder / INDEXES).glob("*")):
        try:
            wanted = {"corpus_fingerprint": corpus.fingerprint, "passages": len(corpus)}
            about = read_about(folder, wanted)
            if full:
                check_files(folder, about)
            yield (
                f"index {folder.name}, of this corpus, {'every byte' if full else 'by its files and their lengths'}",
                True,
            )
            if about["kind"] == "bm25s":
                from dragin_lab.retrieval.bm25s_index import BM25S

                for line, good in ask_canaries(corpus.folder, BM25S.load(folder, corpus)):
                    yield f"index {folder.name}: {line}", good
        except DraginLabError as error:
            yield str(error), False


def _open(spec: Spec, passages: Any) -> Any:
    if spec.kind == "bm25":
        from dragin_lab.retrieval.bm25 import BM25

        return BM25(passages)
    if spec.kind == "bm25s":
        from dragin_lab.retrieval.bm25s_index import BM25S

        return BM25S.open(passages)
    from dragin_lab.retrieval.dense import Dense

    return Dense.open(passages, spec.address)
