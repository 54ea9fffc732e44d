"""``dragin-lab corpus build``, ``check``, ``fetch``: corpora up to Wikipedia, that know whether they are whole."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import rich_click as click

from dragin_lab.cli.corpus_index import build_index
from dragin_lab.cli.data import bring
from dragin_lab.cli.options import Name, check_retriever, debug_option, load_retriever
from dragin_lab.cli.outputs import RunFailedError, echo, report_findings
from dragin_lab.errors import BrokenOffError, DraginLabError
from dragin_lab.files import as_path

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
    echo(f"{len(corpus):,} passages in {corpus.folder}")
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
@click.option("--retriever", "spec", metavar="SPEC", help="Ask this one too: bm25, dense:MODEL, milvus:URI …")
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
    path = bring(name, None if out is None else as_path(out), url=url, again=again)[0]
    from dragin_lab.data.fetch import ORIGINS

    count = ORIGINS[name].passages
    echo(f"its {count:,} passages: dragin-lab corpus build {path} --output FOLDER --expect {count}", err=True)


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
