"""Every number that a figure of results draws is one of the table that it is drawn from."""

from __future__ import annotations

from typing import Any

import pandas as pd
from given import some
from hypothesis import given
from hypothesis import strategies as st

from dragin_lab import views

shares = st.sampled_from([0.0, 0.25, 1 / 3, 0.5, 0.9, 1.0])
values = st.one_of(
    st.lists(st.floats(0, 9, width=16), min_size=1, max_size=5, unique=True),
    st.lists(
        st.sampled_from(["rind", "flare@0.2", "qfs(top_n=5)", "None"]),
        min_size=1,
        max_size=4,
        unique=True,
    ),
)
MEASURES = ("em", "f1", "retrievals")


@st.composite
def tables(draw: st.DrawFn) -> pd.DataFrame:
    """A sweep's: a row a value, each measure with its interval."""
    rows = []
    for value in draw(values):
        row: dict[str, Any] = {"setting": "threshold", "value": value, "n": 4}
        for name in MEASURES:
            low, mean, high = sorted(draw(st.tuples(shares, shares, shares)))
            row |= {name: mean, f"{name}_low": low, f"{name}_high": high}
        rows.append(row)
    return pd.DataFrame(rows)


@some(8)
@given(tables())
def test_a_sweep(table: pd.DataFrame) -> None:
    scaled = table["value"].dtype == float
    rows = table.sort_values("value") if scaled else table
    points = [one for one in views.sweep(table).data if "markers" in one.mode]
    assert len(points) == len(MEASURES)
    for name, drawn in zip(MEASURES, points, strict=True):
        assert list(drawn.y) == rows[name].tolist()
        assert list(drawn.x) == rows["value"].tolist()
    bands = [one for one in views.sweep(table).data if one.fill == "toself"]
    for name, band in zip(MEASURES if scaled else (), bands, strict=True):
        assert list(band.y) == [*rows[f"{name}_high"], *rows[f"{name}_low"][::-1]]


@some(8)
@given(tables(), st.sampled_from(MEASURES), st.sampled_from(MEASURES))
def test_quality_against_cost(table: pd.DataFrame, cost: str, quality: str) -> None:
    table["method"] = [f"m{i % 2}" for i in range(len(table))]
    figure = views.frontier(table, cost, quality)
    for name, own in table.groupby("method"):
        (drawn,) = (one for one in figure.data if one.name == name)
        assert sorted(zip(drawn.x, drawn.y, strict=True)) == sorted(
            zip(own[cost], own[quality], strict=True)
        )
