"""Many episodes side by side: they end as they do alone, and what one meets is no matter of the others."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from answering import Batch
from scripted import Say, ScriptedModel, ScriptedRetriever

import dragin_lab as dl
from dragin_lab.catalog.methods import method
from dragin_lab.core.episode import Search, Write
from dragin_lab.errors import ModelError, SettingError
from dragin_lab.run.lab import Lab
from dragin_lab.run.serving import search_all
from dragin_lab.trace.trace import Continuation, Passage, Question, Trace

SR = method("sr-rag")
DRAGIN = method("dragin", variant="paper", what="question")
LOUD = Say(" It is Bo Ek, a man", entropy={"Bo": 9.0}, received={"Bo": 0.5})
LAST = Say(" Li. So the answer is Li. Then he went")
ANSWER = Say(" So the answer is Li.")


class Model(ScriptedModel):
    """Says what stands for the question in the prompt; a batch of it writes one token a step."""

    def __init__(self, says: dict[str, list[Say | BaseException]]) -> None:
        super().__init__([])
        self.says = {question: list(script) for question, script in says.items()}
        self.batches: list[Batch] = []

    def stream(self, draft: Write, seed: int | None = None) -> Generator[Any, None, Continuation]:
        question = draft.prompt.part("question")
        self.script = [self.says[question].pop(0)]
        return (yield from super().stream(draft, seed))

    def batch(self, size: int) -> Batch:
        self.batches.append(Batch(self, size))
        return self.batches[-1]


def without_time(trace: Trace) -> Any:
    trace.provenance.pop("batch", None)
    trace.seconds = 0.0
    for step in trace.steps:
        assert all(seconds >= 0 for seconds in step.seconds.values())
        step.seconds = dict.fromkeys(step.seconds, 0.0)
    return trace


def test_traces_are_those_of_single_runs() -> None:
    says: dict[str, list[Say | BaseException]] = {
        "Who made it?": [LOUD, LAST],
        "Who was it?": [LAST],
        "Who else?": [LOUD, LOUD, LAST],
        "Who now?": [Say(" Nobody knows"), Say(" Li")],
    }
    questions = [Question(f"q{i}", text, ("Li",)) for i, text in enumerate(says)]
    lm = Model(says)
    found = {
        t.question.id: t
        for t in Lab(lm, retriever=ScriptedRetriever(), seed=4).ask_many(questions, DRAGIN, batch_size=3)
    }
    assert {t.provenance["batch"]["size"] for t in found.values()} == {3}
    for question in questions:
        single = Model(says)
        single.tokenizer = lm.tokenizer  # it numbers words as they come
        alone = Lab(single, retriever=ScriptedRetriever(), seed=4).ask(question, DRAGIN)
        side = found[question.id]
        assert set(side.steps[0].seconds) == set(alone.steps[0].seconds)
        assert without_time(side).diff(without_time(alone)) == ""
        assert (side.ended, side.answer, side.scores) == (alone.ended, alone.answer, alone.scores)
    assert lm.batches[0].closed
    # every draft of an episode has the seed that it has alone
    assert len(set(lm.batches[0].seeds)) == 3


def test_they_come_as_they_end_and_places_are_filled_at_once() -> None:
    says: dict[str, list[Say | BaseException]] = {"Who is long?": [Say(" word" * 40 + " the answer is Li.")]}
    says |= {f"Who is {name}?": [ANSWER] for name in ("a", "b", "c", "d")}
    lm = Model(says)
    order = [t.question.text for t in Lab(lm).ask_many(list(says), method("wo-rag"), batch_size=2)]
    assert order == [*list(says)[1:], "Who is long?"]
    widths = lm.batches[0].widths
    assert max(widths) == 2
    assert widths[: widths.index(1)] == [2] * widths.index(1)  # until nothing waits any more


@pytest.mark.parametrize("size", [0, -3, 1.5, True, "8", None])
def test_a_senseless_batch_size_is_refused(size: Any) -> None:
    with pytest.raises(SettingError, match=f"batch_size={size!r}: give a whole number of at least 1"):
        list(Lab(Model({})).ask_many(["Who?"], method("wo-rag"), batch_size=size))


def test_a_batch_larger_than_the_questions_is_fine() -> None:
    lm = Model({"Who?": [ANSWER]})
    assert [t.answer for t in Lab(lm).ask_many(["Who?"], method("wo-rag"), batch_size=64)] == ["Li"]
    assert list(Lab(Model({})).ask_many([], method("wo-rag"), batch_size=4)) == []


class Sometimes(ScriptedRetriever):
    """Fails for questions that say so."""

    def search(self, query: str, k: int) -> list[Passage]:
        if "fail" in query:
            raise TimeoutError("no answer")
        return super().search(query, k)


def test_of_many_one_may_fail() -> None:
    says: dict[str, list[Say | BaseException]] = {
        "Who?": [ANSWER],
        "Who was it?": [ANSWER],
        "What was long?": [ModelError("too long")],
    }
    questions = ["Who?", "Who failed?", "", Question("q3", "Who was it?", ("Li",)), "What was long?"]
    found = {t.question.text: t for t in Lab(Model(says), retriever=Sometimes()).ask_many(questions, SR, batch_size=4)}
    assert {text: t.ended for text, t in found.items()} == {
        "Who?": "answered",
        "Who failed?": "error",
        "": "error",
        "Who was it?": "answered",
        "What was long?": "error",
    }
    assert found["Who failed?"].error == "retriever Sometimes failed for 'Who failed?': TimeoutError: no answer"
    assert found["Who failed?"].steps[0].query is not None
    assert found[""].error.startswith("the question is empty")
    assert found["What was long?"].error == "too long"
    assert found["Who was it?"].scores["em"] == 1


@pytest.mark.parametrize("batch_size", [1, 2])
def test_a_failed_attention_map_ends_its_episode(batch_size: int) -> None:
    class Blind(Model):
        def attend(self, ids: Any) -> Any:
            raise OSError("gone")

    lm = Blind({"Who?": [LOUD], "Who was it?": [LOUD]})
    how = method("dragin", variant="reference")
    lab = Lab(lm, retriever=ScriptedRetriever())
    traces = list(lab.ask_many(["Who?", "Who was it?"], how, batch_size=batch_size))
    assert [(trace.ended, trace.error) for trace in traces] == [("error", "OSError: gone")] * 2


def test_a_question_file_that_breaks_off_loses_no_answer() -> None:
    def broken() -> Iterator[str]:
        yield "Who?"
        yield "Who was it?"
        raise OSError("disk gone")

    lm = Model({"Who?": [ANSWER], "Who was it?": [ANSWER]})
    traces = Lab(lm).ask_many(broken(), method("wo-rag"), batch_size=8)
    assert [next(traces).ended, next(traces).ended] == ["answered", "answered"]
    with pytest.raises(OSError, match="disk gone"):
        next(traces)


def test_an_interrupt_keeps_what_has_ended_and_says_what_to_do() -> None:
    says: dict[str, list[Say | BaseException]] = {
        "Who is short?": [ANSWER],
        "Who is long?": [Say(" word" * 30)],
        "Who stops?": [Say(" word" * 12), KeyboardInterrupt()],
    }
    lm = Model(says)
    traces = Lab(lm).ask_many(list(says), method("wo-rag"), batch_size=3)
    assert next(traces).question.text == "Who is short?"
    with pytest.raises(KeyboardInterrupt) as caught:
        next(traces)
    given_up = caught.value.traces
    assert [t.ended for t in given_up] == ["cancelled", "cancelled"]
    note = "1 questions have their trace; 2 under way were cancelled. Run again with the questions that are left."
    assert caught.value.__notes__ == [note]
    assert lm.batches[0].closed


def test_leaving_early_cancels_what_is_under_way() -> None:
    lm = Model({"Who?": [ANSWER], "Who is long?": [Say(" word" * 60)]})
    traces = Lab(lm).ask_many(["Who?", "Who is long?"], method("wo-rag"), batch_size=2)
    assert next(traces).question.text == "Who?"
    traces.close()  # type: ignore[attr-defined]
    assert lm.batches[0].closed


def test_decoding_goes_on_while_a_search_is_under_way() -> None:
    class Slow(ScriptedRetriever):
        """Answers one question only after the other episode has ended."""

        def search(self, query: str, k: int) -> list[Passage]:
            assert threading.current_thread() is not threading.main_thread()
            if "waits" in query:
                assert ended.wait(60)
            return super().search(query, k)

    ended = threading.Event()

    order = []
    lm = Model({"Who waits?": [LOUD, LAST], "Who writes?": [LAST]})
    for trace in Lab(lm, retriever=Slow()).ask_many(["Who waits?", "Who writes?"], DRAGIN, batch_size=2):
        order.append(trace.question.text)
        ended.set()
    assert order == ["Who writes?", "Who waits?"]


# -- searches together --------------------------------------------------------------------------------------------


class Together(Sometimes):
    """Counts how many queries came at once."""

    def __init__(self) -> None:
        super().__init__()
        self.together: list[int] = []

    def search_many(self, queries: list[str], k: int) -> list[list[Passage]]:
        self.together.append(len(queries))
        return [self.search(query, k) for query in queries]


def test_searches_go_out_together() -> None:
    questions = [f"Who is {name}?" for name in ("a", "b", "c", "d")]
    retriever = Together()
    found = list(
        Lab(Model({q: [ANSWER] for q in questions}), retriever=retriever).ask_many(questions, SR, batch_size=4)
    )
    assert [len(t.steps[0].passages) for t in found] == [3] * 4
    assert sorted(retriever.queries) == questions
    assert retriever.together == [4]


def test_one_query_that_fails_is_found_out() -> None:
    retriever = Together()
    with pytest.warns(UserWarning, match=r"search_many failed \(no answer\)"):
        found = search_all(retriever, [Search("Who?", 2), Search("Who failed?", 2), Search("Who else?", 2)])
    assert [isinstance(one, TimeoutError) for one in found] == [False, True, False]
    assert [len(found[i]) for i in (0, 2)] == [2, 2]  # type: ignore[arg-type]
    assert search_all(retriever, [Search("Who?", 1), Search("Who else?", 3)])[1] == retriever.search("Who else?", 3)


def test_a_retriever_that_returns_too_little_for_many_is_asked_one_by_one() -> None:
    class Short(ScriptedRetriever):
        def search_many(self, queries: list[str], k: int) -> list[list[Passage]]:
            return []

    with pytest.warns(UserWarning, match="search_many failed"):
        found = search_all(Short(), [Search("Who?", 1), Search("Who else?", 1)])
    assert found == [ScriptedRetriever().search("", 1)] * 2


def test_the_public_name_takes_a_batch_size() -> None:
    lm = Model({"Who?": [ANSWER], "Who was it?": [ANSWER]})
    assert len(list(dl.Lab(lm).ask_many(["Who?", "Who was it?"], method("wo-rag"), batch_size=2))) == 2  # type: ignore[arg-type]
