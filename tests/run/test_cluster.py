"""Runs on a real Ray cluster: the same bytes as without one, whatever dies on the way."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from answering import DRAGIN, answer, questions, recorded
from clustered import ScriptedRecipe, answer_on
from command import PATIENCE, environment
from ray_nodes import Nodes, started, wait_for, whole_lines

from dragin_lab.catalog.by_name import method
from dragin_lab.errors import RunError, SettingError
from dragin_lab.lab import Lab
from dragin_lab.run import cluster as cluster_module
from dragin_lab.run.cluster import Cluster, Recipe, describe_library
from dragin_lab.run.rundir import read_run

COUNT = 10

OWN = """
import dragin_lab as dl

@dl.when("surprise", threshold=1.0)
def surprise(draft, weight: float = 1.0):
    return weight * draft.entropy
"""

#: A job of one's own, as docs/how-to/machines.md has it.
JOB = """
import dragin_lab as dl
from dragin_lab.run.cluster import Recipe

with dl.Cluster({address!r}, Recipe(), actors=1, gpus_per_actor=0) as cluster:
    dl.Lab(cluster).run("almanac/2wikimultihopqa", "wo-rag", limit=200, output={output!r})
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def head() -> Iterator[Nodes]:
    with started(cpus=3) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The predictions of a run in one process."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    answer(folder, COUNT)
    return (folder / "predictions.jsonl").read_bytes()


def predictions(folder: Path) -> bytes:
    return (folder / "predictions.jsonl").read_bytes()


# -- the same run ----------------------------------------------------------------------------------


def test_the_same_bytes_as_in_one_process(head: Nodes, whole: bytes, tmp_path: Path) -> None:
    with Cluster(head.address, ScriptedRecipe(seconds=0.02), actors=2) as cluster:
        record = answer_on(cluster, tmp_path / "run", COUNT, traces=True)
        assert predictions(tmp_path / "run") == whole
        assert record.complete
        assert record.trace("q4").answer == "Li 4"
        assert len((tmp_path / "run" / "timings.jsonl").read_text().splitlines()) == COUNT
        answer_on(cluster, tmp_path / "batches", COUNT, batch_size=2)
        assert predictions(tmp_path / "batches") == whole
        # Another run with the same workers; a method that does not search needs no retriever.
        recorded(Lab(cluster), questions(3), method("wo-rag"), tmp_path / "wo")
        with pytest.raises(SettingError, match="searches its own passages"):
            Lab(cluster, retriever="bm25")
        workers = head.processes("ray::Worker")
        assert len(workers) == 2
    answer(tmp_path / "alone", COUNT, traces=True)
    assert read_run(tmp_path / "alone").config == record.config
    psutil.wait_procs(workers, timeout=PATIENCE)
    assert not head.processes("ray::Worker")  # let go


@pytest.mark.timeout(200)
def test_a_trigger_of_ones_own_on_the_embedded_model(head: Nodes, tmp_path: Path) -> None:
    exec(OWN, {"__name__": "__main__"})  # in no worker's path, so it is sent by value
    own = method("dragin", when="surprise", max_new_tokens=24)

    def run(lab: Lab, name: str) -> None:
        lab.run("almanac/iirc", own, limit=4, output=tmp_path / name, progress=False)

    run(Lab(device="cpu"), "alone")
    with Cluster(head.address, Recipe(device="cpu"), actors=2) as cluster:
        run(Lab(cluster), "many")
        shown = f"Cluster({head.address}, 2 × 1 CPU and 0 GPU, LanguageModel(almanac"
        assert shown in repr(cluster)
    for name in ("predictions.jsonl", "run.json"):
        a, b = (next((tmp_path / folder).rglob(name)).read_bytes() for folder in ("alone", "many"))
        assert a == b


# -- what dies on the way --------------------------------------------------------------------------


def test_a_lost_worker_is_replaced_and_its_question_asked_again(
    head: Nodes, whole: bytes, tmp_path: Path
) -> None:
    recipe = ScriptedRecipe(deadly=(2, 5), once=str(tmp_path / "once"), seconds=0.02)
    with (
        Cluster(head.address, recipe, actors=2) as cluster,
        pytest.warns(
            UserWarning, match=r"a worker was lost \(.*\), and its questions are asked again"
        ),
    ):
        answer_on(cluster, tmp_path / "run", COUNT)
    assert predictions(tmp_path / "run") == whole


@pytest.mark.deep
def test_a_question_that_ends_every_worker_is_an_error(
    head: Nodes, whole: bytes, tmp_path: Path
) -> None:
    with (
        Cluster(head.address, ScriptedRecipe(deadly=(3,)), actors=1) as cluster,
        pytest.warns(match="was lost"),
    ):
        # many are given to it at once
        record = answer_on(cluster, tmp_path / "run", COUNT, batch_size=2)
    assert [line["id"] for line in record.failed] == ["q3"]
    assert record.failed[0]["error"].startswith("the worker that answered it was lost 2 times: ")
    assert len(record.predictions) == COUNT
    assert answer(tmp_path / "run", COUNT).asked == [3]
    assert predictions(tmp_path / "run") == whole


