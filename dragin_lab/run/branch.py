"""Branches: an episode once more, other than it was from one place on.

The episode's generator runs from its beginning. Up to the parting its requests are answered from
the trace, then one answer is forced, and from there the model and the retriever answer. So a branch
is written by the method's own loop and served like any episode; a request that is not the recorded
one ends it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from dragin_lab.checks import check_text, flag, position, shown
from dragin_lab.core.episode import Attend, Episode, Request, Search, Write
from dragin_lab.core.method import Method
from dragin_lab.core.trigger import Trigger, Verdict
from dragin_lab.errors import SettingError
from dragin_lab.retrieval.doors import as_passages
from dragin_lab.run.episodes import Stream, finish_stream, kind_of, open_episode
from dragin_lab.run.rundir import Facts
from dragin_lab.run.setup import Setup
from dragin_lab.text import write_compared
from dragin_lab.trace.frames import list_differing
from dragin_lab.trace.trace import Draft, Parting, Passage, Prompt, Query, Trace
from dragin_lab.triggers.call import Call

#: Of a trace's provenance, what may differ from the lab's: versions of programs, and how drafts
#: were shared out.
FREE = frozenset({"dragin_lab", "torch", "transformers", "python", "device", "batch", "seed"})
_RETRIEVE = "retrieve"
_GO_ON = "go on"
_SOURCES = ("draft", "continuation", "extraction")


@dataclass(frozen=True)
class Change:
    """What a branch is to have in the place of what was written, asked, found or decided:
    ``parting`` says where.
    """

    parting: Parting
    ids: tuple[int, ...] = ()  # that the text begins with
    passages: tuple[Passage, ...] = ()
    # up to whose end nothing fires, where a draft is written on instead of retrieving
    sentence: int | None = None

    @property
    def rules(self) -> bool:
        parting = self.parting
        return parting.kind == "decision" and (
            parting.before != parting.after or parting.token is not None
        )


def answer_branch(setup: Setup, method: Method, trace: Trace, **change: Any) -> Trace:
    """``Lab.branch``; ``method`` is the trace's."""
    return finish_stream(stream_branch(setup, method, trace, watched=False, **change))


def stream_branch(
    setup: Setup, method: Method, trace: Trace, *, watched: bool = True, **change: Any
) -> Stream:
    """A branch token by token, with changes and errors as for ``Lab.branch``."""
    if setup.elsewhere:
        raise SettingError(
            "a cluster answers questions elsewhere; to branch, open its model here: dl.Lab(model)"
        )
    day = trace.provenance.get("template", {}).get("day") or setup.day
    setup = replace(setup, seed=trace.provenance.get("seed", setup.seed), day=day)
    branching = _Branching(trace, _read_change(setup.model.tokenizer, method, trace, **change))
    judges = can_overrule(method)
    # a parent's decision may itself be forced
    if branching.change.rules or (judges and trace.parting is not None):
        trigger = method.trigger
        kind = type(type(trigger).__name__, (_Overruled, type(trigger)), {"branching": branching})
        settings = {field.name: getattr(trigger, field.name) for field in fields(trigger)}
        method = replace(method, trigger=kind(**settings))
    running = open_episode(setup, method, trace.question, draw=trace.provenance.get("draw", 0))
    branching.trace = running.trace
    running.trace.method = dict(trace.method)
    running.trace.parting = branching.change.parting
    if changes := list_differing(
        fixed_facts(trace.provenance), fixed_facts(running.trace.provenance)
    ):
        raise SettingError(
            f"the trace was made otherwise than this lab asks ({changes[0]}); branch it with a lab"
            " that has the model, passages and exemplars it was made with"
        )
    running.episode = branching.around(running.episode)
    return Stream(setup, running, method, watched=watched)


def fixed_facts(provenance: Facts) -> Facts:
    """What a trace or an engine records of itself and a lab must share."""
    return {name: fact for name, fact in provenance.items() if name not in FREE}


