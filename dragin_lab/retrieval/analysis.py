"""From text to index terms, for passages and queries alike: the chain of Elasticsearch's ``english`` analyzer.

Words by Unicode's word boundaries (UAX #29, as Lucene's standard tokenizer cuts them), a possessive 's removed, lower
case, Lucene's 33 stop words removed, Porter's stemmer.
"""

from __future__ import annotations

import hashlib
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
_POSSESSIVE = ("'s", "’s", "＇s", "'S", "’S", "＇S")
# Two rules that Porter added to his program after the paper, which Lucene has and Snowball's `porter` has not:
# "possibly" meets "possible", "technology" meets "technological". What stands before must hold a vowel and a consonant.
_MEASURE = r"(?:[aeiou]|(?<=[^aeiou])y)[^aeiou]"
_ADDED_TO_PORTER = regex.compile(rf"(.*{_MEASURE}.*)(log|bl)(?:y|i|ies|is)")
#: What ``fingerprint`` analyses: stems, possessives, joined words, numbers, scripts that are cut in other ways.
_SAMPLE = (
    "The U.S. directors' generalizations possibly sky, Wajda’s 1,000.5 re-elected O'Brien's e_mail dying technology "
    "café ΣΊΣΥΦΟΣ İstanbul Москвы שלום العربية 東京タワーとひらがな ภาษาไทย ខ្មែរ 한국어 🙂 ﬁlm naïve x86 H2O"
)


@lru_cache(maxsize=1)
def _stemmer() -> Stemmer.Stemmer:
    return Stemmer.Stemmer("porter", 0)  # 0: `_term` remembers, the stemmer need not


@lru_cache(maxsize=1 << 18)
def _term(word: str) -> str | None:
    """The index term of one word; None for a stop word."""
    word = (word[:-2] if word.endswith(_POSSESSIVE) else word).lower()
    if not word or word in STOP_WORDS:
        return None
    if len(word) <= 2:  # Porter's program leaves these alone; "us" is not "u"
        return word
    if added := _ADDED_TO_PORTER.fullmatch(word):
        word = added[1] + ("ble" if added[2] == "bl" else "log")
    stem: str = _stemmer().stemWord(word)
    return stem


def fingerprint() -> str:
    """SHA-256 (hex) of the name and of what the chain, with the libraries at hand, makes of a text of many scripts."""
    return hashlib.sha256("\n".join([NAME, *terms(_SAMPLE)]).encode()).hexdigest()


def terms(text: str) -> list[str]:
    """The index terms of a text, in order, repetitions kept.

    >>> terms("The U.S. directors' films, and Wajda's café")
    ['u.', 'director', 'film', 'wajda', 'café']
    """
    return [term for term in map(_term, _WORD.findall(text)) if term is not None]
