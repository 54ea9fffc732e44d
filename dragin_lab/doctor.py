"""``dragin-lab doctor``: is everything here, and does capture tell the truth on this machine?"""

from __future__ import annotations

import importlib
import platform
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

from dragin_lab.errors import DraginLabError

_NEEDED = ("torch", "transformers", "spacy", "rank_bm25", "safetensors", "pandas", "numpy")
_OPTIONAL = ("jupyterlab", "ipywidgets", "plotly", "anywidget", "bm25s")


def report(load: Callable[[], Any]) -> Iterator[tuple[str, bool]]:
    """Lines for people, each with whether it is as it should be; ``load`` gives the model to check."""
    yield f"Python {platform.python_version()} on {platform.system()} {platform.machine()}", True
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            yield f"{name} cannot be imported: {error}", False
        else:
            yield f"{name} {metadata.version(name.replace('_', '-'))}", True
    for name in _OPTIONAL:
        try:
            yield f"{name} {metadata.version(name)}", True
        except metadata.PackageNotFoundError:
            yield f"{name} is not installed; notebooks or large corpora want it", True
    try:
        from dragin_lab.sentences import load_pipeline

        yield f"sentences: {load_pipeline().name}", True
        from dragin_lab.corpus import Corpus
        from dragin_lab.retrieval.bm25 import BM25

        corpus = Corpus.load(progress=False)
        found = BM25(corpus).search(corpus[0].text, 1)
        right = bool(found) and found[0].text == corpus[0].text
        yield f"embedded corpus: {len(corpus):,} passages; a passage's own text finds it", right
        lm = load()
        yield repr(lm), True
        for check in lm.check():
            yield str(check), check.passed
    except DraginLabError as error:
        yield str(error), False