@dataclass
class _Branching:
    """Answers an episode's requests from the parent, up to the parting."""

    parent: Trace
    change: Change
    trace: Trace = field(init=False)  # the branch's
    parted: bool = False

    @property
    def step(self) -> int:
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
                raise self._stray_error("ends before the branch parts") from None
        finally:
            episode.close()

    def _write(self, request: Write) -> Episode[Draft]:
        kind = kind_of(request, self.trace)
        source, step = ("extraction", None) if kind == "answer" else (kind, self.step)
        recorded, prompt = _find_text(self.parent, step, source)
        if recorded is None or prompt is None or prompt.text != request.prompt.text:
            raise self._stray_error(f"writes its {source} after another prompt", step)
        change = self.change
        queried = step is not None and self.parent.steps[step].query is not None
        if (step, source) == (change.parting.step, change.parting.source):
            self._begin_change()
            if change.ids:
                return (yield replace(request, prefix=change.ids))
            queried = True  # another decision on what was written
        # What a slim trace, or a saved one, does not hold: rows are read where the draft is
        # queried, states in all.
        without_states = (
            request.hidden is not None and recorded.states is None and len(recorded) > 0
        )
        if not (request.attention and queried and recorded.rows is None) and not without_states:
            return recorded
        ids = tuple(recorded.ids.tolist())
        draft: Draft = yield replace(request, prefix=ids, max_new_tokens=len(ids))
        if len(draft) < len(ids):
            raise self._stray_error(
                f"ends its {source} after {len(draft)} of {len(ids)} tokens", step
            )
        return replace(recorded, rows=draft.rows, states=draft.states)

    def _search(self, request: Search) -> Episode[list[Passage]]:
        step = self.step
        recorded = self.parent.steps[step].query if step < len(self.parent.steps) else None
        strays = recorded is None or recorded.sent != request.query
        if recorded is None or (strays and self.parent.parting is None):
            raise self._stray_error(f"searches for {request.query!r}", step)
        if strays:  # the parent's query was put in
            self.trace.steps[step].query = recorded
            request = replace(request, query=recorded.sent)
        change = self.change
        if change.parting.step == step and change.parting.kind == "query":
            self._begin_change()
            if (query := change.parting.after) != recorded.text:
                self.trace.steps[step].query = Query(
                    query, query, note=f"in place of {recorded.text!r}"
                )
                request = replace(request, query=query)
            return (yield request)
        if change.parting.step == step and change.parting.kind == "passages":
            self._begin_change()
            return list(change.passages)
        return list(self.parent.steps[step].passages)

    def _begin_change(self) -> None:
        self.parted = True
        self.trace.steps[: self.step] = self.parent.steps[: self.step]
        if self.change.parting.source == "extraction":  # the last step is whole, notes and all
            self.trace.steps[-1].notes[:] = self.parent.steps[-1].notes

    def _stray_error(self, how: str, step: int | None = None) -> SettingError:
        where = "" if step is None else f" at step {step + 1}"
        return SettingError(
            f"the episode of {self.parent.question.text[:60]!r} {how}{where}, which the trace does"
            " not say; ask the question again with this lab, and branch that trace"
        )


def _find_text(trace: Trace, step: int | None, source: str) -> tuple[Draft | None, Prompt | None]:
    """A text of a trace and the prompt it was written after; None for what is not there."""
    if source == "extraction":
        return trace.extraction, trace.extraction_prompt
    if step is None or step >= len(trace.steps):
        return None, None
    written_in = trace.steps[step]
    if source == "draft":
        return written_in.draft, written_in.prompt
    return written_in.continuation, written_in.passages_prompt


def _list_searched(trace: Trace) -> str:
    """The numbers of the steps that searched, for a message."""
    return ", ".join(str(i) for i, step in enumerate(trace.steps, 1) if step.query) or "none"


