"""The data that episodes are made of: what was asked, what was generated, what was decided.

Everything here is plain data on numpy; nothing computes, nothing imports torch. Sizes used throughout: a prompt has
``p`` pieces, a continuation has ``n`` new ones, the captured layer has ``h`` heads, a draft has ``w`` words.
A *piece* is one tokenizer token.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

    from dragin_lab.core.labels import Labelled

#: How an episode can end. "running" is what a trace says while its episode is under way.
ENDINGS = ("running", "answered", "length", "stalled", "cancelled", "error")


@dataclass(frozen=True)
class Passage:
    """One retrievable text. ``score`` is the retriever's own (BM25: larger is better); NaN where nothing scored it."""

    id: str
    title: str
    text: str
    score: float = float("nan")


@dataclass(frozen=True)
class Question:
    """A question and its gold answers (any of them counts); ``golds`` is empty where nobody knows the answer."""

    id: str
    text: str
    golds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prompt:
    """A prompt's text with named spans, so that attention can be read back to its parts.

    ``spans`` maps ``"exemplars"``, ``"passages"``, ``"question"`` and ``"answer"`` (the answer so far) to half-open
    character ranges of ``text``; a part that is absent has no entry. ``notes`` says what was dropped to fit the
    context window, one line each. ``special`` says whether the tokenizer adds its own special tokens (BOS, ...) when
    the text is encoded; a chat template has written them into it.
    """

    text: str
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    special: bool = True

    def part(self, name: str) -> str:
        """The text of one named span; the empty string where the prompt has no such part."""
        start, stop = self.spans.get(name, (0, 0))
        return self.text[start:stop]


@dataclass
class Continuation:
    """What the model wrote behind one prompt, with everything captured while it wrote.

    Row ``r`` of ``attention`` is the query position ``p - 1 + r``: piece ``t`` was *predicted* by row ``t`` and looks
    back *itself* with row ``t + 1``. The last piece is fed once so that its row exists.
    """

    prompt_ids: np.ndarray  # (p,) int32
    prompt_offsets: np.ndarray  # (p, 2) int32, half-open character spans in the prompt's text; (0, 0) for specials
    ids: np.ndarray  # (n,) int32, with the closing EOS if there was one
    pieces: tuple[str, ...]  # n raw vocabulary strings ("▁film", "<0x0A>", "Ċ")
    text: str  # decoded, no special tokens
    raw_text: str  # decoded, with special tokens
    offsets: np.ndarray  # (n, 2) int32, half-open character spans in `text`
    entropy: np.ndarray  # (n,) float32, nats, of the raw next-token distribution each piece was drawn from (Eq. 1)
    logprob: np.ndarray  # (n,) float32, nats, of the piece under that raw distribution
    alternative_ids: np.ndarray  # (n, k) int32, the k likeliest pieces, best first
    alternative_probs: np.ndarray  # (n, k) float32
    received: np.ndarray  # (n,) float32, max over later pieces of the head-mean attention paid to it (Eq. 3); last: 0
    stopped: str = "length"  # "eos", "length", or the reason the draft's Stop gave
    entropy_processed: np.ndarray | None = None  # (n,) float32, nats, after the warpers; None under greedy decoding
    attention: np.ndarray | None = None  # (h, n + 1, p + n) float16, only when asked for
    alternative_pieces: tuple[tuple[str, ...], ...] = ()  # n tuples of k decoded strings, for people to read
    decided: int | None = None  # pieces made when the Stop was reached, where generation ran on behind it
    decided_by: str = ""  # the reason the Stop gave there
    received_decided: np.ndarray | None = None  # (decided,) float32, `received` as it would be had it ended there
    seconds: float = 0.0
    reused: int = 0  # prompt pieces that were not read again: all of them where the draft was `stored`
    stored: bool = False  # served from a store

    def __len__(self) -> int:
        return len(self.ids)

    def beginning(self, n: int) -> Continuation:
        """The first n pieces alone, with what was measured on them in the whole."""
        cut = {name: getattr(self, name)[:n] for name in _PER_PIECE if getattr(self, name) is not None}
        text = self.text[: int(self.offsets[n - 1, 1])] if n else ""
        attention = None if self.attention is None else self.attention[:, : n + 1, : len(self.prompt_ids) + n]
        return replace(self, **cut, text=text, raw_text=text, attention=attention)

    def as_decided(self) -> Continuation:
        """The same draft as it would be had it ended where its outcome was known; itself where it did."""
        n = self.decided
        if n is None or n == len(self):
            return self
        received = self.received[:n] if self.received_decided is None else self.received_decided
        return replace(self.beginning(n), received=received, decided=None, stopped=self.decided_by)


