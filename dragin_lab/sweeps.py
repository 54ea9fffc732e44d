"""One setting of a method over several values: θ (the paper's Table 5), FLARE's threshold, the length of a query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragin_lab.bench import Benchmark, as_benchmark, predict, run_benchmark, summary
from dragin_lab.episode import Retriever
from dragin_lab.errors import SettingError
from dragin_lab.methods import Method
from dragin_lab.methods import method as make_method
from dragin_lab.prompts import PromptTemplate
from dragin_lab.rundir import Line
from dragin_lab.settings import exchanged, label
from dragin_lab.trace import Question

if TYPE_CHECKING:
    import pandas as pd

    from dragin_lab.lm.load import LanguageModel

#: θ of the paper's Table 5.
TABLE_5 = (1.0, 1.1, 1.2, 1.3, 1.4)


@dataclass(frozen=True)
class Sweep:
    """What came of each value: ``methods`` and ``predictions`` have one entry a value of ``setting``."""

    setting: str  # "threshold" or "top_n"
    methods: tuple[Method, ...]
    predictions: tuple[list[Line], ...]
    benchmark: str  # name of the questions

    @property
    def values(self) -> tuple[Any, ...]:
        """The values, in the order they were given."""
        return tuple(getattr(method, self.setting) for method in self.methods)

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row a value (pandas.DataFrame): setting, value, n, then means a question with their 95 % intervals.

        em, em_low, em_high, the same of f1 and of retrievals, and pieces (generated); see ``bench.summary``.
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
    lm: LanguageModel,
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
    progress: bool = True,
) -> Sweep:
    """Answer the questions once for each value of one setting of a method.

    Args:
        method: a method, or its name; everything but the swept setting is kept.
        questions: as for ``run_benchmark``.
        thresholds: values of θ; on the RIND score, for FLARE on 1 - p.
        top_ns: values of top-n, words (qfs) or pieces (last-n) of a query.
        folder: keep each value's run directory below this folder, and go on there where an earlier sweep stopped;
            None keeps the answers in memory alone.

    Raises ``SettingError`` unless exactly one of ``thresholds`` and ``top_ns`` has values which the method takes;
    otherwise as ``run_benchmark``.
    """
    made = make_method(method) if isinstance(method, str) else method
    setting, methods = swept(made, thresholds=thresholds, top_ns=top_ns)
    asked = as_benchmark(questions, limit)
    found = []
    for one in methods:
        title = f"{setting} {getattr(one, setting)}"
        options: dict[str, Any] = {"prompt": prompt, "seed": seed, "batch_size": batch_size}
        options["progress"] = title if progress else False
        if folder is None:
            found.append(predict(one, lm, retriever, asked, **options))
        else:
            found.append(run_benchmark(one, lm, retriever, asked, Path(folder) / label(one), **options).predictions)
    return Sweep(setting, methods, tuple(found), asked.name)


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
        raise SettingError(f"{setting} has no meaning for method {method.name!r} with what={method.what!r}")
    return setting, methods