def _read_change(
    tokenizer: Any,
    method: Method,
    trace: Trace,
    step: Any = None,
    token: Any = None,
    source: Any = None,
    **asked: Any,
) -> Change:
    """The change that ``Lab.branch`` is asked for. Raises ``SettingError`` for one that cannot
    be made.
    """
    changes = {name: value for name, value in sorted(asked.items()) if value is not None}
    if len(changes) != 1:
        raise SettingError(
            f"a branch changes one thing, and {' and '.join(changes) or 'nothing'} is given; give"
            " token= and to=, or query=, passages= or retrieve="
        )
    ((kind, value),) = changes.items()
    if source is not None and (kind != "to" or source not in _SOURCES):
        raise SettingError(
            f"source={shown(source)}: of token= and to=; one of {', '.join(_SOURCES)}"
        )
    if kind == "to":
        return _change_token(tokenizer, trace, step, token, value, source)
    number = position("step", step, len(trace.steps), "the trace")
    if kind == "retrieve":
        return _change_decision(method, trace, number, token, flag("retrieve", value))
    if token is not None:
        raise SettingError(
            f"token={token}: goes with to= or retrieve=True; leave it out with {kind}="
        )
    asked_step = trace.steps[number]
    parent = trace.fingerprint
    if asked_step.query is None:
        there = _list_searched(trace)
        raise SettingError(
            f"step={step}: nothing was searched for there; steps with a query: {there}"
        )
    if kind == "query":
        if not check_text("query", value).strip():
            raise SettingError(f"query={value!r} is empty; give a text to search for")
        return Change(Parting(parent, "query", number, asked_step.query.text, value))
    read = tuple(as_passages(value, method.top_k, "passages=", asked_step.query.sent))
    before = ", ".join(passage.id for passage in asked_step.passages)
    after = ", ".join(passage.id for passage in read)
    return Change(Parting(parent, "passages", number, before, after), passages=read)


def _change_token(
    tokenizer: Any,
    trace: Trace,
    step: int | None,
    token: int | None,
    to: int | str,
    source: str | None,
) -> Change:
    number = None
    if source != "extraction":
        number = position("step", step, len(trace.steps), "the trace")
        source = source or ("draft" if trace.steps[number].draft is not None else "continuation")
    elif step is not None:
        raise SettingError(f"step={step}: the extraction belongs to no step; leave step out")
    written, _ = _find_text(trace, number, source)
    whose = f"the {source}" + ("" if step is None else f" of step {step}")
    if written is None:
        raise SettingError(
            f"{whose} does not exist: nothing was written there; choose another step or source"
        )
    place = position("token", token, len(written), whose)
    put_in = _read_tokens(tokenizer, written, place, to)
    ids = written.ids.tolist()
    before = tokenizer.decode([ids[place]], special=True)
    after = tokenizer.decode(put_in, special=True)
    parting = Parting(trace.fingerprint, "token", number, before, after, source, place)
    return Change(parting, (*ids[:place], *put_in))


def _read_tokens(tokenizer: Any, written: Draft, token: int, to: int | str) -> tuple[int, ...]:
    """The ids that ``to`` stands for in the place of a token: an id, or a text, which may be
    several tokens.

    A text that an alternative has, with or without the space before it, is that alternative. Any
    other stands after a space where the token had one.
    """
    if not isinstance(to, str):
        return (position("to", to, len(tokenizer), "the vocabulary", things="ids", first=0),)
    if not check_text("to", to):
        raise SettingError("to='' is empty; give the text or the id of a token")
    alternative = _find_alternative(written, token, to)
    if alternative is not None:
        return (alternative,)
    opens = written.pieces[token].startswith(tokenizer.marker or " ")
    opens = opens or written.tokens[token].startswith(" ")
    spaced = " " + to if opens and not to[:1].isspace() else to
    # so that no tokenizer takes the text for the beginning
    before = tokenizer.encode("\n", special=False)
    ids = tokenizer.encode("\n" + spaced, special=False)
    if ids[: len(before)] != before or len(ids) == len(before):
        raise SettingError(f"to={to!r} cannot be encoded after another text; give an id")
    return tuple(ids[len(before) :])


def _find_alternative(written: Draft, token: int, to: str) -> int | None:
    """The alternative of a token that has a text; else the only one that has it with or without
    the space before it.
    """
    if not written.alternative_tokens or not to.strip():
        return None
    names = written.alternative_tokens[token]
    alternatives = dict(zip(names, written.alternative_ids[token].tolist(), strict=False))
    if to in alternatives:
        return alternatives[to]
    close = [i for name, i in alternatives.items() if name.strip() == to.strip()]
    return close[0] if len(close) == 1 else None


def can_overrule(method: Method) -> bool:
    """Whether the trigger judges drafts, so that a decision of its can be replaced."""
    return method.variant == "paper" and method.trigger.judges_drafts()


