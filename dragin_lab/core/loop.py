"""What every loop does: write, judge, search, keep, until the episode has ended.

``Loop`` follows the papers (DRAGIN §3; FLARE, "Active Retrieval Augmented Generation"): the answer
so far is kept as the ids that the model wrote, passages stay in the prompt until the next
retrieval, and a draft ends once its outcome is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dragin_lab.core.answers import (
    ANSWER_TOKENS,
    CUTS,
    HIDDEN,
    cut_prediction,
    fold_phrase,
    open_thought,
    opened_thought,
    without_thoughts,
)
from dragin_lab.core.episode import (
    AnswerLine,
    AnyOf,
    Episode,
    FirstSentence,
    NextExample,
    Search,
    Stop,
    Tokenizer,
    Watch,
    Write,
    find_answer_end,
    find_lead,
    find_space,
)
from dragin_lab.core.formulators import Gap, formulate
from dragin_lab.core.method import Method
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.trigger import Verdict
from dragin_lab.text import write_compared
from dragin_lab.trace.draft import Span, count_spaces
from dragin_lab.trace.records import WrittenPart
from dragin_lab.trace.trace import Decision, Draft, Passage, Prompt, Query, Step, Trace

#: The note of a query whose trigger flags no words.
STANDS_IN = "the last token stands in for the hits that this trigger does not give"


def holds_word(query: str) -> bool:
    """Whether a query is searched for: one without a letter or digit is not (paper variant)."""
    return any(map(str.isalnum, query))


@dataclass
class BaseLoop:
    """One episode: a method at work on ``trace.question``; what the loops of both variants
    share.
    """

    method: Method
    trace: Trace
    template: PromptTemplate
    tokenizer: Tokenizer
    window: int | None = None
    released = False  # whether answers are read and scored as a released code does

    @property
    def question(self) -> str:
        """What is asked."""
        return self.trace.question.text

    def run(self) -> Episode[None]:
        """All turns, until ``trace.ended`` says how the episode ended; the answer is then read
        from ``trace.text``.
        """
        raise NotImplementedError

    def new_step(self) -> Step:
        step = Step(len(self.trace.steps))
        self.trace.steps.append(step)
        return step

    def write_after(
        self,
        prompt: Prompt,
        most: int,
        notes: list[str],
        stop: Stop | None = None,
        *,
        source: str,
        **options: Any,
    ) -> Episode[Draft]:
        """Write a text, the ``source`` of a step, after a prompt, and note a window that was
        overrun.
        """
        written = yield Write(prompt, most, stop or Stop(), **options)
        total = len(written.prompt_ids) + len(written)
        if self.window is not None and total > self.window:
            notes.append(
                f"{source}: prompt and text have {total} tokens, more than the model's window of"
                f" {self.window}"
            )
        return written

    def first_query(self) -> Query:
        """The query of a loop that searches before anything is written."""
        note = "the question: nothing is written yet" if self.method.formulator.needs else ""
        return Query(self.question, self.question, note=note)

    def retrieve(self, step: Step, query: Query) -> Episode[None]:
        """Search for a query, and record both."""
        query.sent = self.sendable(query.text)
        step.query = query
        step.passages = tuple((yield Search(query.sent, self.method.top_k)))
        if len(step.passages) < self.method.top_k:
            step.notes.append(f"asked for {self.method.top_k} passages, found {len(step.passages)}")

    def sendable(self, text: str) -> str:
        """What of a query's text is sent to the retriever."""
        return text

    def finish(self) -> Episode[None]:
        """Read the answer from the text; ask for one where the text has none (Appendix B;
        reference-behaviour §6).
        """
        template = self.template
        trace = self.trace
        form = self.template.shape
        text = self.read_text().strip()
        text = text if form.closes else cut_prediction(text)
        if form.phrase not in (text if self.released else fold_phrase(text, form.phrase)):
            text = yield from self.request_answer(text + form.request)
        for mark in self._end_marks_in(text):
            text = text.replace(mark, "")
        trace.answer = template.read(text, released=self.released)
        trace.readable = template.readable(text)
        if golds := trace.question.golds:
            trace.scores = template.score(trace.answer, golds, released=self.released)

    def read_text(self) -> str:
        """What the answer is read from."""
        return without_thoughts(self.trace.text)

    def request_answer(self, text: str) -> Episode[str]:
        """Have the model complete ``text``, which ends by asking for the answer (§6.2)."""
        continuation = yield from self.extract(self.template.render(self.question, " " + text))
        text += continuation.raw_text.strip()
        return text if self.template.shape.closes else cut_prediction(text, at_start=True)

    def extract(self, prompt: Prompt, stop: Stop | None = None) -> Episode[Draft]:
        """What the model writes where the answer is asked for, recorded as the trace's
        extraction.
        """
        trace = self.trace
        trace.extraction_prompt = prompt
        trace.extraction = yield from self.write_after(
            prompt, ANSWER_TOKENS, trace.notes, stop, source="extraction"
        )
        return trace.extraction

    def _end_marks_in(self, text: str) -> list[str]:
        """The model's end marks that a text holds; the answer is read without them."""
        return [mark for mark in self.tokenizer.end_marks if mark in text]


