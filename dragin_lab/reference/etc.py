"""ETC: retrieval where the trend of entropy turns (arXiv 2511.09980), by the paper and as its released code does it.

The released code (github.com/WisdomShell/ETC, commit facd465) has a loop of its own: it encodes a prompt's parts one by
one, ends a draft with its line, cuts at the word that fires, and ranks the words of question and answer by the
attention that the words which fired pay them.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from dragin_lab.core.draft import Draft
from dragin_lab.core.episode import Episode, SoFar, attend
from dragin_lab.core.gap import Gap, Ranked
from dragin_lab.core.scores import contains_any, doubts, over_words
from dragin_lab.core.trigger import TRIGGERS, Trigger
from dragin_lab.core.words import Word
from dragin_lab.reference.dragin import ReleasedLoop
from dragin_lab.trace.trace import Continuation, Decision, Passage, Prompt, Step, Words
from dragin_lab.triggers.trends import paid_to_words, reference_scores, reference_trends, reference_words, trends


@TRIGGERS.add
@dataclass(frozen=True)
class EntropyTrend(Trigger):
    """Entropy's second difference turns (ETC). Reference variant: times attention paid, as the released code has it."""

    name, source = "entropy-trend", "ETC §3 (arXiv 2511.09980)"
    thresholds: ClassVar = {"reference": 1.3, "paper": 1.3}  # as released; the paper's own are on its formula
    code, measure = "etc", "entropy trend"
    query_tokens = None
    threshold: float | None = None
    absolute: bool = False  # reference variant: hold the trend's absolute value against θ; the paper always does

    def score(self, draft: Draft) -> np.ndarray:
        content = contains_any(draft.words, draft.pipeline.content_words(draft.text))  # (w,)
        found = np.zeros(len(draft.words))  # (w,)
        found[content] = np.abs(trends(over_words(draft.entropy, draft.word_list, "max")[content]))
        return found[draft.word_of_token]

    def measured(self, draft: Draft, loudest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full(len(loudest), np.nan), draft.entropy[loudest]  # the equations do not look at attention


@dataclass(frozen=True)
class LineEnds:
    """Stop at the end of the line."""

    def reached(self, so_far: SoFar) -> str | None:
        return "line" if "\n" in so_far.text else None


@dataclass(frozen=True)
class Laid:
    """A draft of n tokens as the released code cuts it: the words of prompt and draft, and the draft's alone.

    A closing EOS is attended to, but is no token of a word.
    """

    attended: list[int]  # p + n ids, and a closing EOS
    p: int  # tokens of the prompt
    words: list[Word]  # of the prompt and the draft
    own: list[Word]  # of the draft (w,), their tokens counted in it
    sentences: list[tuple[int, int]]  # half-open, characters of the draft
    sentence: np.ndarray  # (w,) int32, the number of each word's sentence

    @property
    def n(self) -> int:
        """Tokens of the draft."""
        return self.own[-1].stop

    @property
    def before(self) -> int:
        """How many words stand before the draft."""
        return len(self.words) - len(self.own)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Half-open, words of each sentence."""
        numbers = range(len(self.sentences))
        return [(int((self.sentence < i).sum()), int((self.sentence <= i).sum())) for i in numbers]


class EtcLoop(ReleasedLoop):
    """An episode of ETC's released code."""

    def run(self) -> Episode[None]:
        text, limit = "", self.method.max_new_tokens
        while self.trace.ended == "running":
            step = self.new_step()
            step.prompt = self._prompt(text)
            made = step.draft = yield from self.write(step, limit, LineEnds())
            seen = self._laid(made)
            place = None
            if seen is None:
                step.decision = Decision(False, "nothing is written")
            else:
                place = self._judge(step, made, seen, (yield from attend(seen.attended)), text)
            assert step.decision is not None
            if place is None:
                new = " ".join(part for part in (text, made.text.strip()) if part)
                tokens = len(made.prompt_ids) + len(made)
            else:
                yield from self.retrieve(step, (yield from self.method.formulator.formulate(place)))
                step.passages_prompt = self._prompt(place.answer, step.passages)
                made = step.continuation = yield from self.write(step, limit, LineEnds(), with_passages=True)
                spans = self.method.pipeline.spans(made.text)
                step.continuation_kept = spans[0][1] if spans else len(made.text)
                new = f"{place.answer} {made.text[: step.continuation_kept].strip()}"
                tokens = len(self.tokenizer.encode(new, special=True))
                step.discarded = step.draft.text[step.decision.cut or 0 :]
            self.trace.text = step.answer = new
            step.kept = new.removeprefix(text).strip()
            if place is None and made.stopped == "eos":
                self.trace.ended = "answered"
            elif tokens > limit or len(new) <= len(text):
                self.trace.ended = "length" if tokens > limit else "stalled"
            text = new

    # -- prompts ------------------------------------------------------------------------------------------------------

    def _prompt(self, answer: str, passages: Sequence[Passage] | None = None) -> Prompt:
        """The five parts of a prompt, or of one with passages, which is encoded as a whole."""
        examples = "\n".join(self.template.shape.exemplar(e).rstrip("\n") for e in self.template.exemplars)
        found = ""
        if passages is not None:
            lines = "".join(f"[{i}] {p.text}\n" for i, p in enumerate(passages, 1))
            found = f"\nContext:\n{lines}Answer in the same format as before.\n"
        parts = (examples + found, "\nQuestion:", self.question, "\nAnswer:", answer)
        a, b, c, d = np.cumsum([len(part) for part in parts[:4]]).tolist()
        spans = {"exemplars": (0, len(examples)), "question": (b, c)} | (
            {"answer": (d, d + len(answer))} if answer else {}
        )
        return Prompt("".join(parts), spans, apart=(a, b, c, d) if passages is None else ())

    # -- when ---------------------------------------------------------------------------------------------------------

    def _laid(self, made: Continuation) -> Laid | None:
        """The words and sentences of a draft; None where nothing is written."""
        n, p = len(made) - (made.stopped == "eos"), len(made.prompt_ids)
        sentences = self.method.pipeline.spans(made.text)
        if n == 0 or not sentences:
            return None
        attended = [*made.prompt_ids.tolist(), *made.ids.tolist()]
        marker, tokens = self.tokenizer.marker, self.tokenizer.tokens(attended[: p + n])
        own = reference_words(tokens[p:], marker, self._alone)
        words = reference_words(tokens[:p], marker, self._alone)
        words += [Word(word.text, word.start + p, word.stop + p) for word in own]
        starts = made.offsets[[word.start for word in own], 0]  # (w,)
        ends = np.array([stop for _, stop in sentences[:-1]], dtype=int)
        sentence = (ends[None] <= starts[:, None]).sum(axis=1).astype(np.int32)  # (w,)
        return Laid(attended, p, words, own, sentences, sentence)

    def _judge(self, step: Step, made: Continuation, seen: Laid, attention: np.ndarray, text: str) -> Gap | None:
        """The words of a draft with their trends, and the place of the first that fires."""
        when, n = self.method.trigger, seen.n
        assert isinstance(when, EntropyTrend)
        theta = when.theta
        assert theta is not None
        texts = tuple(word.text for word in seen.own)
        content = contains_any(texts, self.method.pipeline.content_words(made.text))  # (w,)
        entropy = over_words(made.entropy[:n], seen.own, "max")  # (w,)
        # As many rows from the end as the draft has tokens: with a closing EOS every token has the row of the next.
        rows = attention[:, len(seen.attended) - n :, : seen.p + n]  # (h, n, p + n)
        paid = paid_to_words(rows, seen.words, seen.own)  # (w, words)
        attended, scores = reference_scores(paid, reference_trends(entropy, content), seen.ranges)
        score = np.concatenate(scores)  # (w,)
        height = np.abs(score) if when.absolute else score
        above = height > theta
        step.words = Words(
            text=texts,
            spans=np.array([(word.start, word.stop) for word in seen.own], np.int32),
            sentence=seen.sentence,
            attention=attended.astype(np.float32),
            entropy=entropy.astype(np.float32),
            stop=~content,
            score=height.astype(np.float32),
            hit=np.zeros(len(texts), bool),
        )
        if not above.any():
            reason = f"no word's trend is above θ {theta:g} (the highest: {max(height.max(), 0.0):.3g})"
            step.decision = Decision(False, reason)
            return None
        word = int(above.argmax())
        _, stop = seen.ranges[seen.sentence[word]]
        step.words.hit[word:stop] = above[word:stop]
        start = seen.own[word].start
        reason = f"the trend at {texts[word]!r} is {height[word]:.3g}, above θ {theta:g}"
        cut = int(made.offsets[start, 0])
        step.decision = Decision(True, reason, cut=cut, token=start, sentence=int(seen.sentence[word]))
        return self._place(step, made, seen, word, paid, text)

    def _place(self, step: Step, made: Continuation, seen: Laid, word: int, paid: np.ndarray, text: str) -> Gap:
        """Where a draft fires, with what the flagged words pay those of question and answer before the first."""
        words, prompt = step.words, step.prompt
        assert prompt is not None
        encode, decode, pipeline = self.tokenizer.encode, self.tokenizer.decode, self.method.pipeline
        kept = encode(text, special=False)
        ids = kept + made.ids[: seen.own[word].start].tolist()
        answer = decode(ids, special=False)
        asked = len(encode(self.question, special=False))
        begin = seen.p - len(kept) - len(encode("\nAnswer:", special=False)) - asked
        inside = [
            i
            for i, w in enumerate(seen.words[: seen.before + word])
            if begin <= w.start and (w.stop <= begin + asked or w.start >= seen.p - len(kept))
        ]
        texts = tuple(decode(seen.attended[seen.words[i].start : seen.words[i].stop], special=False) for i in inside)
        # The draft stands right after the prompt, its first space lost where the vocabulary drops it.
        content = contains_any(texts, pipeline.content_words(prompt.text + made.text))
        number = int(seen.sentence[word])
        first, stop = seen.ranges[number]
        a, b = seen.own[first].start, seen.own[stop - 1].stop
        return Gap(
            question=self.question,
            answer=answer,
            context=f"{self.question} {answer}",
            sentence=made.text[slice(*seen.sentences[number])],
            words=words.text[first:stop],
            hits=words.hit[first:stop],
            tokens=tuple(decode([i], special=True) for i in made.ids[a:b].tolist()),
            doubt=doubts(made.logprob)[a:b],
            pipeline=pipeline,
            tokenizer=self.tokenizer,
            variant="reference",
            before=f"{self.question} {answer} ",
            ranked=Ranked(texts, paid[words.hit].sum(axis=0)[inside], content),
        )

    @cached_property
    def _alone(self) -> frozenset[str]:
        """Tokens that are a word by themselves: what white space and punctuation become, the marker, BOS."""
        found = {self.tokenizer.marker, *self.tokenizer.tokens(self.tokenizer.encode("", special=True))}
        for mark in string.whitespace + string.punctuation:
            tokens = self.tokenizer.tokens(self.tokenizer.encode(f"0{mark}", special=False))
            zero = next((i for i, token in enumerate(tokens) if "0" in token), 0)
            found.update(tokens[zero + 1 :])
        return frozenset(found)
