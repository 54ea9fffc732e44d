"""Thresholds by budget, and the timing of retrievals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from factories import make_continuation
from scripted import Say, ScriptedModel, ScriptedRetriever

import dragin_lab as dl
from dragin_lab.almanac.facts import Fact, Labelled
from dragin_lab.catalog.methods import exchange_settings, restore_method
from dragin_lab.core.budget import NEVER, Budget, Calibration, peaks, threshold_for
from dragin_lab.errors import SettingError
from dragin_lab.study.budgets import calibration, frontier
from dragin_lab.study.truth import Timing, Truth, count_timing, time_step, timing_table
from dragin_lab.trace.trace import Decision, Prompt, Step, Words

ANSWER = " Li. So the answer is Li.\nHe"
QUESTION = "Who directed Ma?"
REASONING = "The film Ma was directed by Li."
LABELLED = Labelled(
    qid="1",
    benchmark="b",
    split="dev",
    type="t",
    question=QUESTION,
    knowledge="unknown",
    reasoning=REASONING,
    answer="Li",
    facts=(Fact("f", "Ma", "director", "Li", 28, 30, "unknown", "never", None, "p"),),
)
DRAFTS = [[np.array([0.5, 3.0])], [np.array([2.0]), np.array([1.0, 0.2])]]  # two questions, three drafts


@pytest.mark.parametrize(
    ("written", "theta", "reached"),
    [
        ("budget:0.5", 2.5, 0.5),
        ("budget:1", 1.5, 1.0),
        ("budget:2.5", 0.0, 2.5),
        ("budget:0", 3.0, 0.0),
        ("share:0.34", 2.5, 1 / 3),
        ("share:1", 0.0, 1.0),
    ],
)
def test_a_threshold_by_hand(written: str, theta: float, reached: float) -> None:
    assert threshold_for(Budget.read(written), DRAFTS) == (pytest.approx(theta), pytest.approx(reached))


def test_budgets_that_cannot_be_say_what_can() -> None:
    with pytest.raises(SettingError, match=r"budget:3 cannot be reached; the nearest is budget:2\.5, at θ 0"):
        threshold_for(Budget.read("budget:3"), DRAFTS)
    for wrong in ("budget", "budget:-1", "share:1.5", "share:x", "p:0.5", "1.5"):
        with pytest.raises(SettingError, match=r"is not a budget; write budget:1\.5 .* or share:0\.3"):
            Budget.read(wrong)
    with pytest.raises(SettingError, match="no calibration question was answered"):
        Calibration.of([])
    with pytest.raises(
        SettingError, match=r"'budget:1' is found on a calibration set; give calibration=traces of lab\.ask_many"
    ):
        dl.method(threshold="budget:1")
    with pytest.raises(SettingError, match=r"calibration has no meaning for threshold=1\.5"):
        dl.method(threshold=1.5, calibration=[])
    with pytest.raises(SettingError, match="has no threshold to calibrate"):
        calibration(dl.Lab(ScriptedModel([]), retriever=ScriptedRetriever()), ["Who?"], "fl-rag")


def test_equal_scores_are_never_divided() -> None:
    theta, reached = threshold_for(Budget.read("budget:1"), [[np.array([2.0, 2.0])], [np.array([2.0])]])
    assert (theta, reached) == (2.0, 0.0)


@pytest.mark.parametrize(
    ("when", "variant"), [("entropy", "paper"), ("rind", "reference"), ("probability", "reference")]
)
def test_calibrated_on_stored_scores_and_held_against_other_questions(when: str, variant: str) -> None:
    loud: dict[str, Any] = {"entropy": {"Bo": 9.0, "far": 4.0}, "doubt": {"Bo": 0.9, "far": 0.5}}
    text = " It was far. It is by Bo. So the answer is Li.\nHe"
    lab = dl.Lab(ScriptedModel([Say(text, **loud), Say(text)]), retriever=ScriptedRetriever())
    settings: dict[str, Any] = {"when": when, "what": "question", "variant": variant}
    scores = calibration(lab, ["Who?", "What?"], "dragin", **settings)
    found = dl.method("dragin", threshold="budget:0.5", calibration=scores, **settings)
    assert found.threshold is not None
    assert 0 < found.threshold < NEVER
    record = json.loads(json.dumps(found.settings))["calibrated"]
    assert (record["budget"], record["reached"], record["questions"]) == ("budget:0.5", 0.5, 2)
    assert restore_method(json.loads(json.dumps(found.settings))).calibrated == found.calibrated
    assert exchange_settings(found, top_k=1).calibrated == found.calibrated
    assert exchange_settings(found, threshold=found.threshold / 2).calibrated is None
    quiet = dl.method(threshold=NEVER, **settings)
    trace = dl.Lab(ScriptedModel([Say(text)]), retriever=ScriptedRetriever()).ask("Who?", quiet)
    assert [len(part) > 1 for part in peaks(trace)] == [True]
    # The same from traces, and for a when in its written form.
    alone = dl.method(when=f"{when}@budget:1", what="question", variant=variant, calibration=[trace])
    assert alone.calibrated is not None
    assert (alone.calibrated.budget, alone.calibrated.questions) == ("budget:1", 1)
    # And where the θ that is found is the one that the method has already.
    same = exchange_settings(found, threshold=alone.threshold)
    assert exchange_settings(same, threshold="budget:1", calibration=[trace]).calibrated == alone.calibrated


def test_scores_of_something_else_are_refused() -> None:
    def asked(**settings: Any) -> dl.Trace:
        model = ScriptedModel([Say(" It is by Bo. So the answer is Li.\nHe", entropy={"Bo": 9.0}), Say(ANSWER)])
        method = dl.method(when="entropy", what="question", variant="paper", **settings)
        return dl.Lab(model, retriever=ScriptedRetriever()).ask("Who?", method)

    def made(*traces: dl.Trace, when: str = "entropy") -> Any:
        return dl.method(when=when, what="question", variant="paper", threshold="share:0.5", calibration=traces)

    with pytest.raises(SettingError, match=r"'Who\?' holds 1 retrievals, and scores are counted in texts without any"):
        made(asked(threshold=2.0))
    with pytest.raises(SettingError, match="is of another method than the first one"):
        made(asked(threshold=NEVER), asked(threshold=NEVER, top_k=1))
    with pytest.raises(SettingError, match="scores are of when='entropy', the method has when='margin'; calibrate it"):
        made(asked(threshold=NEVER), when="margin")


def test_a_frontier_has_a_row_for_each_method_and_budget_that_a_threshold_reaches() -> None:
    loud: dict[str, Any] = {"entropy": {"Bo": 9.0, "far": 4.0}}
    text = " It was far. It is by Bo. So the answer is Li.\nHe"
    lab = dl.Lab(ScriptedModel([Say(text, **loud), Say(text, **loud)]), retriever=ScriptedRetriever(), cache=False)
    method = dl.method(when="entropy", what="question")
    table = frontier(lab, ["Who?"], [method], ["What?"], budgets=[0.0, 9.0])
    assert table[["budget", "retrievals", "transfer"]].to_numpy().tolist() == [[0.0, 0.0, 0.0]]
    assert table["threshold"].tolist() == [9.0]
    assert "budget:9 cannot be reached" in table.attrs["unreached"][0]


# -- in time ----------------------------------------------------------------------------------------------------------


def fired(sentence: int | None, token: int = 0) -> Step:
    """A draft of two sentences with two tokens each: characters 0 to 3, 4 to 8."""
    made = make_continuation(Prompt(""), "a b. c d.")
    made.text, made.offsets = "a b. c d.", np.array([(0, 1), (1, 4), (4, 6), (6, 9)], np.int32)
    spans = np.array([(i, i + 1) for i in range(4)], np.int32)
    words = Words(("a", "b.", "c", "d."), spans, np.array([0, 0, 1, 1], np.int32))
    return Step(0, draft=made, words=words, decision=Decision(sentence is not None, "", token=token, sentence=sentence))


@pytest.mark.parametrize(
    ("sentence", "token", "stated", "expected"),
    [
        (None, 0, ((2, True), (7, False)), Timing(missing=1)),
        (0, 0, ((2, True),), Timing(in_time=1)),
        (0, 1, ((0, True),), Timing(delayed=1)),
        (1, 2, ((2, True),), Timing(delayed=1)),
        (1, 2, ((2, True), (6, True)), Timing(in_time=1, missing=1)),
        (1, 2, ((2, False), (6, False)), Timing(redundant=1)),
        (1, 2, (), Timing(redundant=1)),
    ],
)
def test_retrievals_in_time(sentence: int | None, token: int, stated: Any, expected: Timing) -> None:
    assert time_step(fired(sentence, token), Truth(stated, None)) == expected


def test_retrievals_by_the_clock_are_held_against_what_is_written_with_them() -> None:
    """The first sentence states a fact that was never taught, the second one none."""
    said = [Say(" The film Ma was directed by Li. He"), Say(" So the answer is Li.\nHe")]
    trace = dl.Lab(ScriptedModel(said), retriever=ScriptedRetriever()).ask(QUESTION, "fs-rag", variant="paper")
    assert trace.retrievals_count == 2
    assert count_timing([trace], [LABELLED]) == Timing(in_time=1, redundant=1)
    assert count_timing([trace], []) == Timing()


def test_within_a_value_is_in_time_and_after_it_is_not() -> None:
    """The second sentence begins at character 4, and its second word, which fires, at 6."""
    assert time_step(fired(1, 3), Truth(((4, True),), None, (8,))) == Timing(in_time=1)
    assert time_step(fired(1, 3), Truth(((4, True),), None, (6,))) == Timing(delayed=1)


def test_the_models_own_calls_are_held_against_the_fact_that_comes_next() -> None:
    """Of four calls one comes before a missing fact, one after everything was stated, one after a missing value."""

    def timed(*said: str, method: str = "flare-instruct") -> Timing:
        lab = dl.Lab(ScriptedModel([Say(text) for text in said]), retriever=ScriptedRetriever())
        return count_timing([lab.ask(QUESTION, method)], [LABELLED])

    ends = " So the answer is Li.\nThen he"
    assert timed(" The film Ma was directed by [Search(director)]", f" Li.{ends}") == Timing(in_time=1)
    assert timed(" The film Ma was directed by Li [Search(Ma)]", f".{ends}") == Timing(delayed=1)
    assert timed(" The film Ma was directed by Li. It is [Search(Ma)]", f" old.{ends}") == Timing(
        redundant=1, missing=1
    )
    assert timed(f" The film Ma was directed by Li.{ends}") == Timing(missing=1)
    # After a wrong value nobody knows whether a call was needed, and the fact itself was missing.
    assert timed(" The film Ma was directed by Bo. It is [Search(Ma)]", f" old.{ends}") == Timing(missing=1)
    asks = " Yes.\nFollow up: Who directed Ma?\nIntermediate answer:"
    again = " The film Ma was directed by Li.\nFollow up: Is Ma old?\nIntermediate answer:"
    ended = " It is.\nSo the final answer is: Li.\nQuestion: Who"
    assert timed(asks, again, ended, method="self-ask") == Timing(in_time=1, redundant=1)


def test_passages_that_a_call_puts_into_the_answer_are_in_view_and_not_the_models_words() -> None:
    call = dl.Call(opens="<find>", closes="</find>", puts_in="<p>{passages}</p>")
    known = replace(LABELLED, facts=(replace(LABELLED.facts[0], passage="0"),))
    said = [
        Say(" <find>Ma</find>"),
        Say(" Well. <find>Ma</find>"),
        Say(" The film Ma was directed by Li. <find>Li</find>"),
        Say(" So the answer is Li.\nHe"),
    ]
    lab = dl.Lab(ScriptedModel(said), retriever=ScriptedRetriever(REASONING))
    trace = lab.ask(QUESTION, when=call, what="term")
    assert REASONING in trace.steps[0].answer
    # The first call is needed. What it found is in view of the others.
    assert count_timing([trace], [known]) == Timing(in_time=1, redundant=2)


def test_over_and_under_search_by_hand() -> None:
    timings = {"asks": Timing(in_time=4, delayed=1, redundant=5, missing=3), "never": Timing(missing=2)}
    table = timing_table(timings).set_index("method")
    assert table.loc["asks", ["retrievals", "over_search", "under_search"]].tolist() == [10, 0.5, 3 / 8]
    assert np.isnan(table.loc["never", "over_search"])
    assert table.loc["never", "under_search"] == 1
