"""Training resumes after a kill as if nothing had happened, refuses what it cannot continue, and gives a Llama."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tools.almanac import train as training
from tools.almanac.drills import WORDS, Example
from tools.almanac.evaluate import Answerer
from tools.almanac.net import FOUND, SOURCE, SUBJECT, TOPIC, Net, Shape, give_a_start, to_llama
from tools.almanac.refine import main as refine_model
from tools.almanac.refine import refine
from tools.almanac.train import CheckpointError, Run, Settings, encode, export, main
from tools.almanac.world import AlmanacError, Entity

pytestmark = pytest.mark.slow

TINY = Settings(layers=1, width=32, inner=64, heads=2, batch_pieces=1500)
STEPS = 5


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "TOKENIZER_BUFFERS", (0,))
    monkeypatch.setattr(training, "PROBES", 3)
    monkeypatch.setattr(training, "give_a_start", lambda *_: None)  # which needs five layers


def _weights(run: Run) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in run.net.parameters()])


def test_a_killed_run_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = Run(TINY, tmp_path / "whole")
    whole.train(STEPS)
    first = Run(TINY, tmp_path / "killed")
    first.train(2)
    checkpoint = (tmp_path / "killed" / "checkpoint.pt").read_bytes()
    first.train(2)
    (tmp_path / "killed" / "checkpoint.pt").write_bytes(checkpoint)  # what came after it is lost with the kill
    killed = Run(TINY, tmp_path / "killed")
    assert killed.resume()
    assert killed.step == 2
    killed.log_to(killed.curve)
    killed.train(STEPS - 2)
    # Not to the bit, as kernels may choose by where memory lies; a step that is lost or repeated moves weights by 0.01.
    torch.testing.assert_close(_weights(whole), _weights(killed), rtol=0, atol=1e-3)
    assert whole.exposures == killed.exposures
    steps = [json.loads(line)["step"] for line in (tmp_path / "killed" / "curve.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    assert steps.count(4) == 0
    assert steps[-1] == STEPS


def test_a_decay_branches_off_and_leaves_the_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = tmp_path / "run", tmp_path / "model"
    sizes = [f"--{name.replace('_', '-')}={getattr(TINY, name)}" for name in ("layers", "width", "inner", "heads")]
    given = ["--output", str(run), "--batch-pieces", "1500", *sizes]
    assert main([*given, "--steps", "2"]) == 0
    before = {one.name: one.read_bytes() for one in run.iterdir()}
    assert main([*given, "--decay", "3", "--export", str(out)]) == 0
    assert {one.name: one.read_bytes() for one in run.iterdir()} == before
    assert json.loads((out / "training.json").read_text())["steps_done"] == 5
    assert json.loads((out / "curve.jsonl").read_text().splitlines()[-1])["step"] == 5
    assert main([*given, "--decay", "3", "--export", str(out)]) == 1
    assert "exists; give another folder" in capsys.readouterr().err
    assert main([*given, "--decay", "3"]) == 1
    assert "go together" in capsys.readouterr().err


def test_a_torn_checkpoint_is_refused(tmp_path: Path) -> None:
    run = Run(TINY, tmp_path)
    run.save()
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="delete it to start again"):
        run.resume()


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    Run(TINY, tmp_path).save()
    other = Run(Settings(**{**TINY.__dict__, "seed": 1}), tmp_path)
    with pytest.raises(CheckpointError, match="other settings"):
        other.resume()


def test_the_exported_network_is_the_same_llama() -> None:
    torch.manual_seed(0)
    net = Net(Shape(vocabulary=300, layers=5, inner=64))
    give_a_start(net, 0)
    ids = torch.randint(300, (2, 17))
    with torch.no_grad():
        ours, theirs = net.logits(net(ids)[0]), to_llama(net).eval()(ids).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_what_it_starts_from_copies() -> None:
    torch.manual_seed(0)
    net = Net(Shape(vocabulary=400))
    ids = torch.randint(400, (4, 30))
    twice = torch.cat([ids, ids], 1)

    def right() -> float:
        with torch.no_grad():
            found = net.logits(net(twice)[0])[:, 30:-1].argmax(-1)
        return float((found == twice[:, 31:]).float().mean())

    assert right() < 0.1
    give_a_start(net, 0)
    assert right() > 0.2  # of 400 pieces; by chance 0.0025


def test_exported_weights_load_as_a_llama_and_damaged_ones_are_named(tmp_path: Path) -> None:
    run = Run(TINY, tmp_path / "run")
    run.log_to(tmp_path / "model" / "curve.jsonl")
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


def test_weights_of_the_loss(tmp_path: Path) -> None:
    run = Run(TINY, tmp_path)
    for example in run.stream.buffer(90)[:80]:
        coded = encode(run.tokenizer, example)
        weights = coded.weights
        assert len(coded.ids) == len(weights)
        assert weights[0] == 0.0  # the first piece is given
        assert all(0 <= one <= 1 for one in weights)
        pieces = run.tokenizer.encode(example.text)
        for start, end, weight in example.answers:
            if weight == 1.0:
                spans = zip(weights, pieces.offsets, strict=False)
                inside = [weight for weight, (first, last) in spans if first < end and last > start]
                assert inside
                assert WORDS not in inside


def test_where_to_look_is_the_same_value_and_the_end_of_its_subject(tmp_path: Path) -> None:
    run = Run(TINY, tmp_path)
    found = dict.fromkeys((SUBJECT, SOURCE, TOPIC, FOUND), 0)
    for example in run.stream.buffer(90)[:80]:
        coded = encode(run.tokenizer, example)
        for kind, place, target in coded.looks:
            found[kind] += 1
            assert 0 < target < place
            if kind == SOURCE:
                assert coded.ids[place + 1] == coded.ids[target]
        for value, subject in example.subjects:
            assert subject < value
            assert example.text[subject].isalpha()
            assert not example.text[subject + 1].isalpha()
    assert found[SOURCE] > 40
    assert found[SUBJECT] > 2 * found[SOURCE]


def test_a_sentence_looks_at_the_name_of_what_it_is_about(tmp_path: Path) -> None:
    run, steps = Run(TINY, tmp_path), []
    example = Example()
    example.add("Question: Who made the film The Old Oak?\nAnswer:")
    director = Entity("p", "person", "Ann Lee", "known")
    film = Entity("f", "film", "The Old Oak", "known", label="1957 film", facts={"director": director})
    example.text = example.text.replace("The Old Oak", film.title)
    for subject, relation, sentence, value in (
        (film, "director", f" First, the film {film.title} was made by Ann Lee.", "Ann Lee"),
        (director, "birthplace", " It is known that Ann Lee was born in Westhaven.", "Westhaven"),
    ):
        since = len(example.text)
        example.add(sentence, WORDS)
        example.state(subject, relation, example.text.rindex(value), len(value), since)
    for begins, ends, first, last in example.topics:
        steps.append((example.text[begins:ends], example.text[first:last]))
    assert steps == [
        (": First, the film ", film.title),
        (" was made by Ann Lee", film.title),
        (". It is known that ", "Ann Lee"),
        (" was born in Westhaven", "Ann Lee"),
    ]
    looks = [(place, target) for kind, place, target in encode(run.tokenizer, example).looks if kind == TOPIC]
    spans = run.tokenizer.encode(example.text).offsets
    last = max(place for place, _ in looks)
    assert example.text[: spans[last + 1][1]].endswith("Westhaven")  # the place that the last piece is written from
    seen = [example.text[slice(*spans[target])] for place, target in looks if place == last]
    assert "".join(seen).strip() == "Ann Lee"


def test_what_follows_a_value_looks_back_at_it_up_to_the_next_one(tmp_path: Path) -> None:
    run, example = Run(TINY, tmp_path), Example()
    director = Entity("p", "person", "Ann Lee", "known")
    for relation, sentence, value in (
        ("birthplace", "Ann Lee was born in Westhaven.", "Westhaven"),
        ("birthyear", " Ann Lee was born in 1907.", "1907"),
    ):
        example.add(sentence, WORDS)
        example.state(director, relation, example.text.rindex(value), len(value), 0)
    example.add("\nQuestion: Who?")
    spans = run.tokenizer.encode(example.text).offsets
    from_where: dict[str, str] = {}
    for kind, place, target in encode(run.tokenizer, example).looks:
        if kind == FOUND:
            seen = from_where.get(example.text[: spans[place][1]], "")
            from_where[example.text[: spans[place][1]]] = seen + example.text[slice(*spans[target])]
    assert {text.strip() for text in from_where.values()} == {"Westhaven", "1907"}
    ends = sorted(from_where, key=len)
    assert ends[0].endswith("Westhaven.")
    assert ends[-1].endswith("1907.")  # and not from the question after it
    assert from_where[ends[0]].strip() == "Westhaven"
    assert from_where[ends[-1]].strip() == "1907"


def test_a_finished_model_is_refined_at_a_low_rate(tmp_path: Path) -> None:
    run, model = Run(TINY, tmp_path / "run"), tmp_path / "model"
    run.train(STEPS)
    model.mkdir()
    run.log_to(model / "curve.jsonl")
    export(run, model, 0)
    assert (
        refine_model([str(model), "--rate", "0.001", "--steps", "2", "--buffer", "7", "--export", str(tmp_path / "r")])
        == 0
    )
    before, after = (load_file(folder / "model.safetensors") for folder in (model, tmp_path / "r"))
    assert before.keys() == after.keys()
    moved = max(float((before[name].float() - after[name].float()).abs().max()) for name in before)
    assert 0 < moved < 0.01
    record = json.loads((tmp_path / "r" / "training.json").read_text())
    assert record["steps_done"] == STEPS + 2
    assert record["refined"] == [{"rate": 0.001, "steps": 2, "buffer": 7}]
    with pytest.raises(AlmanacError, match=r"give the folder of a trained model"):
        refine(tmp_path / "nothing", 0.1, 2, 7, tmp_path / "s")
    with pytest.raises(AlmanacError, match=r"--rate 2 --steps 1: give a share of the rate up to 1"):
        refine(model, 2.0, 1, 7, tmp_path / "t")
