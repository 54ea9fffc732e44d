"""In how many passages names stand together: the counts of ``episode.Count``, from the corpus that is searched."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from dragin_lab.retrieval import analysis
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.stored import Stored
from dragin_lab.trace.trace import Passage


def count_passages(corpus: Corpus, names: Sequence[Sequence[str]]) -> list[int]:
    """In how many passages all names of each tuple stand, each in the title or in the text.

    A name stands where its words do, side by side, in the same case, with any white space between them, and with no
    letter, digit or underscore next to either end: "Rosa Tal" does not stand in "Rosa Talquil", nor "1905" in "19051".
    Texts are compared in composed form, and an ideograph is a word (``analysis.separate_words``).

    Of a corpus in memory every passage is read; of a built one those that hold the index terms of all names, which its
    index finds.
    """
    return [sum(holds_names(passage, group) for passage in _find_candidates(corpus, group)) for group in names]


def _find_candidates(corpus: Corpus, names: Sequence[str]) -> Iterable[Passage]:
    if isinstance(corpus.passages, Stored):
        terms = dict.fromkeys(term for name in names for term in analysis.terms(name))
        return corpus.passages.holding(term for term in terms if term != "s")  # of a possessive it is not indexed
    return corpus.passages


def holds_names(passage: Passage, names: Sequence[str]) -> bool:
    """Whether every name stands in a passage's title or text."""
    return all(_stands(name, passage.title) or _stands(name, passage.text) for name in names)


def _stands(name: str, text: str) -> bool:
    text = analysis.separate_words(text)
    words = analysis.separate_words(name).split()
    return bool(words) and all(word in text for word in words) and _phrase(tuple(words)).search(text) is not None


@lru_cache(maxsize=4096)
def _phrase(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(r"(?<!\w)" + r"\s+".join(map(re.escape, words)) + r"(?!\w)")
