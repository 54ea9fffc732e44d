"""Make docs/gallery: the notebooks, executed as they are committed, as pages with their outputs. Some minutes.

    python -m tools.gallery                        all of them
    python -m tools.gallery --only 03 06           some of them
    python -m tools.gallery --page mine.ipynb      a page of a notebook that was executed already, as it is
    python -m tools.gallery --tour                 notebooks/00_tour.ipynb with its outputs and pictures, for GitHub

``--tour`` needs Chromium or Chrome, which plotly's kaleido draws with.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the kernels inherit it

import nbformat
from plotly.offline import get_plotlyjs

from dragin_lab.files import write_whole
from tools.base import DOCS, ROOT, parser, say
from tools.gallery_page import WIDGET, index, page, says, title_of
from tools.pictures import browser

NOTEBOOKS = ROOT / "notebooks"
OUTPUT = DOCS / "gallery"
TOUR = NOTEBOOKS / "00_tour.ipynb"


def execute(notebook: Path, renderer: str = "plotly_mimetype") -> Any:
    """The notebook with its outputs, run in a fresh kernel; ``renderer`` is how plotly writes figures.

    Progress and notes on stderr are left out, and a warning, which a reader would miss, ends it.
    """
    import papermill

    os.environ["PLOTLY_RENDERER"] = renderer
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / notebook.name
        papermill.execute_notebook(notebook, copy, cwd=NOTEBOOKS, kernel_name="python3", progress_bar=False)
        book = nbformat.read(copy, as_version=4)
    for cell in book.cells:
        noted = "".join(output.text for output in cell.get("outputs", ()) if output.get("name") == "stderr")
        if "Warning" in noted:
            sys.exit(f"{notebook.name}: a cell warns, which a page does not show: {noted.strip()[-300:]}")
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return book


def write_tour() -> None:
    """The tour with its outputs in place: figures as data for JupyterLab, and as pictures for GitHub."""
    os.environ.setdefault("BROWSER_PATH", browser())
    plain, book = nbformat.read(TOUR, as_version=4), execute(TOUR, "plotly_mimetype+png")
    for cell, made in zip(plain.cells, book.cells, strict=True):
        if cell.cell_type == "code":
            cell.execution_count = made.execution_count
            cell.outputs = [output for output in made.outputs if WIDGET not in output.get("data", ())]  # needs a kernel
    nbformat.write(plain, TOUR)
    say(f"{TOUR.name}: {TOUR.stat().st_size / 1e6:.2f} MB")


def write_page(folder: Path, name: str, html: str) -> None:
    if str(ROOT) in html:
        sys.exit(f"{name}: an output names a folder of this machine ({ROOT}); print less of the path")
    target = folder / f"{name}.html"
    write_whole(target, html.encode())
    say(f"{target.name}: {target.stat().st_size / 1e6:.2f} MB")


def gallery(folder: Path, only: Sequence[str]) -> None:
    """The pages of the notebooks whose names begin with one of ``only`` (all where there is none), and the index."""
    books = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
    plain = [nbformat.read(book, as_version=4) for book in books]
    turns = [None, *((f"{book.stem}.html", title_of(nb)) for book, nb in zip(books, plain, strict=True)), None]
    for at, book in enumerate(books):
        if not only or book.stem.startswith(tuple(only)):
            say(f"{book.name}: runs")
            made = "An executed copy, made by tools/gallery.py."
            write_page(folder, book.stem, page(execute(book), book.stem, made, turns[at], turns[at + 2]))
    about = (
        "Executed copies of the notebooks in `notebooks/`, on the embedded model and Almanac, its fictional world. "
        "Nothing here was typed: every figure came out of a cell. The pages open offline."
    )
    cards = [(book.stem, title_of(nb), says(nb)) for book, nb in zip(books, plain, strict=True)]
    write_page(folder, "index", index(cards, about))


def main(arguments: Sequence[str] | None = None) -> None:
    command = parser(__doc__)
    command.add_argument("--output", type=Path, default=OUTPUT, help="folder of the pages (default: docs/gallery)")
    command.add_argument("--only", nargs="+", default=[], help="beginnings of names, such as 03")
    command.add_argument("--page", nargs="+", type=Path, default=[], help="executed notebooks to write as pages")
    command.add_argument("--tour", action="store_true", help="execute the tour in its place")
    given = command.parse_args(arguments)
    if given.tour:
        write_tour()
        return
    given.output.mkdir(parents=True, exist_ok=True)
    write_whole(given.output / "plotly.min.js", get_plotlyjs().encode())
    for book in given.page:
        write_page(given.output, book.stem, page(nbformat.read(book, as_version=4), book.stem, "An executed notebook."))
    if not given.page:
        gallery(given.output, given.only)


if __name__ == "__main__":
    main()
