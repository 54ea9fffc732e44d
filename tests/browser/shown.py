"""Every view of every kind of trace that the browser tests look at, by name; no model is needed.

The kernels of the JupyterLab under test import it too.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "views")]

import factories  # noqa: E402 - it lies beside the tests
import numpy as np  # noqa: E402
import view_samples as samples  # noqa: E402
from view_states import STATES, hostile_trace  # noqa: E402

from dragin_lab import views  # noqa: E402
from dragin_lab.catalog.methods import method  # noqa: E402
from dragin_lab.study.needs import Item  # noqa: E402
from dragin_lab.trace.trace import Passage, Question, Step, Trace  # noqa: E402
from dragin_lab.triggers.logistic import define  # noqa: E402

#: What the page of a script that ran would be called.
RAN = "a script ran"
SCRIPT = f"<script>document.title = '{RAN}'</script><img src=x onerror=\"document.title = '{RAN}'\">"
HEBREW = "מי ביים את הסרט שלום 👩‍🚀 לעולם?"


def script_trace() -> Trace:
    """An episode whose question, texts and passages hold scripts."""
    trace = samples.almanac_trace()
    trace.question = Question("q", f"Who made {SCRIPT}?", (SCRIPT,))
    trace.answer = SCRIPT
    for step in trace.steps:
        step.passages = tuple(Passage(SCRIPT, SCRIPT, f"{p.text} {SCRIPT}", p.score) for p in step.passages)
        step.notes.append(SCRIPT)
    return trace


def right_to_left_trace() -> Trace:
    """A text that runs from right to left and holds an emoji of several characters."""
    text = "הסרט בוים בידי נועה 👩‍🚀 כהן. התשובה היא נועה כהן."
    made = samples.make(text)
    kept = Step(0, draft=made, kept=text)
    return Trace(Question("q", HEBREW, ("נועה כהן",)), {"name": "wo-rag"}, [kept], text, "נועה כהן", ended="answered")


def empty_trace() -> Trace:
    """An episode that has not begun."""
    return Trace(Question("q", samples.ASKED), {})


def file_of(data: bytes) -> Path:
    """A file with these bytes."""
    with tempfile.NamedTemporaryFile(suffix=".trace", delete=False) as file:
        file.write(data)
    return Path(file.name)


def cut_file() -> Path:
    """A trace file whose end is missing."""
    path = samples.almanac_trace().save(file_of(b""))
    path.write_bytes(path.read_bytes()[:-100])
    return path


def newer_file() -> Path:
    """A trace file that a later version wrote."""
    path = samples.almanac_trace().save(file_of(b""))
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"version":"3"', b'"version":"9"', 1))
    assert path.read_bytes() != data
    return path


def sweep() -> Any:
    """A sweep over five thresholds, with intervals."""
    import pandas as pd

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


def paper_sweep() -> Any:
    """The paper's Table 5."""
    from dragin_lab.data.paper import load

    return load(5)


def sweep_of_methods() -> Any:
    """Nine methods at five costs each."""
    import pandas as pd

    names = ("rind", "entropy", "margin", "probability", "every-n", "fitted", "verbalized-confidence", "seakr", "uar")
    frames = [sweep().assign(method=name, em=sweep()["em"] - 0.01 * number) for number, name in enumerate(names)]
    return pd.concat(frames)


def items(n: int = 240) -> list[Item]:
    """Facts, known and missing, with the scores of four triggers and a clock."""
    rng = np.random.default_rng(0)
    out = []
    for i in range(n):
        missing = i % 3 == 0
        scores = {
            "rind": float(rng.gamma(1 + 2 * missing)),
            "entropy": float(rng.gamma(1 + 3 * missing, 0.6)),
            "probability": float(rng.beta(1 + 2 * missing, 2)),
            "noise": float(rng.random()),
            "every-n": float(i % 2),
        }
        out.append(Item(f"q{i // 2}", "never" if missing else "often", missing, scores))
    return out