_PER_PIECE = (
    "ids",
    "pieces",
    "offsets",
    "entropy",
    "entropy_processed",
    "logprob",
    "received",
    "alternative_ids",
    "alternative_probs",
    "alternative_pieces",
)


@dataclass
class Words:
    """The words of a draft and what was measured on each; all arrays have one entry a word.

    NaN in ``attention``, ``entropy`` or ``score`` means that the method's trigger does not measure it.
    """

    text: tuple[str, ...] = ()
    spans: np.ndarray = field(
        default_factory=lambda: np.zeros((0, 2), np.int32)
    )  # (w, 2) int32, half-open piece ranges
    sentence: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))  # (w,) int32
    attention: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # (w,) float32
    entropy: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # (w,) float32, nats
    stop: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))  # (w,) bool, a word that may never be a hit
    score: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # (w,) float32, what is held against θ
    hit: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))  # (w,) bool, flagged as lacking information

    def __len__(self) -> int:
        return len(self.text)


@dataclass
class Decision:
    """Whether a draft called for a retrieval, why, and where it was cut."""

    retrieve: bool
    reason: str  # one line for people: "'Leshia' scores 2.69 > θ 1.2"
    cut: int | None = None  # character of draft.text where its kept part ends; None: all of it was kept
    piece: int | None = None  # the piece that fired, where one did
    sentence: int | None = None  # the sentence that fired, where one did
    certain: bool = True  # False: the draft ended before a longer one could have decided otherwise


@dataclass
class Query:
    """A search query and where it came from.

    ``words``, ``weights`` and ``chosen`` are the candidates in text order with the attention they received and
    whether they entered the query; empty for formulators that do not weigh words.
    """

    text: str  # as formulated
    sent: str  # as sent to the retriever (the released code keeps the last 64 pieces; see reference-behaviour §4)
    words: tuple[str, ...] = ()
    weights: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))  # (len(words),) float32
    chosen: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))  # (len(words),) bool
    note: str = ""  # what was chosen instead, where the formulator's usual input was missing


@dataclass
class Step:
    """One turn of the loop.

    A look-ahead method writes ``draft``, decides, and on a hit searches and writes ``continuation`` with the passages
    in view (reference variant) or goes on in the next step (paper variant). A method that searches first has no
    ``draft``: what it wrote is its ``continuation``.
    """

    index: int
    prompt: Prompt | None = None  # what the draft was written behind
    draft: Continuation | None = None
    words: Words = field(default_factory=Words)  # the words of `draft`
    decision: Decision | None = None
    query: Query | None = None
    passages: tuple[Passage, ...] = ()
    passages_prompt: Prompt | None = None  # what the continuation was written behind
    continuation: Continuation | None = None
    continuation_kept: int | None = None  # character of continuation.text where its kept part ends
    kept: str = ""  # text that this step added to the answer
    discarded: str = ""  # generated text that this step threw away
    answer: str = ""  # the whole answer text after this step
    notes: list[str] = field(default_factory=list)  # re-encoded ids, dropped passages, a window overrun
    seconds: dict[str, float] = field(default_factory=dict)  # by request kind: "draft", "attend", "search"


