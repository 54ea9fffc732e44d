"""Stored traces under other settings, held against what the methods really do; a trigger of
one's own among them.
"""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answering import demo_questions, embedded
from scripted import Say, ScriptedModel, ScriptedRetriever

import dragin_lab as dl
from dragin_lab import almanac
from dragin_lab.catalog.by_name import method
from dragin_lab.catalog.exchanged import exchange_settings
from dragin_lab.core.method import Method
from dragin_lab.core.trigger import TRIGGERS
from dragin_lab.errors import SettingError, TraceFileError
from dragin_lab.study.stored_drafts import StoredTokenizer
from dragin_lab.study.whatif import Replay
from dragin_lab.trace.file import save_trace
from dragin_lab.trace.trace import Question, Trace, Words

QUESTIONS = [question.text for question in almanac.questions("2wikimultihopqa")[:2]]
paper, reference = (
    functools.partial(method, "dragin", variant=name, max_new_tokens=40)
    for name in ("paper", "reference")
)


@functools.cache
def lab() -> dl.Lab:
    """The embedded model, with a memory of the drafts that its episodes share."""
    return embedded().replace(cache=True)


@functools.cache
def ask(found: Method) -> Trace:
    """The trace of a question, asked once."""
    return lab().ask(QUESTIONS[0], found)


def reload_slim(trace: Trace, folder: Path) -> Trace:
    return Trace.load(save_trace(trace, folder / "slim", slim=True))


# -- against the methods ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "settings"),
    [
        (paper(threshold=0.5), {"threshold": 0.2}),
        (paper(threshold=0.5), {"scale": "sentence"}),
        (method("flare", threshold=0.2), {"doubt_limit": 0.3}),
        (reference(threshold=0.5, what="last-n", top_n=12), {"top_n": 6}),
    ],
    ids=str,
)
def test_a_slim_trace_tells_for_certain_what_asking_again_gives(
    found: Method, settings: dict[str, Any], tmp_path: Path
) -> None:
    """On a real model; laws/test_certain.py has it for any method, settings and texts."""
    outcome = Replay(reload_slim(ask(found), tmp_path), tokenizer=lab().model.tokenizer).at(
        **settings
    )
    assert list(outcome.table["step"]) == [turn.step + 1 for turn in outcome.turns]
    assert "NaN" not in outcome._repr_html_()  # of a step without a query
    assert len(repr(outcome).splitlines()) == 1
    real = ask(exchange_settings(found, **settings))
    for turn, step in zip(outcome.reached, real.steps, strict=False):
        assert turn.certain
        assert turn.decision is not None
        assert turn.decision.retrieve == step.decision.retrieve
        assert np.array_equal(turn.words.hit, step.words.hit)
        if turn.query is not None:
            assert step.query is not None
            assert turn.query.text == step.query.text
    if settings == {"top_n": 6}:
        assert outcome.queries[0] is not None
        alone = Replay(ask(found))
        assert alone.at().whole, "as it was, the recorded query stands"
        assert alone.at(**settings).queries[0] is None, "without a tokenizer it cannot be formed"
        assert Replay(ask(found), tokenizer=lab().model.tokenizer).at().whole


def test_the_rows_among_the_tokens_give_what_each_received() -> None:
    together = lab().replace(cache=None).ask_many(QUESTIONS, paper(max_new_tokens=24), batch_size=2)
    for trace in [*together, ask(paper(threshold=0.5))]:
        for draft in (step.draft for step in trace.steps if step.draft is not None):
            assert draft.among is not None
            rows = np.zeros((len(draft), len(draft)), np.float32)
            rows[np.tril_indices(len(draft))] = draft.among
            assert np.array_equal(np.tril(rows, -1).max(axis=0, initial=0.0), draft.received)
        assert trace.extraction is None or trace.extraction.among is None


