"""A stored trace under other settings, without the model: what would fire and be asked, and how far
that is known.

Every decision is taken by the method's own code on what the trace recorded. The first one that
comes out otherwise ends what a trace can tell for sure, because the model would have written
another text after it. Later drafts are judged all the same, each as if the episode had reached it;
``Turn.reached`` says which are certain.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from dragin_lab.catalog.by_name import find_loop
from dragin_lab.catalog.exchanged import exchange_settings, restore_method
from dragin_lab.checks import instance, shown
from dragin_lab.core.episode import AnswerLine, AnyOf, FirstSentence, Tokenizer
from dragin_lab.core.formulators import Gap, choose_top, formulate
from dragin_lab.core.loop import Loop, holds_word, open_prompt
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.scores import doubts
from dragin_lab.core.trigger import Trigger
from dragin_lab.errors import SettingError, TraceFileError
from dragin_lab.reference import measures
from dragin_lab.reference.released import QUERY_TOKENS, ReferenceLoop, ReleasedDraft, ReleasedGap
from dragin_lab.study.same_episode import EVERYWHERE, Thetas, where_alike, where_judged_alike
from dragin_lab.study.stored_drafts import StoredDraft, StoredTokenizer, fits_trace
from dragin_lab.text import facts_html
from dragin_lab.trace.trace import Decision, Draft, Query, Step, Trace, Words

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

#: Settings that change what is written after a decision, and so cannot be replayed.
_FIXED = ("check_content_words", "sentence_solver", "first")


@dataclass(frozen=True)
class Turn:
    """One step of a trace under other settings.

    ``draft`` is as it would have ended; None where the stored one ends before anything is decided.
    ``certain`` is False where a guess stands in for attention that was not kept.
    """

    step: int  # its position in ``Trace.steps``
    reached: bool  # whether the episode surely comes to this step as it is stored
    change: str  # what is other than in the trace, for people; "" for nothing
    words: Words = field(default_factory=Words, repr=False)
    decision: Decision | None = None
    query: Query | None = None
    draft: Draft | None = field(default=None, repr=False)
    certain: bool = True
    silent: bool = False  # it fires, and its query holds no word, so nothing is searched for
    why: str = ""  # what is not known, and why
    alike: Thetas = EVERYWHERE  # where every comparison comes out so, of a step that was followed

    @property
    def fires(self) -> bool:
        return self.decision is not None and self.decision.retrieve


@dataclass(frozen=True, repr=False)
class Outcome:
    """A trace under some settings: one ``Turn`` per step, what they add up to, and where
    certainty ends.
    """

    trace: Trace
    method: Method
    turns: tuple[Turn, ...]
    # position of the step from whose decision on the stored text no longer tells; None: it tells
    # all
    since: int | None
    why: str  # what happens there

    @property
    def whole(self) -> bool:
        """Whether the episode is the stored one to its end."""
        return self.since is None

    @property
    def judged(self) -> Trace:
        """The trace as these settings judge it: θ, and on each stored draft the words, their
        hits and the decision.
        """
        steps = [
            replace(step, draft=turn.draft or step.draft, words=turn.words, decision=turn.decision)
            for step, turn in zip(self.trace.steps, self.turns, strict=True)
        ]
        return replace(self.trace, method=self.method.settings, steps=steps)

    @property
    def reached(self) -> tuple[Turn, ...]:
        """The turns that are certain to be reached."""
        return tuple(turn for turn in self.turns if turn.reached)

    @property
    def retrievals(self) -> int:
        """Retrievals that are certain to happen; where ``whole``, all of them."""
        return len(self.queries)

    @property
    def queries(self) -> list[str | None]:
        """The query of each of these retrievals; None where the trace does not tell it."""
        asked = [turn for turn in self.reached if turn.fires and not turn.silent]
        return [turn.query.text if turn.query else None for turn in asked]

    @property
    def table(self) -> pd.DataFrame:
        """One row per turn (pandas.DataFrame), with what changes there and why it is not known."""
        import pandas as pd

        rows = []
        for turn in self.turns:
            query = turn.query and turn.query.text
            rows.append((turn.step + 1, turn.reached, turn.fires, query, turn.change, turn.why))
        return pd.DataFrame(rows, columns=["step", "reached", "retrieve", "query", "change", "why"])

    @property
    def alike(self) -> Thetas:
        """Where every comparison comes out as here, of an episode that is ``whole``."""
        alike = EVERYWHERE
        for turn in self.turns:
            alike = alike.meet(turn.alike)
        return alike

    def __repr__(self) -> str:
        end = "the stored episode"
        if self.since is not None:
            end = f"known up to step {self.since + 1}: {self.why}"
        return (
            f"Outcome({self.method.label}, {len(self.turns)} steps, {self.retrievals} retrievals;"
            f" {end})"
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>" + str(self.table.to_html(index=False, na_rep="–"))


class _Verdict(NamedTuple):
    draft: Draft
    words: Words
    decision: Decision
    place: Gap | ReleasedGap | None
    certain: bool = True
    alike: Thetas = EVERYWHERE


class Replay:
    """A trace, made ready to be asked what other settings would have done.

    ``tokenizer`` (such as ``lm.tokenizer``) lets it form queries that count tokens; without it,
    what the trace tells has to do. ``nlp`` is the spaCy pipeline the trace was made with (None: the
    default).

    Raises ``SettingError`` for a trace that no method of dragin_lab made, another pipeline or
    another tokenizer.
    """

    def __init__(
        self, trace: Trace, *, tokenizer: Tokenizer | None = None, nlp: Any = None
    ) -> None:
        self.trace = instance("trace", trace, Trace, "give a Trace; Trace.load reads one")
        self.method = restore_method(trace.method, nlp)
        self._template = PromptTemplate(form=self.method.trigger.form)
        if not (tokenizer is None or hasattr(tokenizer, "tokens")):
            raise SettingError(
                f"tokenizer {shown(tokenizer)} is {type(tokenizer).__name__}; give lm.tokenizer"
            )
        if tokenizer is not None and not fits_trace(tokenizer, trace):
            raise SettingError(
                "the tokenizer names the trace's tokens otherwise; give that of the model that"
                " wrote it"
            )
        self._tokenizer: Tokenizer = tokenizer or StoredTokenizer(trace)
        self._cut: dict[int, ReleasedDraft] = {}
        self._drafts = {}
        for place, step in enumerate(trace.steps):
            if step.draft is not None:
                self._drafts[place] = StoredDraft(step.draft)

    def __repr__(self) -> str:
        return f"Replay({self.trace!r}; can change {', '.join(self.tunable) or 'nothing'})"

    def _repr_html_(self) -> str:
        facts = {
            "question": self.trace.question.text,
            "answer": self.trace.answer,
            "method": self.method.label,
            "can change": ", ".join(self.tunable) or "nothing",
        }
        return facts_html("Replay of a stored trace", facts)

    @property
    def tunable(self) -> tuple[str, ...]:
        """The settings of this trace's method that a replay can change."""
        if not self.method.trigger.judges_drafts():
            return ()
        known = [*self.method.trigger.settings, *self.method.formulator.settings]
        return tuple(key for key in known if key not in _FIXED)

    def at(self, **settings: Any) -> Outcome:
        """The trace under these settings, those not named as they were.

        Raises ``SettingError`` for values out of range and for settings that a replay of this
        method cannot change.
        """
        refused = sorted(set(settings) - set(self.tunable))
        if refused:
            can = ", ".join(self.tunable) or "nothing: it has no threshold"
            raise SettingError(
                f"{refused[0]!r} cannot be replayed for {self.method.name!r}; what can: {can}"
            )
        method = exchange_settings(self.method, **settings) if settings else self.method
        turns: list[Turn] = []
        since = None
        why = ""
        for place, step in enumerate(self.trace.steps):
            turn = self._replay_step(method, place, step, reached=since is None)
            if since is None and (turn.change or not turn.certain):
                since = place
                another = f"here it {turn.change}, so the model would have written another text"
                why = turn.why or another
            turns.append(turn)
        return Outcome(self.trace, method, tuple(turns), since, why)

    @cached_property
    def interval(self) -> Thetas:
        """From which θ up, and below which, the model writes this very episode.

        Exact, as the scores are: those of the shorter drafts that the trigger saw count too. The
        released code's attention is stored in single precision, and so are these ends.

        Raises ``SettingError`` for a method without a threshold, a trigger that judges by code of
        its own, sampled decoding, and a trace that lacks what the trigger compared.
        """
        refuse_no_interval(self.method, self.trace.provenance.get("decoding") == "sample")
        theta = self.method.threshold
        assert theta is not None
        outcome = self.at()
        lacks = [turn.why for turn in outcome.turns if turn.why]
        if not outcome.whole or any(draft.guessed for draft in self._drafts.values()):
            why = outcome.why or next(iter(lacks), "the attention among its tokens was not kept")
            raise SettingError(f"where this episode changes is not known: {why}")
        least = self.method.trigger.declared()["threshold"].ge
        return Thetas(self._follow_down(outcome, least), self._follow_up(outcome))

    def _follow_down(self, outcome: Outcome, least: float) -> float:
        """The least θ of this episode; a comparison that comes out otherwise may change
        nothing.
        """
        while outcome.whole:
            start = max(outcome.alike.start, least)
            if start <= least:
                return start
            outcome = self.at(threshold=max(step_below(self.method, start), least))
        return start

    def _follow_up(self, outcome: Outcome) -> float:
        """The θ from which on it is another episode."""
        top = self.method.trigger.declared()["threshold"].top
        stop = outcome.alike.stop
        while np.isfinite(stop) and (top is None or stop <= top):
            outcome = self.at(threshold=stop)
            if not outcome.whole:
                return stop
            stop = outcome.alike.stop
        return np.inf

    def _replay_step(self, method: Method, place: int, step: Step, *, reached: bool) -> Turn:
        draft = step.draft
        decision = step.decision
        if not draft or decision is None or not method.trigger.judges_drafts():
            turn = Turn(place, reached, "", step.words, decision, step.query, draft)
            return replace(turn, silent=turn.fires and step.query is None)
        lacking = _find_lacking(method, step.words, draft)
        if lacking:
            why = f"{lacking} not recorded; ask the question again"
            unjudged = _leave_unjudged(step.words)
            return Turn(place, reached, "cannot be judged", unjudged, draft=draft, why=why)
        verdict = self._judge_stored(method, place, step, draft)
        if isinstance(verdict, Words):
            why = (
                f"nothing fires in the {len(draft)} tokens that are stored, and what the model"
                " would have written after them is not known: ask the question again with these"
                " settings"
            )
            return Turn(place, reached, "goes on after what is stored", verdict, why=why)
        query = None
        why = ""
        silent = False
        if verdict.place is not None:
            query, why = self._formulate(method, step, verdict, verdict.place)
            silent = query is not None and method.variant == "paper" and not holds_word(query.text)
            query = None if silent else query
        if not verdict.certain and not why:
            why = (
                "the attention of this draft was not kept, so which word is first above θ is a"
                " guess"
            )
        change = _describe_change(step, decision, verdict.decision, query, silent=silent)
        return Turn(
            place,
            reached,
            change,
            verdict.words,
            verdict.decision,
            query,
            verdict.draft,
            verdict.certain,
            silent,
            why,
            verdict.alike,
        )

    def _judge_stored(
        self, method: Method, place: int, step: Step, draft: Draft
    ) -> _Verdict | Words:
        """The method's own judgement of a stored draft; its words alone where it ends before
        anything is decided.
        """
        earlier = self.trace.steps[place - 1] if place else None
        before = earlier.answer if earlier else ""
        if method.variant == "reference":
            reference = ReferenceLoop(method, self.trace, self._template, self._tokenizer)
            if place not in self._cut:
                self._cut[place] = measures.cut_draft(draft, method.pipeline, self._tokenizer, None)
            if len(step.words) != len(self._cut[place].words):
                raise SettingError(
                    f"step {place + 1}: its words are not those of its draft; the trace is damaged"
                )
            # (w,)
            cut = replace(self._cut[place], received=step.words.attention.astype(np.float64))
            words, decision, gap = reference.judge_draft(cut, before)
            alike = _where_released_alike(method, cut, decision)
            return _Verdict(draft, words, decision, gap, alike=alike)
        loop = find_loop(method)(method, self.trace, self._template, self._tokenizer, so_far=before)  # type: ignore[call-arg]
        assert isinstance(loop, Loop)
        assert step.prompt is not None
        loop.step, loop.opened = (judged := replace(step)), open_prompt(step.prompt)
        fired = None if earlier is None or earlier.draft is None else earlier.decision
        resumed = fired is not None and fired.retrieve  # the sentence that the step before cut
        stored = self._drafts[place]
        form = self._template.shape
        answer = AnswerLine(self._tokenizer, loop.before, form)
        watch = loop.watch(resumed) if method.trigger.span == "word" else None
        sentence = FirstSentence(method.pipeline, phrase=form.phrase)
        stop = AnyOf((sentence, answer)) if method.trigger.span == "sentence" else answer
        served = stored.served(watch, stop)
        # nothing fires in what is stored, as the trigger saw it while its last token was written
        if served is None:
            if watch is None:
                return _leave_unjudged(step.words)
            return method.trigger.judge(watch.read(draft[:]), resumed=resumed).words
        decided = loop.judge(served, resumed)
        guessed = stored.guessed and served is not draft and decided.gap is not None
        assert judged.decision is not None
        alike = where_judged_alike(decided)
        if watch is not None:
            alike = alike.meet(stored.fires_alike(watch, len(served)))
        return _Verdict(served, judged.words, judged.decision, decided.gap, not guessed, alike)

    def _formulate(
        self, method: Method, step: Step, verdict: _Verdict, place: Gap | ReleasedGap
    ) -> tuple[Query | None, str]:
        """The query of a place that fired; None and why where the trace does not hold it."""
        try:
            reads = method.formulator.reads_attention
            if reads and (method.variant == "reference" or verdict.draft.rows is None):
                return _chosen_again(method, step, verdict)
            if isinstance(place, Gap):
                return formulate(method.formulator, place), ""
            query = _run_unanswered(method.formulator.query(place))
        except TraceFileError as error:
            if method.top_n == self.method.top_n and _fires_alike(step, verdict):
                return step.query or Query("", ""), ""
            return None, f"the query cannot be told: {error}"
        if step.query is not None and step.query.text == query.text:
            return replace(query, sent=step.query.sent), ""
        try:
            loop = ReferenceLoop(method, self.trace, self._template, self._tokenizer)
            query.sent = loop.sendable(query.text)
        except TraceFileError:
            query.note = query.note or f"at most its last {QUERY_TOKENS} tokens are sent"
        return query, ""


