"""How far a method is from perfect, divided into when, what and reading.

The method as it is; with an oracle's *when*; with an oracle's *what*, which finds the gold passage; with both. What
both leave wrong is left to reading.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dragin_lab.almanac.facts import Labelled
from dragin_lab.core.method import Method
from dragin_lab.core.method import method as make_method
from dragin_lab.run.benchmark import as_benchmark
from dragin_lab.run.lab import Lab, as_method
from dragin_lab.run.lines import Line, summary
from dragin_lab.run.sweeps import run_together
from dragin_lab.study.oracle import bounds

if TYPE_CHECKING:
    import pandas as pd

ROWS = ("own when x own what", "oracle when x own what", "own when x oracle what", "oracle when x oracle what")


@dataclass(frozen=True)
class Headroom:
    """What came of a method and of its three bounds, in the order of ``ROWS``."""

    methods: tuple[Method, ...]
    predictions: tuple[list[Line], ...]

    @property
    def table(self) -> pd.DataFrame:
        """One row per bound (pandas.DataFrame): em, f1, retrievals with their 95 % intervals, and tokens."""
        import pandas as pd

        return pd.DataFrame(
            [{"method": row} | summary(lines) for row, lines in zip(ROWS, self.predictions, strict=True)]
        )

    @property
    def parts(self) -> dict[str, float]:
        """What exact match lacks to 1, divided: a better *when*, a better *what* after it, reading the rest."""
        own, when, _, both = (summary(lines)["em"] for lines in self.predictions)
        return {"when": when - own, "what": both - when, "reading": 1 - both}


def headroom(
    lab: Lab,
    questions: Any,
    labels: Iterable[Labelled],
    method: Method | str = "dragin",
    *,
    limit: int | None = None,
    **options: Any,
) -> Headroom:
    """Answer the questions with a method and its three bounds; ``options`` are settings of the method.

    Raises ``SettingError`` for questions without labels, and as ``Lab.run``.
    """
    own = as_method(method, options)
    when, what = bounds(labels)
    asked = as_benchmark(questions, limit)
    shared: dict[str, Any] = {"variant": own.variant, "nlp": own.pipeline}
    shared |= {"max_new_tokens": own.max_new_tokens, "top_k": own.top_k}
    pairs = [(own.trigger, own.formulator), (when, own.formulator), (own.trigger, what), (when, what)]
    methods = tuple(make_method(own.name, when=one, what=other, **shared) for one, other in pairs)
    lab = lab if lab.cache is not None or lab.uncached else lab.replace(cache=True)
    return Headroom(methods, tuple(run_together(lab, asked, [(one, None, "") for one in methods])))
