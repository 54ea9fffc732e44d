"""What the released code decides by and asks with, as settings: its rules of *when*, its formulations of *what*.

The names are those of the paper variant where the paper has the same idea (docs/reference-behaviour.md §2, §3, §5).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dragin_lab.core.clock import EveryN, EverySentence, Never, Once
from dragin_lab.core.episode import Episode, Tokenizer, attend
from dragin_lab.core.formulators import DEFAULT_TOP_N, choose_top
from dragin_lab.core.method import Method
from dragin_lab.core.scores import pool_words
from dragin_lab.core.sentences import Pipeline
from dragin_lab.core.settings import Part, Registry, Rule, setting
from dragin_lab.reference.measures import (
    drop_doubtful,
    merge_words,
    pay_words,
    pool_doubt,
    receive_attention,
    score_words,
)
from dragin_lab.text import write_compared
from dragin_lab.trace.trace import Draft, Query
from dragin_lab.trace.words import Word, contain_any

_CLOSED = (
    "variant='reference' runs the authors' released code, which has nothing but its own rules and queries; "
    "use variant='paper' for any other"
)
RULES: Registry[Rule] = Registry("when", Rule, closed=_CLOSED)
QUERY_TOKENS = 64  # a query is cut to its last tokens (reference-behaviour §4)


@dataclass(frozen=True, eq=False)
class ReleasedDraft:
    """A draft of n tokens as the released code cuts it: w words, sentences, and what each sentence owns."""

    continuation: Draft
    words: list[Word]
    sentences: list[str]
    ranges: list[tuple[int, int]]  # half-open, words of each sentence
    tokens: list[str]  # decoded one by one
    token_ranges: list[tuple[int, int]]  # half-open, tokens of each sentence

    @property
    def texts(self) -> tuple[str, ...]:
        """w texts."""
        return tuple(word.text for word in self.words)

    @property
    def spans(self) -> np.ndarray:
        """(w, 2) int32, half-open token ranges of the words."""
        return np.array([(word.start, word.stop) for word in self.words], dtype=np.int32).reshape(-1, 2)

    @property
    def sentence_of_word(self) -> np.ndarray:
        """(w,) int32, the number of each word's sentence; -1 for a word in none."""
        numbers = np.full(len(self.words), -1, np.int32)
        for number, (start, stop) in enumerate(self.ranges):
            numbers[start:stop] = number
        return numbers


@dataclass(frozen=True)
class Scores:
    """What a rule makes of a draft, sentence by sentence. m words in a sentence."""

    words: list[np.ndarray]  # per sentence (m,) float64
    peaks: list[float]  # per sentence, what is compared with θ
    attention: np.ndarray  # (w,) float64, NaN where it is not looked at
    entropy: np.ndarray  # (w,) float64, nats


# -- when -------------------------------------------------------------------------------------------------------------


for _clock in (Never, Once, EveryN, EverySentence):
    RULES.add(_clock)


@dataclass(frozen=True)
class Reader(Rule):
    """A rule that reads a whole draft and fires at a sentence."""

    rewrites_rest = False  # write all that follows again, not one sentence
    rereads = False  # whether it takes the attention of the generated ids by themselves

    @classmethod
    def judges_drafts(cls) -> bool:
        return True

    def read_attention(self, attention: np.ndarray, draft: ReleasedDraft) -> np.ndarray:
        """(w,) what each word receives in the attention (h, n, n) of the generated ids by themselves (§2.2)."""
        first = draft.continuation.pieces[0] if len(draft.continuation) else ""
        received = receive_attention(attention, first_is_eos=first == "</s>")  # (n,)
        return pool_words(received, draft.words, "sum")  # (w,)

    def score(self, draft: ReleasedDraft, attention: np.ndarray | None) -> Scores:
        """The scores of a whole draft; ``attention`` (w,) is there for a rule that ``rereads``."""
        raise NotImplementedError

    def find_spared(self, words: tuple[str, ...], sentence: str, pipeline: Pipeline) -> np.ndarray | None:
        """(m,) bool, words of the sentence that fired that do not count as hits; None where all may."""
        return None

    def explain(self, number: int, peak: float, word: str | None) -> str:
        """Why a sentence fires; sentences count from 0."""
        raise NotImplementedError