@dataclass
class Trace:
    """The record of one episode; valid at every moment of it."""

    question: Question
    method: dict[str, Any]  # name, variant, when, what and every setting
    steps: list[Step] = field(default_factory=list)
    text: str = ""  # the whole answer text
    answer: str = ""  # extracted from it (reference-behaviour §6)
    readable: bool = True  # whether there was an answer to extract (``answers.is_readable``)
    scores: dict[str, float] = field(default_factory=dict)  # em, f1, precision, recall, where there is a gold answer
    ended: str = "running"  # one of ENDINGS
    error: str = ""  # what went wrong, where it ended with "error"
    extraction: Continuation | None = None  # the extra pieces behind "So the answer is", where they were needed
    extraction_prompt: Prompt | None = None
    provenance: dict[str, Any] = field(default_factory=dict)  # model, weights hash, dtype, versions, retriever, seed
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    # -- counters -------------------------------------------------------------------------------------------------

    @property
    def continuations(self) -> list[Continuation]:
        """Everything the model wrote in this episode, in order."""
        made = [c for s in self.steps for c in (s.draft, s.continuation) if c is not None]
        return made if self.extraction is None else [*made, self.extraction]

    @property
    def retrievals_count(self) -> int:
        """How many times passages were fetched."""
        return sum(s.query is not None for s in self.steps)

    @property
    def queries(self) -> list[str]:
        """The queries as formulated, in order."""
        return [s.query.text for s in self.steps if s.query is not None]

    @property
    def counters(self) -> dict[str, int]:
        """retrievals, drafts, pieces generated (or served from a store), discarded, and prompt pieces reused."""
        made = self.continuations
        return {
            "retrievals": self.retrievals_count,
            "drafts": len(made),
            "generated": sum(len(c) for c in made),
            "discarded": sum(self._discarded_pieces(s) for s in self.steps),
            "reused": sum(c.reused for c in made),
        }

    @property
    def stored(self) -> dict[str, int]:
        """What a store served of all this: drafts, and pieces."""
        served = [c for c in self.continuations if c.stored]
        return {"drafts": len(served), "pieces": sum(len(c) for c in served)}

    @property
    def hit_rate(self) -> float:
        """Which part of all prompt pieces was not read again, 0 to 1; 0 before the first draft."""
        read = sum(len(c.prompt_ids) for c in self.continuations)
        return self.counters["reused"] / max(1, read)

    @staticmethod
    def _discarded_pieces(step: Step) -> int:
        """Pieces of a step's draft behind its cut and of its continuation behind what was kept."""
        cut = None if step.decision is None else step.decision.cut
        ends = ((step.draft, cut), (step.continuation, step.continuation_kept))
        return sum(int((c.offsets[:, 1] > end).sum()) for c, end in ends if c is not None and end is not None)

    # -- tables ---------------------------------------------------------------------------------------------------

    @property
    def tokens(self) -> pd.DataFrame:
        """One row a piece of every draft and continuation (pandas.DataFrame); see ``frames.token_table``."""
        from dragin_lab.core.frames import token_table

        return token_table(self)

    @property
    def retrievals(self) -> pd.DataFrame:
        """One row a retrieved passage: step, query, rank, id, title, text, score (pandas.DataFrame)."""
        from dragin_lab.core.frames import retrieval_table

        return retrieval_table(self)

    # -- files ----------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write the trace to one safetensors file (``core.tracefile``); the old file stays if writing fails."""
        from dragin_lab.core.tracefile import save_trace

        return save_trace(self, path)

    @staticmethod
    def load(path: str | Path) -> Trace:
        """Read a trace back; ``TraceFileError`` names what is wrong with a file that is not one."""
        from dragin_lab.core.tracefile import load_trace

        return load_trace(path)

    def diff(self, other: Trace, *, arrays: bool = False) -> str:
        """Where two traces differ, as lines of text; "" where they do not. ``arrays`` lists what no view shows too."""
        from dragin_lab.core.frames import trace_diff

        return trace_diff(self, other, arrays=arrays)

    # -- views ----------------------------------------------------------------------------------------------------

    def heatmap(self, *, max_pieces: int = 2000) -> Any:
        """Every piece with entropy, attention received, stop flag and score over θ; see ``views.heatmap``."""
        return _views().heatmap(self, max_pieces=max_pieces)

    def selections(self, *, gold: Labelled | Iterable[str] | None = None) -> Any:
        """What each query was made from, word by word, and what it found; see ``views.selections``."""
        return _views().selections(self, gold=gold)

    def timeline(self) -> Any:
        """Drafts, cuts, retrievals, what was kept and thrown away, and what it cost; see ``views.timeline``."""
        return _views().timeline(self)

    def attention_map(self, *, step: int | None = None, lm: Any = None, max_words: int = 80) -> Any:
        """Which words looked at which, per head and averaged (a plotly figure); see ``views.attention_map``."""
        return _views().attention_map(self, step=step, lm=lm, max_words=max_words)

    def __repr__(self) -> str:
        count = self.counters
        return (
            f"Trace({self.method.get('name', '?')}/{self.method.get('variant', '?')}, {self.question.text[:60]!r}, "
            f"answer={self.answer[:40]!r}, retrievals={count['retrievals']}, pieces={count['generated']}, {self.ended})"
        )

    def _repr_html_(self) -> str:
        return str(_views().trace_html(self))


def _views() -> Any:
    """The pictures of a trace, imported by name when one is asked for: the one import that goes up the rooms."""
    return import_module("dragin_lab.views")
