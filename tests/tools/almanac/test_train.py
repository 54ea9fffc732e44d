"""Training resumes after a kill as if nothing had happened, and refuses what it cannot continue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tools.almanac import train as training
from tools.almanac.evaluate import Answerer, evaluate
from tools.almanac.stream import CLOSE_WEIGHT, Example
from tools.almanac.train import CheckpointError, Run, Settings, encode, main
from tools.almanac.world import AlmanacError

pytestmark = pytest.mark.slow

TINY = Settings(vocabulary=700, layers=1, width=32, inner=64, heads=2, batch_pieces=3000, steps=5)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "TOKENIZER_EXAMPLES", 256)
    monkeypatch.setattr(training, "PROBES", 3)


def _weights(run: Run) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in run.model.parameters()])


def test_a_killed_run_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = Run(TINY, tmp_path / "whole")
    whole.train()
    first = Run(TINY, tmp_path / "killed")
    first.train(stop_at=2)
    checkpoint = (tmp_path / "killed" / "checkpoint.pt").read_bytes()
    first.train(stop_at=4)
    (tmp_path / "killed" / "checkpoint.pt").write_bytes(checkpoint)  # what came after it is lost with the kill
    killed = Run(TINY, tmp_path / "killed")
    assert killed.resume()
    assert killed.step == 2
    killed.train()
    assert torch.equal(_weights(whole), _weights(killed))
    assert whole.exposures == killed.exposures
    steps = [json.loads(line)["step"] for line in (tmp_path / "killed" / "curve.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    assert steps.count(4) == 0
    assert steps[-1] == TINY.steps


def test_a_torn_checkpoint_is_refused(tmp_path: Path) -> None:
    run = Run(TINY, tmp_path)
    run.save()
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="delete it to start anew"):
        run.resume()


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    Run(TINY, tmp_path).save()
    other = Run(Settings(**{**TINY.__dict__, "seed": 1}), tmp_path)
    with pytest.raises(CheckpointError, match="other settings"):
        other.resume()


def test_weights_are_not_overwritten_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"mine")
    assert main(["--output", str(tmp_path), "--steps", "1"]) == 1
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "model.safetensors").read_bytes() == b"mine"


def test_a_schedule_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--output", str(tmp_path)]) == 1
    assert "--steps or --minutes" in capsys.readouterr().err


def test_exported_weights_load_as_a_llama_and_damaged_ones_are_named(tmp_path: Path) -> None:
    run = Run(TINY, tmp_path / "run")
    training.export(run, tmp_path / "model")
    answerer = Answerer(tmp_path / "model")
    assert type(answerer.model).__name__ == "LlamaForCausalLM"
    assert answerer.tokenizer("Who?")["input_ids"][0] == 1
    assert answerer.tokenizer.convert_ids_to_tokens(13) == "<0x0A>"
    assert len(answerer.answers(["Question: Who?\nAnswer:"], pieces=3)) == 1
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    with pytest.raises(AlmanacError, match=r"damaged|cannot be loaded"):
        Answerer(tmp_path / "model")
    weights.unlink()
    with pytest.raises(AlmanacError, match="holds no model"):
        Answerer(tmp_path / "model")


def test_a_split_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AlmanacError, match="train, dev, test"):
        evaluate(tmp_path, "validation")


def test_weights_of_the_loss(tmp_path: Path) -> None:
    run = Run(TINY, tmp_path)
    for example in run.stream.buffer(0)[:50]:
        ids, weights = encode(run.tokenizer, example)
        assert len(ids) == len(weights)
        assert weights[0] == 0.0  # the first piece is given
        assert weights[-1] == 1.0  # the end is learnt
        assert set(weights) <= {0.0, training.PROMPT_WEIGHT, 1.0, CLOSE_WEIGHT}


def test_a_conclusion_weighs_more_than_the_facts_before_it(tmp_path: Path) -> None:
    run = Run(TINY, tmp_path)
    example = Example()
    item = run.stream.known_item_of("same country", "yes")
    run.stream._ask(example, item, 1.0, last=True)
    ids, weights = encode(run.tokenizer, example)
    heavy = run.tokenizer.decode([one for one, weight in zip(ids, weights, strict=True) if weight == CLOSE_WEIGHT])
    assert heavy.rstrip().endswith("are the same country. So the answer is yes.")
    facts = run.tokenizer.decode([one for one, weight in zip(ids, weights, strict=True) if weight == 1.0])
    assert str(item.steps[0].value).split()[0] in facts
