"""Sentences, stop words and content words, as a spaCy pipeline sees them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from dragin_lab.core.fingerprint import Node, describe
from dragin_lab.errors import SettingError
from dragin_lab.trace.draft import Span, count_spaces

BY_LINES = "; sentences are lines"  # in the name of a pipeline
#: Parts of speech that make a content word in the released code (reference-behaviour §2.6).
CONTENT_TAGS = frozenset({"NOUN", "ADJ", "VERB", "PROPN", "NUM"})
#: Abbreviations before a name that spaCy's tokenizer does not know.
_ABBREVIATIONS = "Brig Capt Cmdr Col Cpl Fr Ft Hon Lt Maj Pvt Sgt Sr al cf"
_IDEOGRAPHIC = "。！？｡"  # end a sentence without a space after them
#: What stands before the last mark of a sentence, the mark, and closing and opening marks after it.
_MARK = re.compile(rf"(.*)([.!?…{_IDEOGRAPHIC}])([^\w.!?…{_IDEOGRAPHIC}]*)$", re.DOTALL)
#: Before a point that ends no sentence: one digit alone, as in a list, an initial or several ("1",
#: "É", "a.k.a").
_UNENDED = re.compile(r"(?:^\W*\d|(?<![\w.'’])(?:[^\W\d_]\.)*[^\W\d_])$")
_OPENING = re.compile(r"(?<=\s)[^\w\s]+$")
_WHOLE_CHUNKS = re.compile(rf".*(?:\s|[{_IDEOGRAPHIC}]\w)", re.DOTALL)


@dataclass(frozen=True)
class Pipeline:
    """A spaCy pipeline, and the few questions that methods ask of it.

    Two pipelines are equal when their names are; the name states the components, so that a trace
    says what split it.
    """

    name: str
    nlp: Any = field(compare=False, repr=False)
    # whether it assigns parts of speech; without them content words are the non-stop-words
    tags: bool = False
    lines: bool = False  # whether its sentences are lines: the steps of a chain of thought
    built_in: bool = False

    @property
    def described(self) -> Node:
        """What its rules and weights are (``fingerprint.describe``); "" of a built-in one."""
        return "" if self.built_in else describe(self.nlp)

    def by_lines(self, lines: bool) -> Pipeline:
        """The same pipeline, whose sentences are lines or not."""
        return replace(self, name=self.name.removesuffix(BY_LINES) + BY_LINES * lines, lines=lines)

    def spans(self, text: str) -> list[Span]:
        """Half-open character spans of the sentences of ``text``, white space stripped, empty
        ones dropped.
        """
        if self.lines:
            return [match.span() for match in re.finditer(r"\S(?:[^\n]*\S)?", text)]
        spans = []
        for sentence in self.nlp(text).sents:
            raw = text[sentence.start_char : sentence.end_char]
            start = sentence.start_char + count_spaces(raw)
            if bare := raw.strip():
                spans.append((start, start + len(bare)))
        return spans

    def split(self, text: str) -> list[str]:
        """The sentences of ``text``, stripped, empty ones dropped (reference-behaviour §2.4)."""
        return [text[start:stop] for start, stop in self.spans(text)]

    def around(self, text: str, character: int) -> Span:
        """The sentence of ``text`` that holds the visible character at or after ``character``;
        half-open characters.
        """
        for start, stop in self.spans(text):
            if stop > character:
                return start, stop
        return min(character, len(text)), len(text)

    def complete(self, text: str) -> list[Span]:
        """Spans of the sentences at the start of ``text`` that no further text can change.

        spaCy's tokenizer works on white-space-delimited chunks and the sentencizer goes from left
        to right, so a sentence is settled once the next one has begun with a whole chunk. A
        pipeline with a parser settles nothing.
        """
        if self.lines:
            return self.spans(text[: text.rfind("\n") + 1])
        names = set(self.nlp.pipe_names)
        if "sentencizer" not in names or names & {"parser", "senter"}:
            return []
        chunks = _WHOLE_CHUNKS.match(text)
        if chunks is None or self.nlp.get_pipe("sentencizer").punct_chars.isdisjoint(chunks[0]):
            return []
        return self.spans(chunks[0])[:-1]

    @property
    def restarts(self) -> bool:
        """Whether the sentences after a settled one are the same where the text begins with
        them.
        """
        return self.lines or {"sentencizer", "abbreviations"}.issuperset(self.nlp.pipe_names)

    def content_words(self, text: str) -> list[str]:
        """Texts of the tokens that carry content: by part of speech, else all but stop words,
        punctuation and space.
        """
        doc = self.nlp(text)
        if self.tags:
            return [token.text for token in doc if token.pos_ in CONTENT_TAGS]
        return [
            token.text for token in doc if not (token.is_punct or token.is_space or token.is_stop)
        ]

    def require_entities(self) -> None:
        """Raise ``SettingError`` where no component finds named entities."""
        if {"ner", "entity_ruler", "span_ruler"}.isdisjoint(self.nlp.pipe_names):
            raise SettingError(f"{self.name!r} finds no entities; give nlp='en_core_web_sm'")

    def is_stop(self, word: str) -> bool:
        """Whether a word says nothing by itself (Eq. 4): each token is in spaCy's list or has no
        letter or digit.

        spaCy's list holds no punctuation; read literally, Eq. 4 would let a comma fire.
        """
        return _is_stop(word, self.nlp.tokenizer)


@lru_cache(maxsize=65536)
def _is_stop(word: str, tokenizer: Any) -> bool:
    return all(token.is_stop or not any(map(str.isalnum, token.text)) for token in tokenizer(word))


def load_pipeline(nlp: Any = None, *, released: bool = False) -> Pipeline:
    """The pipeline that methods use: ``nlp``, an installed one by its name, or the package's
    rule-based English one.

    What is installed decides nothing. The package's own ends no sentence at an abbreviation, unless
    it is for the ``released`` code. Raises ``SettingError`` for an ``nlp`` that is not installed or
    cannot find sentences.
    """
    if nlp is None:
        return _default_pipeline(released)
    if isinstance(nlp, str):
        return _named_pipeline(nlp)
    if isinstance(nlp, Pipeline):
        return nlp
    try:
        probe = nlp("One. Two.")
        list(probe.sents)
    except (TypeError, ValueError, AttributeError) as error:
        raise SettingError(
            f"nlp={nlp!r} finds no sentences ({error}); add nlp.add_pipe('sentencizer') or pass"
            " nlp=None"
        ) from error
    meta = f"{nlp.meta.get('lang', '?')}_{nlp.meta.get('name', 'pipeline')}"
    tagged = any(token.pos_ for token in probe)
    content = (
        "content words by part of speech" if tagged else "content words are the non-stop-words"
    )
    version = nlp.meta.get("version", "")
    components = ", ".join(nlp.pipe_names)
    return Pipeline(f"{meta} {version} [{components}]; {content}", nlp, tagged)


@lru_cache(maxsize=8)
def _named_pipeline(name: str) -> Pipeline:
    import spacy

    try:
        return load_pipeline(spacy.load(name))
    except (OSError, ValueError, ImportError) as error:
        why = " ".join(str(error).split())[:200]
        remedy = f"python -m spacy download {name}"
        raise SettingError(
            f"nlp={name!r} is no pipeline of spaCy here ({why}); run {remedy}"
        ) from None


@lru_cache(maxsize=2)
def _default_pipeline(released: bool) -> Pipeline:
    import spacy

    nlp: Any = spacy.blank("en")
    if released:
        nlp.add_pipe("sentencizer")
        return replace(load_pipeline(nlp), built_in=True)
    for name in _ABBREVIATIONS.split():
        nlp.tokenizer.add_special_case(f"{name}.", [{spacy.symbols.ORTH: f"{name}."}])
    infixes = [*nlp.Defaults.infixes, f"[{_IDEOGRAPHIC}]", f"(?<=[{_IDEOGRAPHIC}])[」』”’）】》]"]
    nlp.tokenizer.infix_finditer = spacy.util.compile_infix_regex(infixes).finditer
    # it would take an ideographic full stop for a part of an address
    nlp.tokenizer.url_match = None
    marks = [*spacy.pipeline.Sentencizer.default_punct_chars, "...", "…"]
    nlp.add_pipe("sentencizer", config={"punct_chars": marks})
    spacy.Language.component("abbreviations", func=_join_sentences)
    nlp.add_pipe("abbreviations")
    return replace(load_pipeline(nlp), built_in=True)


def _join_sentences(doc: Any) -> Any:
    """Take back the ends that the sentencizer sets where a mark ends no sentence, as Punkt and
    en_core_web_sm do.

    What stands before the mark and the first letter or digit after it decide, so the text that
    follows changes nothing. Quotes and brackets that open before a sentence become part of it.
    """
    begin = 0  # character
    for token in doc[1:]:
        if not token.is_sent_start:
            continue
        token.is_sent_start = False
        mark = _MARK.search(doc.text[begin : token.idx])
        if mark is None or not _goes_on(mark, token.text[0]):
            opening = _OPENING.search(mark[3] if mark else "")
            begin = token.idx - len(opening[0] if opening else "")
            next(t for t in doc if t.idx >= begin).is_sent_start = True
    return doc


def _goes_on(mark_match: re.Match[str], after: str) -> bool:
    """Whether a sentence goes on after a mark and those that close or open ``around`` it, with the
    character ``after``.

    It does before a small letter; after a point also before a digit, and after an initial or a
    digit alone.
    """
    before, mark, around = mark_match.groups()
    if mark not in ".!?…" or "\n" in around or after.isspace():
        return False
    if after.islower() or mark != ".":
        return after.islower()
    return (after.isdigit() and around.strip() in ("", "(")) or _UNENDED.search(before) is not None
