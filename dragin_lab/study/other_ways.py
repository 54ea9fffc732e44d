"""What an answer would have been, had each decision been the other one: price and worth of each
retrieval.
"""

from __future__ import annotations

from typing import Any

from dragin_lab.core.method import Method
from dragin_lab.errors import SettingError
from dragin_lab.run.branch import answer_branch, can_overrule
from dragin_lab.run.setup import Setup
from dragin_lab.trace.records import OtherWay, Step
from dragin_lab.trace.trace import Trace


def find_other_ways(setup: Setup, method: Method, trace: Trace) -> tuple[OtherWay, ...]:
    """``Lab.fan``: the trace's episode once more for each decision, which is the other one there;
    ``method`` is the trace's.
    """
    ways = []
    for step in trace.steps:
        change = choose_other(method, step)
        if change is not None:
            other = answer_branch(setup, method, trace, step=step.index + 1, **change)
            tokens = other.counters["generated"]
            retrieves = step.query is None
            ways.append(
                OtherWay(step.index, retrieves, other.text, other.answer, other.scores, tokens)
            )
    if not ways:
        raise SettingError(
            f"{method.name!r} decided nothing here that a branch can decide otherwise: nothing was"
            " searched for, and no draft was judged; ask with another method or question"
        )
    return tuple(ways)


def choose_other(method: Method, step: Step) -> dict[str, Any] | None:
    """What ``branch`` changes for the other decision; None where nothing was decided.

    A search that no trigger's judgement of a draft led to has found nothing instead.
    """
    judged = step.draft is not None and step.decision is not None and len(step.words) > 0
    if judged and can_overrule(method):
        return {"retrieve": step.query is None}
    return None if step.query is None else {"passages": []}
