"""Branches: an episode once more, other than it was from one place on.

The episode's generator runs from its beginning. Up to the parting its requests are answered from the trace, then one
answer is forced, and from there the model and the retriever answer. So a branch is written by the method's own loop and
served like any episode; a request that is not the recorded one ends it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from dragin_lab.catalog.methods import restore_method
from dragin_lab.checks import instance
from dragin_lab.core.episode import Attend, Episode, Request, Search, Write
from dragin_lab.core.trigger import Trigger, Verdict
from dragin_lab.errors import DraginLabError, SettingError
from dragin_lab.run.change import JUDGING, Change, find_text, read_change
from dragin_lab.run.drivers import Stream, begin_stream, finish_stream, kind_of
from dragin_lab.run.lab import Lab
from dragin_lab.run.serving import open_episode
from dragin_lab.text import write_compared
from dragin_lab.trace.frames import differences
from dragin_lab.trace.trace import Draft, Passage, Query, Trace

#: Of a trace's provenance, what may differ from the lab's: versions of programs, and how drafts were shared out.
_FREE = frozenset({"dragin_lab", "torch", "transformers", "python", "device", "batch", "seed"})


class BranchError(DraginLabError):
    """A trace that its own method does not write again, as far as it is recorded."""


def branch(lab: Lab, trace: Trace, **options: Any) -> Trace:
    """``Lab.branch``."""
    return finish_stream(stream_branch(lab, trace, watched=False, **options))


def stream_branch(lab: Lab, trace: Trace, *, nlp: Any = None, watched: bool = True, **change: Any) -> Stream:
    """A branch token by token, with arguments and errors as for ``Lab.branch``."""
    instance("trace", trace, Trace, "give a Trace; Trace.load reads one")
    if lab.elsewhere:
        raise SettingError("a cluster answers questions elsewhere; to branch, open its model here: dl.Lab(model)")
    method, lab = restore_method(trace.method, nlp), lab.replace(seed=trace.provenance.get("seed", lab.seed))
    branching = _Branching(trace, read_change(lab.model.tokenizer, method, trace, **change))
    judges = getattr(method.trigger, "loop", "") in JUDGING
    if branching.change.rules or (
        trace.parting is not None and judges
    ):  # a decision of the parent may itself be forced
        own = method.trigger
        kind = type(type(own).__name__, (_Overruled, type(own)), {"branching": branching})
        method = replace(method, trigger=kind(**{f.name: getattr(own, f.name) for f in fields(own)}))
    running = open_episode(lab, method, trace.question)
    branching.trace = running.trace
    running.trace.method, running.trace.parting = dict(trace.method), branching.change.parting
    then, now = ({k: v for k, v in one.provenance.items() if k not in _FREE} for one in (trace, running.trace))
    if changes := differences(then, now):
        raise SettingError(
            f"the trace was made otherwise than this lab asks ({changes[0]}); branch it with a lab that has the "
            "model, passages and exemplars it was made with"
        )
    running.episode = branching.around(running.episode)
    return begin_stream(lab, running, method, watched=watched)


@dataclass
class _Branching:
    """Answers an episode's requests from the parent, up to the parting."""

    parent: Trace
    change: Change
    trace: Trace = field(init=False)  # the branch's
    parted: bool = False

    @property
    def step(self) -> int:
        """The number of the step under way."""
        return len(self.trace.steps) - 1

    def around(self, episode: Episode[None]) -> Episode[None]:
        """The episode with what it asks for before the parting answered."""
        try:
            request: Request = next(episode)
            answer: Any
            while True:
                try:
                    if self.parted or isinstance(request, Attend):
                        answer = yield request
                    elif isinstance(request, Write):
                        answer = yield from self._write(request)
                    else:
                        answer = yield from self._search(request)
                except Exception as error:  # noqa: BLE001 - a request that failed belongs to the episode
                    request = episode.throw(error)
                else:
                    request = episode.send(answer)
        except StopIteration:
            if not self.parted:
                raise self._strayed("ends before the branch parts") from None
        finally:
            episode.close()

    def _write(self, request: Write) -> Episode[Draft]:
        kind = kind_of(request, self.trace)
        source, step = ("extraction", None) if kind == "answer" else (kind, self.step)
        recorded, prompt = find_text(self.parent, step, source)
        if recorded is None or prompt is None or prompt.text != request.prompt.text:
            raise self._strayed(f"writes its {source} after another prompt", step)
        change = self.change
        queried = step is not None and self.parent.steps[step].query is not None
        if (step, source) == (change.parting.step, change.parting.source):
            self._part()
            if change.ids:
                return (yield replace(request, prefix=change.ids))
            queried = True  # another decision on what was written
        # What a slim trace, or a saved one, does not hold: rows are read where the draft is queried, states in all.
        without_states = request.hidden is not None and recorded.states is None and len(recorded) > 0
        if not (request.attention and queried and recorded.rows is None) and not without_states:
            return recorded
        ids = tuple(recorded.ids.tolist())
        draft: Draft = yield replace(request, prefix=ids, max_new_tokens=len(ids))
        if len(draft) < len(ids):
            raise self._strayed(f"ends its {source} after {len(draft)} of {len(ids)} tokens", step)
        return replace(recorded, rows=draft.rows, states=draft.states)

    def _search(self, request: Search) -> Episode[list[Passage]]:
        step = self.step
        recorded = self.parent.steps[step] if step < len(self.parent.steps) else None
        strays = recorded is None or recorded.query is None or recorded.query.sent != request.query
        if recorded is None or recorded.query is None or (strays and self.parent.parting is None):
            raise self._strayed(f"searches for {request.query!r}", step)
        if strays:  # the parent's query was put in
            self.trace.steps[step].query, request = recorded.query, replace(request, query=recorded.query.sent)
        change = self.change
        if change.parting.step == step and change.parting.kind == "query":
            self._part()
            if (query := change.parting.after) != recorded.query.text:
                self.trace.steps[step].query = Query(query, query, note=f"in place of {recorded.query.text!r}")
                request = replace(request, query=query)
            return (yield request)
        if change.parting.step == step and change.parting.kind == "passages":
            self._part()
            return list(change.passages)
        return list(recorded.passages)

    def _part(self) -> None:
        """The steps before this one are the parent's."""
        self.parted = True
        self.trace.steps[: self.step] = self.parent.steps[: self.step]

    def _strayed(self, how: str, step: int | None = None) -> BranchError:
        where = "" if step is None else f" at step {step + 1}"
        return BranchError(
            f"the episode of {self.parent.question.text[:60]!r} {how}{where}, which the trace does not say; ask the "
            "question again with this lab, and branch that trace"
        )


