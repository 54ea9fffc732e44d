"""``dragin-lab corpus check``: whether a built corpus is intact, and whether searches find what they must."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from dragin_lab.core.episode import Retriever
from dragin_lab.errors import CorpusError, DraginLabError
from dragin_lab.files import as_path
from dragin_lab.retrieval.bm25 import Tantivy
from dragin_lab.retrieval.build import DEPTH
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.stored import ABOUT, INDEXES, MANIFEST, Stored, json_line, read_manifest, remedy

Finding = tuple[str, bool]  # what was checked, or what is wrong with it; whether it is sound


def check_corpus(folder: str | Path, *, full: bool = False) -> Iterator[Finding]:
    """Check a built corpus, and report on each part whether it is sound.

    Always: the manifests of the corpus and of the indexes in its folder, the length of every file, and the canary
    queries. With ``full`` also the CRC-32 of every file, and every passage by the fingerprint of all.
    """
    path = as_path(folder, CorpusError)
    try:
        corpus = Corpus.load(path)
        assert isinstance(corpus.passages, Stored)
        if full:
            read_manifest(path / MANIFEST, remedy(path), full=True)
        source = corpus.passages.about["source"]["name"]
        yield f"{len(corpus):,} passages of {source}, by the manifest and the length of every file", True
        yield from ask_canaries(corpus, Tantivy(corpus))
        if full:
            digest = hashlib.sha256()
            for p in corpus:
                digest.update(json_line(p.id, p.title, p.text))
            yield f"all passages, by their fingerprint {corpus.fingerprint}", digest.hexdigest() == corpus.fingerprint
    except DraginLabError as error:
        yield str(error), False
        return
    for index in sorted((path / INDEXES).glob("*")):
        again = f"build it again: dragin-lab corpus build {path} --index SPEC --force"
        same = {"corpus_fingerprint": corpus.fingerprint, "passages": len(corpus)}
        try:
            read_manifest(index / ABOUT, again, same, full=full)
            yield f"index {index.name}, of this corpus", True
        except DraginLabError as error:
            yield str(error), False


def ask_canaries(corpus: Corpus, retriever: Retriever) -> Iterator[Finding]:
    """Whether a retriever finds the passage of each canary query among the first ``DEPTH``."""
    assert isinstance(corpus.passages, Stored), "only a built corpus has canaries"
    canaries = corpus.passages.about["canaries"]
    sound = True
    for canary in canaries:
        passage = corpus.get(canary["id"])
        hits = [(p.id, p.title, p.text) for p in retriever.search(canary["query"], DEPTH)]
        if (passage.id, passage.title, passage.text) not in hits:
            sound = False
            yield f"{canary['query']!r} does not find passage {canary['id']!r} among the first {DEPTH}", False
    if sound:
        yield f"{len(canaries)} canary queries, and each finds its passage", True
