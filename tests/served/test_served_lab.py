"""Everything that a lab does, with llama.cpp in this process, and recipes that open the same lab elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from model_server import almanac

import dragin_lab as dl
from dragin_lab.almanac import questions
from dragin_lab.catalog.methods import method as make
from dragin_lab.cli import run as cli_run
from dragin_lab.run.drivers import Retrieved, TokenWritten
from dragin_lab.run.worker import Recipe, Worker

QUESTIONS = questions("2wikimultihopqa", "test")[:3]
FLARE = make("flare", variant="paper", max_new_tokens=32)
OpenLab = Callable[[], dl.Lab]


def test_a_question_is_streamed(lab: dl.Lab) -> None:
    stream = lab.stream(QUESTIONS[0], FLARE)
    events = list(stream)
    written = [event.text for event in events if isinstance(event, TokenWritten) and event.kind == "continuation"]
    assert "".join(written).strip().startswith(stream.trace.text.strip()[:20])
    assert stream.trace.text == lab.ask(QUESTIONS[0], FLARE).text
    assert len([event for event in events if isinstance(event, Retrieved)]) == stream.trace.retrievals_count > 0


def test_a_run_goes_on_with_another_server_of_the_same_file(lab: dl.Lab, open_llama: OpenLab, tmp_path: Path) -> None:
    lab.run(QUESTIONS[:1], FLARE, output=tmp_path, progress=False)
    (path,) = tmp_path.rglob("predictions.jsonl")
    first = path.read_bytes()
    with open_llama() as other:
        runs = other.run(QUESTIONS, [FLARE, make("wo-rag", max_new_tokens=32)], output=tmp_path, progress=False)
    assert path.read_bytes().startswith(first)
    counts = runs.table().frame.xs("n", axis="columns", level=-1)
    assert len(counts) == 2
    assert (counts == len(QUESTIONS)).all(axis=None)
    assert runs.trace(QUESTIONS[2].id, runs.names[0]).asked_again == 0


def test_a_sweep_writes_once_what_its_values_share(lab: dl.Lab) -> None:
    swept = lab.sweep(QUESTIONS[:2], FLARE, threshold=[0.2, 0.9], progress=False)
    here = dl.Lab(almanac()).sweep(QUESTIONS[:2], FLARE, threshold=[0.2, 0.9], progress=False)
    columns = ["value", "em", "retrievals", "tokens"]
    assert swept.table[columns].equals(here.table[columns])


def test_live_controls_ask_it(lab: dl.Lab) -> None:
    live = lab.explore(QUESTIONS[0], "flare", variant="paper", max_new_tokens=32)
    live.ask()
    trace = live.wait(60)
    assert live.state["error"] == ""
    assert trace.text == lab.ask(QUESTIONS[0], FLARE).text


def test_stored_traces_are_tuned(lab: dl.Lab) -> None:
    cached = lab.replace(cache=True)
    trace = cached.ask(QUESTIONS[0], FLARE)
    tuner = cached.tune(trace)
    (never,) = tuner.tune(threshold=1.0)
    assert never.retrievals < trace.retrievals_count
    (same,) = tuner.tune(threshold=FLARE.threshold)
    assert same.retrievals == trace.retrievals_count


def test_a_threshold_is_found_for_a_budget(lab: dl.Lab) -> None:
    targ: dict[str, Any] = {"method": "targ", "variant": "paper", "max_new_tokens": 32}
    chosen, same = (
        dl.method("targ", variant="paper", threshold="share:0.34", calibration=dl.calibration(one, QUESTIONS, **targ))
        for one in (lab, dl.Lab(almanac()))
    )
    assert chosen.threshold == pytest.approx(same.threshold, abs=1e-3)


# -- elsewhere --------------------------------------------------------------------------------------------------------


def test_a_recipe_opens_the_same_lab(file: Path, lab: dl.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    recipe = Recipe(file.name, engine="llama.cpp", tokenizer="almanac", dtype="float32").absolute()
    assert recipe.model == str(file)
    worker = Worker(recipe)
    recorded = worker.load().recorded["model"]
    with worker.lab:
        assert recorded["served"] == lab.model.provenance()["served"]
        assert recorded["answers_sha256"] == lab.model.provenance()["answers_sha256"]
        assert worker.lab.ask(QUESTIONS[0], FLARE).text == lab.ask(QUESTIONS[0], FLARE).text


def test_a_folder_with_the_tokenizer_is_sent_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words").mkdir()
    recipe = Recipe("http://127.0.0.1:8080", tokenizer="words").absolute()
    assert (recipe.model, recipe.tokenizer) == ("http://127.0.0.1:8080", str(tmp_path / "words"))


def test_the_command_line_gives_workers_engine_and_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_run, "Cluster", lambda address, recipe, **pool: recipe)
    given = {"engine": ("llama.cpp",), "tokenizer": ("almanac",)}
    options = dict.fromkeys(("model", "retriever", "corpus", "corpus_fields", "ray")) | {"given": given}
    recipe = cli_run._open_cluster(options, searches=True)
    assert (recipe.engine, recipe.tokenizer) == ("llama.cpp", "almanac")
