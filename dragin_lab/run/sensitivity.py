"""Which token decides: an episode branched at every token in whose place another nearly stood, or that fired."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.checks import count, instance, number
from dragin_lab.progress import Progress
from dragin_lab.run.branch import method_of, open_branch
from dragin_lab.run.change import read_change
from dragin_lab.run.drivers import serve_many
from dragin_lab.run.lab import Lab
from dragin_lab.trace.branches import Branches
from dragin_lab.trace.kept import kept_of, written
from dragin_lab.trace.trace import Draft, Step, Trace

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Place:
    """A token, and the one that is tried in its place: the likeliest other."""

    step: int  # its position in ``trace.steps``
    source: str  # "draft" or "continuation"
    token: int  # its position in that text
    text: str
    other: int  # id
    other_text: str
    margin: float  # by how much the written token was likelier; below 0 where the other was
    fired: bool  # whether the trigger fired at its word


@dataclass(frozen=True)
class Effect:
    """What became of the answer with the other token in a place."""

    place: Place
    branch: Trace
    answer: bool  # whether the answer is another one
    retrievals: bool  # whether other passages were found, or more or less often
    correct: bool | None  # whether it is right where it was wrong, or wrong where it was right; None without a gold

    @property
    def decides(self) -> bool:
        """Whether anything came out otherwise."""
        return self.answer or self.retrievals or bool(self.correct)


@dataclass
class Sensitivity:
    """What came of trying the second choice at the tokens of a trace, in the order of its text.

    ``left_out`` counts the places beyond the limit: those whose second choice was least near.
    """

    trace: Trace
    effects: list[Effect] = field(default_factory=list)
    left_out: int = 0

    @property
    def branches(self) -> Branches:
        """The trace and every branch, as one tree."""
        return Branches.of([self.trace, *(effect.branch for effect in self.effects if effect.branch.ended != "error")])

    @property
    def table(self) -> pd.DataFrame:
        """One row per token tried (pandas.DataFrame): where it stands (step and token as ``Lab.branch`` counts them),
        the two tokens and how near they were (margin, of their probabilities), whether the trigger fired there, the
        branch's answer, how it ended, and whether answer, passages found and correctness are other than the trace's."""
        import pandas as pd

        rows = [
            {
                "step": e.place.step + 1,
                "source": e.place.source,
                "token": e.place.token + 1,
                "text": e.place.text,
                "instead": e.place.other_text,
                "margin": e.place.margin,
                "fired": e.place.fired,
                "answer": e.branch.answer,
                "ended": e.branch.ended,
                "answer changes": e.answer,
                "retrievals change": e.retrievals,
                "correct changes": e.correct,
            }
            for e in self.effects
        ]
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        deciding = sum(effect.decides for effect in self.effects)
        left = f", {self.left_out} more not tried" if self.left_out else ""
        return f"Sensitivity({deciding} of {len(self.effects)} tokens decide{left})"

    def _repr_html_(self) -> str:
        return f"<p>{self!r}</p>" + str(self.table.to_html(index=False, float_format="{:.3f}".format))


def sensitivity(
    lab: Lab,
    trace: Trace,
    *,
    margin: float = 0.2,
    limit: int = 20,
    batch_size: int = 1,
    progress: bool = True,
    nlp: Any = None,
) -> Sensitivity:
    """``Lab.sensitivity``."""
    method = method_of(lab, instance("trace", trace, Trace, "give a Trace; Trace.load reads one"), nlp)
    margin, limit, size = number("margin", margin, high=1.0), count("limit", limit), count("batch_size", batch_size)
    lab = lab.replace(seed=trace.provenance.get("seed", lab.seed))
    lab = lab if lab.cache is not None or lab.uncached else lab.replace(cache=True)
    places = sorted(find_places(trace, margin), key=lambda place: (not place.fired, place.margin))
    left_out = max(len(places) - limit, 0)
    places = sorted(places[:limit], key=lambda place: (place.step, place.source == "continuation", place.token))
    changes = [
        read_change(lab.model.tokenizer, method, trace, step=p.step + 1, token=p.token + 1, to=p.other, source=p.source)
        for p in places
    ]
    episodes = (open_branch(lab, method, trace, change) for change in changes)
    order = {change.parting: number for number, change in enumerate(changes)}
    result = Sensitivity(trace, left_out=left_out)
    shown = Progress("sensitivity", len(places)) if progress and places else None
    try:
        for branch in serve_many(lab, method, episodes, size):
            assert branch.parting is not None
            result.effects.append(compare_branch(trace, branch, places[order[branch.parting]]))
            if shown is not None:
                shown.add({"ended": branch.ended, "em": branch.scores.get("em")})
    except KeyboardInterrupt as interrupt:
        interrupt.sensitivity = result  # type: ignore[attr-defined]
        raise
    finally:
        if shown is not None:
            shown.close()
        result.effects.sort(key=lambda effect: order[effect.branch.parting])  # type: ignore[index]
    return result


def compare_branch(trace: Trace, branch: Trace, place: Place) -> Effect:
    """What a branch has other than its trace."""
    before, after = trace.scores.get("em"), branch.scores.get("em")
    correct = None if before is None or after is None else before != after
    return Effect(place, branch, branch.answer != trace.answer, _list_found(branch) != _list_found(trace), correct)


def _list_found(trace: Trace) -> list[list[str]]:
    """The ids of the passages of each retrieval."""
    return [[passage.id for passage in step.passages] for step in trace.steps if step.query is not None]


def find_places(trace: Trace, margin: float) -> Iterator[Place]:
    """Tokens of the answer whose likeliest other is less than ``margin`` less probable, and the tokens that fired."""
    for step, source, continuation in written(trace.steps):
        if not continuation.alternative_ids.shape[1:] or continuation.alternative_ids.shape[1] < 2:
            continue
        end = kept_of(step).of(source)
        kept = continuation.offsets[:, 0] < (len(continuation.text) if end is None else end)  # (n,)
        fired = _find_fired(step, source)
        first = continuation.alternative_ids[:, 0] == continuation.ids  # (n,)
        other = np.where(first, 1, 0)  # (n,) rank of the likeliest other token
        rows = np.arange(len(continuation))
        lead = np.exp(continuation.logprob) - continuation.alternative_probs[rows, other]  # (n,)
        for token in np.flatnonzero((kept & (lead < margin)) | (rows == fired)).tolist():
            yield _place(step, source, continuation, token, int(other[token]), float(lead[token]), token == fired)


def _find_fired(step: Step, source: str) -> int:
    """The token that fired; -1 where none did."""
    if source != "draft" or step.decision is None or not step.decision.retrieve or step.decision.token is None:
        return -1
    return step.decision.token


def _place(step: Step, source: str, text: Draft, token: int, other: int, lead: float, fired: bool) -> Place:
    names = text.alternative_tokens[token] if text.alternative_tokens else ()
    start, stop = text.offsets[token].tolist()
    return Place(
        step=step.index,
        source=source,
        token=token,
        text=text.text[start:stop] or text.pieces[token],
        other=int(text.alternative_ids[token, other]),
        other_text=names[other] if len(names) > other else "",
        margin=lead,
        fired=fired,
    )
