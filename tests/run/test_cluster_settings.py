"""What a cluster needs no Ray for: its settings and addresses, its workers and the recipes they
load by.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from answering import DRAGIN, answer, questions
from clustered import ScriptedRecipe

from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.errors import MissingPackageError, RunError
from dragin_lab.run.cluster import Cluster, Recipe, Worker


def test_without_ray_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        MissingPackageError, match=r"needs ray; pip install 'dragin_lab\[cluster\]'"
    ):
        Cluster("local")


def test_a_worker_gives_what_a_run_writes(tmp_path: Path) -> None:
    answer(tmp_path / "run", 2)
    written = (tmp_path / "run" / "predictions.jsonl").read_bytes()
    worker = Worker(ScriptedRecipe())
    recorded = worker.load().recorded
    assert recorded["model"]["model"] == {"id": "scripted"}
    assert recorded["retriever"] == {"kind": "ScriptedRetriever"}
    options = {"batch_size": 1, "traces": False}
    answers = list(worker.answer(questions(2), DRAGIN, {"prompt": PromptTemplate()}, options))
    assert [one.line for one in answers] == [json.loads(line) for line in written.splitlines()]
    assert answers[0].trace is None
    assert Worker(ScriptedRecipe(searches=False)).load().recorded["retriever"] is None


def test_a_model_that_cannot_be_opened_is_said_with_its_worker() -> None:
    with pytest.raises(RunError, match=r"^the worker on .*, process \d+: .*/no/such/model"):
        Worker(Recipe(model="/no/such/model")).load()


def test_a_relative_path_is_sent_whole_and_a_name_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wiki").mkdir()
    recipe = Recipe(model="org/model", corpus="wiki").absolute()
    assert (recipe.model, recipe.corpus) == ("org/model", str(tmp_path / "wiki"))
