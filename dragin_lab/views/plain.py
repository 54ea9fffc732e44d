"""A page as text, for a terminal and for a notebook that drops styles, read from its HTML.

What fires stands in ⟦ ⟧, what was thrown away in ~[ ]~. Titles at the side stand in a column at the
left. What is for a screen alone is left out: legends of colour, prompts, settings, candidates.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import NamedTuple

from wcwidth import wrap

LABEL = 14  # columns of the label at the left
VOID = frozenset(("br", "meta", "img", "input"))
BLOCKS = frozenset(("dd", "details", "div", "dl", "dt", "h3", "h4", "header", "li", "ol", "p"))
BLOCKS |= frozenset(("section", "summary", "table", "tr", "ul"))
#: What is for a screen alone; like all names below, a tag, or a class after a dot.
UNSAID = frozenset((".alt", ".foot", ".gem", ".pool", ".screen", ".sp", ".vh", ".why"))
#: Titles at the side, and what has an empty line before it.
LABELS = frozenset(("dt", ".eye", "h4", ".who"))
APART = frozenset((".over", ".step"))
KEY = "⟦fires⟧  ~[thrown away]~  ◆ n: passages of step n came in"
#: What stands around an element.
AROUND = {
    ".hit": ("⟦", "⟧"),
    "del": (" ~[", "]~"),
    "sup": ("[", "]"),
    ".guess": ("", "~"),
    ".unsure": ("", "?"),
    ".chip": ("(", ")"),
    ".no": ("", ". "),
    ".tag": (" ", " "),
    "td": ("", "  "),
    "th": ("", "  "),
}
_BRACKETS = str.maketrans("[]", "⟦⟧")
#: ANSI codes; classes h1 to h9 are the levels of colour.
STYLES = {"b": "1", "h3": "1", ".hit": "1", "small": "2", ".soft": "2"}
STYLES |= {
    f".h{level}": f"48;5;{code};38;5;16"
    for level, code in enumerate((230, 229, 223, 222, 221, 215, 214, 208, 202), 1)
}


class Element(NamedTuple):
    """An open element: its tag and classes and those around it, its ANSI style, and what is
    written at its end.
    """

    own: frozenset[str]
    within: frozenset[str]
    style: str
    end: str


def page_text(html: str, *, width: int = 88, color: bool = False) -> str:
    """The inside of a page as lines of at most ``width`` columns; ``color`` sets ANSI codes."""
    reader = _PageReader(width, color)
    reader.feed(html)
    reader.close()
    return "\n".join(reader.lines).strip("\n") + "\n"


class _PageReader(HTMLParser):
    """Lays a page out while it is read."""

    def __init__(self, width: int, color: bool) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._width = width
        self._color = color
        self._open = [Element(frozenset(), frozenset(), "", "")]
        self._skipped = 0  # elements that are open and not read
        self._label = self._line = ""  # not laid out yet
        self._numbered = False  # whether the line is a number, whose text follows

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            self._write(" " * (tag == "br"))
            return
        classes = (dict(attrs).get("class") or "").split()
        own = frozenset((tag, *(f".{name}" for name in classes)))
        folded = ".part" in self._open[-1].own and tag != "summary"
        if self._skipped or folded or own & UNSAID:
            self._skipped += 1
            return
        self._begin(own)
        marks = [AROUND[name] for name in own if name in AROUND]
        style = ";".join(STYLES[name] for name in sorted(own) if name in STYLES)
        end = "".join(end for _, end in marks)
        self._open.append(Element(own, self._open[-1].within | own, style, end))
        self._write("".join(start for start, _ in marks))
        if ".legend" in own:
            self._skipped = 1
            self._label = "Marks"
            self._write(KEY)

    def _begin(self, own: frozenset[str]) -> None:
        """End what an element does not go on with."""
        if own & BLOCKS:
            self._end_line()
        if own & LABELS and self._label:
            self._lay_out()
        if own & APART and self.lines:
            self.lines.append("")

    def handle_endtag(self, tag: str) -> None:
        if self._skipped:
            self._skipped -= 1
            if self._skipped or ".legend" not in self._open[-1].own:
                return
        element = self._open[-1]
        self._write(element.end)
        self._numbered = ".no" in element.own
        if tag in BLOCKS:
            self._end_line()
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._skipped:
            return
        names = self._open[-1].within
        if ".ghost" in names:
            data = " " * min(len(data), self._width // 3)
        elif ".txt" not in names:
            data = re.sub(r"\s+", " ", data)
        if ".bracket" in names and ".tag" not in names:
            data = data.translate(_BRACKETS)
        if data.strip():
            self._numbered = False
        spaced = self._line.endswith(" ") and ".txt" not in names
        if spaced or self._line.endswith("~["):
            data = data.lstrip()
        self._write(data)

    def _write(self, text: str) -> None:
        names = self._open[-1].within
        if names & LABELS:
            self._label += text
            return
        if not self._line and ".ghost" not in names:
            text = text.lstrip()
        styles = dict.fromkeys(element.style for element in self._open if element.style)
        self._line += self._paint(text, ";".join(styles))

    def _paint(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._color and style and text.strip() else text

    def _end_line(self) -> None:
        if self._line.strip() and not self._numbered:
            self._lay_out()

    def _lay_out(self) -> None:
        """Add the label and its text, wrapped; a label that is too long has a line of its own."""
        label = " ".join(self._label.split())
        line = self._line
        self._label = self._line = ""
        *_, around, last = [self._open[0], *self._open]
        heading = "summary" in last.own and ".step" in around.own
        indent = "" if heading or ".over" in last.within else " " * LABEL
        head = indent
        if len(label) >= LABEL or not line.strip():
            self.lines.append(self._paint(label, "1"))
        elif label:
            head = self._paint(label, "1") + " " * (LABEL - len(label))
        for paragraph in line.split("\n"):
            for row in wrap(paragraph, self._width - len(indent), break_on_hyphens=False):
                self.lines.append(re.sub(r"\s+((?:\x1b\[[0-9;]*m)*)$", r"\1", head + row))
                head = indent