def refuse_no_interval(method: Method, sampled: bool) -> None:
    """Raise ``SettingError`` where no θ says which episode a question has."""
    trigger = method.trigger
    if method.threshold is None or not trigger.judges_drafts():
        raise SettingError(
            f"method {method.label!r} has no threshold on what is written, so there is no curve;"
            " take one with a θ, such as 'dragin', 'flare' or 'targ'"
        )
    has_judge = type(trigger).judge is not Trigger.judge
    if has_judge and method.variant == "paper":
        raise SettingError(
            f"trigger {trigger.name!r} judges by code of its own, so nobody knows where its"
            " episodes change; give it a score in place of judge, or lab.sweep over values of θ"
        )
    if sampled:
        raise SettingError(
            "the model samples, so an episode changes without θ; open it with sample=False"
        )


def step_below(method: Method, theta: float) -> float:
    """The next θ below one where an episode changes.

    The released code's scores are known to single precision, so there it is a few of its steps.
    """
    if not getattr(method.trigger, "rereads", False):
        return float(np.nextafter(theta, -np.inf))
    return theta - 4 * float(np.spacing(np.float32(theta)))


def _where_released_alike(method: Method, draft: ReleasedDraft, decision: Decision) -> Thetas:
    """Where the released code decides on a draft as it did, with the same hits and doubts."""
    trigger: Any = method.trigger
    theta = trigger.theta
    scores, peaks, _ = trigger.score_draft(draft)
    if not decision.retrieve or decision.sentence is None:
        return where_alike(np.array(peaks), theta)
    number = decision.sentence
    alike = where_alike(np.array(peaks[: number + 1]), theta)
    alike = alike.meet(where_alike(scores[number], theta))
    if not trigger.rewrites_rest:
        return alike
    a, b = draft.token_ranges[number]
    doubt = doubts(draft.continuation.logprob)[a:b]  # (m,), which θ leaves out of a query
    return alike.meet(where_alike(doubt, theta))


