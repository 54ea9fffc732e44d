"""``variant="reference"``: what the authors' released code does, to the letter
(docs/reference-behaviour.md).

Spaces count: prompts and answer text are joined exactly as the page says, doubled spaces and stray
ones included.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dragin_lab.core.answers import ANSWER_PHRASE, RELEASED_ENDS
from dragin_lab.core.clock import Clock, EveryN, EverySentence, Never, Once
from dragin_lab.core.episode import Attend, Episode, FirstSentence, Stop, Tokenizer
from dragin_lab.core.formulators import DEFAULT_TOP_N, choose_top
from dragin_lab.core.loop import BaseLoop
from dragin_lab.core.scores import doubts
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.settings import MethodPart, Registry, setting
from dragin_lab.core.trigger import Trigger
from dragin_lab.reference.measures import (
    Probability,
    Reader,
    ReleasedDraft,
    Rind,
    assign_tokens,
    cut_draft,
    decode_each,
    drop_doubtful,
    find_end,
    join_parts,
    judge_draft,
    lead_parts,
    merge_words,
    pay_words,
)
from dragin_lab.trace.draft import contain_any
from dragin_lab.trace.trace import Decision, Draft, Query, Step, Words

QUERY_TOKENS = 64  # a query is cut to its last tokens (§4)
#: The note of a query whose trigger flags no words.
STANDS_IN = "the last word stands in for the hits that this trigger does not give"

_STRAY = "Answer in t he same format as before."
_CLOSING = "Answer in the same format as before."

# -- what (§3) -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ReleasedGap:
    """Where a draft lacks information, as the released code sees it. w words and m tokens in the
    sentence.
    """

    pipeline: Pipeline = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    question: str
    context: str  # the question and the answer so far, with what is kept of the draft
    before: str  # the same as it is read before the sentence, empty parts and all
    sentence: str  # the sentence that lacks information
    words: tuple[str, ...]  # of the sentence
    hits: np.ndarray  # (w,) bool, the words that were flagged
    tokens: tuple[str, ...]  # of the sentence, decoded one by one
    doubt: np.ndarray  # (m,) float64, 1 - p of each token
    chunk: str | None = None  # what a method that searches by the clock wrote last
    doubt_limit: float | None = None  # θ, where the trigger compares 1 - p with it
    note: str = ""  # what stands in for hits, where the trigger gives none


@dataclass(frozen=True)
class Formulation(MethodPart):
    """One of the released code's ways to make a query. Names are as the paper's where the idea
    is the same.
    """

    needs = frozenset({"text"})
    reads_attention = False
    reads_hits = False

    def text(self, gap: ReleasedGap) -> str:
        """The query for a gap, as a text."""
        return self._call_function(gap)

    def query(self, gap: ReleasedGap) -> Episode[Query]:
        """The query for a gap, as an episode: a formulation may ask for an attention map."""
        yield from ()
        text = self.text(gap)
        return Query(text, text, note=gap.note if self.reads_hits else "")


_CLOSED = (
    "variant='reference' runs the authors' released code, which has nothing but its own triggers"
    " and queries; use variant='paper' for any other"
)
#: What to search for, and when to retrieve.
FORMULATIONS: Registry[Formulation] = Registry("what", Formulation, closed=_CLOSED)
TRIGGERS: Registry[Trigger] = Registry(
    "when", Trigger, (Never, Once, EveryN, EverySentence, Probability, Rind), closed=_CLOSED
)


@FORMULATIONS.define("question", source="direct", needs=frozenset())
def question(gap: ReleasedGap) -> str:
    """The question."""
    return gap.question


@FORMULATIONS.define("last-sentence", source="last_sentence")
def last_sentence(gap: ReleasedGap) -> str:
    """The last sentence of question, answer and kept sentences."""
    return gap.chunk if gap.chunk is not None else (gap.pipeline.split(gap.context) or [""])[-1]


@FORMULATIONS.define("full-context", source="forward_all")
def full_context(gap: ReleasedGap) -> str:
    """Question, answer and kept sentences."""
    return gap.context


@FORMULATIONS.define("current", source="current")
def current(gap: ReleasedGap) -> str:
    """The words of the sentence that fired."""
    return " ".join(gap.words) if gap.chunk is None else gap.sentence


@FORMULATIONS.define("current-without-hits", source="current_wo_wrong", reads_hits=True)
def current_without_hits(gap: ReleasedGap) -> str:
    """The words of the sentence that fired, those that were flagged left empty."""
    return " ".join("" if hit else word for word, hit in zip(gap.words, gap.hits, strict=True))


@FORMULATIONS.add
@dataclass(frozen=True)
class LastN(Formulation):
    """The last n tokens of question and answer, as raw vocabulary strings; or the whole chunk of
    a schedule.
    """

    name = "last-n"
    source = "last_n_tokens"
    top_n: int | None = setting(None, kind=int, label="tokens in the query", unit="tokens")

    def text(self, gap: ReleasedGap) -> str:
        if gap.chunk is not None and self.top_n is None:
            return gap.chunk
        n = self.top_n or DEFAULT_TOP_N
        tokens = gap.tokenizer.tokens(gap.tokenizer.encode(gap.context, special=False))
        return " ".join(tokens[-n:]) if len(tokens) > n else gap.context


@FORMULATIONS.add
@dataclass(frozen=True)
class ConfidentSentence(Formulation):
    """The sentence without its doubtful tokens (FLARE)."""

    name = "confident-sentence"
    source = "TokenRAG (reference-behaviour §5)"
    #: None: θ of a trigger on 1 - p, else 0.1.
    doubt_limit: float | None = setting(
        kind=float, label="1 − probability above which a token is left out", top=1.0
    )

    def text(self, gap: ReleasedGap) -> str:
        limits = (self.doubt_limit, gap.doubt_limit, 0.1)
        limit = next(limit for limit in limits if limit is not None)
        return drop_doubtful(gap.sentence, gap.tokens, gap.doubt, limit)


@FORMULATIONS.add
@dataclass(frozen=True)
class Qfs(Formulation):
    """The words that the flagged ones were predicted from (``real_words``, reference-behaviour
    §3).
    """

    name = "qfs"
    source = "real_words"
    reads_attention = True
    top_n: int = setting(DEFAULT_TOP_N, label="words in the query", unit="words")

    def query(self, gap: ReleasedGap) -> Episode[Query]:
        text = gap.before + " ".join(gap.words)
        ids = gap.tokenizer.encode(text, special=True)
        tokens = gap.tokenizer.tokens(ids)
        words = merge_words(tokens, ids, gap.tokenizer.marker, eos=None)
        texts = [word.text for word in words]
        attention = yield Attend(tuple(ids))  # (h, n, n)
        paid = pay_words(attention, words)  # (w, w)
        flagged = np.flatnonzero(gap.hits) + len(words) - len(gap.words)
        flagged = flagged[flagged >= 0]
        weights = np.full(len(words), np.nan)  # (w,)
        note = "no flagged word is left, so text order ranks the words"
        if len(flagged):
            weights = paid[flagged].mean(axis=0)
            note = gap.note
        eligible = contain_any(texts, gap.pipeline.content_words(text))  # (w,)
        eligible[flagged] = False
        chosen = choose_top(weights, self.top_n, eligible)  # (w,)
        shown = np.flatnonzero(eligible)
        return Query.of([texts[i] for i in shown], weights[shown], chosen[shown], note)


#: The methods that are made of them.
METHODS = ("wo-rag", "sr-rag", "fl-rag", "fs-rag", "flare", "dragin")


# -- the three loops (§1, §4, §5) ------------------------------------------------------------------


class ReferenceLoop(BaseLoop):
    """An episode of the DRAGIN authors' code."""

    released = True

    def sendable(self, text: str) -> str:
        """A query's last tokens (§4)."""
        ids = self.tokenizer.encode(text, special=False)[-QUERY_TOKENS:]
        return self.tokenizer.decode(ids, special=False)

    def _end_marks_in(self, text: str) -> list[str]:
        marks = super()._end_marks_in(text)
        if kept := [mark for mark in marks if mark not in RELEASED_ENDS]:
            self.trace.notes.append(
                f"the released code keeps {', '.join(kept)} in the answer; it is read without"
            )
        return marks

    def run(self) -> Episode[None]:
        trigger: Any = self.method.trigger
        if not isinstance(trigger, Clock):
            yield from self._look_ahead(trigger)
        elif trigger.searches == "always":
            yield from self._search_first(trigger)
        else:
            yield from self._write_once(trigger)

    def _write_once(self, clock: Clock) -> Episode[None]:
        """wo-RAG and SR-RAG: one generation, not stripped, no loop."""
        step = self.new_step()
        if clock.searches == "once":
            step.decision = Decision(True, clock.reason)
            yield from self.retrieve(step, Query(self.question, self.question))
            written = yield from self._write_again(step, "", _CLOSING)
            step.continuation_kept = len(written.text)
        else:
            step.prompt = self.template.render(self.question)
            written = step.draft = yield from self.write_after(
                step.prompt, self.method.max_new_tokens, step.notes, source="draft"
            )
            step.decision = Decision(retrieve=False, reason=clock.reason)
        step.kept = step.answer = self.trace.text = written.raw_text
        answered = written.stopped == "eos" or ANSWER_PHRASE in written.raw_text
        self.trace.ended = "answered" if answered else "length"

    def _search_first(self, clock: Clock) -> Episode[None]:
        """FL-RAG and FS-RAG: search, write a chunk or a sentence with the passages in view,
        search again.
        """
        text = ""
        chunk = ""
        last = None
        stop = FirstSentence(self.method.pipeline, self.tokenizer) if clock.sentences else None
        while True:
            step = self.new_step()
            query = yield from self._scheduled_query(text, chunk, last)
            step.decision = Decision(True, clock.reason)
            yield from self.retrieve(step, query)
            last = yield from self._write_again(step, " " + text, _STRAY, stop, clock.tokens)
            # of which FS-RAG takes the first sentence: stripped, then split
            chunk = last.raw_text.strip()
            if clock.sentences and not (chunk := self._first_sentence(chunk)):
                self.trace.ended = "stalled"
                return
            step.continuation_kept = (
                find_end(chunk, last.text) if clock.sentences else len(last.text)
            )
            if self._record_text(step, text, f"{text.strip()} {chunk}"):
                return
            text = self.trace.text

    def _look_ahead(self, trigger: Reader) -> Episode[None]:
        """FLARE and DRAGIN: write without passages, look back at it, and where information is
        missing write again.
        """
        text = ""
        rest = trigger.rewrites_rest
        # Of DRAGIN's second generation only the first sentence is kept, so it need not be written
        # further.
        stop = None if rest else FirstSentence(self.method.pipeline, self.tokenizer)
        while True:
            step = self.new_step()
            step.prompt = self.template.render(
                self.question, f" {text}" if rest else lead_parts(text)
            )
            step.draft = yield from self.write_after(
                step.prompt, self.method.max_new_tokens, step.notes, source="draft"
            )
            # (h, n, n)
            reread = (yield Attend(tuple(step.draft.ids.tolist()))) if trigger.rereads else None
            draft = cut_draft(step.draft, self.method.pipeline, self.tokenizer, reread)
            step.words, step.decision, gap = self.judge_draft(draft, text)
            if gap is None:
                new = f"{text.strip()} {step.draft.raw_text.strip()}"
            else:
                kept = " ".join(draft.sentences[: step.decision.sentence]).strip()
                yield from self.retrieve(step, (yield from self.method.formulator.query(gap)))
                tail = f" {text} {kept}" if rest else lead_parts(text, kept)
                written = yield from self._write_again(step, tail, _CLOSING, stop)
                if rest:
                    step.continuation_kept = len(written.text)
                    new = f"{text.strip()} {kept} {written.raw_text.strip()}"
                else:
                    sentence = self._first_sentence(written.raw_text)
                    step.continuation_kept = find_end(sentence, written.text)
                    new = join_parts(text.strip(), kept, sentence)
            if self._record_text(step, text, new):
                return
            text = self.trace.text

    def _first_sentence(self, text: str) -> str:
        return next(iter(self.method.pipeline.split(text)), "")

    def _write_again(
        self, step: Step, tail: str, closing: str, stop: Stop | None = None, most: int | None = None
    ) -> Episode[Draft]:
        """Write with the step's passages in view."""
        slots = self.method.top_k
        step.passages_prompt = self.template.render(
            self.question, tail, step.passages, slots=slots, closing=closing
        )
        most = most or self.method.max_new_tokens
        step.continuation = written = yield from self.write_after(
            step.passages_prompt, most, step.notes, stop, source="continuation"
        )
        return written

    def _record_text(self, step: Step, old: str, new: str) -> bool:
        """Record the step's text; whether the loop ends here (§4)."""
        self.trace.text = step.answer = new
        step.kept = new.strip().removeprefix(old.strip()).strip()
        if step.draft is not None and step.decision is not None and step.decision.retrieve:
            step.discarded = step.draft.text[step.decision.cut or 0 :]
        if ANSWER_PHRASE in new:
            self.trace.ended = "answered"
        elif len(self.tokenizer.encode(new, special=True)) > self.method.max_new_tokens:
            self.trace.ended = "length"
        elif len(new) <= len(old):
            self.trace.ended = "stalled"
        return self.trace.ended != "running"

    # -- when, and the gap for a query (§2, §5) ----------------------------------------------------

    def judge_draft(
        self, draft: ReleasedDraft, text: str
    ) -> tuple[Words, Decision, ReleasedGap | None]:
        """The words and the decision on a draft after the answer ``text``, and the gap where it
        fires.
        """
        trigger: Any = self.method.trigger
        words, decision = judge_draft(trigger, draft, self.method.pipeline)
        number = decision.sentence
        if not decision.retrieve or number is None:
            return words, decision, None
        kept = " ".join(draft.sentences[:number])
        start, stop = draft.ranges[number]
        a, b = draft.token_ranges[number]
        gap = ReleasedGap(
            self.method.pipeline,
            self.tokenizer,
            self.question,
            context=join_parts(self.question, text, kept),
            before=f"{self.question} {text} {kept} ",
            sentence=draft.sentences[number],
            words=draft.texts[start:stop],
            hits=words.hit[start:stop],
            tokens=tuple(draft.tokens[a:b]),
            doubt=doubts(draft.continuation.logprob)[a:b],
            doubt_limit=trigger.theta if trigger.rewrites_rest else None,
        )
        return words, decision, gap

    def _scheduled_query(self, text: str, chunk: str, last: Draft | None) -> Episode[Query]:
        """The query of a loop that searches first: the question, then what the formulation makes
        of the last chunk.
        """
        if last is None:
            return self.first_query()
        before = text.strip().removesuffix(chunk).strip()
        tokens = decode_each(last, self.tokenizer)
        words = tuple(chunk.split())
        _, owned = assign_tokens([chunk], tokens)[0]
        gap = ReleasedGap(
            self.method.pipeline,
            self.tokenizer,
            self.question,
            context=join_parts(self.question, text),
            before=f"{self.question} {before}  ",
            sentence=chunk,
            words=words,
            hits=np.arange(len(words)) == len(words) - 1,
            tokens=tuple(tokens[:owned]),
            doubt=doubts(last.logprob)[:owned],
            chunk=chunk,
            note=STANDS_IN,
        )
        return (yield from self.method.formulator.query(gap))
