"""Where the index of a corpus lies: in a built corpus's own folder, else in the user's cache."""

from __future__ import annotations

from pathlib import Path

from dragin_lab.corpus import Corpus
from dragin_lab.files import user_cache

#: In a built corpus's folder: a folder for each of its indexes.
INDEXES = "indexes"


def index_folder(corpus: Corpus, name: str) -> Path:
    """The folder of an index of this corpus, whether it is there or not.

    A corpus that was not built has no folder of its own; its indexes are found again by its fingerprint.
    """
    if corpus.folder is not None:
        return corpus.folder / INDEXES / name
    return user_cache() / INDEXES / corpus.fingerprint[:32] / name
