"""One setting of a method over several values: θ (the paper's Table 5), FLARE's threshold, the length of a query."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragin_lab.core.episode import Retriever
from dragin_lab.core.method import Method, exchanged, label
from dragin_lab.core.method import method as make_method
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.trace import Question
from dragin_lab.errors import SettingError
from dragin_lab.run.benchmark import Benchmark, Elsewhere, as_benchmark, open_run
from dragin_lab.run.cache import Cache, Counts, as_cache
from dragin_lab.run.lines import Line, summary

if TYPE_CHECKING:
    import pandas as pd

    from dragin_lab.model.load import LanguageModel

#: θ of the paper's Table 5.
TABLE_5 = (1.0, 1.1, 1.2, 1.3, 1.4)
BLOCK = 50  # questions that all values are tried on before the next, so that a cache need not hold all of them


@dataclass(frozen=True)
class Sweep:
    """What came of each value: ``methods`` and ``predictions`` have one entry per value of ``setting``.

    ``counts`` says what the cache served; None where there was none.
    """

    setting: str  # "threshold" or "top_n"
    methods: tuple[Method, ...]
    predictions: tuple[list[Line], ...]
    benchmark: str  # name of the questions
    counts: Counts | None = field(default=None, compare=False)

    @property
    def values(self) -> tuple[Any, ...]:
        """The values, in the order they were given."""
        return tuple(getattr(method, self.setting) for method in self.methods)

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per value (pandas.DataFrame): setting, value, n, then means per question with their 95 % intervals.

        em, em_low, em_high, the same of f1 and of retrievals, and pieces (generated); see ``lines.summary``.
        """
        import pandas as pd

        rows = [
            {"setting": self.setting, "value": value} | summary(lines)
            for value, lines in zip(self.values, self.predictions, strict=True)
        ]
        return pd.DataFrame(rows).drop(columns=["pieces_low", "pieces_high"])

    def __repr__(self) -> str:
        return f"Sweep({self.methods[0].name}, {self.setting} in {list(self.values)}, {self.benchmark})"

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False, float_format="{:.3f}".format))


def sweep(
    method: Method | str,
    lm: LanguageModel | Elsewhere,
    retriever: Retriever | None,
    questions: Benchmark | str | Path | Iterable[str | Question],
    *,
    thresholds: Sequence[float] | None = None,
    top_ns: Sequence[int] | None = None,
    folder: str | Path | None = None,
    prompt: PromptTemplate | None = None,
    limit: int | None = None,
    seed: int = 0,
    batch_size: int = 1,
    cache: Cache | str | Path | bool | None = True,
    progress: bool = True,
) -> Sweep:
    """Answer the questions once for each value of one setting of a method.

    Args:
        method: a method, or its name; everything but the swept setting stays as it is.
        questions: as for ``run_benchmark``.
        thresholds: values of θ; on the RIND score, for FLARE on 1 - p.
        top_ns: values of top-n, words (qfs) or pieces (last-n) of a query.
        folder: write each value's run directory below this folder, and complete what an earlier sweep left there;
            None writes nothing.
        cache: serves what another value has written, so that each costs only what differs; True is a new one in memory,
            a folder one on disk, None or False is none. The answers are the same.

    Raises ``SettingError`` unless exactly one of ``thresholds`` and ``top_ns`` has values which the method takes;
    otherwise as ``run_benchmark``.
    """
    made = make_method(method) if isinstance(method, str) else method
    setting, methods = swept(made, thresholds=thresholds, top_ns=top_ns)
    asked = as_benchmark(questions, limit)
    opened = None if cache is True and isinstance(lm, Elsewhere) else as_cache(cache)
    before = Counts() if opened is None else opened.counts.copy()
    titles = [f"{setting} {getattr(one, setting)}" if progress else "" for one in methods]
    options: dict[str, Any] = {"prompt": prompt, "seed": seed, "batch_size": batch_size, "cache": opened}
    folders = [None if folder is None else Path(folder) / label(one) for one in methods]
    found = run_together(list(zip(methods, folders, titles, strict=True)), lm, retriever, asked, **options)
    counts = None if opened is None else opened.counts.since(before)
    if counts is not None and counts.drafts and progress:
        print(counts, file=sys.stderr)
    return Sweep(setting, methods, tuple(found), asked.name, counts)


def run_together(
    runs: Sequence[tuple[Method, Path | None, str]],
    lm: LanguageModel | Elsewhere,
    retriever: Retriever | None,
    asked: Benchmark,
    *,
    cache: Cache | None,
    **options: Any,
) -> list[list[Line]]:
    """The predictions of methods that ask the same questions, each with its folder and the title of its progress.

    With a ``cache`` all of them answer a block of questions before any starts the next, so that it can be small.
    ``options`` are those of ``open_run``.
    """
    order = range(len(runs)) if cache is None else _longest_first([method for method, _, _ in runs])
    found: list[list[Line]] = [[] for _ in runs]
    with ExitStack() as stack:
        under_way: dict[int, Any] = {}
        for upto in _blocks(len(asked.questions), cache):
            for i in order:
                method, folder, title = runs[i]
                if i not in under_way:
                    run = open_run(method, lm, retriever, asked, folder, title=title, cache=cache, **options)
                    under_way[i] = stack.enter_context(run)
                found[i] = under_way[i](upto)
    return found


def _blocks(questions: int, cache: Cache | None) -> Iterator[int]:
    """How many questions to have answered with every value before going on; all at once where nothing is shared."""
    yield from range(BLOCK, questions, BLOCK) if cache is not None else ()
    yield questions


def _longest_first(methods: Sequence[Method]) -> list[int]:
    """The order to run them in: a higher θ ends drafts later, and a longer draft serves the shorter ones."""
    return sorted(range(len(methods)), key=lambda i: methods[i].threshold or 0.0, reverse=True)


def swept(
    method: Method, *, thresholds: Sequence[float] | None = None, top_ns: Sequence[int] | None = None
) -> tuple[str, tuple[Method, ...]]:
    """The setting that is swept and the method for each of its values, each once, in their order."""
    if (thresholds is None) == (top_ns is None):
        raise SettingError("a sweep goes over one setting: give either thresholds or top_ns")
    setting = "threshold" if top_ns is None else "top_n"
    values = list(thresholds if top_ns is None else top_ns)  # type: ignore[arg-type]
    if not values:
        raise SettingError(f"{setting} has no values to sweep over; give at least one, such as {setting}s=[5, 25]")
    methods = tuple(dict.fromkeys(exchanged(method, **{setting: value}) for value in values))
    if getattr(methods[0], setting) is None:
        raise SettingError(f"{setting} has no meaning for method {method.name!r} with what={method.what.name!r}")
    return setting, methods
