"""An interrupt at any line leaves the lab answering as before, with its cache or without one."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

from given import DrawnModel, DrawnRetriever, some
from hypothesis import given
from hypothesis import strategies as st
from scripted import Say

import dragin_lab as dl

PACKAGE = str(Path(dl.__file__).parent)
QUESTION = "Who made the thing?"


class At:
    """Raises KeyboardInterrupt when so many lines of the package have run; ``count`` is how many
    did.
    """

    def __init__(self, line: int | None = None) -> None:
        self.line, self.count = line, 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE) or frame.f_code.co_name == "__del__":
            return None
        self.count += event == "line"
        if self.count == self.line:
            sys.settrace(None)
            raise KeyboardInterrupt
        return self

    def __enter__(self) -> At:
        self.before = sys.gettrace()
        sys.settrace(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.before)


def lab(cache: bool) -> dl.Lab:
    says = Say(
        " It is by Bo Ek. So the answer is Bo Ek.", entropy={"Bo": 9.0}, received={"Bo": 0.5}
    )
    return dl.Lab(
        DrawnModel([says], {}, "▁"),
        retriever=DrawnRetriever("A film.", "A town."),
        cache=cache or None,
    )


def read(trace: dl.Trace) -> tuple[Any, ...]:
    return (
        trace.text,
        trace.answer,
        trace.queries,
        trace.ended,
        [(s.kept, s.discarded, s.answer) for s in trace.steps],
    )


RIGHT = {name: read(lab(False).ask(QUESTION, name)) for name in ("sr-rag", "dragin")}


def lines(name: str, cache: bool) -> int:
    with At() as ran:
        lab(cache).ask(QUESTION, name)
    return ran.count


@some(8)
@given(st.sampled_from(sorted(RIGHT)), st.booleans(), st.floats(0, 1))
def test_an_interrupt_leaves_the_lab_as_it_was(name: str, cache: bool, share: float) -> None:
    asking, interrupted = lab(cache), False
    try:
        with At(max(1, int(share * LINES[name, cache]))):
            asking.ask(QUESTION, name)
    except KeyboardInterrupt:
        interrupted = True
    assert interrupted or share > 0.5
    for _ in range(2):
        assert read(asking.ask(QUESTION, name)) == RIGHT[name]


LINES = {(name, cache): lines(name, cache) for name in RIGHT for cache in (False, True)}
