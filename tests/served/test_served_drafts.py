"""Drafts of a model behind a server: the numbers, texts and decisions of the same model in transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import KINDS
from model_server import almanac

import dragin_lab as dl
from dragin_lab.almanac import questions
from dragin_lab.catalog.methods import method as make
from dragin_lab.core.episode import Bias, Write
from dragin_lab.core.method import METHODS
from dragin_lab.errors import ModelError, SettingError
from dragin_lab.served import writing
from dragin_lab.served.model import ServedModel
from dragin_lab.trace.trace import Draft, Prompt, Trace

PROMPT = Prompt("Question: Who directed The Silent Fukain?\nAnswer:")
QUESTIONS = questions("2wikimultihopqa", "test")[:2]


def decisions(trace: Trace) -> list[Any]:
    steps = [step.decision for step in trace.steps if step.decision is not None]
    return [(one.retrieve, one.cut, one.token, one.sentence) for one in steps]


def same_episodes(one: dl.Lab, other: dl.Lab, method: Any) -> list[Trace]:
    traces = []
    for question in QUESTIONS:
        ours, theirs = one.ask(question, method), other.ask(question, method)
        assert (ours.text, ours.queries, ours.answer) == (theirs.text, theirs.queries, theirs.answer)
        assert decisions(ours) == decisions(theirs)
        traces.append(ours)
    return traces


def close(ours: Draft, theirs: Draft, within: float = 1e-4) -> None:
    assert (ours.ids.tolist(), ours.text, ours.stopped) == (theirs.ids.tolist(), theirs.text, theirs.stopped)
    assert (ours.tokens, ours.offsets.tolist()) == (theirs.tokens, theirs.offsets.tolist())
    np.testing.assert_allclose(ours.logprob, theirs.logprob, atol=within)
    assert ours.entropy_width is not None
    assert (np.abs(ours.entropy - theirs.entropy) <= ours.entropy_width / 2 + within).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_has_the_numbers_of_the_model(asking: Callable[..., Any], kind: str) -> None:
    lm = asking(kind)[0].model
    ours, theirs = lm.generate(Write(PROMPT, 20)), almanac().generate(Write(PROMPT, 20))
    close(ours, theirs)
    assert ours.alternative_ids.shape == (len(ours), 20)
    assert (ours.alternative_ids[:, :5] == theirs.alternative_ids).all()
    np.testing.assert_allclose(ours.alternative_probs[:, :5], theirs.alternative_probs, atol=1e-5)
    assert np.isnan(ours.received).all()


@pytest.mark.parametrize("kind", KINDS)
def test_with_all_of_the_vocabulary_entropy_is_exact(asking: Callable[..., Any], kind: str) -> None:
    lm = asking(kind, {"likeliest": 1452}, vocabulary=1452)[0].model
    lm.interface.vocabulary = 1452
    ours, theirs = lm.generate(Write(PROMPT, 8)), almanac().generate(Write(PROMPT, 8))
    assert (ours.entropy_width == 0).all()
    np.testing.assert_allclose(ours.entropy, theirs.entropy, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bias_holds_for_its_tokens_and_leaves_the_numbers_alone(asking: Callable[..., Any], kind: str) -> None:
    lm = asking(kind)[0].model
    draft = Write(PROMPT, 8, bias=(Bias("The", 50.0, stop=1), Bias(" of", -50.0, first=3, stop=5)))
    close(lm.generate(draft), almanac().generate(draft))


def test_tokens_within_a_character_are_asked_for_where_the_stream_leaves_them_out(asking: Callable[..., Any]) -> None:
    """llama.cpp streams no token that ends within a character, and says so only by its count."""
    lab, server = asking()
    euro = [3 + byte for byte in "€".encode()]
    server.row = _spelling(server, [*euro, *euro])
    expected = lab.model.generate(Write(PROMPT, 8))
    assert expected.ids.tolist()[:6] == [*euro, *euro]
    assert expected.text.startswith("€€")
    assert [len(t) for t in expected.tokens[:6]] == [6] * 6  # <0xE2> …
    assert (expected.logprob[:6] > -0.1).all()


def _spelling(server: Any, ids: list[int]) -> Any:
    """The server's rows, with these ids the likeliest after the prompt."""
    p, row = len(almanac().prompt(PROMPT)[0]), server.row

    def spelled(before: list[int]) -> np.ndarray:
        logits = row(before)
        if 0 <= len(before) - p < len(ids):
            logits[ids[len(before) - p]] = 8.0
        return logits - np.log(np.exp(logits).sum())

    return spelled


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["wo-rag", "flare", "flare-instruct"])
def test_methods_give_the_same_episodes(asking: Callable[..., Any], kind: str, name: str) -> None:
    same_episodes(asking(kind)[0], dl.Lab(almanac()), make(name, variant="paper", max_new_tokens=40))


