"""Methods and values of one setting over the same questions, and the means and intervals of what came of each."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.core.method import Method
from dragin_lab.errors import SettingError
from dragin_lab.run.arguments import as_method
from dragin_lab.run.benchmark import Benchmark, as_benchmark, check_run, finds_nothing, open_run, run_folder
from dragin_lab.run.cache import Counts
from dragin_lab.run.lab import Lab
from dragin_lab.run.rundir import SCORES, Line, RunRecord, read_run

if TYPE_CHECKING:
    import pandas as pd

BLOCK = 50  # questions that all values are tried on before the next, so that a cache need not hold all of them
LEVEL = 0.95
RESAMPLES = 2_000
#: What ``summary`` gives the mean of.
COUNTS = ("retrievals", "tokens")
MEASURES = ("em", "f1", *COUNTS)

Numbers = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Sweep:
    """What came of each value: ``methods`` and ``predictions`` have one entry per value of ``setting``.

    ``counts`` says what the cache served; None where there was none.
    """

    setting: str  # such as "threshold"
    methods: tuple[Method, ...]
    predictions: tuple[list[Line], ...]
    benchmark: str  # name of the questions
    counts: Counts | None = field(default=None, compare=False)

    @property
    def values(self) -> tuple[Any, ...]:
        """The values, in the order they were given; triggers or formulators of one name in their written form."""
        values = tuple(method.settings[self.setting] for method in self.methods)
        if self.setting in ("when", "what") and len(set(values)) < len(values):
            return tuple(str(one.trigger if self.setting == "when" else one.formulator) for one in self.methods)
        return values

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per value (pandas.DataFrame): setting, value, n, scored, then means per question with 95 % intervals.

        em, em_low, em_high, the same of f1 and of retrievals, and tokens (generated); see ``summary``.
        """
        import pandas as pd

        rows = [
            {"setting": self.setting, "value": value} | summary(lines)
            for value, lines in zip(self.values, self.predictions, strict=True)
        ]
        table = pd.DataFrame(rows).drop(columns=["tokens_low", "tokens_high"])
        return table if on_a_scale(self.values) else table.assign(value=pd.Series(self.values, dtype=object))

    def plot(self, paper: Any = None) -> Any:
        """Quality and retrievals against the values (plotly); ``paper=True``: the paper's Table 5 beside them."""
        return import_module("dragin_lab.views").sweep(self.table, paper)

    def __repr__(self) -> str:
        return f"Sweep({self.methods[0].name}, {self.setting} in {list(self.values)}, {self.benchmark})"

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False, float_format="{:.3f}".format))


def sweep(
    lab: Lab,
    questions: Any,
    method: Method | str,
    settings: Mapping[str, Any],
    output: str | Path | None = None,
    limit: int | None = None,
    *,
    batch_size: int = 1,
    progress: bool = True,
    fields: str | Mapping[str, str] | None = None,
) -> Sweep:
    """``Lab.sweep``."""
    setting, methods = read_sweep(method, settings)
    asked = as_benchmark(questions, limit, fields)
    if lab.cache is None and not (lab.uncached or lab.elsewhere):
        lab = lab.replace(cache=True)
    before = Counts() if lab.cache is None else replace(lab.cache.counts)
    titles = [f"{asked.name} {setting} {method.settings[setting]}" if progress else "" for method in methods]
    folders = [None if output is None else run_folder(lab, method, asked, output) for method in methods]
    predictions = run_together(lab, asked, list(zip(methods, folders, titles, strict=True)), batch_size=batch_size)
    counts = None if lab.cache is None else lab.cache.counts.since(before)
    if counts is not None and counts.drafts and progress:
        print(counts, file=sys.stderr)
    return Sweep(setting, methods, tuple(predictions), asked.name, counts)


