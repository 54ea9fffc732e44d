"""``dragin-lab data fetch``: download benchmarks, the published exemplars and the paper's corpus."""

from __future__ import annotations

import sys

import rich_click as click

from dragin_lab.cli.options import Name, debug_option
from dragin_lab.cli.outputs import RunFailedError, echo
from dragin_lab.files import as_path

NAMES = ("2wikimultihopqa", "hotpotqa", "strategyqa", "iirc", "exemplars", "wikipedia-dpr")


@click.group(short_help="Fetch the benchmarks' files and the paper's corpus.")
def data() -> None:
    """The files of the benchmarks and of the paper's corpus: fetch them from where they are public."""


@data.command(short_help="Download a benchmark, the published exemplars, or the paper's corpus.")
@click.argument("name", type=Name(NAMES), metavar="NAME")
@click.option("--output", help="The folder for it; default NAME below DRAGIN_LAB_DATA, by default 'data'.")
@click.option("--url", help="Another address of the same file, such as a mirror.")
@click.option("--again", is_flag=True, help="Download it although it is there, and replace it.")
@debug_option
def fetch(name: str, output: str | None, **options: object) -> None:
    """Download NAME from its public origin, check it, and put it where the other commands look for it.

    NAME is 2wikimultihopqa, hotpotqa, strategyqa, iirc, exemplars or wikipedia-dpr.

    'exemplars' are the worked examples that were published with the paper; they go into your cache, and '--exemplars
    published:BENCHMARK' takes them. 'wikipedia-dpr' are the 21,015,324 passages of DPR that the paper retrieves from,
    4.7 GB packed; a download that was cut begins again, and the page on corpora says how to resume it with curl.
    """
    from dragin_lab.data import datasets
    from dragin_lab.data.fetch import ORIGINS, FetchError
    from dragin_lab.data.fetch import fetch as fetch_files

    folder = None if output is None else as_path(output)
    try:
        paths, note = fetch_files(name, folder, progress=sys.stderr.isatty(), **options)  # type: ignore[arg-type]
        for path in paths:
            echo(path)
        echo(note, err=True)
        if name in datasets.BENCHMARKS:
            source = name if folder is None else paths[0]
            echo(f"questions that can be answered: {len(datasets.load(source)):,}", err=True)
    except (FetchError, datasets.DataError) as error:
        raise RunFailedError(str(error)) from error
    if count := ORIGINS[name].passages:
        built = f"dragin-lab corpus build {paths[0]} --output FOLDER --expect {count}"
        echo(f"its {count:,} passages: {built}", err=True)
