"""``dragin-lab corpus``: build and check corpora up to Wikipedia, with their indexes of vectors."""

from __future__ import annotations

import rich_click as click

from dragin_lab.cli.options import check_retriever, debug_option
from dragin_lab.cli.outputs import RunFailedError, counted, echo, report_findings
from dragin_lab.errors import BrokenOffError
from dragin_lab.files import as_path


@click.group(short_help="Build and check corpora of passages.")
def corpus() -> None:
    """Corpora of passages, up to all of Wikipedia: build one from files, check that it is whole.

    The paper's: 'dragin-lab data fetch wikipedia-dpr', then 'corpus build' on the file it brings.
    """


@corpus.command(short_help="Build a corpus from files of passages or texts.")
@click.argument("source")
@click.option("--output", "out", help="The folder of the corpus; --corpus takes it then.")
@click.option(
    "--fields", metavar="NAMES", help="Which fields SOURCE has them in: id=doc_id,title=headline,text=contents."
)
@click.option("--expect", type=int, help="Refuse to finish with another number of passages than this.")
@click.option("--index", "spec", metavar="SPEC", help="Build an index of vectors too: dense:MODEL.")
@click.option("--device", help="Of --index: cpu or cuda; default the first GPU, else the CPU.")
@click.option("--force", is_flag=True, help="Replace the corpus that the folder holds, or its index.")
@debug_option
def build(
    source: str,
    out: str | None,
    fields: str | None,
    expect: int | None,
    spec: str | None,
    device: str | None,
    force: bool,
) -> None:
    """Build a corpus in a folder from SOURCE, in bounded memory. Without --output, SOURCE is a corpus that was built,
    and gets the index that --index names.

    SOURCE is a .jsonl, .csv, .tsv (packed as .gz or not) or .parquet file with id, title and text, such as DPR's
    psgs_w100.tsv.gz; a BEIR folder; a folder saved by datasets, or hub:NAME; or a folder of .txt and .md files, which
    are cut into passages of 100 words. A missing id is made from the row.

    A corpus that fails or is interrupted leaves nothing; an index continues where it stopped when this is run again.
    """
    check_retriever(spec)
    if out is None and spec is None:
        raise click.UsageError("give --output, the folder of the corpus; or --index, for a corpus that was built")
    from dragin_lab.retrieval.choose import build_index
    from dragin_lab.retrieval.stored import build_corpus

    try:
        if out is not None:
            corpus = build_corpus(source, out, fields=fields, expect=expect, force=force)
            stored = sum(path.stat().st_size for path in corpus.folder.rglob("*") if path.is_file())
            echo(f"{counted(len(corpus), 'passage')} in {corpus.folder}")
            echo(f"fingerprint {corpus.about['fingerprint']}")
            echo(f"{stored >> 20:,} MiB on disk", err=True)
        if spec is not None:
            echo(f"{build_index(spec, out or source, device=device, force=force and out is None)!r}")
            echo(f"search it with --corpus {out or source} --retriever {spec}", err=True)
    except BrokenOffError as error:
        raise RunFailedError(str(error)) from error


@corpus.command(short_help="Check that a corpus is whole.")
@click.argument("folder")
@click.option("--full", is_flag=True, help="Read every file and passage, and compare the fingerprint of all.")
@debug_option
def check(folder: str, full: bool) -> None:
    """Check that the corpus in FOLDER is whole. Ends with status 1 where anything is wrong."""
    from dragin_lab.retrieval.stored import check_corpus, is_stored

    path = as_path(folder)
    if not is_stored(path):
        raise click.UsageError(
            f"{folder}: holds no corpus; make one with 'dragin-lab corpus build SOURCE --output {folder}'"
        )
    if bad := report_findings(check_corpus(path, full=full)):
        raise RunFailedError(f"{folder}: {bad} of the lines above {'is' if bad == 1 else 'are'} marked FAIL")
