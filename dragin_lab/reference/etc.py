"""ETC's released code (github.com/WisdomShell/ETC, commit facd465), to the letter.

It has a loop of its own: it encodes a prompt's parts one by one, ends a draft with its line, cuts at the word that
fires, and ranks the words of question and answer by the attention that the words which fired pay them.
"""

from __future__ import annotations

import string
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from dragin_lab.core.episode import Episode, SoFar, attend
from dragin_lab.core.formulators import choose_top
from dragin_lab.core.scores import doubts, pool_words
from dragin_lab.core.settings import Rule, setting
from dragin_lab.core.words import Word, contain_any
from dragin_lab.reference.dragin import ReleasedLoop
from dragin_lab.reference.rules import (
    FORMULATIONS,
    REFERENCE_METHODS,
    RULES,
    Candidates,
    Qfs,
    ReferenceMethod,
    ReleasedGap,
)
from dragin_lab.trace.trace import Continuation, Decision, Passage, Prompt, Query, Step, Words

_TINY = 1e-10


@RULES.add
@dataclass(frozen=True)
class EntropyTrend(Rule):
    """The trend of a word's entropy times its share of attention is above θ (ETC)."""

    name, source = "entropy-trend", "ETC, released code"
    threshold: float = setting(1.3, label="entropy trend")
    absolute: bool = setting(False, label="compare the trend's absolute value, as the paper does")


@FORMULATIONS.add
@dataclass(frozen=True)
class EtcQfs(Qfs):
    """QFS as ETC's code has it: all words that fired in the sentence count, and what they pay is summed."""

    name, source = "qfs-etc", "ETC, released code"
    top_n: int = setting(35, label="words in the query", unit="words")

    def query(self, gap: ReleasedGap) -> Episode[Query]:
        candidates = gap.candidates
        if candidates is None:
            return (yield from super().query(gap))
        chosen = choose_top(candidates.weights, self.top_n, candidates.content)
        return Query.of(candidates.words, candidates.weights, chosen, gap.note)


@dataclass(frozen=True)
class EtcMethod(ReferenceMethod):
    """ETC's released code; it sends whole queries."""

    query_tokens: ClassVar[int | None] = None
    rules: ClassVar[tuple[type[Rule], ...]] = (EntropyTrend,)

    @property
    def reads_attention(self) -> bool:
        return True


REFERENCE_METHODS["etc"] = EtcMethod


@dataclass(frozen=True)
class LineEnds:
    """Stop at the end of the line."""

    def reached(self, so_far: SoFar) -> str | None:
        return "line" if "\n" in so_far.text else None


