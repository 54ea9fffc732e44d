"""Triggers that ask the retriever before they judge: QuCo-RAG's arithmetic, the entropy of a search, and evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scripted import Driven, Say, ScriptedModel, ScriptedRetriever, drive

import dragin_lab as dl
from dragin_lab.core.draft import Draft
from dragin_lab.core.episode import Count, Episode, SoFar
from dragin_lab.core.sentences import load_pipeline
from dragin_lab.core.trigger import TRIGGERS, Trigger
from dragin_lab.errors import SettingError, TriggerError
from dragin_lab.run.arguments import check_needs
from dragin_lab.run.cluster import RemoteRetriever
from dragin_lab.run.drivers import Retrieved
from dragin_lab.run.worker import Identity
from dragin_lab.study.needs import left_out, score_triggers
from dragin_lab.study.whatif import Replay
from dragin_lab.trace.trace import Passage, Trace
from dragin_lab.triggers.corpus import grade, pair_names
from dragin_lab.triggers.search_risk import measure_spread

QUESTION = "Who directed The Far Bell?"
Counts = dict[tuple[str, ...], int]
PAIR = ("The Far Bell", "Bo Ek")
SAYS = "The Far Bell is by Bo Ek."
ENDS = Say(" So the answer is Li. Then he")
CONCLUDES = Say(" So the answer is li.")  # without a name


def ask(counts: Counts, *script: Say, when: str = "corpus", what: str = "question", question: str = QUESTION) -> Driven:
    method = dl.method(when=when, what=what)
    return drive(method, *script, question=question, counts=counts, all_asked=False)


def scores_of(trace: Trace) -> dict[str, float]:
    """The first step's words and what they score, as far as that is not 0."""
    words = trace.steps[0].words
    return {text.strip(" ."): float(score) for text, score in zip(words.text, words.score, strict=True) if score}


# -- QuCo-RAG's arithmetic, worked by hand from its generate_quco.py ---------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "counts", "fires", "scores"),
    [
        # A triple is checked by its pair alone: below 1.
        (SAYS, {PAIR: 0, PAIR[:1]: 900}, True, {"Bo": 1, "Ek": 1}),
        (SAYS, {PAIR: 1, PAIR[:1]: 1}, False, {"Bo": 1 / 2, "Ek": 1 / 2}),
        (SAYS, {PAIR: 4}, False, {"Bo": 1 / 5, "Ek": 1 / 5}),
        # Each later name makes a triple of its own with the first; one unsupported one is enough.
        (
            "Bo Ek was born in Rom in 1901.",
            {("Bo Ek", "Rom"): 3, ("Bo Ek", "1901"): 0},
            True,
            {"Rom": 1 / 4, "1901": 1},
        ),
        # A tuple without a tail is checked by its subject: below 20.
        ("It is by Bo Ek.", {("Bo Ek",): 19}, True, {"Bo": 20 / 39, "Ek": 20 / 39}),
        ("It is by Bo Ek.", {("Bo Ek",): 20}, False, {"Bo": 1 / 2, "Ek": 1 / 2}),
        # A name's possessive is the name; the subject said twice is no pair.
        ("Bo Ek's home is the home of Bo Ek.", {("Bo Ek",): 20}, False, {"Bo": 1 / 2, "Ek's": 1 / 2}),
        # Sentences that conclude, or say that something is not known, are not checked.
        ("So the answer is Bo Ek.", {}, False, {}),
        ("The text does not name Bo Ek.", {}, False, {}),
        ("It was far.", {}, False, {}),
    ],
)
def test_a_sentence_fires_as_in_the_released_code(
    sentence: str, counts: Counts, fires: bool, scores: dict[str, float]
) -> None:
    driven = ask(counts, Say(f" {sentence} Then he"), Say(" It is Li. He"), ENDS, ENDS)
    step = driven.trace.steps[0]
    assert step.decision is not None
    assert step.decision.retrieve is fires
    assert scores_of(driven.trace) == pytest.approx(scores)


def test_the_grade_is_above_a_half_exactly_below_tau() -> None:
    for tau in (1, 20, 1000, 999_983):
        assert grade(tau, tau) == 0.5 < grade(tau - 1, tau)
        assert grade(0, tau) == 1
        assert grade(10 * tau, tau) < grade(tau + 1, tau) < 0.5
    assert grade(0, 0) == 0  # 0 switches a check off


