"""The ways through the house: which files of the package a question, a run and a figure enter, in
the order in which they do.

They are recorded by ``sys.setprofile`` while Almanac's model answers, each the second time that it
is gone: what is opened or read once for a process is no part of it. A probe is none either, which
asks an engine what it computes.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import dragin_lab as dl

PACKAGE = Path(dl.__file__).parent
QUESTION = "In which town was the director of The Ashen Rooftop born?"


class ForwardError(BaseException):
    """The model is about to compute; it ends what is recorded."""


class Ways(NamedTuple):
    """File (from the package's folder) -> what of it was called first, in the order of calls."""

    forward: dict[str, str]  # of a question, up to its first forward
    question: dict[str, str]
    run: dict[str, str]
    figure: dict[str, str]


def record(work: Callable[[], Any]) -> dict[str, str]:
    """What a call enters of the package, in this thread and in those that it starts."""
    entered: dict[str, str] = {}
    inside = str(PACKAGE) + os.sep

    def enter(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(inside):
            name = Path(file).relative_to(PACKAGE).as_posix()
            entered.setdefault(name, frame.f_code.co_qualname.partition(".<")[0])

    gc.collect()
    gc.disable()  # what is freed meanwhile would be entered
    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        work()
    except ForwardError:
        pass
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        gc.enable()
    return entered


def record_to_forward(lab: dl.Lab) -> dict[str, str]:
    """What a question enters before the model computes for the first time."""

    def stop(*_: object) -> None:
        raise ForwardError

    hook = lab.model.model.register_forward_pre_hook(stop)
    try:
        return record(lambda: lab.ask(QUESTION))
    finally:
        hook.remove()


@cache
def record_ways() -> Ways:
    """All of them, in a lab of their own."""
    lab = dl.Lab()
    trace = lab.ask(QUESTION)
    probe = lab.model.probe()
    lab.model.probe = lambda: probe
    questions = dl.benchmark("almanac/2wikimultihopqa", limit=1)
    ask = partial(lab.ask, QUESTION)

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            lab.run(questions, "dragin", output=folder, progress=False)

    run()
    trace.heatmap()
    return Ways(record_to_forward(lab), record(ask), record(run), record(trace.heatmap))
