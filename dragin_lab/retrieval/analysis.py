"""From text to index terms, for passages and queries alike: tantivy's analysis for English, in
memory and on disk.

Texts that are equivalent (Unicode UAX 15, NFKC: full-width letters and digits, half-width kana,
ligatures) have the same terms, and so have texts that look the same: characters that carry no text
are left out. Each ideograph, each Hiragana and each run of
Katakana is a term (UAX 29, as in Elasticsearch's standard tokenizer). Other words are runs of
letters and digits with their marks, in Lucene's lower case, without its 33 stop words and the "'s"
of a possessive, stemmed by Snowball's English stemmer. The plural s of an acronym is removed
("MSCs"; the stemmer keeps it where a word has no vowel).
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from functools import cache

from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

from dragin_lab.text import fold_letters

#: Name of the analysis in fingerprints; change it whenever a text may give other terms.
NAME = "english-5"

#: What ``hash_analysis`` analyses: stems, possessives, joined words, numbers, other scripts, marks.
_SAMPLE = (
    "The U.S. directors' generalizations possibly sky, Wajda’s 1,000.5 re-elected O'Brien's e_mail"
    " dying technology café ΣΊΣΥΦΟΣ İstanbul Москвы שלום العربية 東京タワー ภาษาไทย 한국어 ﬁlm"
    " １９９０ ｱﾆﾒ naïve"
    " x86 H2O DNAs MSCs cafe\u0301 Galaxy S 北京の333メートル शक्ति Алекса́ндр Zu\u00adrich"
)
#: The apostrophes are those of Lucene's possessive filter.
_POSSESSIVES = re.compile(r"['’＇](?<=\w.)[sS]\b")
_ACRONYMS = re.compile(r"s\b(?<=[A-Z]{2}s)")
#: Han and Hiragana, one by one, and runs of Katakana.
_EAST_ASIAN = re.compile(
    "[\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]|[\u30a0-\u30ff\u31f0-\u31ff\uff66-\uff9f]+"
)
#: Spaces for what is no letter and no digit.
_ASCII = {code: " " for code in range(128) if not chr(code).isalnum()}

#: The analysis for ``prepare_text`` texts; words of more than 255 bytes, such as encoded pictures,
#: are left out.
ANALYZER = (
    TextAnalyzerBuilder(Tokenizer.whitespace())
    .filter(Filter.remove_long(256))
    .filter(Filter.lowercase())
    .filter(Filter.stopword("english"))
    .filter(Filter.stemmer("english"))
    .build()
)


@cache
def _list_words() -> re.Pattern[str]:
    """Letters and digits with their combining marks."""
    # All have codes below 0x1f000 but variation selectors, which carry no text.
    marks = {
        code for code in range(0x300, 0x1F000) if unicodedata.category(chr(code)).startswith("M")
    }
    firsts, lasts = (sorted(m for m in marks if m + beside not in marks) for beside in (-1, 1))
    runs = "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(firsts, lasts, strict=True))
    return re.compile(rf"[^\W_]+(?:[{runs}]+[^\W_]*)*")


def prepare_text(text: str) -> str:
    """The words of a text with spaces between them, without possessives and the plural of
    acronyms.
    """
    if not text.isascii():
        text = _EAST_ASIAN.sub(r" \g<0> ", fold_letters(text))
    text = _ACRONYMS.sub("", _POSSESSIVES.sub("", text))
    return text.translate(_ASCII) if text.isascii() else " ".join(_list_words().findall(text))


def list_terms(text: str) -> list[str]:
    """The index terms of a text, in order, with repetitions.

    >>> terms("The U.S. directors' films, and Wajda's café")
    ['u', 's', 'director', 'film', 'wajda', 'café']
    """
    return list(ANALYZER.analyze(prepare_text(text)))


@cache
def hash_analysis() -> str:
    """SHA-256 (hex) of the name and of the terms that the installed libraries give for a text in
    many scripts.
    """
    return hashlib.sha256("\n".join([NAME, *list_terms(_SAMPLE)]).encode()).hexdigest()
