"""One setting of a method over several values: θ (the paper's Table 5), FLARE's threshold, the
length of a query.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from itertools import product
from numbers import Real
from pathlib import Path
from typing import Any

from dragin_lab.core.method import Method
from dragin_lab.errors import SettingError
from dragin_lab.run.benchmark import (
    Benchmark,
    find_folders,
    finds_nothing,
    open_run,
    run_config,
    run_label,
)
from dragin_lab.run.rundir import Folder, Line, RunRecord, read_run
from dragin_lab.run.setup import Setup, as_method
from dragin_lab.warning import warn

# questions that all values are tried on before the next, so that a cache need not hold all of them
BLOCK = 50


def run_methods(
    setup: Setup,
    asked: Benchmark,
    methods: Iterable[Method],
    output: Folder,
    progress: bool,
    **options: Any,
) -> list[RunRecord]:
    """``Lab.run``; without an ``output`` nothing is written. ``options`` are those of ``open_run``.

    With a cache all methods answer a block of questions before any starts the next, so that it can
    be small.
    """
    import scipy.stats  # noqa: F401 - an interrupt in the first table would leave it half imported

    chosen = list(dict.fromkeys(methods))
    if any(method.retrieves for method in chosen) and finds_nothing(setup, asked):
        warn(f"the embedded passages hold nothing on {asked.name}; give a corpus (--corpus)")
    labels = [method.label for method in chosen]
    if same := next((label for label in labels if labels.count(label) > 1), ""):
        raise SettingError(f"two methods are called {same!r}; give each a label of its own")
    folders: dict[Method, Any] = dict.fromkeys(chosen)
    if output is not None:
        # before any work is done
        kept_in = find_folders(setup, chosen, asked, output, options.get("traces"))
        folders = dict(zip(chosen, kept_in, strict=True))
    order = chosen
    count = len(asked.questions)
    blocks = range(0)
    # a higher θ ends drafts later, and a longer draft serves the shorter ones
    if setup.cache is not None:
        order = sorted(chosen, key=lambda method: method.threshold or 0.0, reverse=True)
        blocks = range(BLOCK, count, BLOCK)
    predictions: dict[Method, list[Line]] = {}
    with ExitStack() as stack:
        under_way: dict[Method, Any] = {}
        for upto, method in product((*blocks, count), order):
            if method not in under_way:
                title = f"{asked.name} {method.label}" if progress else ""
                run = open_run(setup, method, asked, folders[method], title=title, **options)
                under_way[method] = stack.enter_context(run)
            predictions[method] = under_way[method](upto)
    for method in chosen:
        lost = describe_losses(line.get("window", {}) for line in predictions[method])
        if lost:
            warn(f"{asked.name} {method.label}: {lost}")
    if output is not None:
        return [read_run(folder) for folder in folders.values()]
    records = []
    for method in chosen:
        folder = Path(run_label(method, setup.retriever_spec))
        config = run_config(setup, method, asked)
        records.append(RunRecord(folder, config, predictions[method]))
    return records


def describe_losses(lost: Iterable[Mapping[str, int]]) -> str:
    """What the model's window cost some episodes (``Trace.lost``), and what to do; empty where
    nothing.
    """
    short = [*filter(None, lost)]
    total = Counter[str]()
    for counts in short:
        total.update(counts)
    losses = ", ".join(f"{total[name]:,} {words}" for name, words in _LOST.items() if total[name])
    return losses and (
        f"the model's window was too small for {len(short):,} answer{'s' * (len(short) > 1)}:"
        f" {losses}. Lower top_k or max_new_tokens, shorten the passages, give fewer exemplars, or"
        " take a model with a larger window"
    )


#: Entries of ``Trace.lost``, and what they count.
_LOST = {
    "beyond": "prompts with what was written after them outgrew it",
    "passages": "passages were dropped",
    "exemplars": "exemplars were dropped",
}


def read_sweep(method: Method | str, settings: Mapping[str, Any]) -> tuple[str, tuple[Method, ...]]:
    """The one setting that has a list of values, and the method for each of them, each once, in
    their order.

    Raises ``SettingError`` where none or several have, for no values, and for values that the
    method does not take.
    """
    several = {key: list(value) for key, value in settings.items() if _is_several(value)}
    if len(several) != 1:
        named = ", ".join(several) or "none"
        raise SettingError(
            f"a sweep goes over one setting, and {named} has a list of values: threshold=[1.0, 1.2]"
        )
    ((setting, values),) = several.items()
    if not values:
        raise SettingError(
            f"{setting} has no values to sweep over; give at least one, such as {setting}=[5, 25]"
        )
    fixed = {key: value for key, value in settings.items() if key != setting}
    methods = tuple(dict.fromkeys(as_method(method, fixed | {setting: value}) for value in values))
    first = methods[0]
    if setting not in first.settings or (setting == "threshold" and first.threshold is None):
        raise SettingError(
            f"{setting} has no meaning for method {first.name!r} with"
            f" what={first.formulator.name!r}"
        )
    return setting, methods


def on_a_scale(values: Iterable[Any]) -> bool:
    """Whether all values are finite numbers, and so stand on an axis of numbers; a text, a bool
    or None does not.
    """
    for value in values:
        if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
            return False
    return True


def _is_several(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
