"""From tokens to words: by the vocabulary's space marker (reference) or by the characters themselves (paper)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

#: The id that opens a word in the released code whatever it means: Llama-2's newline (reference-behaviour §2.1).
REFERENCE_NEWLINE_ID = 13

# Scripts written without spaces: each character is taken as a word of its own.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = re.compile(f"[{_UNSPACED}]|[^\\s{_UNSPACED}]+")


class Word(NamedTuple):
    """A run of tokens: ``text`` and the half-open token range ``[start, stop)``."""

    text: str
    start: int
    stop: int


def reference_words(tokens: Sequence[str], ids: Sequence[int], marker: str, *, eos: str | None = "</s>") -> list[Word]:
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


def word_starts(text: str) -> set[int]:
    """Characters at which a word begins: after white space, and at each character of a script without spaces."""
    return {match.start() for match in _WORD.finditer(text)}


def character_words(text: str, offsets: np.ndarray | Sequence[tuple[int, int]]) -> list[Word]:
    """Words from the character spans of the tokens; right for every kind of vocabulary.

    ``offsets`` is (n, 2): half-open spans in ``text``. A token opens a word when a word begins at its first visible
    character; white space before a word belongs to it; tokens that are parts of one character share its span and its
    word; a special token (empty span) is a word without text.
    """
    starts = word_starts(text)
    groups: list[list[int]] = []  # [first token, stop token, first character, stop character]
    joins = False  # whether the next visible token belongs to the newest group whatever it begins with
    last_visible = -1
    for i, (start, stop) in enumerate(offsets):
        span = text[int(start) : int(stop)]
        visible = int(start) + len(span) - len(span.lstrip()) if span.strip() else None
        if visible is None:
            opens = not (joins and span)
        else:
            opens = not joins and visible in starts and visible != last_visible
            last_visible = visible
        if opens or not groups:
            groups.append([i, i + 1, int(start), int(stop)])
        else:
            groups[-1][1], groups[-1][3] = i + 1, max(groups[-1][3], int(stop))
        joins = bool(span) and visible is None
    return [Word(text[a:b].strip(), start, stop) for start, stop, a, b in groups]


def lay_sentences(sentences: Sequence[str], words: Sequence[str]) -> list[tuple[int, int]]:
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
