"""What pages and notebooks tell a person to type is there: commands with their options, and
files.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from dragin_lab.cli.app import cli

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted(path for path in DOCS.rglob("*.md") if "results" not in path.parts),
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
]


def written(path: Path) -> str:
    """The text of a page, or of a notebook's cells."""
    text = path.read_text(encoding="utf-8")
    return (
        "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
        if path.suffix == ".ipynb"
        else text
    )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_of_a_page_have_the_options_that_it_names(path: Path) -> None:
    for line in re.findall(r"dragin-lab ([a-z][^`\n|]*)", written(path)):
        command: Any = cli
        words = shlex.split(line.split("'", 1)[0] if line.count("'") % 2 else line, comments=True)
        while words and words[0] in getattr(command, "commands", ()):
            command = command.commands[words.pop(0)]
        known = {
            name for param in command.params for name in (*param.opts, *param.secondary_opts)
        } | {"--help"}
        assert command is not cli, f"dragin-lab {line}"
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known, (
            f"dragin-lab {line}"
        )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_that_a_page_names_are_there(path: Path) -> None:
    named = re.findall(
        r"`((?:docs|notebooks|corpora|dragin_lab|tests|benchmarks|tools)/[\w./-]+\.\w+)`",
        written(path),
    )
    assert [name for name in named if not (ROOT / name).exists()] == []
