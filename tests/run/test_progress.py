"""Progress of a run: plain lines with rate, time left and exact match; a bar on a terminal."""

from __future__ import annotations

import io
from itertools import count
from typing import Any

import pytest

from dragin_lab.progress import Progress


def line(em: float | None = 1.0, ended: str = "answered") -> dict[str, Any]:
    return {"em": em, "ended": ended}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_plain_lines_come_now_and_then_and_at_the_end() -> None:
    file, clock = io.StringIO(), Clock()
    with Progress("d dragin", 10, [line(0.0)], file=file, clock=clock) as progress:
        for _ in range(5):
            clock.now += 10
            progress.add(line())
        assert file.getvalue().splitlines() == ["d dragin: 4 of 10, 0.10 a second, 01:00 left, EM 0.750"]
        progress.add(line(None, "error"))
    assert file.getvalue().splitlines()[1:] == ["d dragin: 7 of 10, 0.12 a second, 00:25 left, EM 0.833, failed 1"]


def test_rate_and_time_left_are_said_where_there_are_any() -> None:
    clock = Clock()
    progress = Progress("d", 3, file=io.StringIO(), clock=clock)
    assert str(progress) == "d: 0 of 3"
    clock.now = 40
    progress.add(line(0.0))
    assert str(progress) == "d: 1 of 3, 40 seconds each, 01:20 left, EM 0.000"
    progress.add(line(None))
    progress.add(line(None))
    assert "left" not in str(progress)


def test_a_terminal_gets_a_bar_that_counts_the_rate_of_this_session_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    times = count(step=10.0)
    monkeypatch.setattr("tqdm.std.tqdm._time", lambda self: next(times), raising=False)
    file = Terminal()
    progress = Progress("d", 4, [line(0.0), line(0.0)], file=file)
    progress.add(line())
    progress._bar.refresh()  # type: ignore[union-attr]
    assert progress._bar.initial == 2  # type: ignore[union-attr]
    shown = file.getvalue().rpartition("\r")[2]
    assert "3/4" in shown
    assert "EM=0.333" in shown
    progress.close()
    assert "\n" not in file.getvalue()