@dataclass
class Loop(BaseLoop):
    """An episode of the paper variant. A subclass writes ``run``: how writing, judging and
    searching follow each other.

    A step begins with what is first written or searched for in it and ends with ``keep``. A trigger
    names its loop: ``loop = MyLoop`` in its class, or ``dl.when(..., loop=MyLoop)``.
    """

    so_far: str = ""  # the answer before the loop begins, of a replay
    passages: tuple[Passage, ...] | None = None  # what the prompt holds
    kept_tokens: int = 0  # how many tokens of the answer the model wrote
    # the mark of a thought that the prompt opens; None: not looked for yet
    opened: str | None = None
    step: Step | None = None  # the one that is open
    writes_on = True  # whether the loop has another turn after a whole draft
    # whether its trigger judges drafts, and so can be asked about stored ones
    judges = True
    by_sentence = False  # whether a draft is a sentence

    def __post_init__(self) -> None:
        self.answer = AnswerText(self.tokenizer, self.so_far)

    @property
    def trigger(self) -> Any:
        """When to retrieve."""
        return self.method.trigger

    @property
    def text(self) -> str:
        """The answer so far."""
        return self.answer.text

    @property
    def before(self) -> str:
        """What the model wrote of it, after the mark of a thought that the prompt opens; all
        else is hidden.
        """
        if self.opened is None:
            self.opened = open_prompt(self.template.render(self.question))
        return self.opened + self.answer.seen

    @property
    def ended(self) -> bool:
        """Whether the answer has ended."""
        return self.trace.ended != "running"

    @property
    def left(self) -> int:
        """How many tokens the answer may still have."""
        return self.method.max_new_tokens - self.kept_tokens

    def new_step(self) -> Step:
        self.step = super().new_step()
        return self.step

    # -- writing -----------------------------------------------------------------------------------

    def write(
        self,
        stop: Stop | None = None,
        most: int | None = None,
        *,
        again: bool | None = None,
        **options: Any,
    ) -> Episode[Draft]:
        """Write on after the answer so far: until ``stop``, ``most`` tokens, the answer's end or
        what is left.

        ``again``: with passages in view, in place of what the step's draft was; None: where the
        step has searched.
        """
        step = self.step or self.new_step()
        if again is None:
            again = step.decision is not None and step.decision.retrieve
        options["source"] = source = "continuation" if again else "draft"
        prompt = self._fit_prompt(self.text, self.left, step.notes, source)
        if again:
            step.passages_prompt = prompt
            step.continuation = yield from self._write_until(prompt, step, stop, most, **options)
            return step.continuation
        step.prompt = prompt
        trigger = self.trigger
        # a custom one may not say what it reads
        options["among"] = "received" in trigger.needs or not trigger.built_in
        options["hidden"] = trigger.hidden
        step.draft = yield from self._write_until(prompt, step, stop, most, **options)
        return step.draft

    def _write_until(
        self, prompt: Prompt, step: Step, stop: Stop | None, most: int | None, **options: Any
    ) -> Episode[Draft]:
        answer = AnswerLine(self.tokenizer, self.before, self.template.shape)
        example = NextExample(
            self.template.example_marks, bool(self.text.strip()), open_thought(self.before)
        )
        stops = AnyOf((example, answer) if stop is None else (example, stop, answer))
        options["attention"] = self.method.keeps_attention
        written = yield from self.write_after(
            prompt, min(self.left, most or self.left), step.notes, stops, **options
        )
        end = example.find_end(written.text)
        if end is None:
            return written
        if cut := written.text[end:].strip():
            began = f"the model began another example, which was cut: {cut!r}"
            step.notes.append(f"{options['source']}: {began}")
        return written.before(end)

    def search(self, asked: Gap | Query | str, reason: str = "") -> Episode[None]:
        """Search, and put what is found into the prompt of all that follows, until the next search
        that finds any.

        A gap is asked about by the method's formulator. ``reason`` is the decision's, where nothing
        was judged.
        """
        step = self.step or self.new_step()
        if step.decision is None:
            step.decision = Decision(True, reason or "the method searches here, unasked")
        query = formulate(self.method.formulator, asked) if isinstance(asked, Gap) else asked
        query = Query(query, query) if isinstance(query, str) else query
        if not holds_word(query.text):
            step.notes.append(
                f"the query {query.text!r} holds no word, so nothing was searched for"
            )
            return
        yield from self.retrieve(step, query)
        if self.passages and not step.passages:
            step.notes.append("nothing was found, so the passages stay")
        self.passages = step.passages or self.passages

    def read_text(self) -> str:
        form = self.template.shape
        text = self.answer.mute((form.phrase, form.closes, *CUTS))
        return without_thoughts(text, self.opened or "")

    def request_answer(self, text: str) -> Episode[str]:
        """Have the model complete ``text``, which ends by asking for the answer; it ends with its
        line.

        The space after the request is left to the model: byte-level vocabularies write it as part
        of the next word. A text that was cut at its length is asked in a new line.
        """
        form = self.template.shape
        notes = self.trace.notes
        so_far = self.text
        request = form.request.rstrip()
        body = text.rstrip().removesuffix(request).rstrip()
        if not so_far.strip():
            endings = [draft.stopped for draft in self.trace.continuations]
            how = "began another example" if endings[-1:] == ["example"] else "ended"
            notes.append(f"the model {how} before it wrote anything; the answer was asked for")
        elif self.trace.ended == "length" and not body.endswith((".", "!", "?")):
            notes.append("the text was cut at its length; the answer was asked for in a new line")
            request = "\n" + request.lstrip()
        stands = so_far[: count_spaces(so_far)] + body
        # else a thought, or what is no answer, was left out
        kept = len(stands) if so_far.startswith(stands) else 0
        tail = (stands if kept else f" {body}" * bool(body)) + request
        prompt = self._fit_prompt(tail, ANSWER_TOKENS, notes, "extraction", kept)
        continuation = yield from self.extract(prompt, AnswerLine(self.tokenizer, tail, form))
        text = tail + find_lead(self.tokenizer, continuation) + continuation.text.rstrip()
        text = text[: find_answer_end(text, form, ended=True)]
        return text if form.closes else cut_prediction(text, at_start=True)

    def _fit_prompt(
        self, tail: str, room: int, notes: list[str], source: str, kept: int | None = None
    ) -> Prompt:
        """The prompt of a text, the ``source`` of a step, with as little dropped as leaves room for
        ``room`` tokens in the window.

        Of ``tail`` the first ``kept`` characters (None: all) are the answer so far, by the ids that
        it was written as.
        """
        parts = self.answer.list_model_parts(len(tail) if kept is None else kept)

        def fits(prompt: Prompt) -> bool:
            if self.window is None:
                return True
            written = attach_written(prompt, tail, parts).written
            stop = len(prompt.text)
            begin = prompt.text[: written[0][0] if written else stop]
            n = len(self.tokenizer.encode(begin, special=prompt.special))
            for a, b in list_gaps(written, stop):
                n += len(self.tokenizer.encode(prompt.text[a:b], special=False))
            n += sum(len(ids) for _, _, ids in written)
            return n + room <= self.window

        limit = (
            f"the model's window of {self.window} tokens, {room} of them for what is to be written"
        )
        prompt = self.template.fit(self.question, tail, self.passages, fits, limit)
        notes.extend(f"{source}: {note}" for note in prompt.notes)
        return attach_written(prompt, tail, parts)

    # -- judging -----------------------------------------------------------------------------------

    def watch(self, resumed: bool = False) -> Watch:
        """What ends a draft where the trigger fires; ``resumed`` where the draft resumes what
        was cut.
        """
        thought = open_thought(self.before)
        return Watch(self.trigger, self.method.pipeline, resumed, self.question, self.text, thought)

    @property
    def sentence_end(self) -> FirstSentence:
        """What ends a draft with its first sentence."""
        return FirstSentence(self.method.pipeline, phrase=self.template.shape.phrase)

    def first_sentence(self, text: str) -> Span:
        """Half-open characters of a draft's first sentence; one that states the answer takes the
        rest of its line.
        """
        start, end = next(iter(self.method.pipeline.spans(text)), (0, 0))
        form = self.template.shape
        if form.phrase in fold_phrase(text[:end], form.phrase):
            end = find_answer_end(text, form, ended=True) or end
        return start, end

    def judge(self, draft: Draft, resumed: bool = False) -> Verdict:
        """Ask the trigger about a draft, and record its words and the decision in the step.

        The verdict says whether it ``fires``, and there has the ``gap`` and the character at which
        to ``cut``. ``resumed`` where the draft resumes what a search cut.
        """
        step = self.step or self.new_step()
        trigger = self.trigger
        verdict = self._judge_seen(draft, resumed)
        step.words = verdict.words
        peaks = () if trigger.unit == "word" else (verdict.peak,)
        if not verdict.fires:
            reason = _explain_silence(verdict, resumed)
            certain = trigger.span == "sentence" or draft.stopped != "length"
            step.decision = Decision(False, reason, peaks=peaks, certain=certain)
            return verdict
        hits = []
        for first, stop in verdict.draft.spans[verdict.hit]:
            hits.append((int(draft.offsets[first, 0]), int(draft.offsets[stop - 1, 1])))
        word = hits[0][0]  # the character at which the first one begins
        sentence = self._find_sentence(draft, word)
        cut = self._place_cut(draft, sentence, word)
        step.decision = Decision(
            True,
            trigger.describe_hit(verdict),
            cut=cut,
            token=verdict.token,
            sentence=int(step.words.sentence[verdict.word]),
            peaks=peaks,
        )
        gap = self.gap(draft, sentence, token=verdict.token, cut=word, hit_spans=tuple(hits))
        return replace(verdict, cut=cut, gap=gap)

    def _find_sentence(self, draft: Draft, word: int) -> Span:
        """What is searched for as a whole where the word at a character fires: half-open
        characters.
        """
        if self.trigger.span == "word":
            return self.method.pipeline.around(draft.text, word)
        if self.trigger.span == "sentence":
            return self.first_sentence(draft.text)
        return 0, len(draft.text)

    def _place_cut(self, draft: Draft, sentence: Span, word: int) -> int:
        """Where the kept part ends of a draft that fires at the character ``word``."""
        trigger = self.trigger
        if trigger.span == "sentence" or trigger.cut == "draft":
            return 0
        if trigger.cut == "word":
            return word
        starts, stops = draft.offsets.T  # (n,), (n,)
        return int(starts[stops > sentence[0]][0])  # with the space before the sentence

    def _judge_seen(self, draft: Draft, resumed: bool) -> Verdict:
        """The trigger's verdict on what it looks at of a draft: its first sentence, or all of
        it.
        """
        trigger = self.trigger
        seen = draft
        ended = True
        until = None
        if trigger.span == "sentence":
            resumed = False
            _, end = self.first_sentence(draft.text)
            seen = draft.first(draft.count_before(end))
        else:
            # nothing fires after the final answer
            until = self._find_close(draft, len(draft.text), True)
            ended = trigger.span != "word" or draft.closed or draft.stopped == "length"
        thought = open_thought(self.before)
        seen = seen.read_by(
            self.method.pipeline, self.question, self.text, thought=thought, ended=ended
        )
        return replace(trigger.judge(seen, resumed=resumed, until=until), until=until)

    def gap(self, written: Draft, span: Span, *, answer: str | None = None, **place: Any) -> Gap:
        """The gap at a sentence, the half-open characters ``span`` of what was written.

        Where no word was flagged, its last visible token stands in for the hits. ``answer`` is the
        answer so far with what is kept of the draft; None: the answer with the draft up to the cut.
        """
        if "token" not in place:
            starts, stops = written.offsets.T  # (n,), (n,)
            visible = np.flatnonzero((starts < span[1]) & (stops > starts))
            token = int(visible.max(initial=0))
            last = (int(starts[token]), min(int(stops[token]), span[1])) if len(visible) else (0, 0)
            place |= {"token": token, "cut": span[1], "hit_spans": (last,), "note": STANDS_IN}
        if answer is None:
            answer = self.text + find_lead(self.tokenizer, written) + written.text[: place["cut"]]
        prompt = (self.step or self.trace.steps[-1]).prompt
        for step in self.trace.steps:
            if step.continuation is written:
                prompt = step.passages_prompt
        assert prompt is not None
        return Gap(
            self.question,
            answer,
            written,
            prompt,
            self.method.pipeline,
            self.tokenizer,
            span=span,
            **place,
        )

    # -- keeping -----------------------------------------------------------------------------------

    def keep_sentence(self, written: Draft) -> None:
        """Keep the first sentence of what was written, and end the step."""
        self.keep(written, self.first_sentence(written.text)[1] or len(written.text))

    def keep(self, written: Draft, end: int | None = None, *, goes_on: bool | None = None) -> None:
        """Add the first ``end`` characters (None: all) of what was written to the answer, and end
        the step.

        With ``goes_on`` it is not asked whether the answer ends here; None: where the step's
        trigger fired, and nothing was written again.
        """
        step = self.step or self.new_step()
        if step.decision is None:
            step.decision = Decision(False, _explain_unjudged(self.trace.steps))
        end = len(written.text) if end is None else end
        if goes_on is None:
            goes_on = step.decision.retrieve and step.continuation is None
        more = bool(written.text[end:].strip())
        over = more or written.closed or written.stopped == "answer"
        close = None if goes_on else self._find_close(written, end, over)
        if close is not None:
            end = close
        self._record_kept(step, written, end)
        if close is not None:
            self.trace.ended = "answered"
        elif not (goes_on or self.ended):
            self.trace.ended = self._say_end(written, end, more)

    def _find_close(self, written: Draft, end: int, ended: bool) -> int | None:
        """The character before ``end`` at which the final answer ends; None where none does.
        ``ended`` says whether its line ends there at the latest.
        """
        # the space goes with the word after it
        before = self.before + (find_lead(self.tokenizer, written) if end else "")
        close = find_answer_end(before + written.text[:end], self.template.shape, ended=ended)
        return None if close is None else min(end, max(close - len(before), 0))

    def _record_kept(self, step: Step, written: Draft, end: int) -> None:
        """Add the first ``end`` characters of what was written to the answer, and end the step."""
        old = self.text
        self.answer.add(written, end)
        step.answer = self.text
        step.kept = step.answer[len(old) :]
        if step.continuation is None:
            first = written if step.draft is None else step.draft
            step.discarded = first.text[end:]
            if step.discarded and step.decision is not None:
                step.decision.cut = end
        else:
            step.continuation_kept = end
            step.discarded = "" if step.draft is None else step.draft.text
        self.trace.text = step.answer
        self.step = None
        self.kept_tokens += written.count_before(end)

    def _say_end(self, written: Draft, end: int, more: bool) -> str:
        """How the episode ends with what was kept; "running" where it goes on."""
        if written.closed and not more:
            return "answered" if self.text.strip() else "stalled"
        if self.left <= 0 or (written.stopped == "length" and not more and not self.writes_on):
            return "length"
        return "running" if end else "stalled"