def _change_decision(
    method: Method, trace: Trace, number: int, token: int | None, retrieve: bool
) -> Change:
    step = trace.steps[number]
    if method.variant == "reference":
        raise SettingError(
            "retrieve=: the released code's decisions are not flipped; use variant='paper'"
        )
    if step.draft is None or step.decision is None or not can_overrule(method):
        remedy = "ask with another method"
        if isinstance(method.trigger, Call):
            remedy = "replace a token instead: token=, to="
        raise SettingError(
            f"retrieve={retrieve}: no trigger judged a draft in step {number + 1}; {remedy}"
        )
    if not retrieve and not step.decision.retrieve:
        there = _list_searched(trace)
        raise SettingError(
            f"retrieve=False: step {number + 1} did not retrieve, so nothing would change; steps"
            f" that retrieved: {there}"
        )
    if token is not None and not retrieve:
        raise SettingError(
            f"token={token}: says where to retrieve; leave it out with retrieve=False"
        )
    place = None
    where = f"step {number + 1}"
    words = step.words.spans  # (w, 2)
    lacks = f"{where} has no judged word"
    if token is not None:
        place = position("token", token, len(step.draft), f"the draft of {where}")
        words = words[(words[:, 0] <= place) & (place < words[:, 1])]
        lacks += f" at token {token}"
    if retrieve and not len(words):
        raise SettingError(
            f"retrieve=True: the draft of {lacks}, so nothing says what to search for"
        )
    before = _RETRIEVE if step.decision.retrieve else _GO_ON
    after = _RETRIEVE if retrieve else _GO_ON
    change = Change(Parting(trace.fingerprint, "decision", number, before, after, "draft", place))
    if not retrieve and step.decision.retrieve and method.trigger.span == "word":
        return replace(change, ids=tuple(step.draft.ids.tolist()), sentence=step.decision.sentence)
    return change


class _Overruled(Trigger):
    """A trigger whose decisions a branch forces: up to the parting those of its parent, and
    there the other one.
    """

    branching: _Branching

    @property
    def _flipped(self) -> Change | None:
        """The change, where it is another decision on the draft that is being judged."""
        branching = self.branching
        here = (
            branching.parted
            and branching.change.rules
            and branching.step == branching.change.parting.step
        )
        return branching.change if here else None

    def judge(self, draft: Draft, *, resumed: bool = False, until: int | None = None) -> Verdict:
        verdict = super().judge(draft, resumed=resumed, until=until)
        written = bool(draft.stopped)  # what is still being written is not the parent's
        if not self.branching.parted:
            hit = self.branching.parent.steps[self.branching.step].words.hit
            if not written or len(hit) != len(verdict.hit):
                hit = np.zeros_like(verdict.hit)
        elif self._flipped is not None and self._flipped.parting.after == _RETRIEVE and written:
            hit = self._find_hit(verdict, self._flipped.parting.token)
        else:
            return verdict
        return replace(verdict, hit=hit, judged=verdict.judged | hit)

    @staticmethod
    def _find_hit(verdict: Verdict, token: int | None) -> np.ndarray:
        """(w,) bool: the word of a token; without one the words that fire, or else the highest
        that may.
        """
        if token is not None:
            spans = verdict.draft.spans  # (w, 2)
            return np.asarray((spans[:, 0] <= token) & (token < spans[:, 1]))
        if verdict.fires:
            return verdict.hit
        score = np.where(verdict.judged | ~verdict.judged.any(), verdict.score, -np.inf)  # (w,)
        return np.arange(len(score)) == score.argmax()

    def _may_fire(self, draft: Draft, resumed: bool, until: int | None) -> np.ndarray:
        judged = super()._may_fire(draft, resumed, until)  # (w,)
        if (change := self._flipped) is None or change.parting.after == _RETRIEVE:
            return judged
        if change.sentence is None:
            return np.zeros_like(judged)
        return (
            judged & (draft.sentence_of_word > change.sentence) & (draft.settled > change.sentence)
        )

    def describe_hit(self, verdict: Verdict) -> str:
        if self._flipped is None or self._flipped.parting.after != _RETRIEVE:
            return super().describe_hit(verdict)
        word = verdict.words.text[verdict.word]
        score, theta = write_compared(float(verdict.score[verdict.word]), float(self.theta or 0.0))
        return (
            f"the branch retrieves here, at {word!r}, which {self.describe_score(score)}; θ is"
            f" {theta}"
        )

    def describe_silence(self, peak: float) -> str:
        reason = super().describe_silence(peak) if np.isfinite(peak) else "nothing else is judged"
        return reason if self._flipped is None else f"the branch does not retrieve here; {reason}"
