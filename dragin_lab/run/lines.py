"""What is recorded of an episode that has ended: a line of predictions, a line of timings, and their means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dragin_lab.core.intervals import bootstrap

if TYPE_CHECKING:
    from dragin_lab.core.trace import Trace

Line = dict[str, Any]

#: What ``summary`` gives the mean of.
MEASURES = ("em", "f1", "retrievals", "pieces")
SCORES = ("em", "f1", "precision", "recall")


class Finished(NamedTuple):
    """What is recorded of an episode: the lines of a run directory, and its trace where that is wanted."""

    line: Line
    timing: Line
    trace: Trace | None


def record_of(trace: Trace, traces: bool = False) -> Finished:
    """What is recorded of a trace: its lines, and itself with ``traces``."""
    return Finished(prediction(trace), timing(trace), trace if traces else None)


def prediction(trace: Trace) -> Line:
    """The line of ``predictions.jsonl``: what was answered and what it took, and nothing that changes from run to run.

    ``passages`` holds the ids found by each retrieval, ``pieces`` counts all that were generated. The scores are None
    without a gold answer and where the episode failed; ``error`` is there only then.
    """
    count = trace.counters
    line = {
        "qid": trace.question.id,
        "question": trace.question.text,
        "text": trace.text,
        "answer": trace.answer,
        "gold": list(trace.question.golds),
        **{name: trace.scores.get(name) for name in SCORES},
        "retrievals": count["retrievals"],
        "queries": trace.queries,
        "passages": [[p.id for p in step.passages] for step in trace.steps if step.query is not None],
        "drafts": count["drafts"],
        "pieces": count["generated"],
        "ended": trace.ended,
    }
    return line | ({"error": trace.error} if trace.ended == "error" else {})


def timing(trace: Trace) -> Line:
    """The line of ``timings.jsonl``: seconds in all and by kind of request, and what did not have to be computed.

    ``reused`` counts prompt pieces; ``stored_drafts`` and ``stored_pieces`` count what a cache served.
    """
    spent = {kind: sum(step.seconds.get(kind, 0.0) for step in trace.steps) for kind in ("draft", "attend", "search")}
    stored = {f"stored_{name}": count for name, count in trace.stored.items()}
    return {"qid": trace.question.id, "seconds": trace.seconds, **spent, "reused": trace.counters["reused"], **stored}


def summary(predictions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means of ``MEASURES`` with their 95 % intervals: ``n``, ``em``, ``em_low``, ``em_high`` and so on.

    ``n`` counts the episodes that did not fail; em and f1 are over those of them that have gold answers. NaN where
    there is nothing to take the mean of.
    """
    sound = [line for line in predictions if line["ended"] != "error"]
    found: dict[str, float] = {"n": len(sound)}
    for name in MEASURES:
        values = [line[name] for line in sound if line[name] is not None]
        mean = bootstrap(values) if values else None
        for suffix, part in (("", "mean"), ("_low", "low"), ("_high", "high")):
            found[name + suffix] = float("nan") if mean is None else getattr(mean, part)
    return found
