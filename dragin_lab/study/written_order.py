"""An answer token by token as it was written: what was kept, what was thrown away, and what came in
its place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from dragin_lab.study.attribution import Attribution, find_replaced, is_attributed
from dragin_lab.trace.trace import Trace

# the lanes of a row, from above
INSTEAD = 0
LINE = 1
BELOW = 2


class Row(NamedTuple):
    """An episode as a row: a line of ``tokens`` a token, with its ``x``, its ``lane`` and whether a
    passage ``given`` it; the x of each retrieval, and where it ends.
    """

    tokens: pd.DataFrame
    cuts: list[int]
    end: int


def lay_out(trace: Trace) -> Row:
    """Where each token of an episode stands: kept ones on the line, thrown away ones below it, and
    what came in their place above it.
    """
    every = trace.tokens
    groups = dict(iter(every.groupby(["step", "source"], sort=False)))
    parts = []
    cuts = list[int]()
    x = 0
    clear = 0  # the next x below the line
    replacing = 0  # characters that stand above the line
    for step in trace.steps:
        if step.query is not None and step.draft is None:
            cuts.append(x)
        for source, _, _ in step.texts:
            rows = groups.get((step.index + 1, source), every.head(0))
            kept = rows[rows["kept"]]
            thrown = rows[~rows["kept"]]
            parts.append(kept.assign(x=x + np.arange(len(kept)), lane=find_lane(kept, replacing)))
            x = x + len(kept)
            replacing = 0
            if len(thrown):
                x = max(x, clear)
                clear = x + len(thrown)
                parts.append(thrown.assign(x=np.arange(x, clear), lane=BELOW))
            if source == "draft" and step.query is not None:
                cuts.append(x)
                after = find_replaced(trace, step)[1]
                replacing = len(after) if len(thrown) else 0
    tokens = pd.concat(parts)
    return Row(tokens.assign(given=mark_given(trace, tokens)), cuts, max(x, clear))


def find_lane(kept: pd.DataFrame, replacing: int) -> np.ndarray:
    """(n,) the lane of each token: the first ones, of so many characters, stand above the line."""
    starts = kept["text"].str.len().cumsum().shift(fill_value=0)
    return np.where(starts < replacing, INSTEAD, LINE)


def mark_given(trace: Trace, tokens: pd.DataFrame) -> list[bool]:
    """Which tokens a passage gave; none of a trace that is not attributed."""
    if not is_attributed(trace):
        return [False] * len(tokens)
    every = Attribution(trace).tokens
    places = ["step", "source", "index"]
    from_passages = every[every["mark"] == "passage"].dropna(subset="step").set_index(places)
    return tokens.set_index(places).index.isin(from_passages.index).tolist()
