"""The retriever that a text names: ``bm25``, ``tantivy``, ``dense:MODEL``."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from dragin_lab.checks import instance, refuse_password
from dragin_lab.data.tabular import Fields
from dragin_lab.errors import MissingPackageError, SettingError
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.warning import warn

if TYPE_CHECKING:
    from dragin_lab.core.episode import Retriever

#: Passages up to which BM25 in memory is quick and small; larger corpora are better built.
IN_MEMORY = 200_000
SPECS = ("bm25", "tantivy", "dense:MODEL")


def read_spec(text: str) -> tuple[str, str]:
    """The kind of retriever that a text such as "dense:almanac" names, and its model; nothing is
    loaded.

    Raises ``SettingError`` for a text that names none, ``MissingPackageError`` where its package is
    not installed.
    """
    kind, colon, model = (
        instance("retriever", text, str, f"give one of {', '.join(SPECS)}").strip().partition(":")
    )
    refuse_password("retriever", text)
    shown = f"retriever {text!r}"
    if kind == "dense":
        if not model:
            raise SettingError(f"{shown}: say which MODEL, as in dense:MODEL")
        if importlib.util.find_spec("faiss") is None:
            raise MissingPackageError(f"{shown} needs faiss-cpu; pip install 'dragin-lab[dense]'")
    elif kind not in SPECS:
        raise SettingError(f"{shown} does not exist; one of {', '.join(SPECS)}")
    elif colon:
        raise SettingError(f"{shown}: {kind} takes nothing after it; write {kind}")
    return kind, model


def open_retriever(spec: str | None = None, corpus: Any = None, fields: Fields = None) -> Retriever:
    """The retriever that ``spec`` names over a corpus (a ``Corpus``, or what ``Corpus.load``
    takes).

    ``fields`` names the corpus's columns, as for ``Corpus.load``. Without a ``spec``: ``tantivy``
    for a built corpus, otherwise ``bm25``; its provenance says so.

    Raises ``SettingError`` for a spec that names none, ``DataError`` for a corpus or an index
    that cannot be used.
    """
    kind, model = read_spec(spec) if spec is not None else ("", "")
    passages = corpus if isinstance(corpus, Corpus) else Corpus.load(corpus, fields=fields)
    if kind == "dense":
        from dragin_lab.retrieval.dense import Dense

        return Dense.open(passages, model)
    from dragin_lab.retrieval.bm25 import BM25, Tantivy

    on_disk = kind == "tantivy" or (not kind and passages.folder is not None)
    if not on_disk and len(passages) > IN_MEMORY:
        warn(
            f"{passages.name}: BM25 holds {len(passages):,} passages in memory; above {IN_MEMORY:,}"
            " build the corpus: dragin-lab corpus build SOURCE --output FOLDER"
        )
    opened = Tantivy(passages) if on_disk else BM25(passages)
    opened.chosen = None if kind else "by default: tantivy for a built corpus, else bm25"
    return opened
