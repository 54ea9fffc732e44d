"""From tokens to words, by the characters themselves: right for every kind of vocabulary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Scripts written without spaces: each character is a word.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = re.compile(f"[{_UNSPACED}]|[^\\s{_UNSPACED}]+")


class Word(NamedTuple):
    """A run of tokens: ``text`` and the half-open token range ``[start, stop)``."""

    text: str
    start: int
    stop: int


def split_words(text: str) -> list[str]:
    """The words of a text: between white space, and each character of a script without spaces."""
    return _WORD.findall(text)


def word_starts(text: str) -> set[int]:
    """Characters at which a word begins: after white space, and at each character of a script without spaces."""
    return {match.start() for match in _WORD.finditer(text)}


def character_words(text: str, offsets: np.ndarray | Sequence[tuple[int, int]]) -> list[Word]:
    """Words from the character spans of the tokens.

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


def contain_any(words: Sequence[str], contents: Sequence[str]) -> np.ndarray:
    """For each word, whether it contains a content word as a substring (reference-behaviour §2.6); (w,) bool."""
    distinct = set(contents)
    return np.array([any(content in word for content in distinct) for word in words], dtype=bool)


def common(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