@pytest.mark.parametrize(
    ("question", "counts", "fires"),
    [
        ("Are Bo Ek and Li Ek from Rom?", {("Bo Ek",): 2000, ("Li Ek",): 997, ("Rom",): 0}, True),  # mean 999
        ("Are Bo Ek and Li Ek from Rom?", {("Bo Ek",): 2000, ("Li Ek",): 1000, ("Rom",): 0}, False),  # mean 1000
        ("Did Bo Ek know Bo Ek?", {("Bo Ek",): 1000}, False),  # a name counts once
        ("who was it?", {}, False),
    ],
)
def test_the_question_is_checked_by_the_mean_of_its_names(question: str, counts: Counts, fires: bool) -> None:
    driven = ask(counts, Say(" It"), ENDS, when="corpus-question", question=question)
    step = driven.trace.steps[0]
    assert step.draft is not None
    assert step.decision is not None
    assert len(step.draft) == 1
    assert step.decision.retrieve is fires
    assert driven.trace.text == (" So the answer is Li." if fires else " It So the answer is Li.")
    assert not fires or "'Rom' 0 (τ 1000)" in step.decision.reason


def test_each_sentence_has_its_own_subject() -> None:
    text = "When Bo Ek lived in Rom, all was well. He knew Li Ek’s aunt. We know nothing."
    claims = pair_names(load_pipeline(), text)
    assert [(claim.names, text[slice(*claim.span)]) for claim in claims] == [
        (("Bo Ek", "Rom"), "Rom"),
        (("Li Ek",), "Li Ek’s"),
    ]


# -- in an episode -----------------------------------------------------------------------------------------------------


def test_the_draft_is_consulted_once_and_what_was_found_is_in_the_step_and_in_its_reason(tmp_path: Path) -> None:
    driven = ask({}, Say(f" {SAYS} He"), Say(" It is by Li. He"), ENDS, what="current-without-hits")
    first, second = driven.trace.steps
    assert first.decision is not None
    assert first.evidence == {"counts": [[["The Far Bell", "Bo Ek"], 0]]}
    assert first.decision.reason == (
        "the sentence scores 1 (max), above θ 0.5: 'The Far Bell' and 'Bo Ek' stand together in 0 passages (τ 1)"
    )
    assert driven.queries == ["The Far Bell is by"]  # QuCo-RAG's query: the subject and the relation
    assert driven.retriever.counted == [PAIR]  # neither the new sentence nor the conclusion is checked
    assert second.evidence == {"counts": []}
    assert "count" in first.seconds or not first.seconds  # scripted episodes take no time
    saved = Trace.load(driven.trace.save(tmp_path / "t.safetensors"))
    assert [step.evidence for step in saved.steps] == [step.evidence for step in driven.trace.steps]


def test_a_trace_judges_itself_again_without_a_retriever(tmp_path: Path) -> None:
    driven = ask({PAIR: 1}, Say(f" {SAYS} He"), ENDS)
    assert driven.queries == []
    replay = Replay(Trace.load(driven.trace.save(tmp_path / "t.safetensors")))
    assert replay.at().whole
    lower = replay.at(threshold=0.4)
    assert lower.turns[0].change == "retrieves now"
    assert lower.queries == [QUESTION]
    higher = replay.at(ternary_tuple_threshold=2)
    assert higher.queries == [QUESTION]
    assert higher.turns[0].decision is not None
    assert higher.turns[0].decision.reason.endswith("'The Far Bell' and 'Bo Ek' stand together in 1 passage (τ 2)")


def test_a_stream_tells_of_passages_that_were_fetched_and_a_branch_consults_again() -> None:
    lab = dl.Lab(ScriptedModel([Say(f" {SAYS} He"), CONCLUDES]), retriever=ScriptedRetriever())
    events = lab.stream(QUESTION, when="search-risk@0.1", what="question")
    fetched = [event.query for event in events if isinstance(event, Retrieved)]
    assert fetched == [QUESTION]  # of three searches, two of them consulted
    trace = events.trace
    assert [name for name, *_ in trace.steps[0].evidence["searches"]] == list(PAIR)
    lab.model.script[:] = [CONCLUDES]
    branch = lab.branch(trace, step=0, query="Who is Cy?")
    assert branch.queries == ["Who is Cy?"]
    assert branch.steps[0].evidence == trace.steps[0].evidence


# -- the entropy of a search -------------------------------------------------------------------------------------------


def hits(*scores: float) -> list[Passage]:
    return [Passage(str(i), "", "text", score) for i, score in enumerate(scores)]


def test_the_spread_is_the_entropy_of_the_normalised_scores() -> None:
    assert measure_spread(hits(2.0, 2.0, 2.0, 2.0)) == pytest.approx(math.log(4))
    assert measure_spread(hits(3.0, 1.0)) == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert measure_spread(hits(7.0)) == measure_spread([]) == 0
    for bad in (math.nan, -0.2, 0.0):
        with pytest.raises(TriggerError, match=r"scores above 0, and the retriever scored .*; use bm25 or tantivy"):
            measure_spread(hits(1.0, bad))