def open_thetas(lab: dl.Lab) -> list[float]:
    """Thresholds within the bounds of the tokens that the answer to the first question begins with."""
    trace = lab.ask(QUESTIONS[0], "wo-rag", variant="paper")
    draft = trace.steps[0].draft
    widest = np.argsort(draft.entropy_width[:20])[::-1][:2]
    return [float(draft.entropy[t]) for t in widest]


def test_an_entropy_whose_bounds_hold_the_threshold_is_asked_again(asking: Callable[..., Any]) -> None:
    """Of a few tokens, and all decisions are those of the whole distributions."""
    lab, server = asking(loading={"likeliest": 5})
    for theta in open_thetas(lab):
        server.asked.clear()
        traces = same_episodes(lab, dl.Lab(almanac()), make("flare", variant="paper", when=f"entropy@{theta}"))
        again = sum(trace.asked_again for trace in traces)
        assert 0 < again < sum(trace.counters["generated"] for trace in traces) / 4
        whole = [body for _, body in server.asked if body.get("n_probs") == 1452]
        assert again == len(whole)
        assert all(body["n_predict"] == 1 for body in whole)
        widths = np.concatenate([written.entropy_width for trace in traces for written in trace.continuations])
        assert (widths == 0).sum() >= again


def test_the_whole_distribution_is_asked_for_only_where_more_of_it_leaves_the_decision_open(
    asking: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "MORE", 300)
    lab, server = asking(loading={"likeliest": 5})
    (theta, _) = open_thetas(lab)
    for nearer in (theta, theta + 0.02):
        server.asked.clear()
        traces = same_episodes(lab, dl.Lab(almanac()), make("flare", variant="paper", when=f"entropy@{nearer}"))
        more, whole = ([b for _, b in server.asked if b.get("n_probs") == k] for k in (300, 1452))
        assert len(more) == sum(trace.asked_again for trace in traces) > len(whole)


def test_a_mean_of_entropies_is_exact_where_its_bounds_hold_the_threshold(asking: Callable[..., Any]) -> None:
    dl.when("mean-entropy", threshold=0.0, unit="draft", pool="mean")(lambda draft: draft.entropy)
    lab, _ = asking(loading={"likeliest": 3})
    shown = {"what": "question", "max_new_tokens": 24}
    full = dl.Lab(almanac()).ask(QUESTIONS[0], "dragin", variant="paper", when="mean-entropy@1e9", **shown)
    mean = full.steps[0].decision.peaks[0]
    for theta, again in ((mean + 1e-3, True), (mean + 5, False)):
        method = make("dragin", variant="paper", when=f"mean-entropy@{theta}", **shown)
        (trace, _) = same_episodes(lab, dl.Lab(almanac()), method)
        assert bool(trace.asked_again) == again


def test_a_custom_trigger_that_reads_entropy_gets_all_of_it(asking: Callable[..., Any]) -> None:
    @dl.when("fall", threshold=1.0)
    def fall(draft: dl.Draft) -> np.ndarray:
        return -np.diff(draft.entropy, prepend=0.0)

    lab, server = asking(loading={"likeliest": 5})
    traces = same_episodes(lab, dl.Lab(almanac()), make("flare", variant="paper", when="fall"))
    drafts = [step.draft for trace in traces for step in trace.steps if step.draft is not None]
    assert all((draft.entropy_width == 0).all() for draft in drafts)
    streamed = [body for _, body in server.asked if body.get("n_probs") == 1452 and body["n_predict"] > 1]
    assert streamed, "after a few tokens whole distributions are streamed, and not asked for one by one"


def test_a_trigger_that_reads_no_entropy_asks_for_none_again(asking: Callable[..., Any]) -> None:
    @dl.when("short", threshold=0.5)
    def short(draft: dl.Draft) -> np.ndarray:
        return np.array([float(len(text.strip()) == 1) for text in draft.tokens])

    lab, _ = asking(loading={"likeliest": 2})
    traces = same_episodes(lab, dl.Lab(almanac()), make("flare", variant="paper", when="short"))
    assert sum(trace.asked_again for trace in traces) == 0


