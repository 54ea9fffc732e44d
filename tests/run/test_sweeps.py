"""Sweeps: one setting over several values, in memory and in folders that are taken up again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from answering import DRAGIN, AnsweringModel, questions
from scripted import ScriptedRetriever

from dragin_lab.catalog.by_name import method
from dragin_lab.errors import SettingError
from dragin_lab.lab import Lab
from dragin_lab.results.sweeps import Sweep
from dragin_lab.run.rundir import find_runs
from dragin_lab.run.sweeps import read_sweep

COLUMNS = [
    "setting",
    "value",
    "n",
    "scored",
    "em",
    "em_low",
    "em_high",
    "f1",
    "f1_low",
    "f1_high",
    "retrievals",
    "retrievals_low",
    "retrievals_high",
    "tokens",
    "failed",
]


def over(lm: AnsweringModel | None = None, **options: Any) -> Sweep:
    """A sweep in which dragin fires, and so is right, below 4.5."""
    asked = questions(3)
    lab = Lab(lm or AnsweringModel(), retriever=ScriptedRetriever())
    return lab.sweep(asked, DRAGIN, **({"progress": False} | options))


def test_a_table_with_a_row_a_value() -> None:
    found = over(threshold=[1, 9])
    table = found.table
    assert list(table.columns) == COLUMNS
    assert table[["setting", "value", "n", "scored", "em", "retrievals"]].to_numpy().tolist() == [
        ["threshold", 1.0, 3, 3, 1.0, 1.0],
        ["threshold", 9.0, 3, 3, 0.0, 0.0],
    ]
    # Wilson's interval of 3 of 3
    assert table["em_low"].tolist() == pytest.approx([0.4385, 0.0], abs=1e-4)
    assert (table["tokens"] > 5).all()
    assert [line["answer"] for line in found.records[1].predictions] == ["Bo 1", "Bo 2", "Bo 3"]
    assert repr(found) == "Sweep(dragin, threshold in [1.0, 9.0], questions)"
    assert "<table" in found._repr_html_()


def test_a_folder_keeps_each_value_and_is_taken_up_again(tmp_path: Path) -> None:
    found = over(threshold=[1, 9], output=tmp_path)
    assert [record.folder.name for record in find_runs(tmp_path)] == [
        "dragin-what=question-threshold=1.0",
        "dragin-what=question-threshold=9.0",
    ]
    lm = AnsweringModel()
    again = over(lm, threshold=[1, 5, 9], output=tmp_path)
    assert lm.asked == [1, 2, 3]  # for 5 alone
    pd.testing.assert_frame_equal(again.table.iloc[[0, 2]].reset_index(drop=True), found.table)
    assert over(threshold=[1, 5, 9]).table.equals(again.table)


def test_values_of_other_settings() -> None:
    setting, methods = read_sweep(method("dragin"), {"top_n": [5, 25, 5]})
    assert (setting, [one.top_n for one in methods]) == ("top_n", [5, 25])
    flare = read_sweep(method("flare", variant="reference", top_k=2), {"threshold": [0.1, 0.3]})[1]
    assert [(m.threshold, m.settings["doubt_limit"], m.top_k) for m in flare] == [
        (0.1, None, 2),
        (0.3, None, 2),
    ]


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        ({"what": ["qfs", "full-context"]}, ["qfs", "full-context"]),
        ({"what": ["qfs(top_n=5)", "qfs"]}, ["qfs(top_n=5)", "qfs"]),
        ({"when": ["rind@0.2", "rind@0.4", "entropy"]}, ["rind@0.2", "rind@0.4", "entropy@3"]),
        ({"scale": [None, "sentence", None]}, [None, "sentence"]),
        ({"what": "last-n", "top_n": [3, None]}, [3, None]),
        ({"what": "last-n", "top_n": [None]}, [None]),
        ({"what": "last-n", "top_n": [5, 3, 5]}, [5, 3]),
    ],
)
def test_a_sweep_goes_over_texts_and_over_none_anywhere(
    settings: dict[str, Any], values: list[Any]
) -> None:
    lab = Lab(AnsweringModel(), retriever=ScriptedRetriever())
    swept = lab.sweep(questions(1), "dragin", progress=False, **settings)
    assert list(swept.values) == values == swept.table["value"].tolist()
    assert str(values[0]) in swept._repr_html_()
    assert repr(values) in repr(swept)


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("dragin", {"threshold": 1.0}, "none has a list of values"),
        ("dragin", {"threshold": [1], "top_n": [1]}, "threshold, top_n has a list"),
        ("dragin", {"threshold": []}, "threshold has no values"),
        (
            "dragin",
            {"what": "full-context", "top_n": [None, 3]},
            "top_n has no meaning for method 'dragin'",
        ),
        ("wo-rag", {"threshold": [None]}, "threshold has no meaning for method 'wo-rag'"),
        ("dragin", {"threshold": [1, -1]}, "threshold=-1 is out of range"),
        ("sr-rag", {"threshold": [1]}, "no meaning for when='once'"),
    ],
)
def test_values_that_make_no_sense(name: str, values: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        Lab(AnsweringModel(), retriever=ScriptedRetriever()).sweep(questions(1), name, **values)