@dataclass(frozen=True)
class EtcDraft:
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
            written = step.draft = yield from self.write(step, limit, LineEnds())
            seen = self._cut_draft(written)
            gap = None
            if seen is None:
                step.decision = Decision(False, "nothing is written")
            else:
                gap = self._judge(step, written, seen, (yield from attend(seen.attended)), text)
            assert step.decision is not None
            if gap is None:
                new = " ".join(part for part in (text, written.text.strip()) if part)
                tokens = len(written.prompt_ids) + len(written)
            else:
                yield from self.retrieve(step, (yield from self.method.formulator.query(gap)))
                step.passages_prompt = self._prompt(gap.answer, step.passages)
                written = step.continuation = yield from self.write(step, limit, LineEnds(), with_passages=True)
                spans = self.method.pipeline.spans(written.text)
                step.continuation_kept = spans[0][1] if spans else len(written.text)
                new = f"{gap.answer} {written.text[: step.continuation_kept].strip()}"
                tokens = len(self.tokenizer.encode(new, special=True))
                step.discarded = step.draft.text[step.decision.cut or 0 :]
            self.trace.text = step.answer = new
            step.kept = new.removeprefix(text).strip()
            if gap is None and written.stopped == "eos":
                self.trace.ended = "answered"
            elif tokens > limit or len(new) <= len(text):
                self.trace.ended = "length" if tokens > limit else "stalled"
            text = new

    # -- prompts ------------------------------------------------------------------------------------------------------

    def _prompt(self, answer: str, passages: Sequence[Passage] | None = None) -> Prompt:
        """The five parts of a prompt, or of one with passages, which is encoded as a whole."""
        examples = "\n".join(self.template.shape.exemplar(e).rstrip("\n") for e in self.template.exemplars)
        context = ""
        if passages is not None:
            lines = "".join(f"[{i}] {p.text}\n" for i, p in enumerate(passages, 1))
            context = f"\nContext:\n{lines}Answer in the same format as before.\n"
        case = [("", f"{context}\nQuestion:"), ("question", self.question), ("", "\nAnswer:"), ("answer", answer)]
        parts = [("exemplars", examples), *case]
        apart = tuple(np.cumsum([len(part) for _, part in parts[:4]]).tolist()) if passages is None else ()
        return Prompt.join(parts, apart=apart)

    # -- when ---------------------------------------------------------------------------------------------------------

    def _cut_draft(self, written: Continuation) -> EtcDraft | None:
        """The words and sentences of a draft; None where nothing is written."""
        n, p = len(written) - (written.stopped == "eos"), len(written.prompt_ids)
        sentences = self.method.pipeline.spans(written.text)
        if n == 0 or not sentences:
            return None
        attended = [*written.prompt_ids.tolist(), *written.ids.tolist()]
        marker, tokens = self.tokenizer.marker, self.tokenizer.tokens(attended[: p + n])
        own = merge_words(tokens[p:], marker, self._alone)
        words = merge_words(tokens[:p], marker, self._alone)
        words += [Word(word.text, word.start + p, word.stop + p) for word in own]
        starts = written.offsets[[word.start for word in own], 0]  # (w,)
        ends = np.array([stop for _, stop in sentences[:-1]], dtype=int)
        sentence = (ends[None] <= starts[:, None]).sum(axis=1).astype(np.int32)  # (w,)
        return EtcDraft(attended, p, words, own, sentences, sentence)

    def _judge(
        self, step: Step, written: Continuation, seen: EtcDraft, attention: np.ndarray, text: str
    ) -> ReleasedGap | None:
        """The words of a draft with their trends, and the gap of the first that fires."""
        rule, n = self.method.trigger, seen.n
        assert isinstance(rule, EntropyTrend)
        theta = rule.theta
        assert theta is not None
        texts = tuple(word.text for word in seen.own)
        content = contain_any(texts, self.method.pipeline.content_words(written.text))  # (w,)
        entropy = pool_words(written.entropy[:n], seen.own, "max")  # (w,)
        # As many rows from the end as the draft has tokens: with a closing EOS every token has the row of the next.
        rows = attention[:, len(seen.attended) - n :, : seen.p + n]  # (h, n, p + n)
        paid = pay_words(rows, seen.words, seen.own)  # (w, words)
        attended, scores = score_words(paid, compute_trends(entropy, content), seen.ranges)
        score = np.concatenate(scores)  # (w,)
        height = np.abs(score) if rule.absolute else score
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
        cut = int(written.offsets[start, 0])
        step.decision = Decision(True, reason, cut=cut, token=start, sentence=int(seen.sentence[word]))
        return self._gap(step, written, seen, word, paid, text)

    def _gap(
        self, step: Step, written: Continuation, seen: EtcDraft, word: int, paid: np.ndarray, text: str
    ) -> ReleasedGap:
        """Where a draft fires, with what the flagged words pay those of question and answer before the first."""
        words, prompt = step.words, step.prompt
        assert prompt is not None
        encode, decode, pipeline = self.tokenizer.encode, self.tokenizer.decode, self.method.pipeline
        kept = encode(text, special=False)
        ids = kept + written.ids[: seen.own[word].start].tolist()
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
        content = contain_any(texts, pipeline.content_words(prompt.text + written.text))
        number = int(seen.sentence[word])
        first, stop = seen.ranges[number]
        a, b = seen.own[first].start, seen.own[stop - 1].stop
        return ReleasedGap(
            question=self.question,
            answer=answer,
            context=f"{self.question} {answer}",
            sentence=written.text[slice(*seen.sentences[number])],
            words=words.text[first:stop],
            hits=words.hit[first:stop],
            tokens=tuple(decode([i], special=True) for i in written.ids[a:b].tolist()),
            doubt=doubts(written.logprob)[a:b],
            pipeline=pipeline,
            tokenizer=self.tokenizer,
            before=f"{self.question} {answer} ",
            candidates=Candidates(texts, paid[words.hit].sum(axis=0)[inside], content),
        )

    @cached_property
    def _alone(self) -> frozenset[str]:
        """Tokens that are a word by themselves: what white space and punctuation become, the marker, BOS."""
        alone = {self.tokenizer.marker, *self.tokenizer.tokens(self.tokenizer.encode("", special=True))}
        for mark in string.whitespace + string.punctuation:
            tokens = self.tokenizer.tokens(self.tokenizer.encode(f"0{mark}", special=False))
            zero = next((i for i, token in enumerate(tokens) if "0" in token), 0)
            alone.update(tokens[zero + 1 :])
        return frozenset(alone)


