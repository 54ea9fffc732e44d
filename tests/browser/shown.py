"""Every page and figure of every kind of trace that the browser tests look at, by name; no model is needed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "views")]

import factories  # noqa: E402 - it lies beside the tests
import numpy as np  # noqa: E402
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
    return Trace(Question("q", HEBREW, ("נועה כהן",)), {"name": "wo-rag"}, [kept], text, "נועה כהן", ended="answered")


def sweep() -> Any:
    """A sweep over five thresholds, with intervals."""
    frame = pd.DataFrame({"setting": "threshold", "value": [0.8, 1.0, 1.2, 1.4, 1.6], "n": 200})
    for name, values, wide in (
        ("em", [0.335, 0.34, 0.32, 0.315, 0.3], 0.06),
        ("f1", [0.44, 0.445, 0.42, 0.41, 0.4], 0.055),
        ("retrievals", [4.1, 3.6, 2.9, 2.2, 1.8], 0.3),
        ("tokens", [160.0, 149.0, 122.0, 108.0, 97.0], 9.0),
    ):
        frame[name] = values
        frame[f"{name}_low"], frame[f"{name}_high"] = frame[name] - wide, frame[name] + wide
    return frame


def sweep_of_methods() -> Any:
    """Nine methods at five costs each."""
    names = ("rind", "entropy", "margin", "probability", "every-n", "entity", "verbalized-confidence", "seakr", "uar")
    frames = [sweep().assign(method=name, em=sweep()["em"] - 0.01 * number) for number, name in enumerate(names)]
    return pd.concat(frames)


def facts(n: int = 240) -> Any:
    """Facts, known and missing, with the scores of four triggers and a clock."""
    rng = np.random.default_rng(0)
    missing = np.arange(n) % 3 == 0
    scores = {
        "rind": rng.gamma(1 + 2 * missing),
        "entropy": rng.gamma(1 + 3 * missing, 0.6),
        "probability": rng.beta(1 + 2 * missing, 2),
        "noise": rng.random(n),
        "every-n": np.arange(n) % 2.0,
    }
    return pd.DataFrame({"missing": missing} | scores)


def labelled_methods() -> list[Trace]:
    """One question, answered by several methods."""
    others = [samples.baseline_trace(name) for name in ("wo-rag", "sr-rag", "fs-rag")]
    return [*others, samples.almanac_trace()]


THETAS = {"rind": 1.2, "probability": 0.6}
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
    "sweep": lambda: views.sweep(sweep(), paper=True),
    "frontier": lambda: views.frontier(sweep_of_methods()),
    "roc": lambda: views.roc(facts(), thresholds=THETAS),
    "scores": lambda: views.scores(facts(), thresholds=THETAS),
}
#: Bad input, with words of what must stand in its place.
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "empty": (lambda: Trace(Question("q", samples.ASKED), {}), "nothing written yet"),
    "right to left": (right_to_left_trace, HEBREW),
    "hostile": (hostile_trace, "<script>document.title = 'x'</script>"),
    "hostile, compared": (lambda: views.compare([hostile_trace()] * 2), "<script>document.title = 'x'</script>"),
    "5,000 tokens": (lambda: samples.long_trace(5000), "more steps"),
}
