"""What MkDocs calls while it builds the site: the two pages that are written from the code itself.

``reference/python.md`` gets every public name and ``reference/command-line.md`` every command, in place of the line
``<!-- written from the code -->``, so that neither can forget one.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

import rich_click as click

import dragin_lab
from dragin_lab import views
from dragin_lab.cli import cli

HERE = "<!-- written from the code -->"
#: What stands under which heading: rooms of the package.
HEADINGS = {
    "run": "Ask",
    "core": "Methods, prompts and traces",
    "model": "Models and capture",
    "retrieval": "Passages",
    "data": "Benchmarks and published settings",
    "study": "Results",
    "widgets": "Live controls",
    "root": "Errors",
}


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """MkDocs' hook: a page's Markdown before it becomes HTML."""
    made = {"reference/python.md": _names, "reference/command-line.md": _commands}.get(page.file.src_uri)
    return markdown if made is None else markdown.replace(HERE, "\n".join(made()))


def _names() -> Iterator[str]:
    """Each public name under its room's heading, for mkdocstrings to describe."""
    for room, heading in HEADINGS.items():
        yield f"## {heading}\n"
        for name in dragin_lab.__all__:
            if _room(name) == room:
                yield from _described(f"dragin_lab.{dragin_lab._WHERE[name]}.{name}", f"dl.{name}")
    yield "## Views\n"
    for name in views.__all__:
        yield from _described(f"{getattr(views, name).__module__}.{name}", f"views.{name}")


def _room(name: str) -> str:
    room, dot, _ = dragin_lab._WHERE[name].partition(".")
    return room if dot or room in HEADINGS else "root"


def _described(path: str, called: str) -> Iterator[str]:
    yield f"::: {path}\n    options:\n      heading: {called}\n      toc_label: {called}\n"


def _commands() -> Iterator[str]:
    """Each command with its help and its options."""
    context = click.Context(cli, info_name="dragin-lab")
    for name, command in sorted(cli.commands.items()):
        inner = getattr(command, "commands", None)
        for words, one in [(f"{name} {sub}", c) for sub, c in sorted(inner.items())] if inner else [(name, command)]:
            yield from _command(f"dragin-lab {words}", one, context)


def _command(called: str, command: click.Command, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=called.removeprefix("dragin-lab "), parent=parent)
    usage = " ".join([called, *command.collect_usage_pieces(context)])
    yield f"## {called}\n\n```\n{usage}\n```\n\n{cleandoc(command.help or '')}\n\n| option | |\n|---|---|"
    for option in command.get_params(context):
        if (record := option.get_help_record(context)) is not None:
            names, said = (part.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ") for part in record)
            yield f"| `{names}` | {said} |"
    yield ""
