"""``dragin-lab data``, ``corpus`` and ``doctor``: what there is before a question is asked."""

from __future__ import annotations

import importlib
import platform
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

import rich_click as click

import dragin_lab as dl
from dragin_lab.checks import choice
from dragin_lab.cli.options import model_option, read_loading, set_option
from dragin_lab.cli.outputs import echo
from dragin_lab.data import datasets
from dragin_lab.data.fetch import ORIGINS
from dragin_lab.data.fetch import fetch as fetch_files
from dragin_lab.errors import DataError, DraginLabError, RunError
from dragin_lab.files import as_path
from dragin_lab.retrieval.stored import build_corpus
from dragin_lab.views.facts import plural

# None: it is missing, and nothing needs it that was not asked for
CheckLine = tuple[str, bool | None]

_NEEDED = (
    "torch",
    "transformers",
    "spacy",
    "rank_bm25",
    "tantivy",
    "safetensors",
    "pandas",
    "numpy",
    "plotly",
)
_OPTIONAL = dict.fromkeys(("jupyterlab", "ipywidgets"), "notebooks")
_OPTIONAL["datasets"] = "corpora and questions from the Hugging Face Hub"


@click.group(short_help="Fetch the benchmarks' files and the paper's corpus.")
def data() -> None:
    """The files of the benchmarks and of the paper's corpus: fetch them from where they are
    public.
    """


@data.command(short_help="Download a benchmark, the published exemplars, or the paper's corpus.")
@click.argument("name")
@click.option(
    "--output", help="The folder for it; default NAME below DRAGIN_LAB_DATA, by default 'data'."
)
@click.option("--url", help="Another address of the same file, such as a mirror.")
@click.option("--again", is_flag=True, help="Download it although it is there, and replace it.")
def fetch(name: str, output: str | None, url: str | None, again: bool) -> None:
    """Download NAME from its public origin, check it, and put it where the other commands look for
    it.

    NAME is 2wikimultihopqa, hotpotqa, strategyqa, iirc, exemplars or wikipedia-dpr.

    'exemplars' are the worked examples that were published with the paper; they go into your cache,
    and '--exemplars published:BENCHMARK' takes them. 'wikipedia-dpr' are the 21,015,324 passages of
    DPR that the paper retrieves from, 4.7 GB packed; a download that was cut begins again, and the
    page on corpora says how to resume it with curl.
    """
    choice("name", name, ORIGINS)
    folder = None if output is None else as_path(output)
    try:
        paths, note = fetch_files(name, folder, url=url, again=again, progress=sys.stderr.isatty())
    except DataError as error:
        error.begun = True
        raise
    for path in paths:
        echo(path)
    echo(note, err=True)
    if name in datasets.BENCHMARKS:
        source = name if folder is None else paths[0]
        echo(f"questions that can be answered: {len(datasets.load_questions(source)):,}", err=True)
    if passages := ORIGINS[name].passages:
        echo(
            f"its {passages:,} passages: dragin-lab corpus build {paths[0]} --output FOLDER",
            err=True,
        )


@click.group(short_help="Build corpora of passages.")
def corpus() -> None:
    """Corpora of passages, up to all of Wikipedia, built from files.

    The paper's: 'dragin-lab data fetch wikipedia-dpr', then 'corpus build' on the file it brings.
    """


@corpus.command(short_help="Build a corpus from files of passages or texts.")
@click.argument("source")
@click.option(
    "--output", "out", required=True, help="The folder of the corpus; --corpus takes it then."
)
@click.option(
    "--fields",
    metavar="NAMES",
    help="Which fields SOURCE has them in: id=doc_id,title=headline,text=contents.",
)
@click.option("--force", is_flag=True, help="Replace the corpus that the folder holds.")
def build(source: str, out: str, **options: Any) -> None:
    """Build a corpus in a folder from SOURCE, in bounded memory.

    SOURCE is a .jsonl, .csv, .tsv (packed as .gz or not) or .parquet file with id, title and text,
    such as DPR's psgs_w100.tsv.gz; a BEIR folder; a folder saved by datasets, or hub:NAME; or a
    folder of .txt and .md files, which are cut into passages of 100 words. A missing id is made
    from the row.

    A corpus that fails or is interrupted leaves nothing.
    """
    built = build_corpus(source, out, **options)
    stored = sum(path.stat().st_size for path in built.folder.rglob("*") if path.is_file())
    echo(f"{plural(len(built), 'passage')} in {built.folder}")
    echo(f"fingerprint {built.about['fingerprint']}")
    echo(f"{stored >> 20:,} MiB on disk", err=True)


# -- is everything here? ---------------------------------------------------------------------------


@click.command(short_help="Check the installation and a model.")
@model_option
@set_option
def doctor(**options: Any) -> None:
    """Check the installation, and that a model's attention can be captured and is what it should
    be.
    """
    wrong = 0
    for line, is_good in check_installation(options):
        mark = {True: "ok", False: "FAIL", None: "lacks"}[is_good]
        echo(f"{mark:<5} {line}")
        wrong += is_good is False
    if wrong:
        are = "is" if wrong == 1 else "are"
        raise RunError(
            f"this installation needs a repair: {wrong} of the lines above {are} marked FAIL",
            begun=True,
        )


def check_installation(options: Mapping[str, Any]) -> Iterator[CheckLine]:
    """Lines for people, each with whether it is as it should be; the options name the model."""
    yield f"Python {platform.python_version()} on {platform.system()} {platform.machine()}", True
    yield from _check_packages()
    for part in (_check_sentences, _check_corpus, lambda: _check_model(options)):
        try:
            yield from part()
        except DraginLabError as error:
            yield str(error), False
        except Exception as error:  # noqa: BLE001 - a part that breaks is what a doctor is there to report
            yield f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}", False


def _check_packages() -> Iterator[CheckLine]:
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - a half-installed package raises what it likes
            yield (
                (
                    f"{name} cannot be imported ({(str(error).splitlines() or [''])[0]}); install"
                    " it again"
                ),
                False,
            )
        else:
            yield f"{name} {metadata.version(name.replace('_', '-'))}", True
    for name, purpose in _OPTIONAL.items():
        try:
            yield f"{name} {metadata.version(name)}", True
        except metadata.PackageNotFoundError:
            yield f"{name} is not installed; it is needed for {purpose}", None


def _check_sentences() -> Iterator[CheckLine]:
    from dragin_lab.core.sentences import load_pipeline

    pipeline = load_pipeline()
    yield f"sentences: {pipeline.name}", True
    if not pipeline.tags:
        yield (
            (
                "the paper's content words need parts of speech: python -m spacy download"
                " en_core_web_sm"
            ),
            None,
        )


def _check_corpus() -> Iterator[CheckLine]:
    passages = dl.Corpus.load()
    hits = dl.BM25(passages).search(passages[0].text, 1)
    yield (
        f"embedded corpus: {len(passages):,} passages; a passage's own text finds it",
        [passage.text for passage in hits] == [passages[0].text],
    )


def _check_model(options: Mapping[str, Any]) -> Iterator[CheckLine]:
    from dragin_lab.engines.load import open_model  # brings torch

    lm: Any = open_model(options["model"], check=False, **read_loading(options))
    yield repr(lm), True
    if why := getattr(lm, "no_attention", ""):
        yield f"no method that looks at attention can be used: {why}", None
    for check in lm.check():
        note = f"; {check.note}" if check.note else ""
        yield f"{check.name} ({check.value:.2g}, limit {check.limit:.2g}){note}", check.passed
