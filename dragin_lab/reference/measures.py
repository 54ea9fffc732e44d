"""The released code's words, sentences and scores, as pure functions (docs/reference-behaviour.md §2, §3, §5).

n tokens in a draft, h heads, w words in it, m words or tokens in a sentence. Entropies are in nats.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dragin_lab.trace.words import Word

#: The id that opens a word in the released code whatever it means: Llama-2's newline (reference-behaviour §2.1).
REFERENCE_NEWLINE_ID = 13


def merge_words(tokens: Sequence[str], ids: Sequence[int], marker: str, *, eos: str | None = "</s>") -> list[Word]:
    """Words as the released code merges them (reference-behaviour §2.1; §3.2 with ``eos=None``).

    ``tokens`` are raw vocabulary strings, one per id; ``marker`` is the tokenizer's space marker.
    """
    opens = [
        i == 0
        or (bool(marker) and token.startswith(marker))
        or ids[i] == REFERENCE_NEWLINE_ID
        or (eos is not None and tokens[i - 1] == eos)
        for i, token in enumerate(tokens)
    ]
    starts = [i for i, is_open in enumerate(opens) if is_open]
    return [
        Word("".join(p.replace(marker, "") if marker else p for p in tokens[start:stop]), start, stop)
        for start, stop in zip(starts, [*starts, len(tokens)][1:], strict=True)
    ]


def assign_words(sentences: Sequence[str], words: Sequence[str]) -> list[tuple[int, int]]:
    """Which words each sentence owns, as half-open ranges (reference-behaviour §2.4).

    A sentence that is not the last owns the words up to the smallest i such that it stands in words a..i-1 joined by
    single spaces; the draft's last word can close none; the last sentence takes what remains.
    """
    ranges: list[tuple[int, int]] = []
    start = 0
    for number, sentence in enumerate(sentences):
        if number == len(sentences) - 1:
            ranges.append((start, len(words)))
            break
        for stop in range(start + 1, len(words)):
            if sentence in " ".join(words[start:stop]):
                ranges.append((start, stop))
                start = stop
                break
        else:
            ranges.append((start, start))
    return ranges


def assign_tokens(sentences: Sequence[str], tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Which tokens each sentence owns in the released code, as half-open ranges (reference-behaviour §5).

    ``tokens`` are decoded one id at a time. A sentence owns its tokens up to and with the first one not found after
    the place of the one before; that place is relative to the slice last searched, not to the sentence.
    """
    ranges = []
    start = 0
    for sentence in sentences:
        place, stop = 0, start
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

    ``attention`` is (h, n, n): the generated ids by themselves, without their prompt. The maximum runs over all query
    positions, the token's own included, per head; then the mean over heads.
    """
    largest = attention.max(axis=1)  # (h, n)
    mean = largest.mean(axis=0)  # (n,)
    if first_is_eos and len(mean) > 1:
        mean = mean / mean[1:].sum()  # (n,)
    return mean


def score_words(attention: np.ndarray, entropy: np.ndarray, ranges: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    """attention_i / (sum of the sentence's attentions) · entropy_i · m, per sentence (reference-behaviour §2.5).

    ``attention`` and ``entropy`` are (w,), ``ranges`` the words of each sentence; one (m,) array per sentence.
    """
    scores = []
    for start, stop in ranges:
        a, h = attention[start:stop], entropy[start:stop]  # (m,), (m,)
        total = a.sum()
        scores.append(a / total * h * (stop - start) if total > 0 else np.zeros(stop - start))  # (m,)
    return scores


def pool_doubt(values: np.ndarray, solver: str) -> float:
    """The mean, largest or smallest doubt of a sentence's tokens; NaN for a sentence without tokens.

    NaN fires no trigger. The released code raises for max and min of nothing; NaN is the sensible answer.
    """
    if len(values) == 0:
        return float("nan")
    if solver == "avg":
        return float(values.mean())
    return float(values.max() if solver == "max" else values.min())


def pay_words(attention: np.ndarray, words: Sequence[Word]) -> np.ndarray:
    """What each word pays to each word before it, as the released code computes it (reference-behaviour §3.3).

    ``attention`` is (h, n, n) over question, answer and sentence. For each token of a word the row of the position
    that predicted it, cut to the columns before the word, renormalised; summed, divided by the word's tokens; columns
    summed into words. (w, w) float64.
    """
    mean = attention.mean(axis=0).astype(np.float64)  # (n, n)
    starts = np.array([word.start for word in words], dtype=int)  # (w,)
    paid = np.zeros((len(words), len(words)))  # (w, w)
    for number, word in enumerate(words):
        if word.start == 0:
            continue
        rows = mean[word.start - 1 : word.stop - 1, : word.start]  # (tokens, start)
        row = (rows / rows.sum(axis=1, keepdims=True)).sum(axis=0) / (word.stop - word.start)  # (start,)
        paid[number, :number] = np.add.reduceat(row, starts[:number])  # (number,)
    return paid


def drop_doubtful(sentence: str, tokens: Sequence[str], doubt: np.ndarray, threshold: float) -> str:
    """The sentence without its doubtful tokens, as the released code edits it (reference-behaviour §5).

    A token's place is where it stands after ``place`` in the sentence as edited so far; a token that is not found
    counts as one character before it, and slices then count from the end as Python's do.
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
