"""Draw docs/pictures/rooms.svg: which room of the package imports from which, read from the files.

python -m tools.pages.architecture
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import dragin_lab
from tools.pages.base import DOCS, fill_template

PACKAGE = Path(dragin_lab.__file__).parent
#: From the ground up, as `tests/test_house.py` holds them.
ROOMS = (
    "trace", "core", "triggers", "reference", "catalog", "almanac", "data", "model", "served", "retrieval", "run",
    "study", "views", "widgets", "cli",
)  # fmt: skip
PICTURE = DOCS / "pictures" / "rooms.svg"


def imports() -> Counter[tuple[str, str]]:
    """How many files of a room import from another room, type hints included."""
    found: Counter[tuple[str, str]] = Counter()
    for room in ROOMS:
        for path in (PACKAGE / room).rglob("*.py"):
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            named = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
            rooms = {parts[1] for name in named if (parts := name.split("."))[0] == "dragin_lab" and len(parts) > 1}
            found.update((room, other) for other in rooms & set(ROOMS) - {room})
    return found


def drawing() -> str:
    """The rooms as rows and columns; a cell says how many files of the row's room import from the column's."""
    lines = {
        room: sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (PACKAGE / room).rglob("*.py"))
        for room in ROOMS
    }
    return fill_template("rooms.svg.jinja", rooms=ROOMS, lines=lines, imports=imports())


def main() -> None:
    PICTURE.write_text(drawing(), encoding="utf-8")
    print(PICTURE)


if __name__ == "__main__":
    main()