def _explain_unjudged(steps: Sequence[Step]) -> str:
    """Why what a step wrote was not judged."""
    judged = [step.index + 1 for step in steps if len(step.words)]
    if not judged:
        return "this method does not judge what was written here"
    return f"what was written here is not judged; the decision fell in step {judged[-1]}"


def _explain_silence(verdict: Verdict, resumed: bool) -> str:
    """Why nothing fires."""
    if not verdict.draft.text.strip():
        more = " more" if verdict.draft.answer_so_far.strip() else ""
        return f"the model ended before it wrote anything{more}"
    trigger = verdict.trigger
    words = verdict.words
    theta = float(verdict.trigger.theta or 0.0)
    if resumed and trigger.cut == "draft":
        return "the draft was written again after a retrieval, and is kept"
    reason = trigger.describe_silence(verdict.peak)
    judged = verdict.judged | (resumed & (words.sentence > 0))  # (w,)
    spared = np.where(judged, -np.inf, verdict.score)  # (w,)
    highest = float(spared.max(initial=-np.inf))
    above = highest > (-np.inf if resumed else theta)
    if not above:
        return reason
    place = int(spared.argmax())
    score = write_compared(highest, theta)[0]
    word = words.text[place]
    if resumed:
        return (
            f"{reason}; the sentence being resumed is not judged (the highest: {score}, {word!r})"
        )
    why = verdict.explain_spared(place)
    return f"{reason}; {word!r} scores {score}, but may not fire: {why}"