# -- another decision -------------------------------------------------------------------------------------------------


class _Overruled(Trigger):
    """A trigger whose decisions a branch forces: up to the parting those of its parent, and there the other one."""

    branching: _Branching

    @property
    def _flipped(self) -> Change | None:
        """The change, where it is another decision on the draft that is being judged."""
        branching = self.branching
        here = branching.parted and branching.change.rules and branching.step == branching.change.parting.step
        return branching.change if here else None

    def judge(self, draft: Draft, *, resumed: bool = False, until: int | None = None) -> Verdict:
        verdict = super().judge(draft, resumed=resumed, until=until)
        written = bool(draft.stopped)  # what is still being written is not the parent's
        if not self.branching.parted:
            recorded = self.branching.parent.steps[self.branching.step].words.hit
            hit = recorded if written and len(recorded) == len(verdict.hit) else np.zeros_like(verdict.hit)
        elif self._flipped is not None and self._flipped.retrieves and written:
            hit = self._find_hit(verdict, self._flipped.parting.token)
        else:
            return verdict
        return replace(verdict, hit=hit, judged=verdict.judged | hit)

    @staticmethod
    def _find_hit(verdict: Verdict, token: int | None) -> np.ndarray:
        """(w,) bool: the word of a token; without one the words that fire, or else the highest that may."""
        if token is not None:
            spans = verdict.draft.spans  # (w, 2)
            hit: np.ndarray = (spans[:, 0] <= token) & (token < spans[:, 1])
            return hit
        if verdict.fires:
            return verdict.hit
        score = np.where(verdict.judged | ~verdict.judged.any(), verdict.score, -np.inf)  # (w,)
        return np.arange(len(score)) == score.argmax()

    def _may_fire(self, draft: Draft, resumed: bool, until: int | None) -> np.ndarray:
        judged = super()._may_fire(draft, resumed, until)  # (w,)
        if (change := self._flipped) is None or change.retrieves:
            return judged
        if change.sentence is None:
            return np.zeros_like(judged)
        return judged & (draft.sentence_of_word > change.sentence) & (draft.settled > change.sentence)

    def describe_hit(self, verdict: Verdict) -> str:
        if self._flipped is None or not self._flipped.retrieves:
            return super().describe_hit(verdict)
        word = verdict.words.text[verdict.word]
        score, theta = write_compared(float(verdict.score[verdict.word]), float(self.theta or 0.0))
        return f"the branch retrieves here, at {word!r}, which {self.describe_score(score)}; θ is {theta}"

    def describe_silence(self, peak: float) -> str:
        reason = super().describe_silence(peak) if np.isfinite(peak) else "nothing else is judged"
        return reason if self._flipped is None else f"the branch does not retrieve here; {reason}"
