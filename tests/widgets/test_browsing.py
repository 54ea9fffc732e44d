"""The list of answers: what a row shows, what comes while others write, how little of it lies in the browser."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from answering import DRAGIN as ANSWERED
from answering import answer
from run_folders import write_run
from test_widgets import press

import dragin_lab as dl
from dragin_lab.catalog.by_name import method
from dragin_lab.errors import SettingError
from dragin_lab.widgets.control import inner_widgets


def test_a_row_shows_its_answer_beside_another_methods(tmp_path: Path) -> None:
    for name, how in (("dragin", ANSWERED), ("wo-rag", method("wo-rag", variant="paper"))):
        answer(tmp_path / name, 3, how=how)
    control = dl.browse(tmp_path)
    assert set(control.rows["method"]) == {"dragin", "wo-rag"}
    control.table.index = 0
    row = control.rows.iloc[0]
    assert f"<b>{row['method']}</b>: {row['answer']}" in control.page.value
    for label, method_shown in (("explore this answer", row["method"]), ("explore the one beside it", "wo-rag")):
        press(control, label)
        (explorer,) = control.explored.children
        assert explorer.tree[0].method["name"] == method_shown
    control.beside.value = "(nothing)"
    assert control.page.value.count("<b>wo-rag</b>") == (row["method"] == "wo-rag")
    press(control, "explore the one beside it")
    assert "no answer is shown beside it" in control.status.value
    control.search.value = "WO-RAG"
    assert {shown for _, (_, _, shown) in control.table.options} == {"wo-rag"}
    assert control.found.value.startswith(f"{len(control.table.options)} of {len(control.rows)} answers")
    control.search.value, control.order.value = "", "tokens"
    tokens = control.rows.set_index(["dataset", "id", "method"])["tokens"]
    assert [tokens[value] for _, value in control.table.options] == sorted(control.rows["tokens"])


def test_a_list_of_runs_fills_while_others_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragin_lab.widgets.browsing.EVERY", 0.01)

    def wait(reached: Callable[[], bool]) -> None:
        until = time.monotonic() + 20
        while not reached():
            assert time.monotonic() < until
            time.sleep(0.01)

    control = dl.browse(tmp_path / "shared", follow=True)
    wait(lambda: "no such folder" in control.found.value)
    write_run(tmp_path / "shared", "dragin", "mine", (1.0,), asked=3)
    wait(lambda: len(control.table.options) == 1)
    control.table.value = ("mine", "q0", "dragin")
    write_run(tmp_path / "shared", "flare", "mine", (1.0, None))
    wait(lambda: len(control.table.options) == 3)
    assert control.table.value == ("mine", "q0", "dragin")
    control.stop()
    assert control._worker is not None
    control._worker.join(5)
    write_run(tmp_path / "shared", "wo-rag", "mine")
    assert len(control.table.options) == 3
    with pytest.raises(SettingError, match="give their folder"):
        dl.browse(control.runs, follow=True)


def test_many_answers_are_a_small_state(tmp_path: Path) -> None:
    write_run(tmp_path, em=[1.0, 0.0] * 1000)
    control = dl.browse(tmp_path)
    widgets = [control, *inner_widgets(control)]
    assert sum(len(json.dumps(one.get_state(), default=str)) for one in widgets) < 150_000
    assert not control.runs._causes
