"""Make docs/gallery: the notebooks, executed, as pages with their outputs.

    python -m tools.gallery                        all of them, from runs/gallery (tools/runs.py)
    python -m tools.gallery --only 03 06           some of them
    python -m tools.gallery --page mine.ipynb      a page of a notebook that was executed already, as it is

Needs papermill, which gives the notebooks other parameters: 200 questions where the committed ones ask a few.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the kernels inherit both
os.environ["PLOTLY_RENDERER"] = "plotly_mimetype"  # figures as data, without 5 MB of script in each notebook

import nbformat
from plotly.offline import get_plotlyjs

from dragin_lab.data.datasets import BENCHMARKS
from dragin_lab.files import write_whole
from tools.base import DOCS, ROOT, RUNS, parser, say
from tools.gallery_page import index, page, says, title_of

NOTEBOOKS = ROOT / "notebooks"
OUTPUT = DOCS / "gallery"
EACH = 50  # questions of each benchmark, as tools/runs.py asks


def parameters(name: str, runs: str) -> dict[str, Any]:
    """What a notebook's page is made with instead of its own parameters; ``runs`` as the notebook sees the folder."""
    return {
        "03_threshold_sweep": {"runs": runs, "datasets": [f"almanac/{one}" for one in BENCHMARKS], "questions": EACH},
        "04_benchmarks": {"runs": runs},
        "05_ablations": {"runs": runs},
        "06_when_was_it_needed": {"questions": EACH, "dev_questions": 20},
        "07_paper_and_code": {"questions": EACH},
    }.get(name, {})


def executed(notebook: Path, given: dict[str, Any], copy: Path) -> Any:
    """The notebook with its outputs, run by papermill in a fresh kernel."""
    import papermill

    papermill.execute_notebook(
        notebook, copy, parameters=given, cwd=NOTEBOOKS, kernel_name="python3", progress_bar=False
    )  # fmt: skip
    book = nbformat.read(copy, as_version=4)
    for cell in book.cells:
        kept = [output for output in cell.get("outputs", ()) if output.get("name") != "stderr"]
        noted = "".join(output.text for output in cell.get("outputs", ()) if output.get("name") == "stderr")
        if "Warning" in noted:
            sys.exit(f"{notebook.name}: a cell warns, which a page does not show: {noted.strip()[-300:]}")
        if noted:  # such as how many threads this machine gives a model
            cell["outputs"] = kept
    return book


def write_page(folder: Path, name: str, html: str) -> None:
    if str(ROOT) in html:
        sys.exit(f"{name}: an output names a folder of this machine ({ROOT}); print less of the path")
    target = folder / f"{name}.html"
    write_whole(target, html.encode())
    say(f"{target.name}: {target.stat().st_size / 1e6:.2f} MB")


def gallery(folder: Path, runs: Path, only: Sequence[str]) -> None:
    """The pages of the notebooks whose names begin with one of ``only`` (all where there is none), and the index."""
    books = sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))
    plain = [nbformat.read(book, as_version=4) for book in books]
    turns = [None, *((f"{book.stem}.html", title_of(nb)) for book, nb in zip(books, plain, strict=True)), None]
    seen = os.path.relpath(runs, NOTEBOOKS)
    with tempfile.TemporaryDirectory() as scratch:
        for at, book in enumerate(books):
            if only and not book.stem.startswith(tuple(only)):
                continue
            say(f"{book.name}: runs")
            given = parameters(book.stem, seen)
            found = executed(book, given, Path(scratch) / book.name)
            made = "An executed copy, made by tools/gallery.py" + (" with other parameters." if given else ".")
            write_page(folder, book.stem, page(found, book.stem, made, turns[at], turns[at + 2]))
    about = (
        "Executed copies of the notebooks in `notebooks/`, on the embedded model and Almanac, its fictional world. "
        "Nothing here was typed: every figure came out of a cell. The benchmarks are those of run directories with "
        f"{EACH} questions of each of the {len(BENCHMARKS)} benchmarks. The pages open offline."
    )
    cards = [(book.stem, title_of(nb), says(nb)) for book, nb in zip(books, plain, strict=True)]
    write_page(folder, "index", index(cards, about))


def main(arguments: Sequence[str] | None = None) -> None:
    command = parser(__doc__)
    command.add_argument("--runs", type=Path, default=RUNS / "gallery", help="what tools/runs.py wrote")
    command.add_argument("--output", type=Path, default=OUTPUT, help="folder of the pages (default: docs/gallery)")
    command.add_argument("--only", nargs="+", default=[], help="beginnings of names, such as 03")
    command.add_argument("--page", nargs="+", type=Path, default=[], help="executed notebooks to write as pages")
    given = command.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    write_whole(given.output / "plotly.min.js", get_plotlyjs().encode())
    for book in given.page:
        write_page(given.output, book.stem, page(nbformat.read(book, as_version=4), book.stem, "An executed notebook."))
    if not given.page:
        gallery(given.output, given.runs.absolute(), given.only)


if __name__ == "__main__":
    main()
