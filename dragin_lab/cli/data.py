"""``dragin-lab data fetch``: download benchmarks and the published exemplars from their public origins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rich_click as click

from dragin_lab.cli.options import Name, debug_option
from dragin_lab.cli.outputs import RunFailedError, echo

NAMES = ("2wikimultihopqa", "hotpotqa", "strategyqa", "iirc", "exemplars")


@click.group(short_help="Fetch the benchmarks' files.")
def data() -> None:
    """The files of the benchmarks: fetch them from where they are public."""


@data.command(short_help="Download a benchmark, or the published exemplars.")
@click.argument("name", type=Name(NAMES), metavar="NAME")
@click.option("--url", help="Another address of the same file, such as a mirror.")
@click.option("--sha256", help="The checksum of what --url serves, where it is another file than the released one.")
@click.option("--again", is_flag=True, help="Download it although it is there, and replace it.")
@debug_option
def fetch(name: str, url: str | None, sha256: str | None, again: bool) -> None:
    """Download NAME from its public origin, check it, and put it where the other commands look for it.

    NAME is 2wikimultihopqa, hotpotqa, strategyqa, iirc or exemplars.

    A benchmark goes into the folder NAME below DRAGIN_LAB_DATA, by default 'data'. 'exemplars' are the worked examples
    that were published with the paper; they go into your cache, and '--exemplars published:BENCHMARK' takes them. A
    download that was cut off, or ended with Ctrl-C, goes on where it stopped when you run it again.
    """
    fetch_files(name, url=url, sha256=sha256, again=again)
    from dragin_lab.data import datasets

    if name in datasets.BENCHMARKS:
        try:
            echo(f"questions that can be answered: {len(datasets.load(name)):,}", err=True)
        except datasets.DataError as error:
            raise RunFailedError(str(error)) from error


def fetch_files(name: str, folder: Path | None = None, **options: Any) -> tuple[Path, ...]:
    """Fetch a thing of ``data.fetch.ORIGINS``, with a bar; print its files, and a line on how far they were checked."""
    from dragin_lab.data.download import FetchError
    from dragin_lab.data.fetch import fetch, folder_of

    try:
        with _show_bytes(name) as advance:
            fetched = fetch(name, folder, advance=advance, **options)
    except FetchError as error:
        raise RunFailedError(str(error)) from error
    except KeyboardInterrupt:
        echo(f"\nwhat came so far is kept in {folder or folder_of(name)}; run it again to go on", err=True)
        raise
    for path in fetched.files:
        echo(path)
    echo(fetched.note, err=True)
    return fetched.files


@contextmanager
def _show_bytes(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on a terminal; gives the function that is told the bytes that are there, and of how many."""
    from tqdm.auto import tqdm

    with tqdm(desc=name, unit="B", unit_scale=True, disable=None, leave=False) as bar:  # None: only on a terminal

        def advance(have: int, total: int | None) -> None:
            if have < bar.n or not bar.n:  # what an earlier download left says nothing of this one's rate
                bar.reset(total)
                bar.n = bar.initial = bar.last_print_n = have
            bar.update(have - bar.n)

        yield advance
