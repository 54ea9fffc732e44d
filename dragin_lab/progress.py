"""How far a run is: tqdm's bar on a terminal or in a notebook, a plain line now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

from dragin_lab.text import printable

#: Of a log: a line of its own each time, and seconds between two.
_LOG = {"bar_format": "{desc}: {n_fmt} of {total_fmt}, {rate_fmt}, {remaining} left{postfix}\n", "mininterval": 30.0}


class Progress(tqdm):  # tqdm.auto would leave an empty control in a notebook that is opened without a kernel
    """Counts episodes; shows how many are done, how fast, how long it will still take, and the exact match so far.

    ``earlier`` are the lines of the episodes that were finished before: they count in everything but the rate.
    """

    def __init__(self, name: str, total: int, earlier: Iterable[dict[str, Any]] = ()) -> None:
        self._lines = list(earlier)
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        # Where a terminal does not know its size, tqdm takes it for too small and shows nothing.
        bar = {"leave": False, "ncols": shutil.get_terminal_size().columns - 1, "nrows": 24}
        live = sys.stderr.isatty() or hasattr(shell, "kernel")
        # The rate of the whole run is steadier than that of its last questions.
        shape = {"initial": len(self._lines), "unit": "q", "smoothing": 0} | (bar if live else _LOG)
        super().__init__(desc=printable(name), total=total, **shape)

    def add(self, line: dict[str, Any]) -> None:
        """An episode has ended; its prediction line."""
        self._lines.append(line)
        exact = [line["em"] for line in self._lines if line["em"] is not None]
        failed = sum(line["ended"] == "error" for line in self._lines)
        scores = {"EM": f"{sum(exact) / len(exact):.3f}"} if exact else {}
        self.set_postfix(scores | ({"failed": str(failed)} if failed else {}), refresh=False)
        self.update()
