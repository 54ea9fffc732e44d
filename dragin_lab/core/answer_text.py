"""The answer so far: its parts, who wrote each, and the ids that the model wrote them as (paper
variant).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dragin_lab.core.answers import hide, opened_thought
from dragin_lab.core.episode import Tokenizer, lead
from dragin_lab.trace.trace import Draft, Prompt

#: U+FFFD, which a decoder writes for bytes that are no complete character.
BROKEN = "\ufffd"


@dataclass
class _Part:
    text: str
    author: str  # "model", "passage" or "prompt"
    ids: tuple[int, ...] = ()  # of what the model wrote, so that it is never encoded again


class AnswerText:
    """The answer so far, as parts by the model, by passages that were put in, and by the prompt.

    Half a character stays ids until the model has written the rest of it. A token that a cut runs
    through is kept as text, and encoded again by itself.
    """

    def __init__(self, tokenizer: Tokenizer, text: str = "") -> None:
        self._tokenizer = tokenizer
        self._parts = [_Part(text, "model")] if text else []

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(part.text for part in self._parts)

    @property
    def seen(self) -> str:
        """The same, as long, with only what the model wrote: in nothing else is an end, a
        thought or a call.
        """
        return "".join(
            part.text if part.author == "model" else hide(part.text, [(0, len(part.text))])
            for part in self._parts
        )

    def mute(self, marks: tuple[str, ...]) -> str:
        """All of it, without such marks in what the model did not write."""
        texts = []
        for part in self._parts:
            text = part.text
            for mark in marks if part.author != "model" else ():
                text = text.replace(mark, "")
            texts.append(text)
        return "".join(texts)

    def add(self, draft: Draft, end: int) -> None:
        """Add the first ``end`` characters of a draft."""
        n = int((draft.offsets[:, 1] <= end).cumprod().sum()) if end else 0  # tokens that are whole
        ids = draft.ids[:n].tolist()
        while (
            ids
            and not self._tokenizer.decode(ids[-1:], special=False)
            and not _adds(draft, len(ids) - 1)
        ):
            ids.pop()  # an end mark
        if ids:
            if not (self._parts and self._parts[-1].ids):
                self._parts.append(_Part("", "model"))
            part = self._parts[-1]
            part.ids += tuple(ids)
            part.text = self._decode(part.ids)
        reached = int(draft.offsets[n - 1, 1]) if n else 0
        if draft.text[reached:end]:
            space = "" if ids else lead(self._tokenizer, draft)
            self._parts.append(_Part(space + draft.text[reached:end], "model"))

    def insert(self, text: str, author: str) -> None:
        """Add what the model did not write."""
        if text:
            self._parts.append(_Part(text, author))

    def written(self, stop: int) -> list[tuple[int, int, tuple[int, ...]]]:
        """The parts with ids before the character ``stop``: half-open characters, and the ids."""
        found, place = [], 0
        for part in self._parts:
            ids, text = part.ids, part.text
            while ids and place + len(text) > stop:
                ids = ids[:-1]
                text = self._decode(ids) if ids else ""
            if ids:
                found.append((place, place + len(text), ids))
            place += len(part.text)
        return found

    def _decode(self, ids: tuple[int, ...]) -> str:
        text = self._tokenizer.decode(ids, special=False)
        first = self._tokenizer.tokens(ids[:1])[0]
        opens = (
            bool(self._tokenizer.marker)
            and first.startswith(self._tokenizer.marker)
            and not text.startswith(" ")
        )
        return (" " * opens + text).rstrip(BROKEN)


def _adds(draft: Draft, token: int) -> bool:
    """Whether a token has characters of the text."""
    return bool(draft.offsets[token, 1] > draft.offsets[token, 0])


# -- the answer in a prompt ------------------------------------------------------------------------


def attach_written(
    prompt: Prompt, tail: str, parts: Sequence[tuple[int, int, tuple[int, ...]]]
) -> Prompt:
    """The prompt, which ends with ``tail``, with the ids of those parts of it that the model wrote.

    White space that a chat layout leaves out at the beginning of ``tail`` belongs to the first of
    them.
    """
    start, stop = prompt.spans.get("answer", (0, 0))
    shift = stop - len(tail)
    own = tuple((max(a + shift, start), b + shift, ids) for a, b, ids in parts if start < b + shift)
    return replace(prompt, written=own)


def list_gaps(
    written: Sequence[tuple[int, int, tuple[int, ...]]], stop: int
) -> list[tuple[int, int]]:
    """The characters after the first part that the model wrote, up to ``stop``, that are in
    none.
    """
    ends, starts = [b for _, b, _ in written], [a for a, _, _ in written[1:]]
    return [(a, b) for a, b in zip(ends, [*starts, stop][: len(ends)], strict=True) if a < b]


def open_prompt(prompt: Prompt) -> str:
    """The mark of a thought that a prompt opens where the answer begins; "" where it opens none."""
    return opened_thought(prompt.text[: prompt.spans.get("answer", (len(prompt.text),))[0]])
