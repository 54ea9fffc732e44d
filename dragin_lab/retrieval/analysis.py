"""From text to index terms, for passages and queries alike: the chain of Elasticsearch's ``english`` analyzer.

Words by Unicode's word boundaries (UAX #29, as Lucene's standard tokenizer cuts them), a possessive 's removed, lower
case, Lucene's 33 stop words removed, Porter's stemmer.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

import regex
import Stemmer

#: Names the chain in fingerprints; changes whenever a text may give other terms.
NAME = "english-1"

# fmt: off
STOP_WORDS = frozenset([
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no",
    "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to",
    "was", "will", "with",
])
# fmt: on

_EXTEND = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*+"  # WB4: marks and joiners belong to the character before them
_LETTER = rf"[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]{_EXTEND}"
_DIGIT = rf"\p{{WB=Numeric}}{_EXTEND}"
_JOIN = rf"\p{{WB=ExtendNumLet}}{_EXTEND}"  # "_"
_QUOTE = r"\p{WB=MidNumLet}\p{WB=Single_Quote}"
_IN_WORD = rf"[:\p{{WB=MidLetter}}{_QUOTE}]{_EXTEND}"  # WB6, WB7: "O'Brien"; ":" as in Lucene's Unicode version
_IN_NUMBER = rf"[\p{{WB=MidNum}}{_QUOTE}]{_EXTEND}"  # WB11, WB12: "1,000.5"
_RUN = rf"(?:{_LETTER}(?:{_IN_WORD}{_LETTER})*+|{_DIGIT}(?:{_IN_NUMBER}{_DIGIT})*+)++|(?:\p{{WB=Katakana}}{_EXTEND})++"
_WORD = regex.compile(
    rf"(?:{_JOIN})*+(?:{_RUN})(?:(?:{_JOIN})++(?:{_RUN}))*+(?:{_JOIN})*+"
    rf"|[\p{{Script=Han}}\p{{Script=Hiragana}}]{_EXTEND}"  # one term a character
    r"|\p{LB=SA}++"  # Thai, Khmer, ...: a run without spaces is one term
    rf"|\p{{Emoji_Presentation}}{_EXTEND}"
)
# The same of ASCII alone, where most English words are, in a seventh of the time.
_ASCII_RUN = r"(?:[A-Za-z]++(?:[:.'][A-Za-z]++)*+|[0-9]++(?:[,;.'][0-9]++)*+)++"
_ASCII_WORD = re.compile(rf"_*+{_ASCII_RUN}(?:_++{_ASCII_RUN})*+_*+")
_POSSESSIVE = ("'s", "’s", "＇s", "'S", "’S", "＇S")
# Two rules that Porter added to his program after the paper, which Lucene has and Snowball's `porter` has not:
# "possibly" meets "possible", "technology" meets "technological". What stands before must hold a vowel and a consonant.
_MEASURE = r"(?:[aeiou]|(?<=[^aeiou])y)[^aeiou]"
_ADDED_TO_PORTER = regex.compile(rf"(.*{_MEASURE}.*)(log|bl)(?:y|i|ies|is)")
_ADDED_ENDINGS = tuple(stem + end for stem in ("log", "bl") for end in ("y", "i", "ies", "is"))
#: What ``fingerprint`` analyses: stems, possessives, joined words, numbers, scripts that are cut in other ways.
_SAMPLE = (
    "The U.S. directors' generalizations possibly sky, Wajda’s 1,000.5 re-elected O'Brien's e_mail dying technology "
    "café ΣΊΣΥΦΟΣ İstanbul Москвы שלום العربية 東京タワーとひらがな ภาษาไทย ខ្មែរ 한국어 🙂 ﬁlm naïve x86 H2O"
)


_STEM = Stemmer.Stemmer("porter", 0).stemWord  # 0: `_Chunks` caches, the stemmer need not


class _Chunks(dict[str, str]):
    """The terms of what stands between two spaces, joined by spaces; as no term holds a space, no text needs more."""

    most = 1 << 19  # about 100 MB

    def __missing__(self, chunk: str) -> str:
        words = (_ASCII_WORD if chunk.isascii() else _WORD).findall(chunk)
        found = " ".join(filter(None, map(_term, words)))
        if len(self) < self.most:
            self[chunk] = found
        return found


_CHUNKS = _Chunks()


def _term(word: str) -> str:
    """The index term of one word; "" for a stop word."""
    word = (word[:-2] if word.endswith(_POSSESSIVE) else word).lower()
    if not word or word in STOP_WORDS:
        return ""
    if len(word) <= 2:  # Porter's program leaves these alone; "us" is not "u"
        return word
    if word.endswith(_ADDED_ENDINGS) and (added := _ADDED_TO_PORTER.fullmatch(word)):
        word = added[1] + ("ble" if added[2] == "bl" else "log")
    stem: str = _STEM(word)
    return stem


def joined(text: str) -> str:
    """The terms of a text between spaces, as an index on disk is given them."""
    return " ".join(map(_CHUNKS.__getitem__, text.split()))


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """SHA-256 (hex) of the name and of what the chain, with the libraries at hand, makes of a text of many scripts."""
    return hashlib.sha256("\n".join([NAME, *terms(_SAMPLE)]).encode()).hexdigest()


def terms(text: str) -> list[str]:
    """The index terms of a text, in order, repetitions kept.

    >>> terms("The U.S. directors' films, and Wajda's café")
    ['u.', 'director', 'film', 'wajda', 'café']
    """
    return joined(text).split()