def test_the_stream_is_closed_where_the_draft_stops(asking: Callable[..., Any]) -> None:
    lab, server = asking()
    server.events = 0
    trace = lab.ask(QUESTIONS[0], "fl-rag", variant="paper", max_new_tokens=64)
    assert server.events < 200
    assert not [body for _, body in server.asked if "n_probs" in body and body["n_predict"] > 64]
    assert trace.ended in ("answered", "length")


def test_example_marks_are_sent_and_the_stop_is_decided_here(asking: Callable[..., Any]) -> None:
    lab, server = asking()
    lab.ask(QUESTIONS[0], "wo-rag", variant="paper")
    assert ["\nQuestion:"] in [body.get("stop") for _, body in server.asked]


def test_tokens_are_streamed_as_they_come(asking: Callable[..., Any]) -> None:
    lab, _ = asking()
    stream = lab.model.stream(Write(PROMPT, 12))
    first = next(stream)
    assert (first.index, first.token) == (0, almanac().tokenizer.tokens([first.id])[0])
    events = [first, *stream]
    assert "".join(event.delta for event in events) == events[-1].text


def test_drafts_side_by_side_are_those_alone(asking: Callable[..., Any]) -> None:
    lab, server = asking()
    asked, method = questions("2wikimultihopqa", "test")[:4], make("fl-rag", variant="paper", max_new_tokens=24)
    alone = {t.question.id: t.text for t in lab.ask_many(asked, method)}
    server.most_under_way, server.troubles = 0, [("together", 4)] * 4
    beside = list(lab.ask_many(asked, method, batch_size=4))
    assert {t.question.id: t.text for t in beside} == alone
    assert server.most_under_way == 4
    assert beside[0].provenance["batch"]["size"] == 4


def test_a_cache_serves_what_was_written(asking: Callable[..., Any]) -> None:
    lab, server = asking()
    lab = lab.replace(cache=True)
    swept = lab.sweep(QUESTIONS, "flare", variant="paper", threshold=[0.2, 0.4, 0.4001], progress=False)
    assert len(swept.table) == 3
    server.asked.clear()
    again = lab.ask(QUESTIONS[0], "flare", variant="paper", threshold=0.4)
    assert again.stored["drafts"] == len(again.continuations)
    assert not server.asked
    fresh = lab.replace(cache=False).ask(QUESTIONS[0], "flare", variant="paper", threshold=0.4)
    assert again.diff(fresh, arrays=True) == "" or again.text == fresh.text


def test_a_trace_keeps_width_and_count(asking: Callable[..., Any], tmp_path: Any) -> None:
    lab, _ = asking(loading={"likeliest": 5})
    trace = lab.ask(QUESTIONS[0], "flare", variant="paper", when=f"entropy@{open_thetas(lab)[0]}")
    loaded = dl.Trace.load(trace.save(tmp_path / "trace.safetensors"))
    assert loaded.asked_again == trace.asked_again > 0
    np.testing.assert_array_equal(loaded.continuations[0].entropy_width, trace.continuations[0].entropy_width)
    assert len(trace.continuations[0].beginning(2).entropy_width) == 2


def test_what_needs_attention_is_refused_by_name_before_anything_is_written(asking: Callable[..., Any]) -> None:
    lab, server = asking()
    attending = [name for name in METHODS if make(name).reads_attention]
    assert {"dragin", "etc"} <= set(attending)
    for name in attending:
        with pytest.raises(
            SettingError, match=f"method '{name}' looks at attention, and almanac.gguf has none; .*flare"
        ):
            lab.ask(QUESTIONS[0], name)
    with pytest.raises(SettingError, match="attention"):
        lab.ask(QUESTIONS[0], "flare", variant="paper", when="rind")
    dl.when("probing", threshold=1, needs=("hidden",))(lambda draft: draft.hidden[:, 0])
    with pytest.raises(
        SettingError, match=r"'probing' reads hidden states, and almanac\.gguf gives none; load the model in"
    ):
        lab.ask(QUESTIONS[0], "flare", variant="paper", when="probing")
    assert not server.asked
    with pytest.raises(ModelError, match="has no attention"):
        lab.model.generate(Write(PROMPT, 4, attention=True))
    with pytest.raises(ModelError, match="has no attention"):
        lab.model.attend([1, 2])


def test_sampling_draws_by_the_seed(asking: Callable[..., Any]) -> None:
    lab, server = asking(loading={"sample": True})
    assert isinstance(lab.model, ServedModel)
    lab.ask(QUESTIONS[0], "wo-rag", max_new_tokens=4)
    body = next(body for _, body in server.asked if body.get("stream"))
    assert (body["temperature"], body["samplers"]) == (1.0, ["temperature"])
    assert isinstance(body["seed"], int)