def test_a_trace_remembers_its_tokens() -> None:
    trace = ask(reference())
    known, real = StoredTokenizer(trace), lab().model.tokenizer
    assert known.marker == real.marker
    ids = {i for made in trace.continuations for i in made.ids.tolist()}
    for i in ids:
        assert known.decode([i], special=True) == real.decode([i], special=True)
        assert known.tokens([i]) == real.tokens([i])
    with pytest.raises(TraceFileError, match=r"give tokenizer=lm\.tokenizer"):
        known.encode("new text", special=False)

    class Other:
        tokens = staticmethod(lambda ids: ["x"] * len(ids))

    with pytest.raises(SettingError, match="the model that wrote it"):
        Replay(trace, tokenizer=Other())  # type: ignore[arg-type]
    with pytest.raises(TraceFileError, match="does not hold token -5"):
        known.tokens([-5])


# -- what it cannot tell ---------------------------------------------------------------------------


def without_attention(trace: Trace) -> Trace:
    steps = [
        replace(s, draft=s.draft and replace(s.draft, rows=None, among=None)) for s in trace.steps
    ]
    return replace(trace, steps=steps)


@pytest.mark.parametrize(
    "found", [paper(), method("flare"), method("etc"), reference(check_content_words=False)]
)
def test_what_fires_is_what_is_marked_at_every_threshold(found: Method) -> None:
    silent = 0
    for theta in (0.05, 0.25, 0.8, 9.0):
        outcome = Replay(ask(found)).at(threshold=theta)
        assert outcome.judged.method["threshold"] == theta
        for turn, step in zip(outcome.turns, outcome.judged.steps, strict=True):
            words, fires = step.words, turn.decision is not None and turn.decision.retrieve
            assert step.draft is None or words.hit.any() == fires
            assert (words.score[words.hit] > theta).all()
            unmarked = (words.score > theta) & ~words.hit
            assert found.variant == "reference" or words.unjudged[unmarked].all(), (
                "above θ, judged and not a hit"
            )
            silent += turn.decision is None and len(words) > 0
    assert silent or found.name != "dragin" or found.variant == "reference", (
        "a draft that goes on after what is stored"
    )


def test_without_rows_of_attention_an_earlier_hit_is_a_guess() -> None:
    trace = without_attention(ask(paper(threshold=0.5)))
    same = Replay(trace).at()
    assert [t.decision.retrieve for t in same.turns if t.decision] == [
        s.decision.retrieve for s in trace.steps if s.decision
    ]
    guessed = Replay(trace).at(threshold=0.2)
    turn = guessed.turns[guessed.since or 0]
    assert not turn.certain
    assert turn.query is None
    assert guessed.since == 0


@pytest.mark.parametrize("need", ["attention", "hidden"])
def test_a_slim_trace_says_what_it_lacks_for_a_trigger_that_reads_more(
    need: str, tmp_path: Path
) -> None:
    dl.when("reads-more", threshold=0.5, needs=(need,))(
        lambda draft: 0 * draft.entropy + bool(getattr(draft, need).size)
    )
    trace = ask(paper(when="reads-more", what="question", max_new_tokens=16))
    assert Replay(trace).at().turns[0].decision is not None
    slim = Replay(reload_slim(trace, tmp_path)).at()
    assert (slim.since, slim.turns[0].decision) == (0, None)
    assert slim.why.endswith("that the trigger reads were not recorded; ask the question again")


def test_behind_the_first_change_nothing_is_told() -> None:
    trace = ask(reference())
    outcome = Replay(trace).at(threshold=50)
    assert outcome.since == 0
    assert [t.reached for t in outcome.turns] == [True] + [False] * (len(trace.steps) - 1)
    assert "no longer retrieves" in outcome.why
    assert all(t.decision is not None for t in outcome.turns), (
        "later drafts are judged as if it had come to them"
    )


def test_traces_that_no_method_made_and_settings_that_cannot_be_replayed() -> None:
    for name, settings, message in (
        ("dragin", {"scale": "sentence"}, "cannot be replayed"),
        ("dragin", {"top_k": 3}, "what can: threshold, top_n"),
        ("wo-rag", {"threshold": 1}, "it has no threshold"),
    ):
        with pytest.raises(SettingError, match=message):
            Replay(ask(method(name, variant="reference"))).at(**settings)
    asked = Question("q", "Who?")
    for settings in ({}, {"name": "mine"}, method("dragin").settings | {"name": "mine"}):
        with pytest.raises(
            SettingError, match=r"the trace's method .*, so replay a trace of lab.ask"
        ):
            Replay(Trace(asked, dict(settings)))
    with pytest.raises(SettingError, match="nlp"):
        Replay(Trace(asked, method("dragin").settings | {"pipeline": "another"}))
    assert Replay(Trace(asked, method("dragin").settings)).at(threshold=3).turns == ()