def test_each_name_scores_the_entropy_of_its_own_search() -> None:
    driven = ask({}, Say(f" {SAYS} He"), CONCLUDES, when="search-risk@0.9")
    shares = np.array([1, 1 / 2, 1 / 3]) / (11 / 6)  # as the scripted retriever scores
    entropy = float(-(shares * np.log(shares)).sum())
    assert scores_of(driven.trace) == pytest.approx(dict.fromkeys(("The", "Far", "Bell", "Bo", "Ek"), entropy))
    assert driven.retriever.queries == ["What is The Far Bell?", "What is Bo Ek?", QUESTION]
    assert driven.trace.steps[0].decision is not None
    assert driven.trace.steps[0].decision.reason.endswith("above θ 0.9: 'What is The Far Bell?' finds 3 passages")


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["corpus", "corpus-question"])
def test_a_retriever_without_counts_is_refused_by_name_before_anything_is_written(when: str) -> None:
    def my_search(query: str, k: int) -> list[str]:
        return ["text"]

    lab = dl.Lab(ScriptedModel([]), retriever=my_search)
    with pytest.raises(SettingError, match=r"retriever my_search does not count passages, .* count\(names\)"):
        lab.ask(QUESTION, when=when, what="question")
    assert lab.model.drafts == []


def test_a_cluster_is_asked_by_what_its_workers_have() -> None:
    """The process that writes the run has no retriever of its own."""
    worker = Identity("worker 1", {"retriever": {"kind": "bm25"}}, False, ("model", "Own()"))
    for counts in (False, True):
        model = SimpleNamespace(identity=worker._replace(counts=counts))
        lab = SimpleNamespace(model=model, elsewhere=True, retriever=RemoteRetriever({"kind": "bm25"}, "Own()"))
        if counts:
            check_needs(dl.method(when="corpus"), lab)
            continue
        with pytest.raises(SettingError, match=r"Own\(\) does not count passages"):
            check_needs(dl.method(when="corpus"), lab)


def test_a_trigger_that_consults_has_to_wait_for_a_sentence() -> None:
    with pytest.raises(SettingError, match=r"'hasty' consults, .* unit='sentence' or unit='draft'"):
        TRIGGERS.make(_Hasty)
    assert TRIGGERS.make(_Patient).consults()
    assert not TRIGGERS.make("rind").consults()


@dataclass(frozen=True)
class _Hasty(Trigger):
    name = "hasty"
    threshold: float = 0.5
    answer: Any = None

    def consult(self, draft: Draft) -> Episode[Mapping[str, Any]]:
        counts = yield Count((("Bo",),))
        return {"Bo": counts[0]} if self.answer is None else self.answer

    def score(self, draft: Draft) -> np.ndarray:
        return np.full(len(draft), draft.evidence["Bo"] / 10)


@dataclass(frozen=True)
class _Patient(_Hasty):
    name, unit, cut = "patient", "sentence", "sentence"


def test_your_own_trigger_consults_and_plain_data_is_asked_of_it() -> None:
    TRIGGERS.add(_Patient)
    driven = ask({("Bo",): 7}, Say(" It is by Bo. He"), CONCLUDES, when="patient")
    assert driven.trace.steps[0].evidence == {"Bo": 7}
    assert driven.queries == [QUESTION]
    for answer in ({"Bo": np.zeros(2)}, 3, [1]):
        method = dl.method(when=_Patient(answer=answer), what="question")
        with pytest.raises(TriggerError, match=r"'patient' consulted .*not a dictionary of plain data"):
            drive(method, Say(" It is by Bo. He"), ENDS, question=QUESTION, all_asked=False)


def test_a_draft_that_was_not_consulted_says_so() -> None:
    seen = Draft(SoFar([1], " Bo", [(0, 3)], [1.0], [-0.1], np.zeros(1)), load_pipeline(), QUESTION)
    for name in ("corpus", "corpus-question", "search-risk"):
        with pytest.raises(TriggerError, match=r"has no '(counts|searches)': .* judge drafts of lab.ask"):
            TRIGGERS.make(name).check_score(seen)


def test_scores_without_a_retriever_leave_them_out_and_say_why() -> None:
    written = ask({PAIR: 1}, Say(f" {SAYS} He"), ENDS).trace.continuations[0]
    assert not {"corpus", "search-risk"} & {trigger.name for trigger in score_triggers(load_pipeline(), written)}
    assert {name: left_out([]).get(name) for name in ("corpus", "search-risk")} == {
        "corpus": "reads counts",
        "search-risk": "reads what a retriever finds",
    }