@RULES.add
@dataclass(frozen=True)
class Probability(Reader):
    """The mean, largest or smallest 1 - p over a sentence's tokens is above θ (FLARE)."""

    name, source, unit, rewrites_rest = "probability", "TokenRAG (reference-behaviour §5)", "sentence", True
    threshold: float = setting(0.1, label="1 − probability", top=1.0)
    sentence_solver: str = setting("avg", choices=("avg", "max", "min"), label="pooling over the sentence")

    def score(self, draft: ReleasedDraft, attention: np.ndarray | None) -> Scores:
        doubt = -np.expm1(draft.continuation.logprob.astype(np.float64))  # (n,)
        words = [pool_words(doubt, draft.words[a:b], "max") for a, b in draft.ranges]  # per sentence (m,)
        peaks = [pool_doubt(doubt[a:b], self.sentence_solver) for a, b in draft.token_ranges]
        unseen = np.full(len(draft.words), np.nan)  # (w,)
        return Scores(words, peaks, unseen, pool_words(draft.continuation.entropy, draft.words, "mean"))

    def explain(self, number: int, peak: float, word: str | None) -> str:
        shown, theta = write_compared(peak, self.threshold)
        return f"sentence {number + 1} has 1 - p of {shown} ({self.sentence_solver}), above θ {theta}"


@RULES.add
@dataclass(frozen=True)
class Rind(Reader):
    """A word's share of its sentence's attention x entropy x the sentence's length is above θ (DRAGIN)."""

    name, source, rereads = "rind", "AttnWeightRAG (reference-behaviour §2)", True
    threshold: float = setting(1.2, label="RIND score")  # Table 9, Llama2-7b-chat on 2WikiMultihopQA
    check_content_words: bool = setting(True, label="hits need content, once the decision is taken")

    def score(self, draft: ReleasedDraft, attention: np.ndarray | None) -> Scores:
        assert attention is not None
        processed = draft.continuation.entropy_processed
        values = draft.continuation.entropy if processed is None else processed  # (n,)
        entropy = pool_words(values, draft.words, "mean")  # (w,)
        words = score_words(attention, entropy, draft.ranges)  # per sentence (m,)
        return Scores(words, [float(scores.max(initial=-np.inf)) for scores in words], attention, entropy)

    def find_spared(self, words: tuple[str, ...], sentence: str, pipeline: Pipeline) -> np.ndarray | None:
        return ~contain_any(words, pipeline.content_words(sentence)) if self.check_content_words else None

    def explain(self, number: int, peak: float, word: str | None) -> str:
        shown, theta = write_compared(peak, self.threshold)
        return f"{word!r} in sentence {number + 1} scores {shown}, above θ {theta}"


# -- what -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ReleasedGap:
    """Where a draft lacks information, as the released code sees it. w words and m tokens in the sentence."""

    question: str
    answer: str  # the answer so far, with what is kept of the draft
    context: str  # question and answer
    sentence: str  # the sentence that lacks information
    words: tuple[str, ...]  # of the sentence
    hits: np.ndarray  # (w,) bool, the words that were flagged
    tokens: tuple[str, ...]  # of the sentence, decoded one by one
    doubt: np.ndarray  # (m,) float64, 1 - p of each token
    pipeline: Pipeline = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    before: str = ""  # what is read before the sentence, empty parts and all
    chunk: str | None = None  # what a method that searches by the clock wrote last
    doubt_limit: float | None = None  # θ, where the rule compares 1 - p with it
    note: str = ""  # what stands in for hits, where the rule gives none


@dataclass(frozen=True)
class Formulation(Part):
    """One of the released code's ways to make a query."""

    needs: ClassVar[frozenset[str]] = frozenset({"text"})
    reads_attention: ClassVar[bool] = False
    reads_hits: ClassVar[bool] = False

    function = staticmethod(lambda gap: gap.sentence)

    def text(self, gap: ReleasedGap) -> str:
        """The query for a gap, as a text."""
        return self.function(gap)

    def query(self, gap: ReleasedGap) -> Episode[Query]:
        """The query for a gap, as an episode: a formulation may ask for an attention map."""
        yield from ()
        text = self.text(gap)
        return Query(text, text, note=gap.note if self.reads_hits else "")


FORMULATIONS: Registry[Formulation] = Registry("what", Formulation, closed=_CLOSED)


@FORMULATIONS.define(Formulation, "question", source="direct", needs=frozenset())
def question(gap: ReleasedGap) -> str:
    """The question."""
    return gap.question