# -- the answer so far -----------------------------------------------------------------------------

#: U+FFFD, which a decoder writes for bytes that are no complete character.
BROKEN = "\ufffd"


@dataclass
class _Part:
    text: str
    author: str  # "model", "passage" or "prompt"
    ids: tuple[int, ...] = ()  # of what the model wrote, so that it is never encoded again


class AnswerText:
    """The answer so far, as parts by the model, by passages that were put in, and by the prompt.

    Half a character stays ids until the model has written the rest of it. A token that a cut runs
    through is kept as text, and encoded again by itself.
    """

    def __init__(self, tokenizer: Tokenizer, text: str = "") -> None:
        self._tokenizer = tokenizer
        self._parts = [_Part(text, "model")] if text else []

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(part.text for part in self._parts)

    @property
    def seen(self) -> str:
        """The same, as long, with only what the model wrote: in nothing else is an end, a
        thought or a call.
        """
        return "".join(
            part.text if part.author == "model" else HIDDEN * len(part.text) for part in self._parts
        )

    def mute(self, marks: tuple[str, ...]) -> str:
        """All of it, without such marks in what the model did not write."""
        texts = []
        for part in self._parts:
            text = part.text
            for mark in marks if part.author != "model" else ():
                text = text.replace(mark, "")
            texts.append(text)
        return "".join(texts)

    def add(self, draft: Draft, end: int) -> None:
        """Add the first ``end`` characters of a draft."""
        n = int((draft.offsets[:, 1] <= end).cumprod().sum()) if end else 0  # tokens that are whole
        ids = draft.ids[:n].tolist()
        while ids and not (
            draft.tokens[len(ids) - 1] or self._tokenizer.decode(ids[-1:], special=False)
        ):
            ids.pop()  # an end mark
        if ids:
            if not (self._parts and self._parts[-1].ids):
                self._parts.append(_Part("", "model"))
            part = self._parts[-1]
            part.ids += tuple(ids)
            part.text = self._decode(part.ids).rstrip(BROKEN)
        reached = int(draft.offsets[n - 1, 1]) if n else 0
        if draft.text[reached:end]:
            space = "" if ids else find_lead(self._tokenizer, draft)
            self._parts.append(_Part(space + draft.text[reached:end], "model"))

    def insert(self, text: str, author: str) -> None:
        """Add what the model did not write."""
        if text:
            self._parts.append(_Part(text, author))

    def list_model_parts(self, stop: int) -> list[WrittenPart]:
        """The parts with ids before the character ``stop``, where no half of one is left:
        half-open characters, and the ids.
        """
        parts = []
        place = 0
        for part in self._parts:
            ids = part.ids
            text = part.text
            while ids and (place + len(text) > stop or text.endswith(BROKEN)):
                ids = ids[:-1]
                text = self._decode(ids) if ids else ""
            if ids:
                parts.append((place, place + len(text), ids))
            place += len(part.text)
        return parts

    def _decode(self, ids: tuple[int, ...]) -> str:
        text = self._tokenizer.decode(ids, special=False)
        return find_space(self._tokenizer, ids, text) + text


# -- the answer in a prompt ------------------------------------------------------------------------


def attach_written(prompt: Prompt, tail: str, parts: Sequence[WrittenPart]) -> Prompt:
    """The prompt, which ends with ``tail``, with the ids of those parts of it that the model wrote.

    White space that a chat layout leaves out at the beginning of ``tail`` belongs to the first of
    them.
    """
    start, stop = prompt.spans.get("answer", (0, 0))
    shift = stop - len(tail)
    placed = tuple(
        (max(a + shift, start), b + shift, ids) for a, b, ids in parts if start < b + shift
    )
    return replace(prompt, written=placed)


def list_gaps(written: Sequence[WrittenPart], stop: int) -> list[Span]:
    """The characters after the first part that the model wrote, up to ``stop``, that are in
    none.
    """
    ends = [end for _, end, _ in written]
    starts = [start for start, _, _ in written[1:]]
    return [gap for gap in zip(ends, [*starts, stop], strict=False) if gap[0] < gap[1]]


def open_prompt(prompt: Prompt) -> str:
    """The mark of a thought that a prompt opens where the answer begins; "" where it opens none."""
    return opened_thought(prompt.text[: prompt.spans.get("answer", (len(prompt.text),))[0]])
