"""``variant="paper"``: the algorithms as the papers' equations and texts describe them.

The answer so far is kept to the character, passages stay in the prompt until the next retrieval, and a draft ends as
soon as its outcome is known (DRAGIN §3; FLARE, "Active Retrieval Augmented Generation").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dragin_lab.core.answers import ANSWER_PIECES
from dragin_lab.core.confidence import confident_text, doubts
from dragin_lab.core.episode import Episode, Stop
from dragin_lab.core.loop import FirstSentence, Loop
from dragin_lab.core.prompts import PromptTemplate
from dragin_lab.core.qfs import top_words, word_weights
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.trace import Continuation, Decision, Passage, Prompt, Query, Step, Words
from dragin_lab.core.trigger import AnswerSentence, AnyOf, RindTrigger, answer_end, lead
from dragin_lab.core.words import character_words


@dataclass
class Spot:
    """The place in a written text that lacks information: what the formulators of queries start from.

    ``piece`` is t_i, ``cut`` the character of ``written.text`` where its word begins, ``sentence`` the characters of
    the sentence around it as far as it was written, ``hits`` the character spans of the words that were flagged.
    """

    written: Continuation
    prompt: Prompt
    piece: int
    cut: int
    sentence: tuple[int, int]
    hits: list[tuple[int, int]]
    note: str = ""


@dataclass
class PaperLoop(Loop):
    """An episode of the papers' algorithms."""

    text: str = ""  # the answer so far, exact
    passages: tuple[Passage, ...] | None = None  # what the prompt holds
    kept_ids: list[int] = field(default_factory=list)  # the pieces of the answer as they were generated

    def run(self) -> Episode[None]:
        when = self.method.when
        if when in ("once", "probability"):
            step = self.new_step()
            self.scheduled(step, "once, before anything is written")
            yield from self._fetch(step, Query(self.question, self.question))
        resumed = False
        while self.trace.ended == "running":
            step = self.trace.steps[-1] if when == "once" else self.new_step()
            if when == "rind":
                resumed = yield from self._rind(step, resumed)
            elif when == "probability":
                yield from self._flare(step)
            else:
                yield from self._scheduled_step(step)
        yield from self.finish()

    # -- one turn of each loop ---------------------------------------------------------------------------------------

    def _rind(self, step: Step, resumed: bool) -> Episode[bool]:
        """DRAGIN: write until RIND fires, cut before the word, search (§3). Whether a sentence is being resumed."""
        assert self.method.threshold is not None
        if resumed and not self.method.keep_passages:
            yield from self._complete_sentence(step)
            return False
        made = yield from self._draft(step, self.rind_trigger(resumed), run_on=self.method.full_drafts)
        assert step.prompt is not None
        step.words, step.decision, spot = self.judge_rind(made, step.prompt, resumed)
        known = made.as_decided()
        if spot is None:
            self._keep(step, known, len(known.text))
            return False
        assert step.decision.cut is not None
        yield from self._fetch(step, self.formulate(spot))
        self._keep(step, known, step.decision.cut, ended=False)
        return True

    def rind_trigger(self, resumed: bool) -> RindTrigger:
        """What ends a draft where RIND fires; ``resumed`` where the draft resumes a sentence that was cut."""
        assert self.method.threshold is not None
        return RindTrigger(self.method.pipeline, self.method.threshold, self.method.normalize, resumed)

    def judge_rind(self, made: Continuation, prompt: Prompt, resumed: bool) -> tuple[Words, Decision, Spot | None]:
        """RIND's words and decision on a draft, and the place that lacks information where it fires."""
        trigger = self.rind_trigger(resumed)
        ended = made.stopped in ("eos", "length") and made.decided is None
        known = made.as_decided()
        end = self._answer_end(known)
        found = trigger.judge(known.text, known.offsets, known.entropy, known.received, ended=ended, until=end)
        if found.word is None or found.piece is None:
            best = max(found.words.score[found.judged].tolist(), default=0.0)
            reason = f"no word scores above θ {trigger.threshold:g} (the highest: {best:.3g})"
            spared = (found.words.score > trigger.threshold) & ~found.judged & (found.words.sentence == 0)
            if resumed and spared.any():
                word = found.words.text[int(np.flatnonzero(spared)[0])]
                reason += f"; {word!r} does, but in the sentence being resumed nothing may fire"
            return found.words, Decision(False, reason, certain=known.stopped != "length"), None
        cut = int(known.offsets[int(found.words.spans[found.word, 0]), 0])
        score = float(found.words.score[found.word])
        sentence = _around(self.method.pipeline, known.text, cut)
        decision = Decision(
            True,
            f"{found.words.text[found.word]!r} scores {score:.3g}, above θ {trigger.threshold:g}",
            cut=cut if self.method.cut == "word" else _piece_start(known.offsets, sentence[0]),
            piece=found.piece,
            sentence=int(found.words.sentence[found.word]),
        )
        stop = int(known.offsets[int(found.words.spans[found.word, 1]) - 1, 1])
        return found.words, decision, Spot(known, prompt, found.piece, cut, sentence, [(cut, stop)])

    def _complete_sentence(self, step: Step) -> Episode[None]:
        """``keep_passages=False``: complete the sentence that was cut, and drop the passages it was completed with."""
        step.decision = Decision(False, "the sentence that was cut is completed, then its passages are dropped")
        made = yield from self._continue(step, FirstSentence(self.method.pipeline))
        spans = self.method.pipeline.spans(made.text)
        self._keep(step, made, spans[0][1] if spans else len(made.text))
        self.passages = None

    def _flare(self, step: Step) -> Episode[None]:
        """FLARE (direct): look one sentence ahead; where a piece is doubtful, search and write the sentence again."""
        pipeline = self.method.pipeline
        made = yield from self._draft(step, FirstSentence(pipeline), run_on=self.method.full_drafts)
        assert step.prompt is not None
        step.words, step.decision, spot = self.judge_flare(made, step.prompt)
        if spot is None:
            known = made.as_decided()
            spans = pipeline.spans(known.text)
            self._keep(step, known, spans[0][1] if spans else len(known.text))
            return
        step.discarded = made.text
        yield from self._fetch(step, self.formulate(spot))
        again = yield from self._continue(step, FirstSentence(pipeline))
        spans = pipeline.spans(again.text)
        self._keep(step, again, spans[0][1] if spans else len(again.text))

    def judge_flare(self, made: Continuation, prompt: Prompt) -> tuple[Words, Decision, Spot | None]:
        """FLARE's words and decision on a draft's first sentence, and that sentence as a spot where it fires."""
        assert self.method.threshold is not None
        theta, known = self.method.threshold, made.as_decided()
        start, end = (self.method.pipeline.spans(known.text) or [(0, 0)])[0]
        inside = known.offsets[:, 0] < end  # (n,)
        doubt = doubts(known.logprob)[inside]  # (m,)
        words = character_words(known.text, known.offsets[inside])
        score = np.array([doubt[w.start : w.stop].max() for w in words])  # (w,)
        table = Words(
            text=tuple(w.text for w in words),
            spans=np.array([(w.start, w.stop) for w in words], dtype=np.int32).reshape(-1, 2),
            sentence=np.zeros(len(words), dtype=np.int32),
            attention=np.full(len(words), np.nan, dtype=np.float32),
            entropy=np.array([known.entropy[w.start : w.stop].max() for w in words], dtype=np.float32),
            stop=np.zeros(len(words), dtype=bool),
            score=score.astype(np.float32),
            hit=score > theta,
        )
        if not table.hit.any():
            return table, Decision(False, f"every piece has 1 - p of at most θ {theta:g}"), None
        first = int(np.flatnonzero(doubt > theta)[0])
        word = int(np.flatnonzero(table.hit)[0])
        shown = table.text[word] or known.pieces[first]
        reason = f"{shown!r} has 1 - p = {score[word]:.3g}, above θ {theta:g}"
        hits = [
            (int(known.offsets[w.start, 0]), int(known.offsets[w.stop - 1, 1]))
            for w, hit in zip(words, table.hit, strict=True)
            if hit
        ]
        spot = Spot(known, prompt, first, int(known.offsets[words[word].start, 0]), (start, end), hits)
        return table, Decision(True, reason, cut=0, piece=first, sentence=0), spot

    def _scheduled_step(self, step: Step) -> Episode[None]:
        """wo-RAG, SR-RAG, FL-RAG, FS-RAG: search by the clock (or not at all), then write."""
        when, stop = self.method.when, None
        if when == "every-n":
            self.scheduled(step, f"every {self.method.n} pieces")
        elif when == "every-sentence":
            self.scheduled(step, "every sentence")
            stop = FirstSentence(self.method.pipeline)
        if when in ("every-n", "every-sentence"):
            yield from self._fetch(step, self._scheduled_query())
        limit = self.method.n if when == "every-n" else None
        if when == "never":
            step.decision = Decision(False, "this method never retrieves")
            made = yield from self._draft(step, stop)
        else:
            made = yield from self._continue(step, stop, limit)
        end = len(made.text)
        if stop is not None and (spans := self.method.pipeline.spans(made.text)):
            end = spans[0][1]
        self._keep(step, made, end)

    # -- writing and keeping -----------------------------------------------------------------------------------------

    def _draft(self, step: Step, stop: Stop | None, **options: Any) -> Episode[Continuation]:
        step.prompt = self._prompt(step)
        made = yield from self._write_until(step, stop, None, with_passages=False, **options)
        step.draft = made
        return made

    def _continue(self, step: Step, stop: Stop | None, limit: int | None = None) -> Episode[Continuation]:
        step.passages_prompt = self._prompt(step)
        made = yield from self._write_until(step, stop, limit, with_passages=True)
        step.continuation = made
        return made

    def _write_until(
        self, step: Step, stop: Stop | None, limit: int | None, *, run_on: bool = False, **options: Any
    ) -> Episode[Continuation]:
        left = self.method.max_new_tokens - len(self.kept_ids)
        answer = AnswerSentence(self.method.pipeline, self.tokenizer, self.text, self.template.shape.phrase)
        made = yield from self.write(
            step,
            min(left, limit or left),
            AnyOf((stop, answer)) if stop is not None else answer,
            attention=self.method.what == "qfs" or run_on,
            run_on=run_on,
            **options,
        )
        m = min(len(self.kept_ids), len(made.prompt_ids))
        if made.prompt_ids[len(made.prompt_ids) - m :].tolist() != self.kept_ids[len(self.kept_ids) - m :]:
            step.notes.append("the answer so far, encoded again, gives other ids than were generated")
        return made

    def _prompt(self, step: Step) -> Prompt:
        prompt = self._fitting(self.text, self.passages, self.method.max_new_tokens - len(self.kept_ids))
        step.notes.extend(prompt.notes)
        return prompt

    def extraction_prompt(self, tail: str) -> Prompt:
        prompt = self._fitting(tail, None, ANSWER_PIECES)
        self.trace.notes.extend(prompt.notes)
        return prompt

    def _fitting(self, tail: str, passages: Sequence[Passage] | None, room: int) -> Prompt:
        """The prompt, with as little dropped as leaves room for ``room`` pieces in the window."""

        def build(template: PromptTemplate, passages: Sequence[Passage] | None) -> Prompt:
            return template.render(self.question, tail, passages or None)

        def fits(prompt: Prompt) -> bool:
            if self.window is None:
                return True
            return len(self.tokenizer.encode(prompt.text, special=prompt.special)) + room <= self.window

        limit = f"the model's window of {self.window} pieces, {room} of them for what is to be written"
        return self.template.fit(build, passages, fits, limit)

    def _fetch(self, step: Step, query: Query) -> Episode[None]:
        yield from self.retrieve(step, query)
        self.passages = step.passages

    def _keep(self, step: Step, made: Continuation, end: int, *, ended: bool = True) -> None:
        """Add the first ``end`` characters of what was written to the answer; with ``ended``, see if it ends there."""
        lead = self._lead(made) if end else ""  # the space goes with the word behind it
        whole = made.stopped in ("eos", "length") and not made.text[end:].strip()
        new = self.text + lead + made.text[:end]
        if ended:
            close = answer_end(self.method.pipeline, new, ended=True, phrase=self.template.shape.phrase)
            if close is not None and (close < len(new) or made.text[end:].strip() or made.stopped == "eos"):
                end = max(end - (len(new) - close), 0)
                new = new[:close]
                self.trace.ended = "answered"
        pieces = int((made.offsets[:, 0] < end).sum())
        step.kept, step.answer = new[len(self.text) :], new
        if made is not step.continuation:
            written = step.draft.text if step.draft is not None else made.text
            step.discarded = written[end:]
            if step.decision is not None and step.discarded:
                step.decision.cut = end
        else:
            step.continuation_kept = end
        grew = len(new) > len(self.text)
        self.text = self.trace.text = new
        self.kept_ids += made.ids[:pieces].tolist()
        if not ended or self.trace.ended != "running":
            return
        if whole and made.stopped == "eos":
            self.trace.ended = "answered"
        elif len(self.kept_ids) >= self.method.max_new_tokens or (whole and self.method.when in ("never", "once")):
            self.trace.ended = "length"
        elif not grew:
            self.trace.ended = "stalled"

    def _answer_end(self, made: Continuation) -> int | None:
        """The character of what was written behind which nothing belongs to the answer any more, where it is there."""
        before = self.text + self._lead(made)
        close = answer_end(self.method.pipeline, before + made.text, ended=True, phrase=self.template.shape.phrase)
        return None if close is None else max(close - len(before), 0)

    def _lead(self, made: Continuation) -> str:
        return lead(self.tokenizer, made.ids.tolist(), made.text)

    # -- what --------------------------------------------------------------------------------------------------------

    def _scheduled_query(self) -> Query:
        """The query of a loop that searches by the clock: from what it wrote last, at the start from the question."""
        step = self.trace.steps[-2] if len(self.trace.steps) > 1 else None
        if step is None or step.continuation is None or step.passages_prompt is None:
            note = "" if self.method.what == "question" else "the question: nothing is written yet"
            return Query(self.question, self.question, note=note)
        made = step.continuation
        end = len(made.text) if step.continuation_kept is None else step.continuation_kept
        visible = np.flatnonzero((made.offsets[:, 0] < end) & (made.offsets[:, 1] > made.offsets[:, 0]))
        piece = int(visible[-1]) if len(visible) else 0
        note = "the last piece stands for the hits that this trigger does not give"
        last = (int(made.offsets[piece, 0]), int(made.offsets[piece, 1])) if len(visible) else (0, 0)
        return self.formulate(Spot(made, step.passages_prompt, piece, end, (0, end), [last], note), scheduled=True)

    def formulate(self, spot: Spot, *, scheduled: bool = False) -> Query:
        """The query that the method's *what* makes of a spot; ``scheduled`` where a clock asks, not a trigger."""
        what, made = self.method.what, spot.written
        start, end = spot.sentence
        # A clock's loop has kept what it wrote; a trigger's loop keeps what stands before the cut.
        answer = self.text if scheduled else self.text + self._lead(made) + made.text[: spot.cut]
        note = ""
        if what == "qfs":
            return self._qfs(spot)
        if what == "question":
            text = self.question
        elif what == "full-context":
            text = f"{self.question}{answer}" if answer.startswith(" ") else f"{self.question} {answer}"
        elif what == "last-n":
            n = self.method.top_n or self.method.n
            ids = self.tokenizer.encode(f"{self.question} {answer.strip()}", special=False)
            text = self.tokenizer.decode(ids[-n:], special=False)
        elif what == "last-sentence":
            text = (self.method.pipeline.split(answer) or [self.question])[-1]
        elif what == "confident-sentence":
            inside = (made.offsets[:, 1] > start) & (made.offsets[:, 0] < end)
            spans = np.clip(made.offsets[inside], start, end) - start
            text = confident_text(
                made.text[start:end], spans, np.exp(made.logprob[inside]), 1 - self.method.doubt_limit
            )
        elif what == "current":
            text = made.text[start:end]
        else:
            note = spot.note
            text = made.text[start:end]
            for a, b in reversed(spot.hits):
                text = text[: max(a - start, 0)] + " " + text[b - start :]
            text = " ".join(text.split())
        return Query(text.strip(), text.strip(), note=note)

    def _qfs(self, spot: Spot) -> Query:
        """§3.2: the words of question and answer, ranked by the attention t_i pays them; the top n in text order."""
        made, top_n = spot.written, self.method.top_n
        assert made.attention is not None
        assert top_n is not None
        p = len(made.prompt_ids)
        row = made.attention[:, spot.piece + 1, :].astype(np.float32).mean(axis=0)  # (p + n,)
        texts: list[str] = []
        weights: list[np.ndarray] = []
        for name in ("question", "answer"):
            a, b = spot.prompt.spans.get(name, (0, 0))
            inside = np.flatnonzero((made.prompt_offsets[:, 1] > a) & (made.prompt_offsets[:, 0] < b))
            words = character_words(spot.prompt.text, np.clip(made.prompt_offsets[inside], a, b))
            texts += [word.text for word in words]
            weights.append(word_weights(row[inside], words))
        before = np.flatnonzero(made.offsets[:, 0] < spot.cut)
        before = before[before < spot.piece]
        words = character_words(made.text, made.offsets[before])
        texts += [word.text for word in words]
        weights.append(word_weights(row[p + before], words))
        paid = np.concatenate(weights)  # (w,)
        chosen = top_words(paid, top_n, np.array([bool(t) for t in texts], dtype=bool))
        query = " ".join(t for t, c in zip(texts, chosen, strict=True) if c)
        return Query(query, query, tuple(texts), paid, chosen, spot.note)


def _piece_start(offsets: np.ndarray, place: int) -> int:
    """The first character of the piece that holds the character at ``place``, its leading space included."""
    return int(offsets[int(np.flatnonzero(offsets[:, 1] > place)[0]), 0])


def _around(pipeline: Pipeline, text: str, place: int) -> tuple[int, int]:
    """The sentence of ``text`` that holds the visible character at or behind ``place``; characters."""
    spans = pipeline.spans(text)
    return next(((a, b) for a, b in spans if b > place), (min(place, len(text)), len(text)))
