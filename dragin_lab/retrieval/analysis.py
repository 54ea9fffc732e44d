"""From text to index terms, for passages and queries alike: tantivy's analysis for English, in memory and on disk.

The plural s of an acronym is removed ("MSCs"; Snowball's stemmer keeps it where a word has no vowel). Words are runs of
letters and digits in lower case, without Lucene's 33 stop words and the "s" of a possessive, stemmed by Snowball's
English stemmer.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Any

from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

#: Name of the analysis in fingerprints; change it whenever a text may give other terms.
NAME = "english-2"

_POSSESSIVE = "s"
_LONGEST = 255  # bytes of a word; longer ones, such as encoded pictures, are left out
#: What ``fingerprint`` analyses: stems, possessives, joined words, numbers, other scripts.
_SAMPLE = (
    "The U.S. directors' generalizations possibly sky, Wajda’s 1,000.5 re-elected O'Brien's e_mail dying technology "
    "café ΣΊΣΥΦΟΣ İstanbul Москвы שלום العربية 東京タワー ภาษาไทย 한국어 ﬁlm naïve x86 H2O DNAs MSCs"
)
_ACRONYMS = re.compile(r"s\b(?<=[A-Z]{2}s)")


def prepare_text(text: str) -> str:
    """A text without the plural s of acronyms, as ``build_analyzer`` needs it."""
    return _ACRONYMS.sub("", text)


def build_analyzer() -> Any:
    """The analysis as a ``tantivy.TextAnalyzer``, for ``prepare_text`` texts."""
    chain = TextAnalyzerBuilder(Tokenizer.simple()).filter(Filter.remove_long(_LONGEST + 1))
    chain = chain.filter(Filter.lowercase()).filter(Filter.stopword("english"))
    return chain.filter(Filter.custom_stopword([_POSSESSIVE])).filter(Filter.stemmer("english")).build()


_ANALYZER = build_analyzer()


def terms(text: str) -> list[str]:
    """The index terms of a text, in order, with repetitions.

    >>> terms("The U.S. directors' films, and Wajda's café")
    ['u', 'director', 'film', 'wajda', 'café']
    """
    index_terms: list[str] = _ANALYZER.analyze(prepare_text(text))
    return index_terms


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """SHA-256 (hex) of the name and of the terms that the installed libraries give for a text in many scripts."""
    return hashlib.sha256("\n".join([NAME, *terms(_SAMPLE)]).encode()).hexdigest()