def fitted_trace() -> Trace:
    """An episode of a trigger with weights."""
    terms = [("entropy", 2.8, 0.5, 0.9), ("name or number", 2.5, 0.3, 0.5), ("stop word", -1.2, 0.4, 0.5)]
    trace = samples.almanac_trace("paper")
    trace.method = method("dragin", when=define("mine", terms, -2.0, 0.5)).settings
    return trace


def labelled_methods() -> list[Trace]:
    """One question, answered by several methods."""
    others = [samples.baseline_trace(name) for name in ("wo-rag", "sr-rag", "fs-rag")]
    return [*others, samples.almanac_trace()]


THETAS = {"rind": 1.2, "probability": 0.6}
#: The static views.
CARDS: dict[str, Callable[[], Any]] = {
    "trace": samples.almanac_trace,
    "1 heatmap": lambda: views.heatmap(samples.almanac_trace("paper")),
    "1 heatmap, reference variant": lambda: views.heatmap(samples.almanac_trace()),
    "2 selections": lambda: views.selections(samples.almanac_trace("paper"), gold=["a54", "a999"]),
    "3 timeline": lambda: views.timeline(samples.almanac_trace()),
    "replayed": lambda: views.replayed(samples.almanac_trace(), threshold=0.3),
    "5 side by side": lambda: views.side_by_side(labelled_methods()),
}
#: The figures.
FIGURES: dict[str, Callable[[], Any]] = {
    "4 attention map": lambda: views.attention_map(factories.make_trace()),
    "6 threshold sweep": lambda: views.threshold_sweep(sweep(), paper=paper_sweep()),
    "6 cost and quality": lambda: views.cost_quality(sweep()),
    "7 needs": lambda: views.needs_curves(items(), thresholds=THETAS),
    "6 frontier": lambda: views.frontier(sweep_of_methods()),
    "8 contributions": lambda: views.contributions(fitted_trace()),
    "7 scores": lambda: views.score_distributions(items(), thresholds=THETAS),
}
#: Bad input, with words of what must stand in its place.
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "empty": (empty_trace, "nothing written yet"),
    "empty heatmap": (lambda: views.heatmap(empty_trace()), "written"),
    "empty selections": (lambda: views.selections(empty_trace()), "retriev"),
    "empty timeline": (lambda: views.timeline(empty_trace()), "step"),
    "cut file": (lambda: views.heatmap(cut_file()), "only a part of one"),
    "newer file": (lambda: views.timeline(newer_file()), "is of another edition of dragin_lab (format 9"),
    "no attention": (lambda: STATES["no attention, no alternatives"], "no attention were recorded"),
    "no attention heatmap": (
        lambda: views.heatmap(STATES["no attention, no alternatives"]),
        "No attention was recorded",
    ),
    "right to left": (right_to_left_trace, HEBREW),
    "right to left heatmap": (lambda: views.heatmap(right_to_left_trace()), HEBREW),
    "right to left timeline": (lambda: views.timeline(right_to_left_trace()), HEBREW),
    "scripts": (script_trace, SCRIPT),
    "scripts heatmap": (lambda: views.heatmap(script_trace()), SCRIPT),
    "scripts selections": (lambda: views.selections(script_trace()), SCRIPT),
    "scripts timeline": (lambda: views.timeline(script_trace()), SCRIPT),
    "scripts side by side": (lambda: views.side_by_side([script_trace(), script_trace()]), SCRIPT),
    "hostile": (hostile_trace, "<script>alert('x')</script>"),
    "5,000 tokens": (lambda: samples.long_trace(5000), "more steps"),
    "5,000 tokens heatmap": (lambda: views.heatmap(samples.long_trace(5000, 5000)), "tokens are drawn one by one"),
    "5,000 tokens timeline": (lambda: views.timeline(samples.long_trace(5000)), "more steps"),
    "no map": (lambda: views.attention_map(factories.make_trace(attention=False)), "kept no attention"),
    "no map, empty": (lambda: views.attention_map(empty_trace()), "Nothing is written yet"),
    "no needs": (lambda: views.needs_curves([]), "no labelled facts"),
}


def page_of(thing: Any) -> str:
    """A static view or a trace as a whole document."""
    return views.trace_html(thing, full_page=True) if isinstance(thing, Trace) else thing.page()
