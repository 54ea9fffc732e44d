"""Branches: an episode once more, other than it was from one place on.

The episode's generator runs from its beginning. Up to the parting its requests are answered from the trace, then one
answer is forced, and from there the model and the retriever answer. So a branch is written by the method's own loop and
served like any episode; a request that is not the recorded one ends it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from dragin_lab.catalog.methods import restore_method
from dragin_lab.checks import instance
from dragin_lab.core.draft import Draft
from dragin_lab.core.episode import Attend, Episode, Request, Search, Write
from dragin_lab.core.method import Method
from dragin_lab.core.trigger import Trigger, Verdict
from dragin_lab.errors import DraginLabError, SettingError
from dragin_lab.run.change import Change, find_text, read_change
from dragin_lab.run.drivers import Stream, finish_stream, kind_of, serve
from dragin_lab.run.lab import Lab
from dragin_lab.run.serving import Running, Server, open_episode
from dragin_lab.trace.frames import differences
from dragin_lab.trace.trace import Continuation, Passage, Query, Trace

#: Of a trace's provenance, what may differ from the lab's: versions of programs, and how drafts were shared out.
_FREE = frozenset({"dragin_lab", "torch", "transformers", "python", "device", "batch", "seed"})


class BranchError(DraginLabError):
    """A trace that its own method does not write again, as far as it is recorded."""


def branch(lab: Lab, trace: Trace, *, nlp: Any = None, **change: Any) -> Trace:
    """``Lab.branch``."""
    return finish_stream(stream_branch(lab, trace, nlp=nlp, **change))


def stream_branch(lab: Lab, trace: Trace, *, nlp: Any = None, **change: Any) -> Stream:
    """A branch token by token, with arguments and errors as for ``Lab.branch``."""
    method, lab = method_of(lab, trace, nlp), lab_of(lab, trace)
    running = open_branch(lab, method, trace, read_change(lab.model.tokenizer, method, trace, **change))
    return Stream(serve(running, Server(lab.writer, lab.retriever_for(method))), running.trace)


def method_of(lab: Lab, trace: Trace, nlp: Any = None) -> Method:
    """The method that wrote a trace. Raises ``SettingError`` as ``restore_method``, and where no branch can be made."""
    instance("trace", trace, Trace, "give a Trace; Trace.load reads one")
    if lab.elsewhere:
        raise SettingError("a cluster answers questions elsewhere; to branch, open its model here: dl.Lab(model)")
    return restore_method(trace.method, nlp)


def lab_of(lab: Lab, trace: Trace) -> Lab:
    """The lab with the trace's seed."""
    return lab.replace(seed=trace.provenance.get("seed", lab.seed))


def open_branch(lab: Lab, method: Method, parent: Trace, change: Change) -> Running:
    """The branch's episode, not started. Raises ``SettingError`` where the lab is not the one that made the trace."""
    ruling = Ruling(change) if change.rules else None
    if ruling is not None:
        method = replace(method, trigger=overrule(method.trigger, ruling))
    running = open_episode(lab, method, parent.question)
    trace = running.trace
    trace.method, trace.parting = dict(parent.method), change.parting
    then, now = ({k: v for k, v in one.provenance.items() if k not in _FREE} for one in (parent, trace))
    if changes := differences(then, now):
        raise SettingError(
            f"the trace was made otherwise than this lab asks ({changes[0]}); branch it with a lab that has the "
            "model, passages and exemplars it was made with"
        )
    if ruling is not None:
        ruling.trace = trace
    running.episode = _Branching(parent, trace, change).around(running.episode)
    return running


