"""``compare``: two traces of one question, sentence under sentence, and what differs in their records."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from dragin_lab.checks import several, shown
from dragin_lab.errors import SettingError, TraceFileError
from dragin_lab.trace.trace import Trace
from dragin_lab.views.frame import View, make_message, open_trace
from dragin_lab.views.html import clip, printable
from dragin_lab.views.methods import comparison_card, names_of, side_by_side
from dragin_lab.widgets.base import Card, load_script, load_style

LINES = 200  # of differences
CHARS = 300  # of a value


class Compare(Card):
    """The widget; ``diff`` is the text of ``Trace.diff``."""

    _esm = load_script("comparing")
    _css = load_style("methods")

    def __init__(self, a: Trace | str | Path, b: Trace | str | Path, *, labels: tuple[str, str] | None = None) -> None:
        self.diff = ""
        if labels is not None and len(several("labels", labels, str, "give two texts")) != 2:
            raise SettingError(f"labels={shown(labels)}: give two texts, one for each trace")
        try:
            traces = [open_trace(a), open_trace(b)]
        except TraceFileError as error:
            data: dict[str, Any] = {"error": str(error)}
            self._static = partial(make_message, "compare", str(error))
        else:
            names = list(labels) if labels is not None else names_of(traces)
            if names[0] == names[1]:
                names = [f"{names[0]} (a)", f"{names[1]} (b)"]
            self._static = partial(side_by_side, traces, labels=names)
            self.diff = Trace.diff(*traces)
            data = {
                "error": "",
                "html": comparison_card(traces, names),
                "a": printable(names[0]),
                "b": printable(names[1]),
                "lines": difference_rows(self.diff),
            }
        super().__init__(data=data)

    def static(self) -> View:
        return self._static()


def difference_rows(diff: str) -> list[list[str]]:
    """The lines of ``Trace.diff`` as rows: where, in the first trace, in the second."""
    lines = diff.splitlines()
    rows = []
    for line in lines[:LINES]:
        where, _, rest = printable(line).partition(": ")
        before, _, after = rest.partition(" → ")
        rows.append([where, *(" ".join(filter(None, clip(value, CHARS))) for value in (before, after))])
    return rows + [[f"… {len(lines) - LINES} more", "a.diff(b) has them all", ""]] * (len(lines) > LINES)
