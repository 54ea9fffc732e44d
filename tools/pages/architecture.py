"""Draw docs/pictures/rooms.svg: which room of the package imports from which, read from the files.

python -m tools.pages.architecture
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import dragin_lab
from tools.pages.base import DOCS

PACKAGE = Path(dragin_lab.__file__).parent
#: From the ground up, as `tests/test_house.py` holds them.
ROOMS = (
    "trace", "core", "triggers", "reference", "catalog", "almanac", "data", "model", "served", "retrieval", "run",
    "study", "views", "widgets", "cli",
)  # fmt: skip
PICTURE = DOCS / "pictures" / "rooms.svg"
CELL, LEFT, TOP = 44, 190, 96

STYLE = """
:root { color-scheme: light dark }
svg { font: 15px system-ui, sans-serif; background: light-dark(#fff, #15161a) }
text { fill: light-dark(#1f1d1a, #e9e6e1) } .small { font-size: 13px; fill: light-dark(#57524b, #b5afa6) }
.room { fill: light-dark(#eef1f7, #23262e) } .never { fill: light-dark(#f6f4ef, #1b1c20) }
.some { fill: light-dark(#c9d4ee, #33415f) } .count { text-anchor: middle }
"""


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


def lines_of(room: str) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (PACKAGE / room).rglob("*.py"))


def drawing() -> str:
    """The rooms as rows and columns; a cell says how many files of the row's room import from the column's."""
    found, parts = imports(), []
    width, height = LEFT + CELL * len(ROOMS) + 16, TOP + CELL * len(ROOMS) + 40

    def text(x: float, y: float, said: object, kind: str = "", turn: str = "") -> None:
        parts.append(f'<text x="{x}" y="{y}" class="{kind}"{turn}>{said}</text>')

    def box(x: float, y: float, wide: float, kind: str) -> None:
        parts.append(f'<rect x="{x}" y="{y}" width="{wide}" height="{CELL - 4}" rx="4" class="{kind}"/>')

    for row, room in enumerate(ROOMS):
        y = TOP + CELL * row
        box(8, y, LEFT - 16, "room")
        text(18, y + 26, room)
        text(96, y + 26, f"{lines_of(room):,} lines", "small")
        x = LEFT + CELL * row + CELL / 2
        text(x, TOP - 12, room, "", f' transform="rotate(-50 {x} {TOP - 12})"')
        for column, other in enumerate(ROOMS[:row]):
            count = found[room, other]
            box(LEFT + CELL * column, y, CELL - 4, "some" if count else "never")
            if count:
                text(LEFT + CELL * column + CELL / 2 - 2, y + 26, count, "count")
    text(8, height - 12, "Each number: files of the row’s room that import from the column’s room.", "small")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-label="The rooms of the package; each imports only from rooms above it">'
        f"<style>{STYLE}</style>{''.join(parts)}</svg>\n"
    )


def main() -> None:
    PICTURE.write_text(drawing(), encoding="utf-8")
    print(PICTURE)


if __name__ == "__main__":
    main()