@dataclass
class _Branching:
    """Answers an episode's requests from the parent, up to the parting."""

    parent: Trace
    trace: Trace
    change: Change
    parted: bool = False

    def around(self, episode: Episode[None]) -> Episode[None]:
        """The episode with what it asks for before the parting answered."""
        try:
            request = next(episode)
            while True:
                try:
                    answer = yield from self._answer(request)
                except Exception as error:  # noqa: BLE001 - a request that failed belongs to the episode
                    request = episode.throw(error)
                else:
                    request = episode.send(answer)
        except StopIteration:
            if not self.parted:
                raise self._strayed("ends before the branch parts") from None
        finally:
            episode.close()

    def _answer(self, request: Request) -> Episode[Any]:
        if self.parted or isinstance(request, Attend):
            return (yield request)
        if isinstance(request, Write):
            return (yield from self._write(request))
        return (yield from self._search(request))

    def _write(self, request: Write) -> Episode[Continuation]:
        kind = kind_of(request, self.trace)
        source = "extraction" if kind == "answer" else kind
        step = None if source == "extraction" else len(self.trace.steps) - 1
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
        if not _lacks(request, recorded, queried=queried):
            return recorded
        ids = tuple(recorded.ids.tolist())
        draft: Continuation = yield replace(request, prefix=ids)
        if tuple(draft.ids[: len(ids)].tolist()) != ids:
            raise self._strayed(f"ends its {source} after {len(draft)} of {len(ids)} tokens", step)
        return draft

    def _search(self, request: Search) -> Episode[list[Passage]]:
        step = len(self.trace.steps) - 1
        recorded = self.parent.steps[step] if step < len(self.parent.steps) else None
        if recorded is None or recorded.query is None or recorded.query.sent != request.query:
            raise self._strayed(f"searches for {request.query!r}", step)
        change = self.change
        if change.parting.step == step and change.parting.kind == "query":
            self._part()
            if change.query != recorded.query.text:
                note = f"in place of {recorded.query.text!r}"
                self.trace.steps[step].query = Query(change.query, change.query, note=note)
                request = replace(request, query=change.query)
            return (yield request)
        if change.parting.step == step and change.parting.kind == "passages":
            self._part()
            return list(change.passages)
        return list(recorded.passages)

    def _part(self) -> None:
        """The steps before this one are the parent's."""
        self.parted = True
        before = len(self.trace.steps) - 1
        self.trace.steps[:before] = self.parent.steps[:before]

    def _strayed(self, how: str, step: int | None = None) -> BranchError:
        where = "" if step is None else f" at step {step}"
        return BranchError(
            f"the episode of {self.parent.question.text[:60]!r} {how}{where}, which the trace does not say; ask the "
            "question again with this lab, and branch that trace"
        )


def _lacks(request: Write, recorded: Continuation, *, queried: bool) -> bool:
    """Whether something is asked for that the record does not hold: that of a slim trace, or of a saved one.

    The rows of attention are read where the draft is ``queried``; hidden states by the trigger, in every draft.
    """
    attention = request.attention and queried and recorded.attention is None
    return attention or (request.hidden is not None and recorded.hidden is None and len(recorded) > 0)


# -- another decision -------------------------------------------------------------------------------------------------


@dataclass
class Ruling:
    """The decision that a branch forces, at one step of ``trace``."""

    change: Change
    trace: Trace | None = None

    @property
    def here(self) -> bool:
        """Whether that step is being judged."""
        return self.trace is not None and len(self.trace.steps) - 1 == self.change.parting.step


class _Overruled(Trigger):
    """A trigger that a ruling decides for at one step; made by ``overrule``."""

    ruling: Ruling

    def judge(self, draft: Draft, *, resumed: bool = False, until: int | None = None) -> Verdict:
        verdict = super().judge(draft, resumed=resumed, until=until)
        # Not while the draft is written: what the parent wrote is judged as a whole.
        if not (self.ruling.here and self.ruling.change.retrieve and isinstance(draft.written, Continuation)):
            return verdict
        token = self.ruling.change.parting.token
        if token is not None:
            hit = (verdict.draft.spans[:, 0] <= token) & (token < verdict.draft.spans[:, 1])
        elif verdict.fires:
            hit = verdict.hit
        else:
            allowed = verdict.judged if verdict.judged.any() else np.ones_like(verdict.judged)
            score = np.where(allowed, verdict.score, -np.inf)  # (w,)
            hit = np.arange(len(score)) == score.argmax()
        return replace(verdict, hit=hit)

    def _may_fire(self, draft: Draft, resumed: bool, until: int | None) -> np.ndarray:
        judged = super()._may_fire(draft, resumed, until)  # (w,)
        if not self.ruling.here or self.ruling.change.retrieve:
            return judged
        sentence = self.ruling.change.sentence
        if sentence is None:
            return np.zeros_like(judged)
        return judged & (draft.sentence_of_word > sentence) & (draft.settled > sentence)

    def describe_hit(self, verdict: Verdict) -> str:
        reason = super().describe_hit(verdict)
        if not (self.ruling.here and self.ruling.change.retrieve):
            return reason
        word = verdict.words.text[verdict.word]
        score = self.describe_score(float(verdict.words.score[verdict.word]))
        return f"the branch retrieves here, at {word!r}, which {score}; θ is {self.theta:g}"

    def describe_silence(self, peak: float) -> str:
        reason = super().describe_silence(peak) if np.isfinite(peak) else "nothing else is judged"
        return f"the branch does not retrieve here; {reason}" if self.ruling.here else reason


def overrule(trigger: Trigger, ruling: Ruling) -> Trigger:
    """The trigger with the ruling over it."""
    kind = type(type(trigger).__name__, (_Overruled, type(trigger)), {"ruling": ruling})
    overruled: Trigger = kind(**{f.name: getattr(trigger, f.name) for f in fields(trigger)})
    return overruled
