"""An engine of one's own is a tokenizer and ``write``: every method, the sweep and the tuner run on it."""

from __future__ import annotations

from pathlib import Path

import pytest
import spacy
from scripted import Parrot, ScriptedRetriever

import dragin_lab as dl
from dragin_lab.reference.released import METHODS as REFERENCE_METHODS

QUESTION = "Who made the thing?"
METHODS = [*((entry.name, "paper") for entry in dl.methods()), *((name, "reference") for name in REFERENCE_METHODS)]


@pytest.fixture
def lab() -> dl.Lab:
    return dl.Lab(Parrot(), retriever=ScriptedRetriever())


@pytest.mark.parametrize(("name", "variant"), METHODS)
def test_every_method_runs(lab: dl.Lab, name: str, variant: str) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "Bo Ek"}])
    method = dl.method(name, variant=variant, nlp=nlp)
    trace = lab.ask(QUESTION, method, gold="Bo Ek")
    assert trace.ended in ("answered", "length", "stalled")
    assert trace.text
    assert list(lab.ask_many([QUESTION, QUESTION], method, batch_size=2))[1].answer == trace.answer
    *_, ended = lab.stream(QUESTION, method)
    assert ended.trace.answer == trace.answer


def test_the_sweep_and_the_tuner_run(lab: dl.Lab, tmp_path: Path) -> None:
    sweep = lab.sweep([QUESTION], "dragin", threshold=[0.1, 9.0], progress=False)
    assert sweep.table["retrievals"].tolist()[1] == 0 < sweep.table["retrievals"].tolist()[0]
    trace = lab.ask(QUESTION, "dragin")
    assert trace.save(tmp_path / "t.trace").stat().st_size
    assert dl.Replay(trace).at(threshold=0.01).turns[0].reached
    dl.tune([trace])
