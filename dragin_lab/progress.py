"""How far a run is: tqdm's bar on a terminal or in a notebook, a plain line now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from typing import Any

from dragin_lab.text import printable

EVERY = 30.0  # seconds between two plain lines
_LINE = "{desc}: {n_fmt} of {total_fmt}, {rate_fmt}, {remaining} left{postfix}\n"


class Progress:
    """Counts episodes; shows how many are done, how fast, how long it will still take, and the exact match so far.

    ``earlier`` are the lines of the episodes that were finished before: they count in everything but the rate.
    """

    def __init__(self, name: str, total: int, earlier: Iterable[dict[str, Any]] = ()) -> None:
        from tqdm import tqdm  # tqdm.auto would leave an empty control in a notebook that is opened without a kernel

        self._exact: list[float] = []
        self._failed = 0
        initial = sum(self._count(line) for line in earlier)
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        live = sys.stderr.isatty() or hasattr(shell, "kernel")
        # Where a terminal does not know its size, tqdm takes it for too small and shows nothing.
        columns = max(40, min(100, shutil.get_terminal_size((100, 24)).columns - 1))
        bar: dict[str, Any] = {"leave": False, "ncols": columns, "nrows": 24}
        shape = bar if live else {"bar_format": _LINE, "mininterval": EVERY}
        # The rate of the whole run is steadier than that of its last questions.
        self._bar = tqdm(desc=printable(name), total=total, initial=initial, unit="q", smoothing=0, **shape)
        self._bar.set_postfix(self._scores, refresh=False)

    def add(self, line: dict[str, Any]) -> None:
        """An episode has ended; its prediction line."""
        self._count(line)
        self._bar.set_postfix(self._scores, refresh=False)
        self._bar.update()

    def close(self) -> None:
        """Take the bar away, or print the last line."""
        self._bar.close()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _count(self, line: dict[str, Any]) -> int:
        self._failed += line["ended"] == "error"
        self._exact += [] if line["em"] is None else [line["em"]]
        return 1

    @property
    def _scores(self) -> dict[str, str]:
        scores = {"EM": f"{sum(self._exact) / len(self._exact):.3f}"} if self._exact else {}
        return scores | ({"failed": str(self._failed)} if self._failed else {})
