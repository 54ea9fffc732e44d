"""What an episode is made of: what was asked, what was generated, what was decided.

Everything here is plain data on numpy. Sizes are those of ``draft``; a *token* is one tokenizer
token.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import compress
from numbers import Integral, Real
from typing import Any

import numpy as np

from dragin_lab.checks import check_text, plain, shown
from dragin_lab.errors import SettingError
from dragin_lab.text import facts_html
from dragin_lab.trace.draft import FLAGS, FLOATS, INTS, SPANS, UNSAVED, Draft, Span

#: Half-open characters of a prompt, and the ids that the model wrote there, which are not encoded
#: again.
WrittenPart = tuple[int, int, tuple[int, ...]]


def _check_texts(record: Any, *names: str) -> None:
    """Raise ``SettingError`` where a field of a record is not a text; a whole number as id is
    written as one.
    """
    id = plain(record.id)
    if isinstance(id, Integral) and not isinstance(id, bool):
        object.__setattr__(record, "id", str(int(id)))
    for name in names:
        value = getattr(record, name)
        if not isinstance(value, str):
            raise SettingError(
                f"{name}={shown(value)} of a {type(record).__name__} is {type(value).__name__};"
                " give a text"
            )


@dataclass(frozen=True)
class Passage:
    """One retrievable text. ``score`` is the retriever's own (BM25: larger is better); NaN where
    nothing scored it.
    """

    id: str
    title: str
    text: str
    score: float = float("nan")

    def __post_init__(self) -> None:
        _check_texts(self, "id", "title", "text")
        object.__setattr__(self, "score", plain(self.score))
        if isinstance(self.score, bool) or not isinstance(self.score, Real):
            raise SettingError(
                f"score={shown(self.score)} of passage {self.id!r} is not a number; leave it out"
            )


@dataclass(frozen=True)
class Question:
    """A question and its gold answers (any of them counts); ``golds`` is empty where the answer
    is not known.
    """

    id: str
    text: str
    golds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_texts(self, "id", "text")
        golds = (self.golds,) if isinstance(self.golds, str) else self.golds
        if (
            isinstance(golds, Mapping | bytes)
            or hasattr(golds, "columns")
            or not isinstance(golds, Iterable)
        ):
            raise SettingError(
                f"golds={shown(golds)} of question {self.id!r}: give a text, or a list of texts"
            )
        object.__setattr__(self, "golds", tuple(golds))
        check_text("id", self.id)
        check_text("text", self.text)
        for gold in self.golds:
            check_text("gold", gold)


def hash_questions(questions: Iterable[Question]) -> str:
    """SHA-256 (hex) over ids, texts and gold answers; these in any order."""
    digest = sha256()
    for q in questions:
        digest.update(json.dumps([q.id, q.text, sorted(q.golds)]).encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Prompt:
    """A prompt's text with named spans, so that attention can be read back to its parts.

    ``spans`` maps ``"exemplars"``, ``"passages"``, ``"question"`` and ``"answer"`` (the answer so
    far) to half-open character ranges of ``text``; a part that is absent has no entry.
    """

    text: str
    spans: dict[str, Span] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what was dropped to fit the context window, one line each
    # whether the tokenizer adds BOS and the like; a chat template has written them into the text
    special: bool = True
    # how many "passages" and "exemplars" that were
    dropped: dict[str, int] = field(default_factory=dict)
    #: The parts of the answer that the model wrote.
    written: tuple[WrittenPart, ...] = field(default=(), repr=False, metadata=UNSAVED)

    @classmethod
    def join(cls, parts: Iterable[tuple[str, str]], **rest: Any) -> Prompt:
        """The prompt that (name, text) parts make; those without a name or a text have no span."""
        text = ""
        spans = {}
        for name, part in parts:
            if name and part:
                spans[name] = (len(text), len(text) + len(part))
            text += part
        return cls(text, spans, **rest)

    def part(self, name: str) -> str:
        """The text of one named span; the empty string where the prompt has no such part."""
        start, stop = self.spans.get(name, (0, 0))
        return self.text[start:stop]


@dataclass(repr=False)
class Words:
    """The words of a draft and what was measured on each; all arrays have one entry per word.

    NaN in ``attention``, ``entropy`` or ``score`` means that the method's trigger does not measure
    it.
    """

    text: tuple[str, ...] = ()
    spans: np.ndarray = field(default_factory=SPANS)  # (w, 2) int32, half-open token ranges
    sentence: np.ndarray = field(default_factory=INTS)  # (w,) int32
    attention: np.ndarray = field(default_factory=FLOATS)  # (w,) float32
    entropy: np.ndarray = field(default_factory=FLOATS)  # (w,) float32, nats
    stop: np.ndarray = field(default_factory=FLAGS)  # (w,) bool, a word that may never be a hit
    score: np.ndarray = field(default_factory=FLOATS)  # (w,) float32, what is compared with θ
    hit: np.ndarray = field(default_factory=FLAGS)  # (w,) bool, flagged as lacking information
    judged: np.ndarray = field(default_factory=FLAGS)  # (w,) bool, allowed to fire; (0,): all were

    def __len__(self) -> int:
        return len(self.text)

    def __repr__(self) -> str:
        hits = list(compress(self.text, self.hit))
        return f"Words({len(self)}, of which fire: {', '.join(map(repr, hits[:5])) or 'none'})"

    @property
    def unjudged(self) -> np.ndarray:
        """(w,) bool, the words that may not fire whatever they score, such as those of a
        sentence that is resumed.
        """
        return ~self.judged if len(self.judged) else np.zeros(len(self), bool)


@dataclass
class Decision:
    """Whether a draft called for a retrieval, why, and where it was cut."""

    retrieve: bool
    reason: str  # one line for people: "'Leshia' scores 2.69 > θ 1.2"
    # character of draft.text where its kept part ends; None: all of it was kept
    cut: int | None = None
    token: int | None = None  # the token that fired, where one did
    sentence: int | None = None  # the sentence that fired, where one did
    # what each sentence, or the draft, was compared with θ by, where words do not say
    peaks: tuple[float, ...] = ()
    certain: bool = True  # False: the draft ended before a longer one could have decided otherwise


@dataclass(repr=False)
class Query:
    """A search query and where it came from.

    ``words``, ``weights`` and ``chosen`` are the candidates in text order with the attention they
    received and whether they entered the query; empty for formulators that do not weigh words.
    """

    text: str  # as formulated
    # as sent to the retriever (the released code keeps the last 64 tokens; see reference-behaviour
    # §4)
    sent: str
    words: tuple[str, ...] = ()
    weights: np.ndarray = field(default_factory=FLOATS)  # (len(words),) float32
    chosen: np.ndarray = field(default_factory=FLAGS)  # (len(words),) bool
    note: str = ""  # what was chosen instead, where the formulator's usual input was missing

    def __repr__(self) -> str:
        chosen = int(self.chosen.sum())
        return f"Query({self.text!r}; {chosen} of {len(self.words)} candidates chosen)"

    def _repr_html_(self) -> str:
        chosen = " ".join(
            f"✓{word}" if yes else word for word, yes in zip(self.words, self.chosen, strict=True)
        )
        return facts_html(
            "Query", {"asked": self.text, "sent": self.sent, "words": chosen, "note": self.note}
        )

    @classmethod
    def of(
        cls, words: Sequence[str], weights: np.ndarray, chosen: np.ndarray, note: str = ""
    ) -> Query:
        """The query that the chosen words make; ``weights`` and ``chosen`` are (len(words),)."""
        text = " ".join(compress(words, chosen))
        return cls(text, text, tuple(words), weights.astype(np.float32), chosen, note)


@dataclass(repr=False)
class Step:
    """One turn of the loop.

    A look-ahead method writes ``draft``, decides, and on a hit searches and writes ``continuation``
    with the passages in view (reference variant) or goes on in the next step (paper variant). A
    method that searches first has no ``draft``: what it wrote is its ``continuation``.
    """

    index: int  # its position in ``Trace.steps``; people count steps from 1
    prompt: Prompt | None = None  # what the draft was written after
    draft: Draft | None = None
    words: Words = field(default_factory=Words)  # the words of `draft`
    decision: Decision | None = None
    query: Query | None = None
    passages: tuple[Passage, ...] = ()
    passages_prompt: Prompt | None = None  # what the continuation was written after
    continuation: Draft | None = None
    continuation_kept: int | None = None  # character of continuation.text where its kept part ends
    kept: str = ""  # text that this step added to the answer
    discarded: str = ""  # generated text that this step threw away
    answer: str = ""  # the whole answer text after this step
    # re-encoded ids, dropped passages, a window overrun
    notes: list[str] = field(default_factory=list)
    # by request kind: "draft", "attend", "search", "count"
    seconds: dict[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        why = "not decided" if self.decision is None else self.decision.reason
        return f"Step({self.index + 1}: {why}; kept {self.kept[:60]!r})"

    def _repr_html_(self) -> str:
        facts: dict[str, Any] = {name: text.text for name, text, _ in self.texts}
        facts["decision"] = self.decision and self.decision.reason
        facts["query"] = self.query and self.query.text
        facts["passages"] = " · ".join(passage.title or passage.id for passage in self.passages)
        facts["kept"] = self.kept
        return facts_html(f"Step {self.index + 1}", facts)

    def kept_end(self, source: str) -> int | None:
        """The character where the kept part of the "draft" or the "continuation" ends; None
        before the decision.
        """
        if source == "continuation":
            return self.continuation_kept
        if self.draft is None or self.decision is None:
            return None
        return len(self.draft.text) if self.decision.cut is None else self.decision.cut

    @property
    def texts(self) -> list[tuple[str, Draft, int | None]]:
        """What it wrote, in order: "draft" or "continuation", the text, and where its kept part
        ends.
        """
        both = (("draft", self.draft), ("continuation", self.continuation))
        return [(name, text, self.kept_end(name)) for name, text in both if text is not None]

    @property
    def discarded_tokens(self) -> int:
        """How many tokens it wrote after what was kept of its texts."""
        return sum(
            int((text.offsets[:, 1] > end).sum()) for _, text, end in self.texts if end is not None
        )


@dataclass(frozen=True)
class Parting:
    """Where a branch parts from the trace that it was made of, and by what.

    ``source`` is where the token stands: the step's "draft" or "continuation", or the trace's
    "extraction", which belongs to no step. ``before`` and ``after`` are what the two have there,
    for people: a token, a query, the ids of passages, a decision.
    """

    parent: str  # ``Trace.fingerprint`` of the trace
    kind: str  # what was replaced: a "token", a "query", "passages" or a "decision"
    step: int | None  # its position in ``Trace.steps``
    before: str
    after: str
    source: str = ""  # of a token
    # position of the token in its text; of a decision the token that was named
    token: int | None = None

    def __str__(self) -> str:
        """One line for people; steps and tokens count from 1, as in the views."""
        step = "answer" if self.step is None else f"step {self.step + 1}"
        place = "" if self.token is None else f", token {self.token + 1}"
        return f"{step}{place}: {self.kind} {self.before!r} → {self.after!r}"


@dataclass(frozen=True, eq=False)
class AttributedText:
    """What the k passages in view gave to the first n tokens of a text, those that were kept."""

    step: int | None  # its position in ``Trace.steps``; None of the extraction
    source: str  # "draft", "continuation" or "extraction"
    # k, as the prompt has them: the position of the step that found it, its rank
    passages: tuple[tuple[int, int], ...]
    with_all: np.ndarray  # (n,) float32, nats, log-probability with all of them in view
    without: np.ndarray  # (n,) float32, nats, with none
    nats: np.ndarray  # (n, k) float32, what each gave of the difference
    # (n, k) float32, paid where the token was written, the mean over heads; NaN: not measured
    attention: np.ndarray
    exact: bool = True  # Shapley values; False: the cost of leaving each out, which need not add up


@dataclass(frozen=True, eq=False)
class Attributed:
    """What retrievals gave to an episode (``study.attribution``), and the bounds of its marks."""

    trace: str  # ``Trace.fingerprint`` of the trace that it was computed for
    sure: float = 0.5  # probability without passages from which on a token counts as sure
    least: float = 1.0  # nats that passages have to give before it counts as theirs
    texts: tuple[AttributedText, ...] = ()
    # the position of a step, and F1 minus F1 had it found nothing
    effects: tuple[tuple[int, float], ...] = ()
    # ids or titles of the passages that the question needs, where they are labelled
    gold: tuple[str, ...] = ()


@dataclass(frozen=True)
class OtherWay:
    """How an episode would have ended, had one decision been the other one."""

    step: int  # the decision's position in ``Trace.steps``
    retrieves: bool  # whether this one retrieves there
    text: str
    answer: str
    scores: dict[str, float]  # as of a trace
    tokens: int  # that were generated in all of it


# -- the probe of a model --------------------------------------------------------------------------


def probe_distance(one: Any, other: Any) -> float:
    """The largest difference of two probes (``engines.identity``), in nats; infinite where they
    are not of one kind.
    """
    a = np.asarray(one, np.float64)
    b = np.asarray(other, np.float64)
    return float(np.abs(a - b).max(initial=0.0)) if a.shape == b.shape else float("inf")


def probe_tolerance(dtype: str) -> float:
    """Nats within which the probes of two processes or machines are of one model, by the name of
    its dtype.
    """
    return 5e-2 if dtype.removeprefix("torch.") in ("float16", "bfloat16") else 1e-3
