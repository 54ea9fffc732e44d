"""How far a run is: tqdm's bar on a terminal or in a notebook, a plain line now and then
elsewhere.
"""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

from dragin_lab.text import printable

#: In a log: one line at a time, at most every 30 seconds.
_LOG = {
    "bar_format": "{desc}: {n_fmt} of {total_fmt}, {rate_fmt}, {remaining} left{postfix}\n",
    "mininterval": 30.0,
}


def _open_place() -> Any:
    """A place in a notebook's cell whose text can be exchanged; None outside of notebooks."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display({"text/plain": ""}, raw=True, display_id=True)


def _describe_bar() -> dict[str, Any]:
    # Where a terminal does not know its size, tqdm takes it for too small and shows nothing.
    columns = shutil.get_terminal_size().columns - 1
    return {"leave": False, "ncols": max(40, min(100, columns)), "nrows": 24}


# In a notebook, standard error is pink, and tqdm.auto would leave an empty control in one that is
# opened without a kernel.
class Progress(tqdm):
    """Counts episodes; shows how many are done, how fast, how long it will still take, and the
    exact match so far.

    ``earlier`` are the lines of the episodes that were finished before: they count in everything
    but the rate.
    """

    def __init__(self, name: str, total: int, earlier: Iterable[dict[str, Any]] = ()) -> None:
        self._scored = 0
        self._exact = 0.0
        self._failed = 0
        initial = sum(self._add_up(line) for line in earlier)
        self._place = _open_place()
        # services have no standard error, or one of their own
        is_terminal = getattr(sys.stderr, "isatty", lambda: False)
        look = _describe_bar() if self._place or is_terminal() else _LOG
        super().__init__(
            desc=printable(name),
            total=total,
            postfix=self._list_scores(),
            initial=initial,
            unit="q",
            smoothing=0,  # the rate of the whole run is steadier than that of its last questions
            disable=sys.stderr is None,
            file=None if self._place is None else io.StringIO(),
            **look,
        )

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draw the bar, or ``msg``."""
        if self._place is None:
            super().display(msg, pos)
        else:
            text = str(self) if msg is None else msg
            self._place.update({"text/plain": text}, raw=True)

    def add(self, line: dict[str, Any]) -> None:
        """An episode has ended; its prediction line."""
        self._add_up(line)
        self.set_postfix(self._list_scores(), refresh=False)
        self.update()

    def close(self) -> None:
        """The bar of a run in which questions failed stays."""
        self.leave = self.leave or self._failed > 0  # type: ignore[has-type]  # of tqdm
        super().close()

    def _add_up(self, line: dict[str, Any]) -> int:
        self._failed += line["ended"] == "error"
        self._scored += line["em"] is not None
        self._exact += line["em"] or 0.0
        return 1

    def _list_scores(self) -> dict[str, str]:
        scores = {"EM": f"{self._exact / self._scored:.3f}"} if self._scored else {}
        return scores | ({"failed": str(self._failed)} if self._failed else {})
