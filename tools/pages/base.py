"""What the scripts of this folder share: where things are, arguments, rows on disk, figures and tables in Markdown."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from dragin_lab.run.intervals import bracket

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DOCS, RUNS, RESULTS = ROOT / "docs", ROOT / "runs", ROOT / "benchmarks" / "results"

#: The embedded model's settings by variant, chosen on development (docs/almanac.md, "Thresholds tried on development"
#: and "Formulator").
CHOSEN: dict[str, dict[str, dict[str, Any]]] = {
    "reference": {"dragin": {"threshold": 2.8, "top_n": 15}, "flare": {"threshold": 0.05}},
    "paper": {"dragin": {"threshold": 0.2, "top_n": 5}, "flare": {"threshold": 0.6}},
}

Row = dict[str, Any]


def parser(about: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the script's docstring as it stands."""
    return argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def say(text: str) -> None:
    """Print a line with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


# -- rows on disk -----------------------------------------------------------------------------------------------------


def kept_rows(path: Path, items: Sequence[Any], work: Callable[[Any], Row]) -> list[Row]:
    """One row per item: rows already in the file are read, the others computed and added to it as each is done."""
    done = _read_rows(path)
    with path.open("a", encoding="utf-8") as file:
        for item in items[len(done) :]:
            row = work(item)
            done.append(row)
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
    return done[: len(items)]


def _read_rows(path: Path) -> list[Row]:
    """The rows of a file; a last line that a kill left incomplete is removed."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]


# -- pages ------------------------------------------------------------------------------------------------------------

#: The marks around what people write on a page that a script makes.
READING = ("<!-- reading: written by hand, kept when the page is made again -->", "<!-- end of reading -->")


def keep_reading(path: Path) -> str:
    """What stands between the marks of ``READING`` in a page, with the marks; a remark where nothing does."""
    reading = "Nothing written yet."
    if path.exists() and READING[0] in (old := path.read_text(encoding="utf-8")):
        reading = old.split(READING[0])[1].split(READING[1])[0].strip()
    return "\n".join((READING[0], reading, READING[1]))


def put_between(path: Path, name: str, text: str) -> None:
    """Replace what stands between ``<!-- NAME… -->`` and ``<!-- end -->`` in a file."""
    old = path.read_text(encoding="utf-8")
    block = _find_block(old, name, path)
    path.write_text(old[: block.start(1)] + text + old[block.end(1) :], encoding="utf-8")
    print(path)


def text_between(path: Path, name: str) -> str:
    """What ``put_between`` wrote into a file."""
    return _find_block(path.read_text(encoding="utf-8"), name, path)[1]


def _find_block(text: str, name: str, path: Path) -> re.Match[str]:
    block = re.search(rf"<!-- {name}[^>]*-->\n(.*?)<!-- end -->", text, re.DOTALL)
    if block is None:
        sys.exit(f"{path} has no block <!-- {name} --> … <!-- end -->")
    return block


# -- figures and tables -----------------------------------------------------------------------------------------------


def rounded(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def bracketed(value: float, low: float, high: float, *, sign: bool = False, digits: int = 3) -> str:
    """A value and its interval."""
    if math.isnan(value):
        return "–"
    return f"{value:{'+' if sign else ''}.{digits}f} {bracket(low, high, places=digits, sign=sign)}"


def markdown_table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    head = list(head)
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in [head, ["---"] * len(head), *rows])


def _open_template(name: str) -> Template:
    environment = Environment(
        loader=FileSystemLoader([HERE, HERE.parent / "almanac"]), undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["fmt"] = format
    return environment.get_template(name)


def fill_template(name: str, **values: Any) -> str:
    """A template of this folder, or of tools/almanac, filled in. Its filter ``fmt`` is Python's ``format``."""
    return _open_template(name).render(values).rstrip() + "\n"


def fill_blocks(name: str, **values: Any) -> dict[str, str]:
    """The blocks of a template, each filled in, by their names."""
    template = _open_template(name)
    context = template.new_context(values)
    return {block: "".join(write(context)).rstrip() + "\n" for block, write in template.blocks.items()}
