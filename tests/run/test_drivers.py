"""Episodes one by one, streamed and side by side: events, cancelling, interrupts, failures,
searches together.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from answering import ONE, Batch
from scripted import Say, ScriptedModel, ScriptedRetriever

import dragin_lab as dl
from dragin_lab.catalog.by_name import method
from dragin_lab.core.episode import Search, Write
from dragin_lab.engines.engine import OnToken
from dragin_lab.errors import ModelError, SettingError
from dragin_lab.lab import Lab
from dragin_lab.run.episodes import (
    Decided,
    Ended,
    Retrieved,
    StepDone,
    Stream,
    TokenWritten,
    search_all,
)
from dragin_lab.trace.trace import Draft, Passage, Question

QUESTION = "Who made it?"
SR, NEVER = method("sr-rag"), method("wo-rag")
DRAGIN = method("dragin", variant="paper", what="question")
LOUD = Say(" It is Bo Ek, a man", entropy={"Bo": 9.0}, received={"Bo": 0.5})
LAST = Say(" Li. So the answer is Li.\nThen he went")
ANSWER = Say(" So the answer is Li.")
Script = dict[str, list[Say | BaseException]]


class Model(ScriptedModel):
    """Says what stands for the question in the prompt; a batch of it writes one token a step."""

    def __init__(self, says: Script) -> None:
        super().__init__([])
        self.says = {question: list(script) for question, script in says.items()}
        self.batches: list[Batch] = []

    def write(
        self, request: Write, seed: int | None = None, *, watch: OnToken | None = None
    ) -> Draft:
        with ONE:
            self.script = [self.says[request.prompt.part("question")].pop(0)]
            return super().write(request, seed, watch=watch)

    def batch(self, size: int) -> Batch:
        self.batches.append(Batch(self, size))
        return self.batches[-1]


class Sometimes(ScriptedRetriever):
    """Fails for queries that say so; counts the queries that come at once."""

    def __init__(self) -> None:
        super().__init__()
        self.together: list[int] = []

    def search(self, query: str, k: int) -> list[Passage]:
        if "fail" in query:
            raise TimeoutError("no answer")
        return super().search(query, k)

    def search_many(self, queries: list[str], k: int) -> list[list[Passage]]:
        self.together.append(len(queries))
        return [self.search(query, k) for query in queries]


def lab(*script: Say | BaseException, **options: Any) -> Lab:
    """A lab whose model says this to ``QUESTION``."""
    return Lab(Model({QUESTION: list(script)}), retriever=ScriptedRetriever(), **options)


def stream(*script: Say | BaseException, how: Any = DRAGIN) -> Stream:
    return lab(*script).stream(QUESTION, how)  # type: ignore[no-any-return]


# -- one question ----------------------------------------------------------------------------------


def test_events_come_in_order() -> None:
    events = list(stream(LOUD, LAST))
    kinds = [type(event) for event in events if not isinstance(event, TokenWritten)]
    assert kinds == [Decided, Retrieved, StepDone, Decided, StepDone, Ended]
    tokens = [event for event in events if isinstance(event, TokenWritten)]
    first = [token for token in tokens if token.step == 0]
    assert [token.index for token in first] == list(range(len(first)))
    assert "".join(token.text for token in first) == "It is Bo Ek,"
    assert {token.kind for token in tokens} == {"draft"}
    (found,) = (event for event in events if isinstance(event, Retrieved))
    assert (found.step, found.query, [p.id for p in found.passages]) == (
        0,
        QUESTION,
        ["0", "1", "2"],
    )
    # complete when it is announced
    done = [event.step for event in events if isinstance(event, StepDone)]
    assert [step.kept for step in done] == [" It is", " Li. So the answer is Li."]
    assert events.index(found) < events.index(StepDone(done[0])) < len(events) - 2
    assert events[-1].trace.answer == "Li"
    assert set(done[0].seconds) == {"draft", "search"}


def test_kinds_of_tokens() -> None:
    fixed = method("fs-rag", max_new_tokens=8)
    events = list(stream(Say(" It is Bo. Then he"), Say(" He left."), Say(" Bo"), how=fixed))
    kinds = [event.kind for event in events if isinstance(event, TokenWritten)]
    assert list(dict.fromkeys(kinds)) == ["continuation", "answer"]


def test_the_trace_holds_everything_needed_to_repeat_it() -> None:
    trace = lab(LOUD, LAST, seed=3).ask(QUESTION, DRAGIN, gold=["Li", "Bo"])
    assert trace.question == Question("", QUESTION, ("Li", "Bo"))
    assert trace.scores["em"] == 1
    assert trace.method == DRAGIN.settings
    known = {"model": {"id": "scripted"}, "seed": 3, "retriever": {"kind": "ScriptedRetriever"}}
    assert known | {"dragin_lab": dl.__version__} == {
        key: trace.provenance[key] for key in (*known, "dragin_lab")
    }
    assert trace.provenance["template"]["layout"] == "dragin"
    assert trace.seconds > 0


@pytest.mark.parametrize(
    ("own", "gold", "golds"),
    [((), "Li", ("Li",)), (("Bo",), None, ("Bo",)), (("Bo",), "Li", ("Li",))],
)
def test_gold_replaces_the_questions_own(
    own: tuple[str, ...], gold: str | None, golds: tuple[str, ...]
) -> None:
    assert (
        lab().stream(Question("q", QUESTION, own), NEVER, gold=gold).trace.question.golds == golds
    )


@pytest.mark.parametrize(
    ("question", "how", "says"),
    [
        ("", DRAGIN, "the question is empty"),
        (" \n", DRAGIN, "is empty"),
        (Question("q", ""), DRAGIN, "is empty"),
        (QUESTION, "entity-rag", "finds no entities; give nlp="),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_written(
    question: str | Question, how: Any, says: str
) -> None:
    asking = lab(LOUD)
    with pytest.raises(SettingError, match=says):
        asking.ask(question, how)
    assert not asking.model.prompts


@pytest.mark.parametrize("after", range(12))
def test_closing_leaves_a_valid_trace_wherever_it_happens(after: int) -> None:
    with stream(LOUD, LAST) as events:
        for _ in range(after):
            next(events)
    assert events.trace.ended == "cancelled"
    assert list(events) == []
    assert all(
        step.answer == events.trace.text for step in events.trace.steps if step.kept and step.answer
    )
    events.close()
    assert repr(events.trace).endswith("cancelled)")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ModelError("too long"), "too long"),
        (OSError("gone"), "OSError: gone"),
        (KeyboardInterrupt(), ""),
    ],
)
def test_a_draft_that_fails_keeps_what_was_done(error: BaseException, says: str) -> None:
    with pytest.raises(type(error)) as caught:
        lab(LOUD, error).ask(QUESTION, DRAGIN)
    trace = caught.value.trace
    assert (trace.ended, trace.error) == ("error" if says else "cancelled", says)
    assert trace.text == " It is"
    assert len(trace.retrievals) == 3
    if not says:
        assert caught.value.__notes__[0].startswith("Interrupted; retrievals so far: 1, tokens: ")


# -- many ------------------------------------------------------------------------------------------


def test_they_come_as_they_end_and_places_are_filled_at_once() -> None:
    says: Script = {"Who is long?": [Say(" word" * 40 + " the answer is Li.")]}
    says |= {f"Who is {name}?": [ANSWER] for name in ("a", "b", "c", "d")}
    lm = Model(says)
    order = [t.question.text for t in dl.Lab(lm).ask_many(list(says), NEVER, batch_size=2)]
    assert order == [*list(says)[1:], "Who is long?"]
    widths = lm.batches[0].widths
    assert max(widths) == 2
    assert widths[: widths.index(1)] == [2] * widths.index(1)  # until nothing waits any more
    lm = Model({"Who?": [ANSWER], "Who is long?": [Say(" word" * 60)]})
    traces = Lab(lm).ask_many(["Who?", "Who is long?"], NEVER, batch_size=2)
    assert next(traces).question.text == "Who?"
    traces.close()  # type: ignore[attr-defined]
    assert lm.batches[0].closed  # left early, it writes nothing more


@pytest.mark.parametrize("size", [0, -3, 1.5, True, None])
def test_a_senseless_batch_size_is_refused(size: Any) -> None:
    with pytest.raises(SettingError, match="batch_size="):
        list(lab().ask_many(["Who?"], NEVER, batch_size=size))


@pytest.mark.parametrize("batch_size", [1, 4])
def test_of_many_one_may_fail(batch_size: int) -> None:
    says: Script = {
        "Who?": [ANSWER],
        "Who was it?": [ANSWER],
        "What was long?": [ModelError("too long")],
    }
    questions = [
        "Who?",
        "Who failed?",
        "",
        Question("q3", "Who was it?", ("Li",)),
        "What was long?",
    ]
    asked = iter(questions) if batch_size == 1 else questions
    answered = list(
        Lab(Model(says), retriever=Sometimes()).ask_many(asked, SR, batch_size=batch_size)
    )
    traces = {trace.question.text: trace for trace in answered}
    assert {text: trace.ended for text, trace in traces.items()} == {
        "Who?": "answered",
        "Who failed?": "error",
        "": "error",
        "Who was it?": "answered",
        "What was long?": "error",
    }
    assert (
        traces["Who failed?"].error
        == "retriever Sometimes failed for 'Who failed?': TimeoutError: no answer"
    )
    assert traces["Who failed?"].steps[0].query is not None
    assert traces[""].error.startswith("the question is empty")
    assert traces["What was long?"].error == "too long"
    assert traces["Who was it?"].scores["em"] == 1


@pytest.mark.parametrize("batch_size", [1, 2])
def test_a_failed_attention_map_ends_its_episode(batch_size: int) -> None:
    class Blind(Model):
        def attend(self, ids: Any) -> Any:
            raise OSError("gone")

    asking = Lab(Blind({"Who?": [LOUD], "Who was it?": [LOUD]}), retriever=ScriptedRetriever())
    released = method("dragin", variant="reference")
    traces = list(asking.ask_many(["Who?", "Who was it?"], released, batch_size=batch_size))
    assert [(trace.ended, trace.error) for trace in traces] == [("error", "OSError: gone")] * 2


def test_a_question_file_that_breaks_off_loses_no_answer() -> None:
    def broken() -> Iterator[str]:
        yield "Who?"
        yield "Who was it?"
        raise OSError("disk gone")

    traces = Lab(Model({"Who?": [ANSWER], "Who was it?": [ANSWER]})).ask_many(
        broken(), NEVER, batch_size=8
    )
    assert [next(traces).ended, next(traces).ended] == ["answered", "answered"]
    with pytest.raises(OSError, match="disk gone"):
        next(traces)


def test_an_interrupt_keeps_what_has_ended_and_says_what_to_do() -> None:
    says: Script = {
        "Who is short?": [ANSWER],
        "Who is long?": [Say(" word" * 30)],
        "Who stops?": [Say(" word" * 12), KeyboardInterrupt()],
    }
    lm = Model(says)
    traces = Lab(lm).ask_many(list(says), NEVER, batch_size=3)
    assert next(traces).question.text == "Who is short?"
    with pytest.raises(KeyboardInterrupt) as caught:
        next(traces)
    assert [t.ended for t in caught.value.traces] == ["cancelled", "cancelled"]
    note = (
        "1 questions have their trace; 2 under way were cancelled. Run again with the questions"
        " that are left."
    )
    assert caught.value.__notes__ == [note]
    assert lm.batches[0].closed


# -- searches side by side -------------------------------------------------------------------------


def test_decoding_goes_on_while_a_search_is_under_way() -> None:
    class Slow(ScriptedRetriever):
        """Answers one question only after the other episode has ended."""

        def search(self, query: str, k: int) -> list[Passage]:
            assert threading.current_thread() is not threading.main_thread()
            if "waits" in query:
                assert ended.wait(60)
            return super().search(query, k)

    ended, order = threading.Event(), []
    lm = Model({"Who waits?": [LOUD, LAST], "Who writes?": [LAST]})
    for trace in Lab(lm, retriever=Slow()).ask_many(
        ["Who waits?", "Who writes?"], DRAGIN, batch_size=2
    ):
        order.append(trace.question.text)
        ended.set()
    assert order == ["Who writes?", "Who waits?"]


def test_searches_go_out_together() -> None:
    questions = [f"Who is {name}?" for name in ("a", "b", "c", "d")]
    retriever = Sometimes()
    lm = Model({question: [ANSWER] for question in questions})
    traces = list(Lab(lm, retriever=retriever).ask_many(questions, SR, batch_size=4))
    assert [len(trace.steps[0].passages) for trace in traces] == [3] * 4
    assert sorted(retriever.queries) == questions
    assert retriever.together == [4]


def test_one_query_that_fails_is_found_out() -> None:
    retriever = Sometimes()
    with pytest.warns(UserWarning, match=r"search_many failed \(TimeoutError: no answer\)"):
        answers = search_all(
            retriever, [Search("Who?", 2), Search("Who failed?", 2), Search("Who else?", 2)]
        )
    assert [isinstance(one, TimeoutError) for one in answers] == [False, True, False]
    assert [len(answers[i]) for i in (0, 2)] == [2, 2]  # type: ignore[arg-type]
    assert search_all(retriever, [Search("Who?", 1), Search("Who else?", 3)])[
        1
    ] == retriever.search("Who else?", 3)
    retriever.search_many = lambda queries, k: []  # type: ignore[method-assign]
    with pytest.warns(UserWarning, match="search_many failed"):
        answers = search_all(retriever, [Search("Who?", 1), Search("Who else?", 1)])
    assert answers == [ScriptedRetriever().search("", 1)] * 2
