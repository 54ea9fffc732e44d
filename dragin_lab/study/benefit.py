"""What retrieval changed, per question and per retrieval: answers with it against answers without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dragin_lab.catalog.loops import run_loop
from dragin_lab.catalog.methods import method as make_method
from dragin_lab.core.loops import ClockLoop
from dragin_lab.core.method import Method
from dragin_lab.errors import SettingError
from dragin_lab.run.benchmark import as_benchmark
from dragin_lab.run.drivers import serve
from dragin_lab.run.intervals import Interval, bootstrap
from dragin_lab.run.lab import Lab, as_method
from dragin_lab.run.lines import Line
from dragin_lab.run.serving import Running, Server
from dragin_lab.study.budgets import with_cache
from dragin_lab.study.conditions import check_same_questions
from dragin_lab.study.truth import answer_before, passages_in_view
from dragin_lab.trace.trace import Question, Step, Trace


@dataclass(frozen=True)
class Change:
    """What retrieval changed: pairs of answers with and without it, counted by right and wrong."""

    helped: int  # wrong to right
    harmed: int  # right to wrong
    right: int  # right both times
    wrong: int  # wrong both times
    gain: Interval | None  # exact match with minus without; None without a pair

    @property
    def asked(self) -> int:
        """Questions, or retrievals, that are counted."""
        return self.helped + self.harmed + self.right + self.wrong

    @staticmethod
    def of(pairs: Sequence[tuple[bool, bool]]) -> Change:
        """From pairs of (right with, right without)."""
        gains = [float(after) - float(before) for after, before in pairs]
        return Change(
            helped=pairs.count((True, False)),
            harmed=pairs.count((False, True)),
            right=pairs.count((True, True)),
            wrong=pairs.count((False, False)),
            gain=bootstrap(gains, within=(-1.0, 1.0)) if gains else None,
        )


def change(with_retrieval: Sequence[Line], without: Sequence[Line]) -> Change:
    """Benefit and harm over the questions with a retrieval, from the prediction lines of two runs of the same ones.

    Raises ``SettingError`` for lines of other questions.
    """
    alone = {line["qid"]: line for line in without}
    check_same_questions({"with": {line["qid"]: line for line in with_retrieval}, "without": alone})
    if missing := [line["qid"] for line in with_retrieval if line["qid"] not in alone]:
        raise SettingError(
            f"question {missing[0]!r} was not answered without retrieval; give runs of the same questions"
        )
    pairs = [
        (bool(line["em"]), bool(alone[line["qid"]]["em"]))
        for line in with_retrieval
        if line["retrievals"] and line["em"] is not None and alone[line["qid"]]["em"] is not None
    ]
    return Change.of(pairs)


@dataclass(frozen=True)
class Effect:
    """One retrieval of an episode: the answers with and without it; neither retrieves again."""

    qid: str
    number: int  # from 1, within the episode
    with_it: Trace
    without: Trace

    @property
    def pair(self) -> tuple[bool, bool]:
        """Whether the answer is right with it, and without."""
        return bool(self.with_it.scores["em"]), bool(self.without.scores["em"])


def effects(lab: Lab, trace: Trace) -> list[Effect]:
    """What each retrieval of an episode changed: the answer if it was the last one, against the answer without it.

    From the place where it retrieved, the model writes on with what it had in view and retrieves no more. ``lab`` is
    the one that the trace was asked with. Raises ``SettingError`` for a trace that failed or has no gold answer.
    """
    if not trace.scores:
        asked = trace.question.text[:60]
        raise SettingError(f"{asked!r} has no score; give a trace with a gold answer that did not fail")
    searches = [step for step in trace.steps if step.query is not None]
    ends = [_stop_retrieving(lab, trace, step) for step in searches] + [trace]
    return [Effect(trace.question.id, i + 1, ends[i + 1], ends[i]) for i in range(len(searches))]


def benefit(lab: Lab, questions: Any, method: Method | str, *, limit: int | None = None, **settings: Any) -> Change:
    """Benefit and harm of each retrieval of a method on ``questions`` (as for ``Lab.run``).

    Raises ``SettingError`` as ``Lab.run`` and ``effects``.
    """
    benchmark, own = as_benchmark(questions, limit), as_method(method, settings)
    lab = with_cache(lab)
    lab = lab.replace(exemplars=lab.template(own, benchmark.template))
    traces = [trace for trace in lab.ask_many(benchmark.questions, own) if trace.ended != "error"]
    return Change.of([effect.pair for trace in traces for effect in effects(lab, trace)])


def _stop_retrieving(lab: Lab, trace: Trace, step: Step) -> Trace:
    """The episode from a step on, without this retrieval and without any later one."""
    alone = make_method("wo-rag", variant="paper", max_new_tokens=trace.method["max_new_tokens"])
    ending = Trace(Question(trace.question.id, trace.question.text, trace.question.golds), alone.settings)
    passages, before = passages_in_view(trace, step.index) or None, answer_before(trace, step.index).strip()
    lm, text = lab.model, f" {before}" if before else ""
    loop = ClockLoop(alone, ending, lab.template(alone), lm.tokenizer, lm.context_window, text=text, passages=passages)
    for _ in serve(Running(run_loop(loop), ending, lab.seed), Server(lab.writer, None)):
        pass
    return ending