def _leave_unjudged(words: Words) -> Words:
    """The words with their scores where nothing says which of them fire."""
    return replace(words, hit=np.zeros_like(words.hit), judged=np.zeros(len(words), bool))


def _find_lacking(method: Method, words: Words, draft: Draft) -> str:
    """What the trigger reads of a step and the trace does not hold; "" where it holds
    everything.
    """
    if getattr(method.trigger, "rereads", False) and not np.isfinite(words.attention).all():
        return "the attention that the trigger compared with θ was"
    if "attention" in method.trigger.needs and draft.rows is None:
        return "the attention rows that the trigger reads were"
    if method.trigger.hidden is not None and draft.states is None:
        return "the hidden states that the trigger reads were"
    return ""


def _run_unanswered(episode: Generator[Any, Any, T]) -> T:
    """What an episode that needs no answers returns."""
    try:
        next(episode)
    except StopIteration as end:
        value: T = end.value
        return value
    raise TraceFileError("it takes an attention map that the trace does not hold")


def _chosen_again(method: Method, step: Step, verdict: _Verdict) -> tuple[Query | None, str]:
    """QFS without rows of attention: the recorded weights, where they are those of the same
    flagged words.
    """
    query = step.query
    alike = _fires_alike(step, verdict)
    if query is None and method.variant == "paper" and alike:
        return Query("", ""), ""  # what it held was no word, and was not kept
    if query is None or not alike:
        why = (
            "the query cannot be told: it is weighed by the attention at another word, which was"
            " not kept"
        )
        return None, why
    assert method.top_n is not None
    eligible = np.array([bool(word) for word in query.words], dtype=bool)  # (candidates,)
    again = Query.of(
        query.words, query.weights, choose_top(query.weights, method.top_n, eligible), query.note
    )
    return (replace(again, sent=query.sent) if again.text == query.text else again), ""


def _fires_alike(step: Step, verdict: _Verdict) -> bool:
    """Whether a decision that retrieves does so where the recorded one did, for the same flagged
    words.
    """
    old = step.decision
    new = verdict.decision
    alike = old is not None and old.retrieve and (old.cut, old.token) == (new.cut, new.token)
    return alike and np.array_equal(step.words.hit, verdict.words.hit)


def _describe_change(
    step: Step, old: Decision, new: Decision, query: Query | None, *, silent: bool
) -> str:
    """What makes a step another one than was recorded, in words; "" where the episode goes on as
    it did.
    """
    if new.retrieve != old.retrieve:
        return "retrieves now" if new.retrieve else "no longer retrieves"
    if not new.retrieve:
        return ""
    if new.cut != old.cut:
        return "fires elsewhere"
    if silent:
        return "" if step.query is None else "asks nothing"
    if query is None:
        return "may ask something else"
    asked = "" if step.query is None else step.query.text
    return "" if query.text == asked else "asks something else"
