"""Episodes: generators that ask for drafts, attention maps and searches, and are sent the answers.

An episode does no I/O: ``draft = yield Write(...)`` waits until a driver has served the request. So one method runs
one question at a time, many side by side in one batch or on a cluster, and is tested with scripted answers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from dragin_lab.trace.trace import Draft, Passage, Prompt

T = TypeVar("T")


@dataclass(frozen=True)
class Stop:
    """Ends a draft before its length limit, by its tokens so far alone; this one leaves it to its end.

    Others are frozen dataclasses too: data that can be compared, hashed and replayed on stored text. A driver asks
    after every token, in order. ``measured`` says whether it looks at more of a draft than its ids and its text.
    """

    measured = False

    def reached(self, draft: Draft) -> str | None:
        """The reason to stop here, or None to go on."""
        return None


@dataclass(frozen=True)
class Bias:
    """Added to the logits of the tokens that ``opening`` may begin with, after a space or not; -inf forbids them.

    It holds for the tokens ``first <= t < stop`` of a draft; ``stop=None``: to its end. What is measured on the tokens
    (entropy, log-probability, alternatives) stays that of the raw logits.
    """

    opening: str
    value: float
    first: int = 0
    stop: int | None = None


@dataclass(frozen=True)
class Write:
    """Ask the model to go on after a prompt; answered with a ``Draft``."""

    kind = "draft"  # what its seconds are recorded as
    prompt: Prompt
    max_new_tokens: int
    stop: Stop = Stop()
    attention: bool = False  # keep ``Draft.rows``
    among: bool = False  # keep ``Draft.among``
    hidden: int | str | None = None  # the layer whose hidden states are kept, "last" or an index
    bias: tuple[Bias, ...] = ()
    prefix: tuple[int, ...] = ()  # the ids that the draft begins with, whatever the model would have chosen


@dataclass(frozen=True)
class Attend:
    """Ask for the attention map of some ids by themselves; answered with an array (h, n, n) float32."""

    kind = "attend"
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Search:
    """Ask for the k best passages; answered with a list of at most k ``Passage``."""

    kind = "search"
    query: str
    k: int


Request = Write | Attend | Search
Episode = Generator[Request, Any, T]


class Tokenizer(Protocol):
    """The part of a tokenizer that methods need."""

    #: The string that marks a space at the start of a token ("▁" or "Ġ"), or "" where the vocabulary has none.
    marker: str

    @property
    def end_marks(self) -> tuple[str, ...]:
        """The marks that end a text of the model ("</s>", "<|im_end|>"), the longest first."""
        ...

    @property
    def chats(self) -> bool:
        """Whether there is a chat template."""
        ...

    def encode(self, text: str, special: bool) -> list[int]:
        """Ids of a text, with the special tokens the tokenizer itself adds (BOS, ...) or without any."""
        ...

    def decode(self, ids: Sequence[int], special: bool) -> str:
        """Text of ids, with special tokens written out or skipped."""
        ...

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Raw vocabulary strings."""
        ...

    def chat(self, turns: Sequence[tuple[str, str]]) -> str:
        """(role, text) turns as the chat template writes them, up to where the assistant begins to speak.

        Raises ``SettingError`` where there is none or where it refuses the turns.
        """
        ...


class Retriever(Protocol):
    """Anything that finds passages for a query; ``Lab`` takes one, or a plain function of the same two arguments.

    A custom retriever may answer with texts, (title, text) pairs or dictionaries too. It may
    have ``search_many(queries, k)``, which answers several queries at once, and ``provenance()``, a dictionary of plain
    data by which a run directory knows it again. Without the latter it is known by its answers to a few fixed queries.
    """

    def search(self, query: str, k: int) -> list[Passage]:
        """At most k passages, best first; their ids differ. An exception ends this question, not the run."""
        ...
