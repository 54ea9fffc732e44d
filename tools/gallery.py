"""Execute the notebooks in their places, with everything that GitHub and the documentation's pages
show. Some minutes.

    python -m tools.gallery          all of them
    python -m tools.gallery 03 06    some of them

Figures stand there as data, which JupyterLab draws, and as pictures, for which plotly's kaleido
needs Chromium or Chrome. A cell that fails or warns ends it, and so does an output that names a
folder of this machine.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the kernels inherit it

import nbformat
from nbclient import NotebookClient
from PIL import Image, ImageColor

from dragin_lab.files import write_whole
from dragin_lab.widgets.control import PLOTLY
from tools.base import ROOT, parser, say
from tools.pictures import browser

NOTEBOOKS = ROOT / "notebooks"
WIDGET = "application/vnd.jupyter.widget-view+json"
#: The name that a control has for one run only, which would change the file at each.
ONE_RUN = re.compile(r"\bdl-[0-9a-f]{8}\b")
#: How long an answer took, on its page.
TOOK = re.compile(r" · \d+\.\d\d s\b|<small>\d+\.\d\d s</small>")
TAG = re.compile(r"(<[^>]*>)+")
COLOURS = 96  # of a picture: those that its figure names, the inks and their edges
NAMED = re.compile(r"#[0-9a-fA-F]{6}\b")
MOST = 500_000  # bytes of a notebook


def marks(notebook: Any) -> Iterator[tuple[Any, str]]:
    """Each code cell, with what its outputs were made by: a hash of its code and of all code
    above it.
    """
    above = hashlib.sha256()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            above.update(cell.source.encode() + b"\0")
            yield cell, above.hexdigest()[:16]


def shown(output: Any, name: str) -> bool:
    """Whether a reader wants this output: no progress, and no control, which needs a kernel."""
    if output.get("name") == "stderr":
        if "Warning" in output.text:
            sys.exit(
                f"{name}: a cell warns, which a reader would not see: {output.text.strip()[-300:]}"
            )
        return False
    data = output.get("data", {})
    over = data == {"text/plain": ""}  # of a bar that has reached its end
    return WIDGET not in data and not over


def joined(outputs: Iterable[Any]) -> Iterator[Any]:
    """The outputs, with what was printed in one piece: where it was cut depends on the run."""
    last = None
    for output in outputs:
        if last is not None and "text" in output and "text" in last:
            last.text += output.text
        else:
            last = output
            yield output


def tidy(output: Any) -> None:
    """Leave out of an output what would be another at each run, and half of a picture's bytes;
    name pictures.
    """
    data = output.get("data", {})
    if ONE_RUN.search(data.get("text/html", "")):
        del data["text/html"]  # the note of a control, which stands there as text too
    if PLOTLY in data:
        data.pop("text/html", None)  # a control's page of its figure, which needs a script
    for kind in {"text/html", "text/plain"} & set(data):
        data[kind] = TOOK.sub("", data[kind])
    if "image/png" in data:
        whole = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGB")
        small = io.BytesIO()
        reduce_colours(whole, NAMED.findall(json.dumps(data.get(PLOTLY, {})))).save(small, "PNG")
        data["image/png"] = base64.b64encode(small.getvalue()).decode()
        title = data.get(PLOTLY, {}).get("layout", {}).get("title", {}).get("text", "")
        if title:  # what the site, and nbconvert's "classic", say of it
            output.metadata["image/png"] = {"alt": html.unescape(TAG.sub(" ", title))}


def reduce_colours(picture: Image.Image, named: Iterable[str]) -> Image.Image:
    """An RGB picture in ``COLOURS`` colours, among them each of ``named`` (``#rrggbb``) in it.

    The share that a colour has of a picture says nothing: a point is the colour of a method.
    """
    there = {colour for _, colour in picture.getcolors(picture.width * picture.height)}
    kept = [colour for colour in sorted({ImageColor.getrgb(n) for n in named}) if colour in there]
    kept = kept[: COLOURS // 2]
    others = picture.quantize(COLOURS - len(kept)).getpalette()[: 3 * (COLOURS - len(kept))]
    palette = Image.new("P", (1, 1))
    palette.putpalette([*chain.from_iterable(kept), *others])
    return picture.quantize(palette=palette, dither=Image.Dither.NONE)


def execute(path: Path) -> None:
    """Run a notebook in a fresh kernel and write it back with its outputs and the marks of the
    code above them.
    """
    book = nbformat.read(path, as_version=4)
    how = {
        "record_timing": False,
        "store_widget_state": False,
        "timeout": 1200,
        "kernel_name": "python3",
    }
    NotebookClient(book, resources={"metadata": {"path": str(NOTEBOOKS)}}, **how).execute()
    for cell, mark in marks(book):
        cell.outputs = list(joined(output for output in cell.outputs if shown(output, path.name)))
        for output in cell.outputs:
            tidy(output)
        cell.metadata["made_by"] = mark
    book.metadata.language_info = {"name": "python"}
    text = nbformat.writes(book) + "\n"
    if str(ROOT) in text:
        sys.exit(
            f"{path.name}: an output names a folder of this machine ({ROOT}); print less of the"
            " path"
        )
    if (size := len(text.encode())) > MOST:
        sys.exit(f"{path.name}: {size:,} bytes, of at most {MOST:,}; show less of its data")
    write_whole(path, text.encode())
    say(f"{path.name}: {size / 1e3:.0f} kB")


def main(arguments: Sequence[str] | None = None) -> None:
    command = parser(__doc__)
    command.add_argument("only", nargs="*", help="beginnings of names, such as 03")
    only = tuple(command.parse_args(arguments).only)
    os.environ |= {"PLOTLY_RENDERER": "plotly_mimetype+png", "BROWSER_PATH": browser()}
    for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        if not only or path.name.startswith(only):
            execute(path)


if __name__ == "__main__":
    main()
