"""What MkDocs calls while it builds the site: two pages are written from the code, and every
address is followed.

``reference/python.md`` gets every public name and ``reference/command-line.md`` every command, in
place of the line ``<!-- written from the code -->``, so that neither can forget one. MkDocs checks
the links it makes from Markdown only; ``on_post_build`` reads the pages as a browser does, raw HTML
included. The notebooks are pages too (mkdocs-jupyter).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from html import escape
from html.parser import HTMLParser
from inspect import cleandoc
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import nbformat
import rich_click as click
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

import dragin_lab
from dragin_lab import views
from dragin_lab.cli.app import cli

#: MkDocs counts its warnings, and ``--strict`` fails on one.
log = logging.getLogger("mkdocs.hooks.site")

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
VIEWS = "dragin_lab.views."
#: What nbconvert writes at a picture instead.
UNNAMED = 'alt="No description has been provided for this image"'
HERE = "<!-- written from the code -->"
#: What stands under which heading, by what a user does.
HEADINGS = {
    "Ask": "Lab Question benchmark Cluster",
    "Choose a method": "method methods",
    "Look at an episode": "Trace Draft Passage Branches page compare",
    "Ask what would have been": "Replay Sweep Curve tune explore",
    "See what was used": "Attribution",
    "Compare runs": "Runs table browse",
    "Define your own trigger, query, loop and prompt": (
        "when what Trigger Formulator Gap Loop Call Exemplar PromptTemplate"
    ),
    "Bring your model and passages": "LanguageModel capture BM25 Corpus",
    "Catch what goes wrong": "DraginLabError",
}


@event_priority(100)  # before mkdocs-jupyter looks for notebooks
def on_files(files: Any, config: Any) -> None:
    """MkDocs' hook: the notebooks, which lie beside docs/, are pages of the site."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        files.append(
            File(
                f"notebooks/{path.name}",
                str(NOTEBOOKS.parent),
                config["site_dir"],
                use_directory_urls=False,
            )
        )


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """MkDocs' hook: a notebook leads to others by the names of their files, and says what is on its
    pictures.
    """
    html = re.sub(r'href="(\w+)\.ipynb"', r'href="\1.html"', html)
    if page.file.src_uri.endswith(".ipynb"):
        titles = iter(_read_titles(Path(page.file.abs_src_path)))
        html = re.sub(UNNAMED, lambda _: f'alt="{escape(next(titles))}"', html)
    return html


def _read_titles(notebook: Path) -> Iterator[str]:
    """What is on each picture of a notebook, which the template "lab" of nbconvert leaves out."""
    for cell in nbformat.read(notebook, as_version=4).cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", ()):
                yield output.metadata.get("image/png", {}).get("alt", "")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """MkDocs' hook: a page's Markdown before it becomes HTML."""
    made = {"reference/python.md": _names, "reference/command-line.md": _commands}.get(
        page.file.src_uri
    )
    # where they lie in the repository, and here
    markdown = markdown.replace("](../notebooks/", "](notebooks/")
    return markdown if made is None else markdown.replace(HERE, "\n".join(made()))


def on_post_build(config: Any, **_: Any) -> None:
    """MkDocs' hook: warn of each address in a built page that leads to no file of the site, or
    to no id of a page.
    """
    site = Path(config["site_dir"])
    pages = {path: _Addresses(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        for address in page.addresses:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            folder = site if parts.path.startswith("/") else path.parent
            target = (folder / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                log.warning("%s: %r leads to no file of the site", path.relative_to(site), address)
            elif target in pages and not {parts.fragment, unquote(parts.fragment)} & {
                "",
                *pages[target].ids,
            }:
                log.warning("%s: %r leads to no id of that page", path.relative_to(site), address)


class _Addresses(HTMLParser):
    """The addresses in a page, and the ids that others can lead to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.addresses: set[str] = set()
        self.ids: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.addresses.add(value)
            elif name == "srcset" and value:
                self.addresses.update(one.split()[0] for one in value.split(","))


def _names() -> Iterator[str]:
    """Each public name under its heading, for mkdocstrings to describe; what the views draw of a
    class stands after it.
    """
    for heading, names in HEADINGS.items():
        yield f"## {heading}\n"
        for name in names.split():
            yield from _described(f"dragin_lab.{dragin_lab._WHERE[name]}.{name}", f"dl.{name}")
            for drawn, function in _drawn(getattr(dragin_lab, name)):
                path = f"{function.__module__}.{function.__name__}"
                yield from _described(path, f"dl.{name}.{drawn}")
    yield "## Figures and pages\n"
    for name in views.__all__:
        yield from _described(f"{getattr(views, name).__module__}.{name}", f"views.{name}")


def _drawn(kind: Any) -> Iterator[tuple[str, Any]]:
    """The public methods of a class that stand in the views."""
    for name in sorted(vars(kind)) if isinstance(kind, type) else ():
        function = getattr(kind, name)
        if not name.startswith("_") and (getattr(function, "__module__", None) or "").startswith(
            VIEWS
        ):
            yield name, function


def _described(path: str, called: str) -> Iterator[str]:
    yield f"::: {path}\n    options:\n      heading: {called}\n      toc_label: {called}\n"


def _commands() -> Iterator[str]:
    """Each command with its help and its options."""
    context = click.Context(cli, info_name="dragin-lab")
    for name, command in sorted(cli.commands.items()):
        inner = getattr(command, "commands", None)
        for words, one in (
            [(f"{name} {sub}", c) for sub, c in sorted(inner.items())]
            if inner
            else [(name, command)]
        ):
            yield from _command(f"dragin-lab {words}", one, context)


def _command(called: str, command: click.Command, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=called.removeprefix("dragin-lab "), parent=parent)
    usage = " ".join([called, *command.collect_usage_pieces(context)])
    yield (
        f"## {called}\n\n```\n{usage}\n```\n\n{cleandoc(command.help or '')}\n\n| option |"
        " |\n|---|---|"
    )
    for option in command.get_params(context):
        if (record := option.get_help_record(context)) is not None:
            names, said = (
                part.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ") for part in record
            )
            yield f"| `{names}` | {said} |"
    yield ""
