"""What an episode is made of: what was asked, what was generated, what was decided.

Everything here is plain data on numpy; nothing imports torch. Sizes used throughout: a prompt has
``p`` tokens, a continuation has ``n`` new ones, the captured layer has ``h`` heads, a draft has ``w`` words.
A *token* is one tokenizer token.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from numbers import Integral, Real
from typing import Any

import numpy as np

from dragin_lab.checks import shown
from dragin_lab.checks import text as as_text
from dragin_lab.errors import SettingError


def _check_texts(record: Any, *names: str) -> None:
    """Raise ``SettingError`` where a field of a record is not a text; a whole number as id is written as one."""
    if isinstance(record.id, Integral) and not isinstance(record.id, bool):
        object.__setattr__(record, "id", str(int(record.id)))
    for name in names:
        value = getattr(record, name)
        if not isinstance(value, str):
            raise SettingError(
                f"{name}={shown(value)} of a {type(record).__name__} is {type(value).__name__}; give a text"
            )


@dataclass(frozen=True)
class Passage:
    """One retrievable text. ``score`` is the retriever's own (BM25: larger is better); NaN where nothing scored it."""

    id: str
    title: str
    text: str
    score: float = float("nan")

    def __post_init__(self) -> None:
        _check_texts(self, "id", "title", "text")
        if isinstance(self.score, bool) or not isinstance(self.score, Real):
            raise SettingError(f"score={shown(self.score)} of passage {self.id!r} is not a number; leave it out")


@dataclass(frozen=True)
class Question:
    """A question and its gold answers (any of them counts); ``golds`` is empty where the answer is not known."""

    id: str
    text: str
    golds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_texts(self, "id", "text")
        golds = (self.golds,) if isinstance(self.golds, str) else self.golds
        if isinstance(golds, Mapping | bytes) or hasattr(golds, "columns") or not isinstance(golds, Iterable):
            raise SettingError(f"golds={shown(golds)} of question {self.id!r}: give a text, or a list of texts")
        object.__setattr__(self, "golds", tuple(golds))
        for name, value in (("id", self.id), ("text", self.text), *(("gold", gold) for gold in self.golds)):
            as_text(name, value)


