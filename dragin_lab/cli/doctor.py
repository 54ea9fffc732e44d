"""``dragin-lab doctor``: is everything here, and does capture tell the truth on this machine?"""

from __future__ import annotations

import importlib
import platform
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import rich_click as click

from dragin_lab.cli.methods import set_option
from dragin_lab.cli.options import debug_option, load_model, model_option
from dragin_lab.cli.outputs import RunFailedError, report_findings
from dragin_lab.errors import DraginLabError

Line = tuple[str, bool | None]  # None: it is missing, and nothing needs it that was not asked for

_NEEDED = ("torch", "transformers", "spacy", "rank_bm25", "tantivy", "safetensors", "pandas", "numpy", "plotly")
_OPTIONAL = {
    "jupyterlab": "notebooks",
    "ipywidgets": "notebooks",
    "anywidget": "notebooks",
    "itables": "notebooks",
    "datasets": "corpora and questions from the Hugging Face Hub",
}


@click.command(short_help="Check the installation and a model.")
@model_option
@set_option
@debug_option
def doctor(**options: Any) -> None:
    """Check the installation, and that a model's attention can be captured and is what it should be."""
    if bad := report_findings(check_installation(lambda: load_model(options, check=False))):
        marked = "is marked FAIL and needs" if bad == 1 else "are marked FAIL and need"
        raise RunFailedError(f"{bad} of the lines above {marked} a repair")


def check_installation(load: Callable[[], Any]) -> Iterator[Line]:
    """Lines for people, each with whether it is as it should be; ``load`` gives the model to check."""
    yield f"Python {platform.python_version()} on {platform.system()} {platform.machine()}", True
    yield from _check_packages()
    for part in (_check_sentences, _check_corpus, lambda: _check_model(load)):
        try:
            yield from part()
        except DraginLabError as error:
            yield str(error), False
        except Exception as error:  # noqa: BLE001 - a part that breaks is what a doctor is there to report
            yield f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}", False


def _check_packages() -> Iterator[Line]:
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - a half-installed package raises what it likes
            yield f"{name} cannot be imported ({(str(error).splitlines() or [''])[0]}); install it again", False
        else:
            yield f"{name} {metadata.version(name.replace('_', '-'))}", True
    for name, purpose in _OPTIONAL.items():
        try:
            yield f"{name} {metadata.version(name)}", True
        except metadata.PackageNotFoundError:
            yield f"{name} is not installed; it is needed for {purpose}", None


def _check_sentences() -> Iterator[Line]:
    from dragin_lab.core.sentences import load_pipeline

    pipeline = load_pipeline()
    yield f"sentences: {pipeline.name}", True
    if not pipeline.tags:
        yield "the paper's content words need parts of speech: python -m spacy download en_core_web_sm", None


def _check_corpus() -> Iterator[Line]:
    from dragin_lab.retrieval.bm25 import BM25
    from dragin_lab.retrieval.corpus import Corpus

    corpus = Corpus.load()
    passages = BM25(corpus).search(corpus[0].text, 1)
    right = bool(passages) and passages[0].text == corpus[0].text
    yield f"embedded corpus: {len(corpus):,} passages; a passage's own text finds it", right


def _check_model(load: Callable[[], Any]) -> Iterator[Line]:
    lm = load()
    yield repr(lm), True
    checks = lm.check()
    if why := getattr(lm, "no_attention", ""):
        yield f"no method that looks at attention can be used: {why}", None
    for check in checks:
        note = f"; {check.note}" if check.note else ""
        yield f"{check.name} ({check.value:.2g}, limit {check.limit:.2g}){note}", check.passed
