"""``dragin-lab corpus``: build, check, fetch, index and search corpora up to Wikipedia."""

from __future__ import annotations

import json
import resource
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

import rich_click as click

from dragin_lab.cli.data import fetch_files
from dragin_lab.cli.options import (
    Name,
    check_corpus,
    check_retriever,
    corpus_option,
    debug_option,
    load_retriever,
    retriever_option,
)
from dragin_lab.cli.outputs import RunFailedError, counted, echo, report_findings
from dragin_lab.errors import BrokenOffError, DraginLabError
from dragin_lab.files import as_path
from dragin_lab.text import without_secrets

PUBLISHED = ("wikipedia-dpr",)


@click.group(short_help="Build, check and fetch corpora of passages.")
def corpus() -> None:
    """Corpora of passages, up to all of Wikipedia: build one from files, check that it is whole.

    The paper's: 'dragin-lab corpus fetch wikipedia-dpr', then 'corpus build' on the file it brings.
    """


@corpus.command(short_help="Build a corpus from files of passages or texts.")
@click.argument("source")
@click.option("--output", "out", required=True, help="The folder of the corpus; --corpus takes it then.")
@click.option(
    "--fields", metavar="NAMES", help="Which fields SOURCE has them in: id=doc_id,title=headline,text=contents."
)
@click.option("--expect", type=int, help="Refuse to finish with another number of passages than this.")
@click.option("--force", is_flag=True, help="Replace the corpus that the folder holds.")
@click.option("--index", "spec", metavar="SPEC", help="Build an index of vectors too, as 'corpus index' does.")
@debug_option
def build(source: str, out: str, fields: str | None, expect: int | None, force: bool, spec: str | None) -> None:
    """Build a corpus in a folder from SOURCE, in bounded memory.

    SOURCE is a .jsonl, .csv, .tsv (packed as .gz or not) or .parquet file with id, title and text, such as DPR's
    psgs_w100.tsv.gz; a BEIR folder; a folder saved by datasets, or hub:NAME; or a folder of .txt and .md files or of
    WikiExtractor's articles, which are cut into passages of 100 words. A missing id is made from the row.

    A build that fails or is interrupted leaves nothing; rerun the command after a kill.
    """
    check_retriever(spec)
    from dragin_lab.retrieval.build import build_corpus

    try:
        corpus = build_corpus(source, out, fields=fields, expect=expect, force=force)
    except BrokenOffError as error:
        raise RunFailedError(str(error)) from error
    stored = sum(path.stat().st_size for path in corpus.folder.rglob("*") if path.is_file())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10  # KiB on Linux
    echo(f"{counted(len(corpus), 'passage')} in {corpus.folder}")
    echo(f"fingerprint {corpus.about['fingerprint']}")
    echo(f"{stored >> 20:,} MiB on disk, at most {peak:,} MiB in memory", err=True)
    if cut := corpus.about["cut"]:
        echo(f"cut into passages of {cut['words']} words, {cut['overlap']} of them shared with the next", err=True)
    for warning in corpus.about["warnings"]:
        echo(warning, err=True)
    if spec is not None:
        build_index(out, spec)


@corpus.command(short_help="Check that a corpus is whole.")
@click.argument("folder")
@click.option("--full", is_flag=True, help="Read every passage, and compare the fingerprint of all.")
@click.option("--retriever", "spec", metavar="SPEC", help="Ask this one too: bm25, dense:MODEL …")
@debug_option
def check(folder: str, full: bool, spec: str | None) -> None:
    """Check that the corpus in FOLDER is whole, and that a search finds what it must.

    Compares the length and CRC-32 of every file, and puts queries whose answer is known to its index, and to the
    retriever given. Ends with status 1 where anything is wrong.
    """
    check_retriever(spec)
    from dragin_lab.retrieval.check import check_corpus
    from dragin_lab.retrieval.stored import is_stored

    path = as_path(folder)
    if not is_stored(path):
        raise click.UsageError(
            f"{folder}: holds no corpus; make one with 'dragin-lab corpus build SOURCE --output {folder}'"
        )
    bad = report_findings(check_corpus(path, full=full))
    if not bad and spec is not None:
        bad = report_findings(_look_at_retriever(path, spec))
    if bad:
        raise RunFailedError(f"{folder}: {bad} of the lines above {'is' if bad == 1 else 'are'} marked FAIL")