def run_methods(
    lab: Lab,
    questions: Any,
    methods: Sequence[Method],
    output: str | Path,
    limit: int | None = None,
    *,
    progress: bool = True,
    fields: str | Mapping[str, str] | None = None,
    **options: Any,
) -> list[RunRecord]:
    """``Lab.run``."""
    asked = as_benchmark(questions, limit, fields)
    chosen = list(dict.fromkeys(methods))
    if any(method.retrieves for method in chosen) and finds_nothing(lab, asked):
        warnings.warn(f"the embedded passages hold nothing on {asked.name}; give a corpus (--corpus)", stacklevel=3)
    labels = [method.label for method in chosen]
    if same := next((label for label in labels if labels.count(label) > 1), ""):
        raise SettingError(f"two methods are called {same!r}; give each a label of its own")
    folders = [run_folder(lab, method, asked, output) for method in chosen]
    for method, folder in zip(chosen, folders, strict=True):  # before any work is done
        check_run(lab, method, asked, folder, traces=options.get("traces"))
    titles = [f"{asked.name} {method.label}" if progress else "" for method in chosen]
    run_together(lab, asked, list(zip(chosen, folders, titles, strict=True)), **options)
    return [read_run(folder) for folder in folders]


def run_together(
    lab: Lab, asked: Benchmark, runs: Sequence[tuple[Method, Path | None, str]], **options: Any
) -> list[list[Line]]:
    """The predictions of methods that ask the same questions, each with its folder and the title of its progress.

    With a cache all of them answer a block of questions before any starts the next, so that it can be small.
    ``options`` are those of ``open_run``.
    """
    order, blocks, count = list(range(len(runs))), range(0), len(asked.questions)
    if lab.cache is not None:  # a higher θ ends drafts later, and a longer draft serves the shorter ones
        order.sort(key=lambda i: runs[i][0].threshold or 0.0, reverse=True)
        blocks = range(BLOCK, count, BLOCK)
    predictions: list[list[Line]] = [[] for _ in runs]
    with ExitStack() as stack:
        under_way: dict[int, Any] = {}
        for upto in (*blocks, count):
            for i in order:
                method, folder, title = runs[i]
                if i not in under_way:
                    under_way[i] = stack.enter_context(open_run(lab, method, asked, folder, title=title, **options))
                predictions[i] = under_way[i](upto)
    for (method, _, _), lines in zip(runs, predictions, strict=True):
        if lost := _window_lost(lines):
            warnings.warn(f"{asked.name} {method.label}: {lost}", stacklevel=3)
    return predictions


def _window_lost(predictions: Iterable[Mapping[str, Any]]) -> str:
    """What the model's window cost a run, and what to do; empty where nothing."""
    lost = [line["window"] for line in predictions if "window" in line]
    total = {words: sum(one.get(name, 0) for one in lost) for name, words in _LOST.items()}
    losses = ", ".join(f"{count:,} {words}" for words, count in total.items() if count)
    return losses and (
        f"the model's window was too small for {len(lost):,} answers: {losses}. Lower top_k or max_new_tokens, shorten "
        "the passages, give fewer exemplars, or take a model with a larger window"
    )


#: Entries of ``window``, and what they count.
_LOST = {
    "beyond": "prompts with what was written after them outgrew it",
    "passages": "passages were dropped",
    "exemplars": "exemplars were dropped",
}


def read_sweep(method: Method | str, settings: Mapping[str, Any]) -> tuple[str, tuple[Method, ...]]:
    """The one setting that has a list of values, and the method for each of them, each once, in their order.

    Raises ``SettingError`` where none or several have, for no values, and for values that the method does not take.
    """
    several = {key: list(value) for key, value in settings.items() if _is_several(value)}
    if len(several) != 1:
        named = ", ".join(several) or "none"
        raise SettingError(f"a sweep goes over one setting, and {named} has a list of values: threshold=[1.0, 1.2]")
    ((setting, values),) = several.items()
    if not values:
        raise SettingError(f"{setting} has no values to sweep over; give at least one, such as {setting}=[5, 25]")
    fixed = {key: value for key, value in settings.items() if key != setting}
    methods = tuple(dict.fromkeys(as_method(method, fixed | {setting: value}) for value in values))
    one = methods[0]
    if setting not in one.settings or (setting == "threshold" and one.threshold is None):
        raise SettingError(f"{setting} has no meaning for method {one.name!r} with what={one.formulator.name!r}")
    return setting, methods


def on_a_scale(values: Iterable[Any]) -> bool:
    """Whether all values are finite numbers, and so stand on an axis of numbers; a text, a bool or None does not."""
    return all(isinstance(one, Real) and not isinstance(one, bool) and math.isfinite(one) for one in values)


