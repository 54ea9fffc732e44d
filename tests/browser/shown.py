"""Every page and figure of every kind of trace that the browser tests look at, by name; no model
is needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "views")]

import factories  # noqa: E402 - it lies beside the tests
import pandas as pd  # noqa: E402
import view_samples as samples  # noqa: E402
from view_samples import hostile_trace  # noqa: E402

from dragin_lab import views  # noqa: E402
from dragin_lab.trace.trace import Question, Step, Trace  # noqa: E402

HEBREW = "מי ביים את הסרט שלום 👩‍🚀 לעולם?"


def right_to_left_trace() -> Trace:
    """A text that runs from right to left and holds an emoji of several characters."""
    text = "הסרט בוים בידי נועה 👩‍🚀 כהן. התשובה היא נועה כהן."
    made = samples.make(text)
    kept = Step(0, draft=made, kept=text)
    return Trace(
        Question("q", HEBREW, ("נועה כהן",)),
        {"name": "wo-rag"},
        [kept],
        text,
        "נועה כהן",
        ended="answered",
    )


def sweep_of_methods() -> Any:
    """Nine methods at three costs each."""
    names = (
        "rind",
        "entropy",
        "margin",
        "probability",
        "every-n",
        "entity",
        "verbalized-confidence",
        "seakr",
        "uar",
    )
    one = samples.sweep_table()
    return pd.concat(
        [one.assign(method=name, em=one["em"] - 0.01 * at) for at, name in enumerate(names)]
    )


def labelled_methods() -> list[Trace]:
    """One question, answered by several methods."""
    others = [samples.baseline_trace(name) for name in ("wo-rag", "sr-rag", "fs-rag")]
    return [*others, samples.almanac_trace()]


#: The pages.
CARDS: dict[str, Callable[[], Any]] = {
    "trace": samples.almanac_trace,
    "trace, paper variant": lambda: samples.almanac_trace("paper"),
    "overview": lambda: samples.almanac_trace().overview(),
    "overview, paper variant": lambda: samples.almanac_trace("paper").overview(),
    "comparison": lambda: views.compare(labelled_methods()),
}
#: The figures.
FIGURES: dict[str, Callable[[], Any]] = {
    "heatmap": lambda: views.heatmap(samples.almanac_trace("paper")),
    "heatmap, reference variant": lambda: views.heatmap(samples.almanac_trace()),
    "selections": lambda: views.selections(samples.almanac_trace("paper")),
    "attention": lambda: views.attention(factories.make_trace()),
    "sweep": lambda: views.sweep(samples.sweep_table(), paper=True),
    "frontier": lambda: views.frontier(sweep_of_methods()),
}
#: Bad input, with words of what must stand in its place.
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "empty": (lambda: Trace(Question("q", samples.ASKED), {}), "nothing written yet"),
    "right to left": (right_to_left_trace, HEBREW),
    "hostile": (hostile_trace, "<script>document.title = 'x'</script>"),
    "hostile, compared": (
        lambda: views.compare([hostile_trace()] * 2),
        "<script>document.title = 'x'</script>",
    ),
    "5,000 tokens": (lambda: samples.long_trace(5000), "more steps"),
}