# -- words and trends ----------------------------------------------------------------------------------------------


def compute_trends(entropy: np.ndarray, content: np.ndarray) -> np.ndarray:
    """M of the words as the released code computes it; (w,) float64, 0 for those without a second difference.

    ``entropy`` is (w,) nats, ``content`` (w,) bool. A first difference is taken to the nearest content word before, a
    second one to the nearest earlier first difference that is not 0.
    """
    first, second = np.zeros(len(entropy)), np.zeros(len(entropy))  # (w,), (w,)
    for i in np.flatnonzero(content):
        words = np.flatnonzero(content[:i])
        first[i] = entropy[i] - entropy[words[-1]] if len(words) else 0.0
        differing = np.flatnonzero(first[:i])
        second[i] = first[i] - first[differing[-1]] if i >= 2 and len(differing) else 0.0
    trend = np.zeros(len(entropy))  # (w,)
    turning = np.flatnonzero(second)
    before = 0.0
    for count, i in enumerate(turning, 1):
        x, mean = second[i], second[turning[:count]].mean()
        weight = abs(before - mean) / (abs(x - mean) + abs(before - mean))
        share = 0.9 + 0.1 * weight
        trend[i], before = share * x + (1 - share) * before, x
    return trend


def merge_words(tokens: Sequence[str], marker: str, alone: Collection[str]) -> list[Word]:
    """Words as the released code cuts them: at the space marker, and around every token that stands ``alone``."""
    opens = [
        i == 0 or (bool(marker) and token.startswith(marker)) or token in alone or tokens[i - 1] in alone
        for i, token in enumerate(tokens)
    ]
    starts = [i for i, is_open in enumerate(opens) if is_open]
    ends = [*starts, len(tokens)][1:]
    return [Word("".join(tokens[a:b]), a, b) for a, b in zip(starts, ends, strict=True)]


def pay_words(rows: np.ndarray, words: Sequence[Word], own: Sequence[Word]) -> np.ndarray:
    """What each word of a draft pays to every word of the text: ``rows`` (h, n, p + n) -> (own, words) float64.

    Mean over heads, columns summed over a word's tokens, rows averaged over them. ``own`` count tokens in the draft.
    """
    mean = rows.mean(axis=0).astype(np.float64)  # (n, p + n)
    columns = np.add.reduceat(mean, [word.start for word in words], axis=1)  # (n, words)
    return np.stack([columns[word.start : word.stop].mean(axis=0) for word in own])


def score_words(
    paid: np.ndarray, trend: np.ndarray, ranges: Sequence[tuple[int, int]]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """The draft's words' attention (w,), and per sentence what is compared with θ, (m,).

    ``paid`` is (w, all words): what the draft's words pay, their own at the end. A word's attention is the largest that
    it pays to a word of the draft; within a sentence it is divided by its sum and multiplied by its length.
    """
    shares = paid[:, paid.shape[1] - len(trend) :] / (paid.sum(axis=1, keepdims=True) + _TINY)  # (w, w)
    attention = shares.max(axis=1)  # (w,)
    scores = [attention[a:b] * (b - a) / (attention[a:b].sum() + _TINY) * trend[a:b] for a, b in ranges]  # (m,) each
    return attention, scores
