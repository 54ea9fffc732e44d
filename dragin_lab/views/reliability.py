"""Are a trigger's calibrated probabilities right? The share that is missing against the probability, bin by bin."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from dragin_lab.checks import instance, text
from dragin_lab.errors import SettingError
from dragin_lab.study.reliability import Reliability
from dragin_lab.views.figures import AMBER, BLUE, INK, SOFT, draw_panels, make_figure
from dragin_lab.views.frame import View
from dragin_lab.views.html import count, write_call

if TYPE_CHECKING:
    import pandas as pd


def reliability_diagram(results: Mapping[str, Reliability], *, title: str = "") -> View:
    """A panel for each of ``results``, name -> ``study.reliability.measure_reliability``, with its ECE.

    A circle is a bin: its mean probability and the share of it that is missing, with Wilson's 95 % interval. On the
    dotted line the two are equal; below it more was expected than is missing. Bars show where the probabilities
    lie. Raises ``SettingError`` for no results, ``MissingPackageError`` without matplotlib.
    """
    remedy = "give {'rind': measure_reliability(need, scores)}"
    instance("results", results, Mapping, remedy)
    if not results:
        raise SettingError(f"there is no result to show; {remedy}")
    for name, result in results.items():
        instance(f"the result of {name}", result, Reliability, remedy)
    errors = [f"{name} {describe_error(result)}" for name, result in results.items()]
    return make_figure(
        text("title", title) or "Is a fact missing as often as the trigger's probability says?",
        partial(_draw, dict(results)),
        about="A circle is a bin of probabilities, with a 95 % interval. On the dotted line they are right; under it "
        "less is missing than they say. Bars at the foot show how many probabilities lie in each bin.",
        alt=f"Expected calibration error: {'; '.join(errors)}.",
        table=_table(results), numbers="Bins",
        code=write_call("reliability_diagram", "results", title=title),
    )  # fmt: skip


def describe_error(result: Reliability) -> str:
    """The ECE with its interval and what it was measured on, as text."""
    between = f" [{result.low:.3f}, {result.high:.3f}]" if result.low <= result.high else ""
    return (
        f"{result.ece:.3f}{between}, {result.bins} bins, {count(result.n, 'score')} of {result.questions:,} questions"
    )


def _table(results: Mapping[str, Reliability]) -> pd.DataFrame:
    import pandas as pd

    parts = [result.table.assign(trigger=name) for name, result in results.items()]
    table = pd.concat(parts, ignore_index=True)
    columns = {
        "trigger": "trigger", "low": "from", "high": "to", "n": "n", "probability": "mean probability",
        "missing": "share missing", "missing_low": "lower end", "missing_high": "upper end",
    }  # fmt: skip
    return table[list(columns)].rename(columns=columns)


def _draw(results: Mapping[str, Reliability], width: int) -> Any:
    titles = [f"{name}, ECE {result.ece:.3f}" for name, result in results.items()]
    drawing, panels = draw_panels(titles, width, height=260, least=240, most=3, sharex="all", sharey="all")
    for panel, result in zip(panels, results.values(), strict=True):
        bins = result.table
        panel.plot([0, 1], [0, 1], color=SOFT, linewidth=1, linestyle=(0, (2, 2)))
        widths = (bins["high"] - bins["low"]).clip(lower=0.012)
        panel.bar(
            bins["low"],
            0.2 * bins["n"] / bins["n"].max(),
            widths,
            align="edge",
            color="none",
            edgecolor=AMBER,
            hatch="///",
        )
        spread = [bins["missing"] - bins["missing_low"], bins["missing_high"] - bins["missing"]]
        panel.errorbar(
            bins["probability"], bins["missing"], spread, color=BLUE, marker="o", markeredgecolor=INK, capsize=3,
            linewidth=1.4,
        )  # fmt: skip
        panel.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_ticks((0, 0.25, 0.5, 0.75, 1), ("0", ".25", ".5", ".75", "1"))
    drawing.supxlabel("calibrated probability of a missing fact", color=SOFT, size=12)
    drawing.supylabel("share that is missing", color=SOFT, size=12)
    return drawing
