"""The released code's words, sentences, scores and triggers (docs/reference-behaviour.md §2, §3,
§5).

n tokens in a draft, h heads, w words in it, m words or tokens in a sentence. Entropies are in nats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dragin_lab.core.episode import Tokenizer
from dragin_lab.core.scores import doubts, pool_values, pool_words
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.settings import setting
from dragin_lab.core.trigger import Trigger
from dragin_lab.text import write_compared
from dragin_lab.trace.draft import Span, Word, contain_any
from dragin_lab.trace.trace import Decision, Draft, Words

#: The id that opens a word in the released code whatever it means: Llama-2's newline
#: (reference-behaviour §2.1).
REFERENCE_NEWLINE_ID = 13


def merge_words(
    tokens: Sequence[str], ids: Sequence[int], marker: str, *, eos: str | None = "</s>"
) -> list[Word]:
    """Words as the released code merges them (reference-behaviour §2.1; §3.2 with ``eos=None``).

    ``tokens`` are raw vocabulary strings, one per id; ``marker`` is the tokenizer's space marker.
    """
    starts = []
    for i, token in enumerate(tokens):
        is_marked = marker and token.startswith(marker)
        after_end = i == 0 or tokens[i - 1] == eos
        if is_marked or after_end or ids[i] == REFERENCE_NEWLINE_ID:
            starts.append(i)
    words = []
    for start, stop in pairwise([*starts, len(tokens)]):
        text = "".join(tokens[start:stop])
        words.append(Word(text.replace(marker, ""), start, stop))
    return words


def assign_words(sentences: Sequence[str], words: Sequence[str]) -> list[Span]:
    """Which words each sentence owns, as half-open ranges (reference-behaviour §2.4).

    A sentence that is not the last owns the words up to the smallest i such that it stands in words
    a..i-1 joined by single spaces; the draft's last word can close none; the last sentence takes
    what remains.
    """
    if not sentences:
        return []
    ranges = []
    start = 0
    for sentence in sentences[:-1]:
        stop = start
        for end in range(start + 1, len(words)):
            if sentence in " ".join(words[start:end]):
                stop = end
                break
        ranges.append((start, stop))
        start = stop
    return [*ranges, (start, len(words))]


def assign_tokens(sentences: Sequence[str], tokens: Sequence[str]) -> list[Span]:
    """Which tokens each sentence owns in the released code, as half-open ranges
    (reference-behaviour §5).

    ``tokens`` are decoded one id at a time. A sentence owns its tokens up to and with the first one
    not found after the place of the one before; that place is relative to the slice last searched,
    not to the sentence.
    """
    ranges = []
    start = 0
    for sentence in sentences:
        place = 0
        stop = start
        while stop < len(tokens):
            offset = sentence[place:].find(tokens[stop])
            stop += 1
            if offset < 0:
                break
            place = offset + len(tokens[stop - 1])
        ranges.append((start, stop))
        start = stop
    return ranges


def receive_attention(attention: np.ndarray, *, first_is_eos: bool) -> np.ndarray:
    """What each token receives in the released code (reference-behaviour §2.2); (n,) float32.

    ``attention`` is (h, n, n): the generated ids by themselves, without their prompt. The maximum
    runs over all query positions, the token's own included, per head; then the mean over heads.
    """
    mean = attention.max(axis=1).mean(axis=0)  # (n,)
    return mean / mean[1:].sum() if first_is_eos and len(mean) > 1 else mean


def score_words(
    attention: np.ndarray, entropy: np.ndarray, ranges: Sequence[Span]
) -> list[np.ndarray]:
    """attention_i / (sum of the sentence's attentions) · entropy_i · m, per sentence
    (reference-behaviour §2.5).

    ``attention`` and ``entropy`` are (w,), ``ranges`` the words of each sentence; one (m,) array
    per sentence.
    """
    scores = []
    for start, stop in ranges:
        a = attention[start:stop]  # (m,)
        h = entropy[start:stop]  # (m,)
        total = a.sum()
        # (m,)
        scores.append(a / total * h * (stop - start) if total > 0 else np.zeros(stop - start))
    return scores


def pool_doubt(values: np.ndarray, solver: str) -> float:
    """The "avg", "max" or "min" doubt of a sentence's tokens; NaN, which fires no trigger, for one
    without tokens.

    The released code raises for max and min of nothing.
    """
    return pool_values(values, solver) if len(values) else float("nan")


def pay_words(attention: np.ndarray, words: Sequence[Word]) -> np.ndarray:
    """What each word pays to each word before it, as the released code computes it
    (reference-behaviour §3.3).

    ``attention`` is (h, n, n) over question, answer and sentence. For each token of a word the row
    of the position that predicted it, cut to the columns before the word, renormalised; summed,
    divided by the word's tokens; columns summed into words. (w, w) float64.
    """
    mean = attention.mean(axis=0).astype(np.float64)  # (n, n)
    starts = np.array([word.start for word in words], int)  # (w,)
    w = len(words)
    paid = np.zeros((w, w))
    for number, (_, start, stop) in enumerate(words):
        if start > 0:
            rows = mean[start - 1 : stop - 1, :start]  # (tokens, start)
            shares = rows / rows.sum(axis=1, keepdims=True)  # (tokens, start)
            row = shares.sum(axis=0) / (stop - start)  # (start,)
            paid[number, :number] = np.add.reduceat(row, starts[:number])
    return paid


def drop_doubtful(sentence: str, tokens: Sequence[str], doubt: np.ndarray, threshold: float) -> str:
    """The sentence without its doubtful tokens, as the released code edits it (reference-behaviour
    §5).

    A token's place is where it stands after ``place`` in the sentence as edited so far; a token
    that is not found counts as one character before it, and slices then count from the end as
    Python's do.
    """
    marker = "[xxx]"
    place = 0
    for token, value in zip(tokens, doubt, strict=True):
        begin = place + sentence[place:].find(token)
        end = begin + len(token)
        if value > threshold:
            sentence = sentence[:begin] + marker + sentence[end:]
            place = begin + len(marker)
        else:
            place = end
    return sentence.replace(marker, "")


def join_parts(*parts: str) -> str:
    """The non-empty parts, joined by single spaces."""
    return " ".join(part for part in parts if part)


def lead_parts(*parts: str) -> str:
    """The same as it stands after ``Answer:``: each non-empty part brings its space."""
    return "".join(f" {part}" for part in parts if part)


def find_end(sentence: str, text: str) -> int:
    """Where a sentence that begins a generated text ends in it (characters)."""
    place = text.find(sentence)
    return place + len(sentence) if place >= 0 else len(text)


def find_begin(sentences: Sequence[str], number: int, text: str) -> int:
    """Where a sentence of a generated text begins in it (characters); one that is not found has
    no length.
    """
    begin = end = 0
    for sentence in sentences[: number + 1]:
        begin = text.find(sentence, end)
        if begin < 0:
            begin = end
        else:
            end = begin + len(sentence)
    return begin


# -- a draft, and the triggers that judge it -------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ReleasedDraft:
    """A draft of n tokens as the released code cuts it: w words, sentences, and what each
    sentence owns.
    """

    continuation: Draft
    words: list[Word]
    # (w,) attention received (§2.2); NaN where the trigger does not look at it
    received: np.ndarray
    sentences: list[str]
    ranges: list[Span]  # half-open, words of each sentence
    tokens: list[str]  # decoded one by one
    token_ranges: list[Span]  # half-open, tokens of each sentence

    @property
    def texts(self) -> tuple[str, ...]:
        """w texts."""
        return tuple(word.text for word in self.words)


def cut_draft(
    written: Draft, pipeline: Pipeline, tokenizer: Tokenizer, attention: np.ndarray | None
) -> ReleasedDraft:
    """A draft, cut into the released code's words, sentences and tokens.

    ``attention`` is (h, n, n), of the generated ids by themselves, for a trigger that ``rereads``.
    """
    words = merge_words(written.pieces, written.ids.tolist(), tokenizer.marker)
    received = np.full(len(words), np.nan)  # (w,)
    if attention is not None:
        received = pool_words(
            receive_attention(attention, first_is_eos=written.pieces[:1] == ("</s>",)), words, "sum"
        )  # (w,)
    sentences = pipeline.split(written.raw_text)
    tokens = decode_each(written, tokenizer)
    ranges = assign_words(sentences, [word.text for word in words])
    return ReleasedDraft(
        written, words, received, sentences, ranges, tokens, assign_tokens(sentences, tokens)
    )


def decode_each(written: Draft, tokenizer: Tokenizer) -> list[str]:
    """The text of each token by itself."""
    return [tokenizer.decode([i], special=True) for i in written.ids.tolist()]


#: Per sentence the scores of its words (m,) and what is compared with θ; the words' entropy (w,),
#: nats.
Scores = tuple[list[np.ndarray], list[float], np.ndarray]


@dataclass(frozen=True)
class Reader(Trigger):
    """A trigger that reads a whole draft and fires at a sentence."""

    rewrites_rest = False  # write all that follows again, not one sentence
    rereads = False  # whether it takes the attention of the generated ids by themselves
    # whether words without content are no hits, once the decision is taken
    check_content_words = False

    def score_draft(self, draft: ReleasedDraft) -> Scores:
        """The scores of a whole draft."""
        raise NotImplementedError

    def explain(self, number: int, peak: float, word: str | None) -> str:
        """Why a sentence fires; sentences count from 0."""
        raise NotImplementedError


@dataclass(frozen=True)
class Probability(Reader):
    """The mean, largest or smallest 1 - p over a sentence's tokens is above θ (FLARE)."""

    name = "probability"
    source = "TokenRAG (reference-behaviour §5)"
    unit = "sentence"
    rewrites_rest = True
    threshold: float = setting(0.1, label="1 − probability", top=1.0)
    sentence_solver: str = setting(
        "avg", choices=("avg", "max", "min"), label="pooling over the sentence"
    )

    def score_draft(self, draft: ReleasedDraft) -> Scores:
        doubt = doubts(draft.continuation.logprob)  # (n,)
        # per sentence (m,)
        words = [pool_words(doubt, draft.words[a:b], "max") for a, b in draft.ranges]
        peaks = [pool_doubt(doubt[a:b], self.sentence_solver) for a, b in draft.token_ranges]
        return words, peaks, pool_words(draft.continuation.entropy, draft.words, "mean")

    def explain(self, number: int, peak: float, word: str | None) -> str:
        shown, theta = write_compared(peak, self.threshold)
        return (
            f"sentence {number + 1} has 1 - p of {shown} ({self.sentence_solver}), above θ {theta}"
        )


@dataclass(frozen=True)
class Rind(Reader):
    """A word's share of its sentence's attention x entropy x the sentence's length is above θ
    (DRAGIN).
    """

    name = "rind"
    source = "AttnWeightRAG (reference-behaviour §2)"
    rereads = True
    needs = ("received",)
    # Table 9, Llama2-7b-chat on 2WikiMultihopQA
    threshold: float = setting(1.2, label="RIND score")
    check_content_words: bool = setting(True, label="hits need content, once the decision is taken")

    def score_draft(self, draft: ReleasedDraft) -> Scores:
        processed = draft.continuation.entropy_processed
        values = draft.continuation.entropy if processed is None else processed  # (n,)
        entropy = pool_words(values, draft.words, "mean")  # (w,)
        words = score_words(draft.received, entropy, draft.ranges)  # per sentence (m,)
        return words, [float(scores.max(initial=-np.inf)) for scores in words], entropy

    def explain(self, number: int, peak: float, word: str | None) -> str:
        shown, theta = write_compared(peak, self.threshold)
        return f"{word!r} in sentence {number + 1} scores {shown}, above θ {theta}"


def judge_draft(
    trigger: Reader, draft: ReleasedDraft, pipeline: Pipeline
) -> tuple[Words, Decision]:
    """The words and the decision on a draft; it fires at the first sentence whose peak is above
    θ (§2.5).
    """
    theta: Any = trigger.theta
    scores, peaks, entropy = trigger.score_draft(draft)
    w = len(draft.words)
    spans = [(word.start, word.stop) for word in draft.words]
    table = Words(
        text=draft.texts,
        spans=np.array(spans, np.int32).reshape(-1, 2),
        sentence=np.full(w, -1, np.int32),
        attention=draft.received.astype(np.float32),
        entropy=entropy.astype(np.float32),
        stop=np.zeros(w, bool),
        score=np.full(w, np.nan, np.float32),
        hit=np.zeros(w, bool),
    )
    for number, (start, stop) in enumerate(draft.ranges):
        table.sentence[start:stop] = number
        table.score[start:stop] = scores[number]
    fired = next((number for number, peak in enumerate(peaks) if peak > theta), None)
    if fired is None:
        peak = max((peak for peak in peaks if not np.isnan(peak)), default=0.0)
        highest, limit = write_compared(peak, theta)
        reason = f"no sentence scores above θ {limit} (the highest: {highest})"
        return table, Decision(False, reason, peaks=tuple(peaks))
    start, stop = draft.ranges[fired]
    hits = scores[fired] > theta  # (m,)
    spared = np.zeros(stop - start, bool)  # (m,)
    if trigger.check_content_words:
        spared = ~contain_any(
            draft.texts[start:stop], pipeline.content_words(draft.sentences[fired])
        )
    # the sentences after the one that fires are never looked at
    table.judged = table.sentence <= fired
    table.stop[start:stop] = spared
    table.hit[start:stop] = hits & ~spared
    best = int(scores[fired].argmax()) if stop > start else None
    word = None if best is None else draft.words[start + best]
    reason = trigger.explain(fired, peaks[fired], word and word.text)
    if best is not None and spared[best]:
        reason += (
            "; it is not a content word, so the released code fires on it but does not count it as"
            " a hit"
        )
    cut = find_begin(draft.sentences, fired, draft.continuation.text)
    return table, Decision(
        True, reason, cut=cut, token=word and word.start, sentence=fired, peaks=tuple(peaks)
    )