@FORMULATIONS.define(Formulation, "last-sentence", source="last_sentence")
def last_sentence(gap: ReleasedGap) -> str:
    """The last sentence of question, answer and kept sentences."""
    return gap.chunk if gap.chunk is not None else (gap.pipeline.split(gap.context) or [""])[-1]


@FORMULATIONS.define(Formulation, "full-context", source="forward_all")
def full_context(gap: ReleasedGap) -> str:
    """Question, answer and kept sentences."""
    return gap.context


@FORMULATIONS.define(Formulation, "current", source="current")
def current(gap: ReleasedGap) -> str:
    """The words of the sentence that fired."""
    return " ".join(gap.words) if gap.chunk is None else gap.sentence


@FORMULATIONS.define(Formulation, "current-without-hits", source="current_wo_wrong", reads_hits=True)
def current_without_hits(gap: ReleasedGap) -> str:
    """The words of the sentence that fired, those that were flagged left empty."""
    return " ".join("" if hit else word for word, hit in zip(gap.words, gap.hits, strict=True))


@FORMULATIONS.add
@dataclass(frozen=True)
class LastN(Formulation):
    """The last n tokens of question and answer, as raw vocabulary strings; or the whole chunk of a schedule."""

    name, source, shorthand = "last-n", "last_n_tokens", "top_n"
    top_n: int | None = setting(None, kind=int, label="tokens in the query", unit="tokens")

    def text(self, gap: ReleasedGap) -> str:
        if gap.chunk is not None and self.top_n is None:
            return gap.chunk
        n = self.top_n or DEFAULT_TOP_N
        tokens = gap.tokenizer.tokens(gap.tokenizer.encode(gap.context, special=False))
        return " ".join(tokens[-n:]) if len(tokens) > n else gap.context


@FORMULATIONS.add
@dataclass(frozen=True)
class ConfidentSentence(Formulation):
    """The sentence without its doubtful tokens (FLARE)."""

    name, source = "confident-sentence", "TokenRAG (reference-behaviour §5)"
    #: None: θ of a rule on 1 - p, else 0.1.
    doubt_limit: float | None = setting(
        None, kind=float, label="1 − probability above which a token is left out", top=1.0
    )

    def text(self, gap: ReleasedGap) -> str:
        usual = 0.1 if gap.doubt_limit is None else gap.doubt_limit
        limit = usual if self.doubt_limit is None else self.doubt_limit
        return drop_doubtful(gap.sentence, gap.tokens, gap.doubt, limit)


@FORMULATIONS.add
@dataclass(frozen=True)
class Qfs(Formulation):
    """The words that the flagged ones were predicted from (``real_words``, reference-behaviour §3)."""

    name, source, shorthand, reads_attention = "qfs", "real_words", "top_n", True
    top_n: int = setting(DEFAULT_TOP_N, label="words in the query", unit="words")

    def query(self, gap: ReleasedGap) -> Episode[Query]:
        text = gap.before + " ".join(gap.words)
        ids = gap.tokenizer.encode(text, special=True)
        words = merge_words(gap.tokenizer.tokens(ids), ids, gap.tokenizer.marker, eos=None)
        texts = [word.text for word in words]
        paid = pay_words((yield from attend(ids)), words)  # (w, w)
        first = len(words) - len(gap.words)
        flagged = [first + i for i in np.flatnonzero(gap.hits) if first + i >= 0]
        weights = paid[flagged].mean(axis=0) if flagged else np.full(len(words), np.nan)  # (w,)
        eligible = contain_any(texts, gap.pipeline.content_words(text))
        eligible[flagged] = False
        chosen = choose_top(weights, self.top_n, eligible)
        note = gap.note if flagged else "no flagged word is left, so text order ranks the words"
        shown = np.flatnonzero(eligible)
        return Query.of([texts[i] for i in shown], weights[shown], chosen[shown], note)


@dataclass(frozen=True)
class ReferenceMethod(Method):
    """A method of the released code."""

    fits_window: ClassVar[bool] = False

    @property
    def keeps_attention(self) -> bool:
        return False

    @property
    def reads_attention(self) -> bool:
        return self.formulator.reads_attention or getattr(self.trigger, "rereads", False)


#: The methods of the released code, and their class.
REFERENCE_METHODS: dict[str, type[ReferenceMethod]] = dict.fromkeys(
    ("wo-rag", "sr-rag", "fl-rag", "fs-rag", "flare", "dragin"), ReferenceMethod
)
