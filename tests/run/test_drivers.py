"""The driver of one episode: events in order, cancelling, interrupts, failures, many questions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scripted import Say, ScriptedModel, ScriptedRetriever

import dragin_lab as dl
from dragin_lab.catalog.methods import method
from dragin_lab.data.templates import default_template
from dragin_lab.errors import ModelError, SettingError
from dragin_lab.retrieval.choose import RetrieverError
from dragin_lab.run.drivers import (
    Decided,
    Ended,
    Retrieved,
    StepDone,
    TokenWritten,
)
from dragin_lab.run.lab import Lab
from dragin_lab.trace.trace import Question

QUESTION = "Who made it?"
DRAGIN = method("dragin", variant="paper", what="question")
LOUD = Say(" It is Bo Ek, a man", entropy={"Bo": 9.0}, received={"Bo": 0.5})
LAST = Say(" Li. So the answer is Li. Then he went")


def model(*script: Any, **options: Any) -> ScriptedModel:
    return ScriptedModel(script, **options)


def test_events_come_in_order() -> None:
    events = list(Lab(model(LOUD, LAST), retriever=ScriptedRetriever()).stream(QUESTION, DRAGIN))
    kinds = [type(event) for event in events if not isinstance(event, TokenWritten)]
    assert kinds == [Decided, Retrieved, StepDone, Decided, StepDone, Ended]
    tokens = [event for event in events if isinstance(event, TokenWritten)]
    first = [token for token in tokens if token.step == 0]
    assert [token.index for token in first] == list(range(len(first)))
    assert "".join(token.text for token in first) == "It is Bo Ek,"
    assert {token.kind for token in tokens} == {"draft"}
    found = next(event for event in events if isinstance(event, Retrieved))
    assert (found.step, found.query, [p.id for p in found.passages]) == (0, QUESTION, ["0", "1", "2"])
    # A step is complete when it is announced.
    done = [event.step for event in events if isinstance(event, StepDone)]
    assert [step.kept for step in done] == [" It is", " Li. So the answer is Li."]
    assert events.index(found) < events.index(StepDone(done[0])) < len(events) - 2
    assert isinstance(events[-1], Ended)
    assert events[-1].trace.answer == "Li"
    assert set(done[0].seconds) == {"draft", "search"}


def test_a_trigger_that_needs_entities_is_refused_before_anything_is_written() -> None:
    asked = model(LAST)
    with pytest.raises(SettingError, match=r"finds no entities; give nlp=.* or use when='capitalised'"):
        Lab(asked, retriever=ScriptedRetriever()).ask(QUESTION, "entity-rag")
    assert not asked.prompts


def test_kinds_of_tokens() -> None:
    script = [Say(" It is Bo. Then he"), Say(" He left."), Say(" Bo")]
    events = list(
        Lab(model(*script), retriever=ScriptedRetriever()).stream(QUESTION, method("fs-rag", max_new_tokens=8))
    )
    kinds = [event.kind for event in events if isinstance(event, TokenWritten)]
    assert list(dict.fromkeys(kinds)) == ["continuation", "answer"]
    attended = list(
        Lab(model(Say(" So the answer is Bo.")), retriever=ScriptedRetriever()).stream(QUESTION, method("dragin"))
    )
    assert {event.kind for event in attended if isinstance(event, TokenWritten)} == {"draft"}


def test_run_returns_the_trace_with_everything_needed_to_repeat_it() -> None:
    trace = Lab(model(LOUD, LAST), retriever=ScriptedRetriever(), seed=3).ask(QUESTION, DRAGIN, gold=["Li", "Bo"])
    assert trace.question == Question("", QUESTION, ("Li", "Bo"))
    assert trace.scores["em"] == 1
    assert trace.method == DRAGIN.settings
    assert trace.provenance["model"] == {"id": "scripted"}
    assert trace.provenance["seed"] == 3
    assert trace.provenance["retriever"] == {"kind": "ScriptedRetriever"}
    assert trace.provenance["dragin_lab"] == dl.__version__
    assert trace.provenance["template"]["layout"] == "dragin"
    assert trace.seconds > 0


@pytest.mark.parametrize(
    ("question", "gold", "golds"),
    [
        ("Who?", None, ()),
        ("Who?", "Li", ("Li",)),
        (Question("q", "Who?", ("Bo",)), None, ("Bo",)),
        (Question("q", "Who?", ("Bo",)), "Li", ("Li",)),
    ],
)
def test_golds(question: str | Question, gold: str | None, golds: tuple[str, ...]) -> None:
    events = Lab(model()).stream(question, method("wo-rag"), gold=gold)
    assert events.trace.question.golds == golds


@pytest.mark.parametrize("question", ["", " \n", Question("q", "")])
def test_an_empty_question_is_refused_before_anything_is_generated(question: str | Question) -> None:
    lm = model(LOUD)
    with pytest.raises(dl.DraginLabError, match="the question is empty"):
        Lab(lm, retriever=ScriptedRetriever()).ask(question, DRAGIN)
    assert lm.drafts == []


@pytest.mark.parametrize("after", range(12))
def test_closing_leaves_a_valid_trace_wherever_it_happens(after: int) -> None:
    events = Lab(model(LOUD, LAST), retriever=ScriptedRetriever()).stream(QUESTION, DRAGIN)
    for _ in range(after):
        next(events)
    events.close()
    assert events.trace.ended == "cancelled"
    assert list(events) == []
    assert all(step.answer == events.trace.text for step in events.trace.steps if step.kept and step.answer)
    assert repr(events.trace).endswith("cancelled)")
    events.close()
    assert events.trace.ended == "cancelled"


def test_closing_after_the_end_changes_nothing() -> None:
    with Lab(model(Say(" the answer is Li."))).stream(QUESTION, method("wo-rag")) as events:
        for event in events:
            if isinstance(event, Ended):
                break
    assert events.trace.ended == "answered"


def test_leaving_a_with_block_cancels() -> None:
    with Lab(model(LOUD, LAST), retriever=ScriptedRetriever()).stream(QUESTION, DRAGIN) as events:
        next(events)
    assert events.trace.ended == "cancelled"


def test_an_interrupt_keeps_what_was_done() -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        Lab(model(LOUD, KeyboardInterrupt()), retriever=ScriptedRetriever()).ask(QUESTION, DRAGIN)
    trace = caught.value.trace
    assert (trace.ended, trace.text, trace.error) == ("cancelled", " It is", "")
    assert len(trace.retrievals) == 3
    assert caught.value.__notes__[0].startswith("Interrupted; retrievals so far: 1, tokens: ")


@pytest.mark.parametrize("error", [ModelError("too long"), OSError("gone")])
def test_a_failed_draft_ends_the_episode_and_is_recorded(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        Lab(model(LOUD, error), retriever=ScriptedRetriever()).ask(QUESTION, DRAGIN)
    trace = caught.value.trace
    said = str(error) if isinstance(error, ModelError) else f"{type(error).__name__}: {error}"
    assert (trace.ended, trace.error) == ("error", said)
    assert trace.text == " It is"


def test_a_failed_search_is_thrown_into_the_episode() -> None:
    with pytest.raises(RetrieverError) as caught:
        Lab(model(LOUD), retriever=ScriptedRetriever(TimeoutError("no answer"))).ask(QUESTION, DRAGIN)
    trace = caught.value.trace
    assert trace.error == "retriever ScriptedRetriever failed for 'Who made it?': TimeoutError: no answer"
    assert trace.steps[0].query is not None  # what was asked is known, what was found is not
    assert trace.steps[0].passages == ()


class Sometimes(ScriptedRetriever):
    """Fails for questions that say so."""

    def search(self, query: str, k: int) -> list[dl.Passage]:
        if "fail" in query:
            raise TimeoutError("no answer")
        return super().search(query, k)


def test_of_many_questions_one_may_fail() -> None:
    questions = ["Who?", "Who failed?", "", Question("q3", "Who was it?", ("Li",)), "What was long?"]
    answer = Say(" So the answer is Li.")
    lm = model(answer, answer, ModelError("too long"))

    def lazily() -> Iterator[str | Question]:
        yield from questions

    traces = list(Lab(lm, retriever=Sometimes()).ask_many(lazily(), method("sr-rag")))
    assert [trace.ended for trace in traces] == ["answered", "error", "error", "answered", "error"]
    assert [trace.question.text for trace in traces] == ["Who?", "Who failed?", "", "Who was it?", "What was long?"]
    assert "TimeoutError: no answer" in traces[1].error
    assert traces[2].error.startswith("the question is empty")
    assert traces[3].scores["em"] == 1
    assert "too long" in traces[4].error


def test_an_interrupt_ends_many_questions() -> None:
    with pytest.raises(KeyboardInterrupt):
        list(Lab(model(KeyboardInterrupt())).ask_many(["Who?", "Who?"], method("wo-rag")))


def test_the_default_template_has_the_embedded_models_exemplars() -> None:
    lm = model()
    assert default_template(lm).exemplars == ()
    lm.embedded = True
    assert len(default_template(lm).exemplars) == 2
