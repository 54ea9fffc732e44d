"""How far a run is: a bar on a terminal or in a notebook, plain lines elsewhere, so that a log file can be read."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from dragin_lab.text import printable

#: Seconds between two plain lines.
EVERY = 30.0


def in_notebook() -> bool:
    """Whether this process runs the cells of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


class Progress:
    """Counts episodes; shows how many are done, how fast, how long it will still take, and the exact match so far.

    ``earlier`` are the lines of the episodes that were finished before: they count in everything but the rate.
    """

    def __init__(
        self,
        name: str,
        total: int,
        earlier: Iterable[dict[str, Any]] = (),
        *,
        file: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.total = printable(name), total
        self.done = self.made = self.failed = 0
        self._exact: list[float] = []
        for line in earlier:
            self._count(line)
        self._file = file or sys.stderr
        self._clock = clock
        self._begun = self._said = clock()
        live = self._file.isatty() or (file is None and in_notebook())
        # Where a terminal does not know its size, tqdm takes it for too small and shows nothing.
        shape: Any = {"ncols": max(40, min(100, shutil.get_terminal_size((100, 24)).columns - 1)), "nrows": 24}
        self._bar = _bar(desc=self.name, total=total, initial=self.done, file=self._file, **shape) if live else None
        self._show_scores()

    def add(self, line: dict[str, Any]) -> None:
        """An episode has ended; its prediction line."""
        self._count(line)
        self.made += 1
        if self._bar is not None:
            self._show_scores()
            self._bar.update()
        elif self._clock() - self._said >= EVERY:
            self._say()

    def close(self) -> None:
        """Take the bar away, or print the last line."""
        if self._bar is not None:
            self._bar.close()
        else:
            self._say()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        parts = [f"{self.done} of {self.total}"]
        if self.made:
            rate = self.made / max(self._clock() - self._begun, 1e-9)
            parts.append(f"{rate:.2f} a second" if rate >= 0.1 else f"{1 / rate:.0f} seconds each")
            if self.done < self.total:
                parts.append(f"{_interval((self.total - self.done) / rate)} left")
        return f"{self.name}: " + ", ".join(parts + [f"{k} {v}" for k, v in self._scores().items()])

    def _count(self, line: dict[str, Any]) -> None:
        self.done += 1
        self.failed += line["ended"] == "error"
        if line["em"] is not None:
            self._exact.append(line["em"])

    def _scores(self) -> dict[str, str]:
        notes = {"EM": f"{sum(self._exact) / len(self._exact):.3f}"} if self._exact else {}
        return notes | ({"failed": str(self.failed)} if self.failed else {})

    def _show_scores(self) -> None:
        if self._bar is not None:
            self._bar.set_postfix(self._scores(), refresh=False)

    def _say(self) -> None:
        self._said = self._clock()
        print(self, file=self._file, flush=True)


def _bar(**options: Any) -> Any:
    from tqdm import tqdm

    return tqdm(unit="q", leave=False, smoothing=0, **options)  # an estimate by the whole run is steady


def _interval(seconds: float) -> str:
    """Minutes and seconds, as the bar writes them."""
    from tqdm import tqdm

    return str(tqdm.format_interval(seconds))
