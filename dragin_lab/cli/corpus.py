"""``dragin-lab corpus build``, ``check``, ``fetch``: corpora up to Wikipedia, that know whether they are whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from dragin_lab.cli.corpus_index import build_index
from dragin_lab.cli.options import Name, check_retriever, debug_option, download_bar, load_retriever
from dragin_lab.cli.outputs import RunFailedError
from dragin_lab.errors import BrokenOffError, DraginLabError

if TYPE_CHECKING:
    from dragin_lab.retrieval.corpus import Corpus

KINDS = ("dpr", "jsonl", "text", "wikiextractor")
PUBLISHED = ("wikipedia-dpr",)


@click.group(short_help="Build, check and fetch corpora of passages.")
def corpus() -> None:
    """Corpora of passages, up to all of Wikipedia: build one from files, check that it is whole.

    The paper's: 'dragin-lab corpus fetch wikipedia-dpr', then 'corpus build' on the file it brings.
    """


@corpus.command(short_help="Build a corpus from files of passages or articles.")
@click.argument("source")
@click.option("--out", required=True, help="The folder of the corpus; --corpus takes it then.")
@click.option("--kind", type=Name(KINDS), help="What SOURCE is; by default as the names of its files tell.")
@click.option("--dedupe", is_flag=True, help="Leave out a passage whose title and text an earlier one has.")
@click.option("--skip-bad", is_flag=True, help="Leave out bad records, count them, and list them in skipped.jsonl.")
@click.option("--expect", type=int, help="Refuse to finish with another number of passages than this.")
@click.option("--force", is_flag=True, help="Begin anew where the folder holds a corpus or an unfinished build.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes that parse; default one a core.")
@click.option(
    "--index", "spec", metavar="SPEC", help="Build its index too, as 'corpus index' does: bm25s, dense:MODEL."
)
@debug_option
def build(
    source: str, out: str, kind: str | None, dedupe: bool, skip_bad: bool, expect: int | None, force: bool,
    workers: int | None, spec: str | None,
) -> None:  # fmt: skip
    """Build a corpus in a folder from SOURCE, in bounded memory.

    SOURCE is DPR's psgs_w100.tsv[.gz] (dpr), a .jsonl[.gz] with id, title and text (jsonl), a folder of .txt files
    (text), or the folder or a file that WikiExtractor's --json wrote (wikiextractor). Texts and articles are cut into
    passages of 100 words.

    A build that was killed, interrupted or refused a record goes on where it stopped when it is run again.
    """
    check_retriever(spec)
    from dragin_lab.retrieval.corpora.build import build as make

    try:
        made = make(
            source, out, kind=kind, dedupe=dedupe, skip_bad=skip_bad, expect=expect, force=force, workers=workers
        )
    except BrokenOffError as error:
        raise RunFailedError(str(error)) from error
    except KeyboardInterrupt:
        click.echo(f"\nwhat was done is kept in {out}; run it again to go on", err=True)
        raise
    manifest = made.store.manifest
    click.echo(f"{manifest.passages:,} passages in {made.store.folder}")
    click.echo(f"fingerprint {manifest.fingerprint}")
    if made.resumed:
        whole = "; nothing was left to do" if made.resumed == manifest.passages else ""
        click.echo(f"{made.resumed:,} of them were there when it began{whole}", err=True)
    counts = manifest.counts
    if counts["duplicates"]:
        click.echo(f"left out: {counts['duplicates']:,} passages that an earlier one repeats", err=True)
    if counts["empty"]:
        click.echo(f"left out: {counts['empty']:,} articles without text", err=True)
    if counts["skipped"]:
        click.echo(f"left out: {counts['skipped']:,} bad records, listed in {Path(out) / 'skipped.jsonl'}:", err=True)
        for message in made.skipped:
            click.echo(f"  {message}", err=True)
    if spec is not None:
        build_index(out, spec, workers=workers)


@corpus.command(short_help="Check that a corpus is whole.")
@click.argument("folder")
@click.option("--full", is_flag=True, help="Read every byte, and every passage.")
@click.option("--workers", type=click.IntRange(min=1), help="Processes that read; default one a core.")
@click.option(
    "--retriever", "spec", metavar="SPEC", help="What the queries are put to: bm25s, dense:MODEL, milvus:URI …"
)
@debug_option
def check(folder: str, full: bool, workers: int | None, spec: str | None) -> None:
    """Check that the corpus in FOLDER is whole, and that a search finds what it must.

    Compares counts, lengths and checksums, looks for empty passages, and puts queries whose answer is known to an index
    in memory (up to 200,000 passages) and to its bm25s index, or to the retriever given, whose passages are compared
    too. Its other indexes are compared with what they were built from. Ends with status 1 where anything is wrong.
    """
    check_retriever(spec)
    from dragin_lab.retrieval.corpora.check import ask_canaries
    from dragin_lab.retrieval.corpora.check import check as look
    from dragin_lab.retrieval.corpora.store import is_store

    path = Path(folder).expanduser()
    if not is_store(path):
        raise click.UsageError(
            f"{folder}: holds no corpus; make one with 'dragin-lab corpus build SOURCE --out {folder}'"
        )
    bad = _report(look(path, full=full, workers=workers))
    if not bad:
        from dragin_lab.retrieval.corpus import Corpus

        passages = Corpus.load(path)
        from dragin_lab.retrieval.choose import IN_MEMORY, check_indexes

        if spec is not None:
            bad = _report(_look_at_retriever(passages, spec, full))
        elif len(passages) <= IN_MEMORY:
            from dragin_lab.retrieval.bm25 import BM25

            bad = _report(ask_canaries(path, BM25(passages)))
        else:
            click.echo(f"note: no index in memory was asked: that is for up to {IN_MEMORY:,} passages", err=True)
        bad += _report(check_indexes(passages, full=full))
    if bad:
        raise RunFailedError(f"{folder}: {bad} of the lines above {'is' if bad == 1 else 'are'} marked FAIL")


@corpus.command(short_help="Download a published corpus.")
@click.argument("name", type=Name(PUBLISHED), metavar="NAME")
@click.option("--out", help="The folder for it; default NAME below DRAGIN_LAB_DATA, by default 'data'.")
@click.option("--url", help="Another address of the same file, such as a mirror.")
@click.option("--again", is_flag=True, help="Download it although it is there, and replace it.")
@debug_option
def fetch(name: str, out: str | None, url: str | None, again: bool) -> None:
    """Download NAME from its public origin, and compare its length and checksum.

    NAME is wikipedia-dpr: the 21,015,324 passages of DPR that the paper retrieves from, 4.7 GB packed. A download that
    was cut off, or ended with Ctrl-C, goes on where it stopped when you run it again.
    """
    from dragin_lab.data.download import FetchError
    from dragin_lab.retrieval.corpora import fetch as published

    def say(line: str) -> None:
        click.echo(line, err=True)

    try:
        with download_bar(name) as advance:
            folder = None if out is None else Path(out).expanduser()
            path = published.fetch(name, folder, url=url, again=again, advance=advance, say=say)
    except FetchError as error:
        raise RunFailedError(str(error)) from error
    except KeyboardInterrupt:
        click.echo("\nwhat came so far is kept; run it again to go on", err=True)
        raise
    click.echo(path)
    count = published.PUBLISHED[name].passages
    say(f"its {count:,} passages: dragin-lab corpus build {path} --out FOLDER --expect {count}")


def _look_at_retriever(passages: Corpus, spec: str, full: bool) -> Iterator[tuple[str, bool]]:
    """Whether a retriever is of this corpus, holds its passages and finds what it must."""
    from dragin_lab.retrieval.corpora.check import ask_canaries, compare_passages

    try:
        retriever = load_retriever(passages.source, spec)
        yield f"{retriever!r} is of this corpus", True
        if hasattr(retriever, "compare"):
            yield from compare_passages(passages, retriever, full=full)
        yield from ask_canaries(passages.source, retriever)
    except DraginLabError as error:
        yield str(error), False


def _report(findings: Iterator[tuple[str, bool]]) -> int:
    """Print what was found, and count what is wrong."""
    bad = 0
    for line, good in findings:
        click.echo(f"{'ok   ' if good else 'FAIL '} {line}")
        bad += not good
    return bad