def fingerprint(questions: Iterable[Question]) -> str:
    """SHA-256 (hex) over ids, texts and gold answers, in order."""
    digest = sha256()
    for q in questions:
        digest.update(json.dumps([q.id, q.text, q.golds]).encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Prompt:
    """A prompt's text with named spans, so that attention can be read back to its parts.

    ``spans`` maps ``"exemplars"``, ``"passages"``, ``"question"`` and ``"answer"`` (the answer so far) to half-open
    character ranges of ``text``; a part that is absent has no entry. ``notes`` says what was dropped to fit the
    context window, one line each. ``special`` says whether the tokenizer adds its own special tokens (BOS, ...) when
    the text is encoded; a chat template has written them into it. ``dropped`` counts the passages and the exemplars
    that were left out to fit the context window.
    """

    text: str
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    special: bool = True
    dropped: dict[str, int] = field(default_factory=dict)

    @classmethod
    def join(cls, parts: Iterable[tuple[str, str]], **rest: Any) -> Prompt:
        """The prompt that (name, text) parts make; those without a name or a text have no span."""
        text, spans = "", {}
        for name, part in parts:
            if name and part:
                spans[name] = (len(text), len(text) + len(part))
            text += part
        return cls(text, spans, **rest)

    def part(self, name: str) -> str:
        """The text of one named span; the empty string where the prompt has no such part."""
        start, stop = self.spans.get(name, (0, 0))
        return self.text[start:stop]


@dataclass
class Continuation:
    """What the model wrote after one prompt, with everything captured while it wrote.

    Row ``r`` of ``attention`` is the query position ``p - 1 + r``: token ``t`` was *predicted* by row ``t`` and looks
    back *itself* with row ``t + 1``. The last token is fed once so that its row exists.
    """

    prompt_ids: np.ndarray  # (p,) int32
    prompt_offsets: np.ndarray  # (p, 2) int32, half-open character spans in the prompt's text; (0, 0) for specials
    ids: np.ndarray  # (n,) int32, with the closing EOS if there was one
    tokens: tuple[str, ...]  # n raw vocabulary strings ("▁film", "<0x0A>", "Ċ")
    text: str  # decoded, no special tokens
    raw_text: str  # decoded, with special tokens
    offsets: np.ndarray  # (n, 2) int32, half-open character spans in `text`
    entropy: np.ndarray  # (n,) float32, nats, of the raw next-token distribution each token was drawn from (Eq. 1)
    logprob: np.ndarray  # (n,) float32, nats, of the token under that raw distribution
    alternative_ids: np.ndarray  # (n, k) int32, the k likeliest tokens, best first
    alternative_probs: np.ndarray  # (n, k) float32
    received: np.ndarray  # (n,) float32, max over later tokens of the head-mean attention paid to it (Eq. 3); last: 0
    stopped: str = "length"  # "eos", "length", or the reason the draft's Stop gave
    entropy_processed: np.ndarray | None = None  # (n,) float32, nats, after the warpers; None under greedy decoding
    attention: np.ndarray | None = None  # (h, n + 1, p + n) float16, only when asked for
    #: (n (n + 1) / 2,) float32, only when asked for: what the tokens pay to one another, the mean over the heads, row
    #: after row of the lower triangle; the row of token t has t + 1 entries, the last for itself.
    among: np.ndarray | None = None
    hidden: np.ndarray | None = None  # (n, d) float32, the state each token was drawn from, only when asked for
    alternative_tokens: tuple[tuple[str, ...], ...] = ()  # n tuples of k decoded strings, for people to read
    seconds: float = 0.0
    reused: int = 0  # prompt tokens that were not read again: all of them where the draft was `stored`
    stored: bool = False  # served from a store
    cut: str = ""  # text written after ``text`` and cut off: the beginning of another example (``prompts.until``)
    cut_tokens: int = 0  # how many tokens that took; none of them is among ``ids``
    # Of a model behind a server, which says bounds of entropy; `entropy` is the middle:
    entropy_width: np.ndarray | None = None  # (n,) float32, nats from bound to bound, 0 where it is exact
    asked_again: int = 0  # tokens whose distribution was asked for again, as a decision depended on it

    def __len__(self) -> int:
        return len(self.ids)

    def beginning(self, n: int) -> Continuation:
        """The first n tokens alone, with what was measured on them in the whole."""
        cut = {name: getattr(self, name)[:n] for name in _PER_TOKEN if getattr(self, name) is not None}
        text = self.text[: int(self.offsets[n - 1, 1])] if n else ""
        rows = slice(None), slice(n + 1), slice(len(self.prompt_ids) + n)
        return replace(
            self,
            **cut,
            text=text,
            raw_text=text,
            attention=None if self.attention is None else self.attention[rows],
            among=None if self.among is None else self.among[: n * (n + 1) // 2],
        )

    @property
    def closed(self) -> bool:
        """Whether the model ended its text: by an end mark, or by beginning another example."""
        return self.stopped in ("eos", "example")

    def before(self, end: int) -> Continuation:
        """The same without what follows the character ``end``, where the model began another example."""
        n = int((self.offsets[:, 0] < end).sum())
        cut = self.text[end:]
        kept = replace(self.beginning(n), text=self.text[:end], raw_text=self.text[:end], stopped="example")
        if kept.among is not None:  # what was cut off paid attention too
            rows = np.zeros((n + 1, n), np.float32)  # row r is token r - 1 looking back
            rows[np.tril_indices(n + 1, -1, n)] = kept.among
            kept = replace(kept, received=np.tril(rows, -2).max(axis=0, initial=0.0))
        return replace(kept, offsets=kept.offsets.clip(max=end), cut=cut, cut_tokens=len(self) - n)


_PER_TOKEN = (
    "ids", "tokens", "offsets", "entropy", "entropy_width", "entropy_processed", "logprob", "received", "hidden",
    "alternative_ids", "alternative_probs", "alternative_tokens",
)  # fmt: skip


@dataclass
class Words:
    """The words of a draft and what was measured on each; all arrays have one entry per word.

    NaN in ``attention``, ``entropy`` or ``score`` means that the method's trigger does not measure it.
    """

    text: tuple[str, ...] = ()
    spans: np.ndarray = field(
        default_factory=lambda: np.zeros((0, 2), np.int32)
    )  # (w, 2) int32, half-open token ranges
    sentence: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))  # (w,) int32
    attention: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # (w,) float32
    entropy: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # (w,) float32, nats
    stop: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))  # (w,) bool, a word that may never be a hit
    score: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # (w,) float32, what is compared with θ
    hit: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))  # (w,) bool, flagged as lacking information
    judged: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))  # (w,) bool, allowed to fire; (0,): all were

    def __len__(self) -> int:
        return len(self.text)

    @property
    def unjudged(self) -> np.ndarray:
        """(w,) bool, the words that may not fire whatever they score, such as those of a sentence that is resumed."""
        unjudged: np.ndarray = ~self.judged if len(self.judged) else np.zeros(len(self), bool)
        return unjudged


