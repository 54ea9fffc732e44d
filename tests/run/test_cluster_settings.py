"""What a cluster needs no Ray for: its settings and addresses, its workers and the recipes they load by."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from answering import DRAGIN, answer, questions
from clustered import ScriptedRecipe
from command import Command
from ray_nodes import free_port

from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.errors import MissingPackageError, SettingError
from dragin_lab.run.benchmark import Asking
from dragin_lab.run.cluster import Cluster, check_address, check_numbers
from dragin_lab.run.cluster_worker import ClusterError, Recipe, Worker, library
from dragin_lab.run.lines import PREDICTION, decode


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--ray", "local", "--actors", "0"], ("actors=0", "at least 1")),
        (["--ray", "local", "--gpus-per-actor", "1.5"], ("gpus_per_actor=1.5", "a fraction")),
        (["--ray", "local", "--gpus-per-actor", "-1"], ("gpus_per_actor=-1",)),
        (["--ray", "local", "--cpus-per-actor", "-1"], ("cpus_per_actor=-1",)),
        (["--actors", "2"], ("--actors", "give --ray too")),
        (["--ray", "head"], ("'head'", "HOST:PORT")),
        (["--ray", "head:0"], ("'head:0'", "HOST:PORT")),
        (["--ray", "ray://head:10001"], ("'ray://head:10001'", "ray job submit")),
    ],
)
def test_wrong_usage(command: Command, args: list[str], says: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("ray")
    command.refused("run", *args, "--output", tmp_path / "o", says=says)
    assert not (tmp_path / "o").exists()


def test_an_address_where_nobody_answers(command: Command, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    address = f"127.0.0.1:{free_port()}"
    command.refused("run", "--ray", address, "--output", tmp_path / "o", says=(f"nobody answers at {address}",))


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, command: Command, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match=r"needs ray; pip install 'dragin_lab\[cluster\]'"):
        Cluster("local")
    command.refused("run", "--ray", "local", "--output", tmp_path / "o", says=("dragin_lab[cluster]",))


@pytest.mark.parametrize("given", [(0, None, 1.0), (True, None, 1.0), (1.5, None, 1.0), (1, float("nan"), 1.0)])
def test_numbers_that_no_worker_can_be_made_of(given: Any) -> None:
    with pytest.raises(SettingError):
        check_numbers(*given)


def test_addresses() -> None:
    for address in ("local", "auto"):
        check_address(address)
    for address in ("", ":6379", "host:", "host:99999", "http://host:1"):
        with pytest.raises(SettingError):
            check_address(address)


def test_a_worker_gives_what_a_run_writes(tmp_path: Path) -> None:
    answer(tmp_path / "run", 2)
    written = (tmp_path / "run" / "predictions.jsonl").read_bytes()
    worker = Worker(ScriptedRecipe())
    identity = worker.load(library())
    assert identity.model["model"] == {"id": "scripted"}
    assert identity.retriever == {"kind": "ScriptedRetriever"}
    options = {"batch_size": 1, "traces": False}
    found = list(worker.answer(questions(2), DRAGIN, Asking(PromptTemplate(), None, 0), options))
    assert [one.line for one in found] == [decode(line, PREDICTION) for line in written.splitlines()]
    assert found[0].trace is None
    idle = Worker(ScriptedRecipe(searches=False))
    assert idle.load(library()).retriever is None


def test_what_keeps_a_worker_from_loading_is_said_with_its_place() -> None:
    with pytest.raises(ClusterError, match=r"^the worker on .*, process \d+: has another dragin_lab: version 0"):
        Worker(ScriptedRecipe()).load(library() | {"version": "9.9"})
    with pytest.raises(ClusterError, match=r"^the worker on .*, process \d+: .*/no/such/model"):
        Worker(Recipe(model="/no/such/model")).load(library())


def test_a_recipe_opens_what_the_command_line_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wiki").mkdir()
    recipe = Recipe(model="org/model", corpus="wiki").absolute()
    assert (recipe.model, recipe.corpus) == ("org/model", str(tmp_path / "wiki"))
    assert replace(recipe, corpus=None) == Recipe(model="org/model")


def test_the_source_of_the_library_is_told_apart(tmp_path: Path) -> None:
    found = library()
    assert len(found["source"]) == 64
    assert found == library()
