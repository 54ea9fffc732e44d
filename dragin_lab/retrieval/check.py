"""``dragin-lab corpus check``: whether a built corpus is intact."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from dragin_lab.errors import CorpusError, DraginLabError
from dragin_lab.files import as_path
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.stored import (
    ABOUT,
    INDEXES,
    MANIFEST,
    Stored,
    json_line,
    read_manifest,
    remedy,
    spread_rows,
)

Finding = tuple[str, bool]  # what was checked, or what is wrong with it; whether it is sound
_LOOKED_UP = 8  # passages, evenly spaced from the first to the last


def check_corpus(folder: str | Path, *, full: bool = False) -> Iterator[Finding]:
    """Check a built corpus, and report on each part whether it is sound.

    Always: the manifests of the corpus and of the indexes in its folder, the length of every file, and that a few
    passages are found by their ids. With ``full`` also the CRC-32 of every file, and every passage by the fingerprint
    of all.
    """
    path = as_path(folder, CorpusError)
    try:
        corpus = Corpus.load(path)
        assert isinstance(corpus.passages, Stored)
        if full:
            read_manifest(path / MANIFEST, remedy(path), full=True)
        source = corpus.passages.about["source"]["name"]
        yield f"{len(corpus):,} passages of {source}, by the manifest and the length of every file", True
        some = [corpus[row] for row in spread_rows(len(corpus), _LOOKED_UP)]
        yield f"{len(some)} passages, by their ids", all(corpus.get(passage.id) == passage for passage in some)
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