@dataclass
class Decision:
    """Whether a draft called for a retrieval, why, and where it was cut."""

    retrieve: bool
    reason: str  # one line for people: "'Leshia' scores 2.69 > θ 1.2"
    cut: int | None = None  # character of draft.text where its kept part ends; None: all of it was kept
    token: int | None = None  # the token that fired, where one did
    sentence: int | None = None  # the sentence that fired, where one did
    peaks: tuple[float, ...] = ()  # what each sentence, or the draft, was compared with θ by, where words do not say
    certain: bool = True  # False: the draft ended before a longer one could have decided otherwise


@dataclass
class Query:
    """A search query and where it came from.

    ``words``, ``weights`` and ``chosen`` are the candidates in text order with the attention they received and
    whether they entered the query; empty for formulators that do not weigh words.
    """

    text: str  # as formulated
    sent: str  # as sent to the retriever (the released code keeps the last 64 tokens; see reference-behaviour §4)
    words: tuple[str, ...] = ()
    weights: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # (len(words),) float32
    chosen: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))  # (len(words),) bool
    note: str = ""  # what was chosen instead, where the formulator's usual input was missing

    @classmethod
    def of(cls, words: Sequence[str], weights: np.ndarray, chosen: np.ndarray, note: str = "") -> Query:
        """The query that the chosen words make; ``weights`` and ``chosen`` are (len(words),)."""
        text = " ".join(word for word, yes in zip(words, chosen, strict=True) if yes)
        return cls(text, text, tuple(words), weights.astype(np.float32), chosen, note)


@dataclass
class Step:
    """One turn of the loop.

    A look-ahead method writes ``draft``, decides, and on a hit searches and writes ``continuation`` with the passages
    in view (reference variant) or goes on in the next step (paper variant). A method that searches first has no
    ``draft``: what it wrote is its ``continuation``.
    """

    index: int  # its position in ``Trace.steps``; people count steps from 1
    prompt: Prompt | None = None  # what the draft was written after
    draft: Continuation | None = None
    words: Words = field(default_factory=Words)  # the words of `draft`
    decision: Decision | None = None
    query: Query | None = None
    passages: tuple[Passage, ...] = ()
    passages_prompt: Prompt | None = None  # what the continuation was written after
    continuation: Continuation | None = None
    continuation_kept: int | None = None  # character of continuation.text where its kept part ends
    kept: str = ""  # text that this step added to the answer
    discarded: str = ""  # generated text that this step threw away
    answer: str = ""  # the whole answer text after this step
    notes: list[str] = field(default_factory=list)  # re-encoded ids, dropped passages, a window overrun
    seconds: dict[str, float] = field(default_factory=dict)  # by request kind: "draft", "attend", "search", "count"

    @property
    def draft_kept(self) -> int | None:
        """The character of draft.text where its kept part ends; None while nothing is decided."""
        if self.draft is None or self.decision is None:
            return None
        return len(self.draft.text) if self.decision.cut is None else self.decision.cut


@dataclass(frozen=True)
class Parting:
    """Where a branch parts from the trace that it was made of, and by what.

    ``source`` is where the token stands: the step's "draft" or "continuation", or the trace's "extraction", which
    belongs to no step. ``before`` and ``after`` are what the two have there, for people: a token, a query, the ids of
    passages, a decision.
    """

    parent: str  # ``Trace.fingerprint`` of the trace
    kind: str  # what was replaced: a "token", a "query", "passages" or a "decision"
    step: int | None  # its position in ``Trace.steps``
    before: str
    after: str
    source: str = ""  # of a token
    token: int | None = None  # position of the token in its text; of a decision the token that was named

    def __str__(self) -> str:
        """One line for people; steps and tokens count from 1, as in the views."""
        step = "answer" if self.step is None else f"step {self.step + 1}"
        place = "" if self.token is None else f", token {self.token + 1}"
        return f"{step}{place}: {self.kind} {self.before!r} → {self.after!r}"