def _is_several(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


# -- intervals --------------------------------------------------------------------------------------------------------

# Of a mean over questions: Wilson's (1927) of a proportion, percentile bootstrap (Efron 1979) of the rest. A bootstrap
# of five wrong answers gives [0, 0], as if 0 were certain; Wilson's gives [0, 0.43]. The seed is fixed.


@dataclass(frozen=True)
class Interval:
    """A mean over ``n`` questions and the ends of its interval; both are NaN where the values say nothing about it."""

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} {bracket(self.low, self.high)}"


def bracket(low: float, high: float, *, places: int = 3, sign: bool = False) -> str:
    """The ends of an interval as text, "[0.120, 0.480]"; "–" where there is none."""
    form = f"{'+' if sign else ''}.{places}f"
    return f"[{low:{form}}, {high:{form}}]" if low <= high else "–"


def proportion(values: Numbers) -> Interval:
    """The share of 1 among ``values`` (n,), which are 0 or 1, with Wilson's interval."""
    n, hits = len(values), int(sum(values))
    return Interval(hits / n, *_wilson(hits, n), n)


def bootstrap(values: Numbers, *, within: tuple[float, float] | None = None) -> Interval:
    """The mean of ``values`` (n,) with its percentile bootstrap interval, questions drawn with replacement.

    Values that are all equal would give an interval of no width. With ``within``, the lowest and the highest value that
    there can be, it then holds what a share of unseen other values, as large as Wilson's interval of 0 of n allows,
    could make of the mean; without, there is none (NaN).
    """
    from scipy import stats

    array = check_numbers("values", values)
    n = len(array)
    if array.min() == array.max():
        mean = float(array[0])  # the mean could differ from it by rounding
        if within is None:
            return Interval(mean, float("nan"), float("nan"), n)
        unseen = _wilson(0, n)[1]
        return Interval(mean, mean - unseen * (mean - within[0]), mean + unseen * (within[1] - mean), n)
    rng, batch = np.random.default_rng(0), max(1, 2**17 // n)
    drawn = stats.bootstrap(
        (array,), np.mean, n_resamples=RESAMPLES, batch=batch, confidence_level=LEVEL, method="percentile", rng=rng
    )
    low, high = drawn.confidence_interval
    return Interval(float(array.mean()), float(low), float(high), n)


def _wilson(hits: int, n: int) -> tuple[float, float]:
    from scipy import stats

    interval = stats.binomtest(hits, n).proportion_ci(LEVEL, "wilson")
    return float(interval.low), float(interval.high)


def check_numbers(name: str, values: Numbers) -> np.ndarray:
    """``values`` as float64 (n,). Raises ``SettingError``, calling them ``name``, for none and for NaN or infinity."""
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or not len(array):
        raise SettingError(f"{name} has shape {array.shape}; an interval needs a list of at least one number")
    if wrong := int((~np.isfinite(array)).sum()):
        raise SettingError(f"{wrong} of {len(array)} {name} are NaN or infinite; leave those questions out first")
    return array


def interval_of(measure: str, values: Numbers) -> Interval:
    """The mean of a measure over questions with its 95 % interval.

    Scores that are all 0 or 1 are a proportion (Wilson); other scores, and counts, are resampled.
    """
    if measure not in COUNTS and set(values) <= {0.0, 1.0}:
        return proportion(values)
    return bootstrap(values, within=(0.0, 1.0) if measure in SCORES else None)


def summary(predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means of ``MEASURES`` with their 95 % intervals: ``n``, ``scored``, ``em``, ``em_low``, ``em_high`` and so on.

    ``n`` counts the episodes that did not fail; em and f1 are over those of them that have gold answers, ``scored``.
    NaN where there is nothing to take the mean of.
    """
    sound = [line for line in predictions if line["ended"] != "error"]
    means: dict[str, float] = {"n": len(sound), "scored": sum(line["em"] is not None for line in sound)}
    for name in MEASURES:
        values = [line[name] for line in sound if line[name] is not None]
        mean = interval_of(name, values) if values else None
        for suffix, part in (("", "mean"), ("_low", "low"), ("_high", "high")):
            means[name + suffix] = float("nan") if mean is None else getattr(mean, part)
    return means
