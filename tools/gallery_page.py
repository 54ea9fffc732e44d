"""An executed notebook as one page that needs no network: cells and outputs as HTML."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import plotly.io as pio
from bs4 import BeautifulSoup
from nbconvert.filters import ansi2html, markdown2html
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from tools.base import HERE, fill_template

PLOTLY = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
#: Code of more lines is folded: a page is read for what came out.
FOLD = 14
LIGHT, DARK = "friendly", "github-dark"
#: What stands to the right in a table: numbers, yes and no, nothing.
_NUMBER = re.compile(r"[-+−]?[\d.,]+(e[-+]?\d+)?%?|NaN|True|False|<NA>|")
_LIVE = "A live control stands here in JupyterLab; it needs a kernel and is left out of this page."

Notebook = Mapping[str, Any]
Turn = tuple[str, str]  # address and title of a page


def title_of(notebook: Notebook) -> str:
    """The first heading."""
    return _first_cell(notebook).splitlines()[0].lstrip("# ").strip()


def says(notebook: Notebook) -> str:
    """The first paragraph below it, as Markdown."""
    paragraphs = [part.strip() for part in _first_cell(notebook).split("\n\n")]
    return next((part for part in paragraphs[1:] if part), "")


def _first_cell(notebook: Notebook) -> str:
    return str(notebook["cells"][0]["source"])


def page(notebook: Notebook, name: str, made: str, before: Turn | None = None, behind: Turn | None = None) -> str:
    """A whole document. ``name`` is that of the notebook without its ending; ``made`` says how this copy was made."""
    turns = [(turn[0], mark, turn[1]) for turn, mark in ((before, "← "), (behind, "→ ")) if turn is not None]
    body = "\n".join(_cells(notebook, f'<p class="made">{escape(made)}</p>'))
    if "plotly-graph-div" in body:  # the one script that all pages share lies beside them
        body = f'<script src="plotly.min.js"></script>{body}'
    return fill_template(
        "gallery.html.jinja", title=title_of(notebook), style=_style(), notebook=name, turns=turns, body=body
    )


def index(pages: Sequence[tuple[str, str, str]], about: str) -> str:
    """The page of pages: (name, title, what it shows as Markdown) of each."""
    cards = [(name, title, re.sub(r"</?a\b[^>]*>", "", markdown2html(text))) for name, title, text in pages]
    title = "dragin_lab: the notebooks"
    return fill_template("gallery.html.jinja", title=title, style=_style(), cards=cards, about=markdown2html(about))


def _style() -> str:
    light, dark = (HtmlFormatter(style=style).get_style_defs(".highlight") for style in (LIGHT, DARK))
    own = (HERE / "gallery.css").read_text(encoding="utf-8")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{own}"


# -- cells ------------------------------------------------------------------------------------------------------------


def _cells(notebook: Notebook, made: str) -> Iterator[str]:
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "markdown":
            html = re.sub(r'(<a href="[\w-]+)\.ipynb"', r'\1.html"', markdown2html(cell["source"]))
            yield f'<section class="prose">{html}</section>' + (made if number == 0 else "")
        elif cell["cell_type"] == "code" and cell["source"].strip():
            yield _code(cell["source"], cell["metadata"].get("tags", []))
            for output in cell["outputs"]:
                if html := _output(output):
                    yield f'<div class="out">{html}</div>'


def _code(source: str, tags: Sequence[str]) -> str:
    lines = source.count("\n") + 1
    inner = highlight(source, PythonLexer(), HtmlFormatter())
    if "parameters" in tags or "injected-parameters" in tags:
        return f'<div class="code settings">{inner}</div>'
    if lines > FOLD:
        return f'<details class="code"><summary>Code, {lines} lines</summary>{inner}</details>'
    return f'<div class="code">{inner}</div>'


def _output(output: Mapping[str, Any]) -> str:
    kind = output["output_type"]
    if kind == "stream":
        text = ansi2html(output["text"].rstrip("\n"))
        return f'<pre class="{output["name"]}">{text}</pre>'
    if kind == "error":
        return f'<pre class="failed">{ansi2html(chr(10).join(output["traceback"]))}</pre>'
    data = output["data"]
    if WIDGET in data:
        if "%|" in data.get("text/plain", ""):  # a progress bar, which says nothing when all is done
            return ""
        return f'<span class="live">{_LIVE}</span>'
    if PLOTLY in data:
        return str(pio.to_html(data[PLOTLY], full_html=False, include_plotlyjs=False, validate=False))
    if "text/html" in data:
        return _html(data["text/html"])
    if "text/markdown" in data:
        return f'<div class="markdown">{markdown2html(data["text/markdown"])}</div>'
    if "image/png" in data:
        return f'<img alt="" src="data:image/png;base64,{data["image/png"]}">'
    return f"<pre>{ansi2html(data.get('text/plain', ''))}</pre>"


def _html(html: str) -> str:
    """HTML as it is; a table of pandas loses its own style, and its columns of words stand to the left."""
    if 'class="dataframe"' not in html:
        return html
    tree = BeautifulSoup(html, "html.parser")
    for style in tree("style"):
        style.decompose()
    for table in tree("table"):
        del table["border"]
        # Counted from the right, where cells that reach over several rows are not in the way.
        rows = [row.find_all(["th", "td"])[::-1] for row in table("tr")]
        texts: dict[int, list[str]] = defaultdict(list)
        for at, cell in ((at, cell) for row in rows for at, cell in enumerate(row) if cell.name == "td"):
            texts[at].append(cell.get_text().strip())
        words = {at for at, column in texts.items() if not all(map(_NUMBER.fullmatch, column))}
        for row in rows:
            for at, cell in enumerate(row):
                if at in words and not cell.get("colspan"):
                    cell["class"] = "words"
    return f'<div class="frame">{tree}</div>'