@pytest.mark.deep
def test_a_driver_that_is_killed_takes_its_workers_with_it(
    head: Nodes, whole: bytes, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    process = head.run(head.address, folder, COUNT, 0.2)
    wait_for(lambda: whole_lines(folder) >= 2 or process.poll() is not None)
    process.kill()
    _, said = process.communicate()
    assert 2 <= whole_lines(folder) < COUNT, said
    wait_for(lambda: not head.processes("ray::Worker"))
    with Cluster(head.address, ScriptedRecipe(), actors=1) as cluster:
        answer_on(cluster, folder, COUNT)
    assert predictions(folder) == whole


@pytest.mark.deep
def test_ctrl_c_keeps_what_was_finished_and_lets_the_workers_go(
    head: Nodes, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", JOB.format(address=head.address, output=str(tmp_path))],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    folder = tmp_path / "almanac/2wikimultihopqa/wo-rag"
    wait_for(lambda: whole_lines(folder) >= 2 or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert b"KeyboardInterrupt: " in said
    assert b"continues from there" in said
    assert 2 <= len(read_run(folder).predictions) < 200
    wait_for(lambda: not head.processes("ray::Worker"))


@pytest.mark.deep
def test_a_local_cluster_listens_here_only_and_ends_with_its_process(tmp_path: Path) -> None:
    with started(cpus=0) as nodes:
        process = nodes.run("local", tmp_path / "run", COUNT, 2)
        wait_for(lambda: whole_lines(tmp_path / "run") >= 1 or process.poll() is not None)
        family = nodes.processes()
        hosts = {
            c.laddr.ip
            for p in family
            for c in p.net_connections("tcp")
            if c.status == psutil.CONN_LISTEN
        }
        process.kill()
        _, said = process.communicate()
        _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    assert hosts, said
    assert hosts <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
    assert not alive


# -- what does not fit together --------------------------------------------------------------------


def test_workers_that_differ_are_refused(
    head: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pytest.raises(
            RunError,
            match=r"differs from the others .*model\.id: '\w+' → '\w+'\. All machines need",
        ),
        Cluster(
            head.address, ScriptedRecipe(seconds=0.3, names=str(tmp_path / "names")), actors=2
        ) as cluster,
    ):
        answer_on(cluster, tmp_path / "run", COUNT)
    monkeypatch.setattr(
        cluster_module, "describe_library", lambda: describe_library() | {"version": "9.9"}
    )
    with (
        pytest.raises(RunError, match=r"the worker on .* differs .*library\.version: '9\.9' → '0"),
        Cluster(head.address, ScriptedRecipe(), actors=1) as cluster,
    ):
        cluster.provenance()


def test_a_worker_that_fails_is_one_error(head: Nodes) -> None:
    with Cluster(head.address, ScriptedRecipe(), actors=1) as cluster:
        answers = cluster.finish(questions(1), DRAGIN, {}, {"batch_size": 1, "unknown": 0})
        with pytest.raises(
            RunError, match=r"a worker failed: TypeError: record_episodes\(\) got an unexpected"
        ):
            next(answers)


@pytest.mark.filterwarnings("ignore:a worker was lost")
@pytest.mark.deep
def test_workers_that_end_while_they_load_are_not_replaced_for_ever(head: Nodes) -> None:
    with (
        pytest.raises(
            RunError,
            match="2 workers in a row were lost before they were ready: its worker process",
        ),
        Cluster(head.address, ScriptedRecipe(loads=False), actors=1) as cluster,
    ):
        cluster.provenance()


@pytest.mark.deep
def test_workers_share_a_gpu_and_need_room(head: Nodes, whole: bytes, tmp_path: Path) -> None:
    recipe = ScriptedRecipe(device=None, seconds=0.02)
    # the head says that it has one
    with Cluster(head.address, recipe, gpus_per_actor=0.5) as cluster:
        assert "2 × 1 CPU and 0.5 GPU, " in repr(cluster)
        answer_on(cluster, tmp_path / "run", COUNT)
        assert len(head.processes("ray::Worker")) == 2
        with pytest.raises(RunError, match=r"no connection to Ray at 'local': .*ray\.init"):
            Cluster("local", recipe)
        with Cluster("auto", recipe) as second:
            assert "1 × 1 CPU and 1 GPU, " in repr(second)
    assert predictions(tmp_path / "run") == whole
    with pytest.raises(
        SettingError, match="a worker takes 64 CPU and 0 GPU, and the cluster has 3 CPU and 1 GPU"
    ):
        Cluster(head.address, ScriptedRecipe(), cpus_per_actor=64)
