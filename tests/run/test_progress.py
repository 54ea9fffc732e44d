"""Progress of a run: plain lines with rate, time left and exact match; a bar on a terminal."""

from __future__ import annotations

import io
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dragin_lab.progress import Progress


def line(em: float | None = 1.0, ended: str = "answered") -> dict[str, Any]:
    return {"em": em, "ended": ended}


def test_a_log_gets_a_line_at_the_beginning_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    with Progress("d dragin", 10, [line(0.0)]) as progress:
        for _ in range(5):
            progress.add(line())
        progress.add(line(None, "error"))
    first, *_, last = filter(None, log.getvalue().split("\n"))
    assert re.search(r"d dragin: 1 of 10, \S+, \? left", first)
    assert re.search(r"d dragin: 7 of 10, .*EM=0.833, failed=1$", last)


def test_a_terminal_gets_a_bar_that_counts_the_rate_of_this_session_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := io.StringIO())
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    progress = Progress("d", 4, [line(0.0), line(0.0)])
    progress.add(line())
    progress.refresh()
    assert progress.initial == 2
    shown = terminal.getvalue().rpartition("\r")[2]
    assert "3/4" in shown
    assert "EM=0.333" in shown
    progress.close()
    assert "\n" not in terminal.getvalue()


class Console:
    """One without ``isatty``, as programs with windows have it."""

    text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("stream", [None, Console()])
def test_a_service_has_no_standard_error_or_one_that_gets_lines(
    stream: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress("a", 1) as progress:
        progress.add({"ended": "answered", "em": 1.0})
    assert progress.total == 1
    assert stream is None or re.search(r"a: 1 of 1, .*EM=1", stream.text)


def test_a_notebook_gets_a_bar_in_the_cell_and_nothing_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []

    class Place:
        def update(self, data: dict[str, str], *, raw: bool) -> None:
            assert raw
            shown.append(data["text/plain"])

    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=1))
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: Place())
    with Progress("d", 2) as progress:
        progress.add(line())
        progress.refresh()
    assert "1/2" in shown[-2]
    assert shown[-1] == "", "the bar goes at its end"
    assert capsys.readouterr().err == ""