def test_a_broken_off_episode_and_one_without_figures() -> None:
    trace = ask(reference())
    cut = replace(
        trace,
        steps=[trace.steps[0], replace(trace.steps[1], decision=None, words=Words(), query=None)],
    )
    outcome = Replay(cut).at(threshold=0.9)
    assert outcome.turns[1].decision is None
    words = trace.steps[0].words
    blank = replace(words, attention=np.full(len(words), np.nan, np.float32))
    unmeasured = Replay(replace(trace, steps=[replace(trace.steps[0], words=blank)]))
    assert unmeasured.at().since == 0
    assert "not recorded" in unmeasured.at().why
    drawn = unmeasured.at(threshold=0.01).judged.steps[0].words  # as not judged
    assert (words.hit.any(), drawn.unjudged.all(), drawn.hit.any()) == (True, True, False)
    damaged = replace(trace, steps=[replace(trace.steps[0], words=Words())])
    with pytest.raises(SettingError, match="step 1: its words"):
        Replay(damaged).at()


@pytest.mark.parametrize(
    ("name", "settings", "text"),
    [
        ("fl-rag", {"n": 2}, " ( ) Bo Ek."),
        ("dragin", {"what": "last-sentence", "threshold": 0.0}, " ( Bo"),
    ],
)
def test_a_query_without_a_word_is_not_sent_and_no_retrieval(
    name: str, settings: dict[str, Any], text: str
) -> None:
    says = Say(text, entropy={"Bo": 1.0}, received={"Bo": 1.0})
    asking = dl.Lab(ScriptedModel([says] * 40), retriever=ScriptedRetriever("Bo."))
    trace = asking.ask("Who?", name, max_new_tokens=12, **settings)
    outcome = Replay(trace).at()
    assert any("holds no word" in note for step in trace.steps for note in step.notes)
    assert (outcome.why, outcome.retrievals) == ("", trace.retrievals_count)
    assert outcome.queries == trace.queries


def test_figures_controls_and_replay_know_it(tmp_path: Path) -> None:
    @dl.when("near-tie", threshold=0.6, source="TARG")
    def near_tie(draft: dl.Draft, first: int = 0) -> np.ndarray:
        """Second-likeliest over likeliest probability of each token."""
        return draft.alternative_probs[:, 1] / draft.alternative_probs[:, 0]  # (n,)

    @dl.what("last-ten")
    def last_ten(place: dl.Gap) -> str:
        """The last ten words."""
        return " ".join(place.context.split()[-10:])

    lab = embedded()
    trace = lab.ask(demo_questions()[0], when="near-tie", what="last-ten", max_new_tokens=24)
    fired = [
        step.decision
        for step in trace.steps
        if step.decision is not None and step.decision.retrieve
    ]
    assert fired
    assert re.search(r"scores 0\.\d+, above θ 0\.6", fired[0].reason)
    figure = trace.heatmap()
    assert "near-tie score of the word" in [note.text for note in figure.layout.annotations]
    assert figure.layout.shapes[0].label.text == "θ 0.6"
    assert 0.6 in lab.tune([trace]).thetas
    replay = dl.Replay(trace)
    assert replay.at().whole
    assert replay.at().retrievals == trace.counters["retrievals"]
    never = replay.at(threshold=1.0)  # a quotient of probabilities is at most 1
    assert (never.retrievals, never.since) == (0, fired[0] and trace.steps[0].index)
    assert "ask the question again" in never.why
    # Without the definitions what is recorded is shown, and a replay is refused.
    trace.save(tmp_path / "own.trace")
    del TRIGGERS._parts["near-tie"]
    loaded = dl.Trace.load(tmp_path / "own.trace")
    assert "near-tie score" in loaded.heatmap().to_json()
    with pytest.raises(SettingError, match="the trace's trigger 'near-tie' is not defined here"):
        dl.Replay(loaded)