@corpus.command(short_help="Download a published corpus.")
@click.argument("name", type=Name(PUBLISHED), metavar="NAME")
@click.option("--output", "out", help="The folder for it; default NAME below DRAGIN_LAB_DATA, by default 'data'.")
@click.option("--url", help="Another address of the same file, such as a mirror.")
@click.option("--again", is_flag=True, help="Download it although it is there, and replace it.")
@debug_option
def fetch(name: str, out: str | None, url: str | None, again: bool) -> None:
    """Download NAME from its public origin, and compare its checksum.

    NAME is wikipedia-dpr: the 21,015,324 passages of DPR that the paper retrieves from, 4.7 GB packed. A download that
    was cut off, or ended with Ctrl-C, goes on where it stopped when you run it again.
    """
    path = fetch_files(name, None if out is None else as_path(out), url=url, again=again)[0]
    from dragin_lab.data.fetch import ORIGINS

    count = ORIGINS[name].passages
    echo(f"its {count:,} passages: dragin-lab corpus build {path} --output FOLDER --expect {count}", err=True)


@corpus.command(short_help="Build the index of a corpus that a retriever searches.")
@click.argument("folder", metavar="CORPUS")
@click.option(
    "--retriever",
    "spec",
    metavar="SPEC",
    required=True,
    help="dense:MODEL, where MODEL is a folder, a Hugging Face id, or almanac.",
)
@click.option("--device", help="dense: cpu or cuda; default the first GPU, else the CPU.")
@click.option("--force", is_flag=True, help="Build it again, even if there is an index already.")
@debug_option
def index(folder: str, spec: str, device: str | None, force: bool) -> None:
    """Build the index of CORPUS, a folder of 'dragin-lab corpus build', in that folder.

    BM25 needs none: a built corpus is its own index.

    An index that was killed, interrupted or ran out of disk continues where it stopped when this is run again.
    """
    check_corpus(folder)
    build_index(folder, spec, device=device, force=force)


def build_index(corpus: str, spec: str, **options: object) -> None:
    """Build an index and say what it is; ``options`` are those of ``choose.build_index``."""
    from dragin_lab.retrieval import choose

    try:
        built = choose.build_index(spec, corpus, **options)  # type: ignore[arg-type]
    except BrokenOffError as error:
        raise RunFailedError(str(error)) from error
    except KeyboardInterrupt:
        echo("\nwhat was done is kept; run it again to continue", err=True)
        raise
    echo(f"{built!r}")
    echo(f"search it with --corpus {corpus} --retriever {without_secrets(spec)}", err=True)


@corpus.command(short_help="Search a corpus, and print what is found.")
@click.argument("query")
@corpus_option
@retriever_option
@click.option(
    "--top-k",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="How many passages to print, the best first.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one line of JSON per passage: rank, id, score, title, text."
)
@debug_option
def search(
    query: str, corpus: str | None, corpus_fields: str | None, retriever: str | None, top_k: int, as_json: bool
) -> None:
    """Search the passages for QUERY, as a method's retrievals do, and print the best with their scores."""
    if not query.strip():
        raise click.UsageError("the query is empty; write one between quotes")
    check_corpus(corpus, corpus_fields)
    check_retriever(retriever)
    opened = load_retriever(corpus, retriever, corpus_fields)
    passages = opened.search(query, top_k)
    if not as_json:
        echo(f"{opened!r}", err=True)
    width = max(40, min(100, shutil.get_terminal_size((100, 24)).columns))
    for rank, passage in enumerate(passages, 1):
        if as_json:
            line = {"rank": rank, "id": passage.id, "score": passage.score}
            echo(json.dumps(line | {"title": passage.title, "text": passage.text}))
            continue
        echo(f"{rank}. {passage.score:.4f}  {passage.id}  {passage.title}".rstrip())
        echo(textwrap.fill(passage.text, width, initial_indent="   ", subsequent_indent="   "))
    if not passages:
        echo("nothing was found: no passage holds a term of the query", err=True)


def _look_at_retriever(path: Path, spec: str) -> Iterator[tuple[str, bool]]:
    """Whether a retriever is of this corpus and finds what it must."""
    from dragin_lab.retrieval.check import ask_canaries
    from dragin_lab.retrieval.corpus import Corpus

    try:
        passages = Corpus.load(path)
        retriever = load_retriever(str(path), spec)
        yield f"{retriever!r} is of this corpus", True
        yield from ask_canaries(passages, retriever)
    except DraginLabError as error:
        yield str(error), False
