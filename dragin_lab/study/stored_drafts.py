"""Stored drafts read again: what a trace tells of its tokenizer, and where a draft would have ended otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dragin_lab.core.draft import Draft
from dragin_lab.core.episode import SoFar, Stop, Tokenizer
from dragin_lab.core.method import Method
from dragin_lab.core.stops import Watch
from dragin_lab.core.trigger import Trigger
from dragin_lab.errors import DraginLabError
from dragin_lab.trace.trace import Continuation, Step, Trace

#: What opens a token after a space in the vocabularies that there are (SentencePiece, byte-level BPE).
MARKERS = ("▁", "Ġ")


class NotStoredError(DraginLabError):
    """Something that a trace does not hold, so that only the model or its tokenizer can tell."""


class StoredTokenizer:
    """``episode.Tokenizer`` as far as a trace tells: the tokens it generated and the alternatives it saw.

    It decodes single tokens; it cannot encode, and raises ``NotStoredError`` for what it does not know.
    """

    chats, end_marks = False, ()

    def __init__(self, trace: Trace) -> None:
        self._tokens: dict[int, str] = {}
        self._shown: dict[int, str] = {}
        made = [c for c in trace.continuations if len(c)]
        for c in made:
            self._tokens.update(zip(c.ids.tolist(), c.tokens, strict=True))
            for (a, b), token in zip(c.offsets.tolist(), c.ids.tolist(), strict=True):
                if a or token not in self._shown:  # a text's first token may have lost its space
                    self._shown[token] = c.text[a:b]
        for c in made:  # what the tokenizer itself said goes before what the text shows
            for ids, names in zip(c.alternative_ids.tolist(), c.alternative_tokens, strict=False):
                self._shown.update(zip(ids, names, strict=False))
        opened = [c for c in made if c.tokens[0].startswith(MARKERS)]
        every = list(self._tokens.values())
        self.marker = next((m for m in MARKERS if any(token.startswith(m) for token in every)), "")
        #: Whether decoding drops the space before the first token, as SentencePiece's decoder does.
        self._strips = bool(opened) and not any(c.text.startswith(" ") for c in opened)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Raw vocabulary strings; raises ``NotStoredError`` for an id that the trace has not generated."""
        unknown = next((i for i in ids if i not in self._tokens), None)
        if unknown is not None:
            raise NotStoredError(f"the trace does not hold token {unknown}; give tokenizer=lm.tokenizer")
        return [self._tokens[i] for i in ids]

    def decode(self, ids: Sequence[int], special: bool) -> str:
        """The text of one token by itself."""
        if len(ids) != 1:
            raise NotStoredError("a trace decodes single tokens only; give tokenizer=lm.tokenizer")
        raw, shown = self.tokens(ids)[0], self._shown[ids[0]]
        if not shown and raw.strip("".join(MARKERS)):  # a special token is no part of the text
            return raw if special else ""
        return shown.removeprefix(" ") if self._strips else shown

    def encode(self, text: str, special: bool) -> list[int]:
        raise NotStoredError("a trace cannot cut new text into tokens; give tokenizer=lm.tokenizer")

    def chat(self, turns: Sequence[tuple[str, str]]) -> str:
        raise NotStoredError("a trace holds no chat template; give tokenizer=lm.tokenizer")


def fits(tokenizer: Tokenizer, trace: Trace) -> bool:
    """Whether a tokenizer is the one a trace was made with: it names the trace's ids as the trace does."""
    try:
        return all(tuple(tokenizer.tokens(c.ids.tolist())) == c.tokens for c in trace.continuations)
    except (IndexError, KeyError, OverflowError, ValueError):  # an id that the vocabulary does not have
        return False


def as_judged(trace: Trace, step: Step, method: Method) -> Draft:
    """A step's draft as a trigger sees it."""
    before = trace.steps[step.index - 1].answer if step.index else ""
    assert step.draft is not None
    return Draft(step.draft, method.pipeline, trace.question.text, before)


class StoredDraft:
    """A draft of a trace that can be asked where it would have ended under other settings.

    ``written_under`` is the trigger that it was written with: where a stored draft did not fire then, what was recorded
    overrules what attention rounded to float16 says.
    """

    def __init__(self, made: Continuation, written_under: Trigger) -> None:
        self.made = made
        #: After how many tokens the outcome was known, and by what.
        self.known, self.reason = len(made), made.stopped
        self.whole = made.closed or made.stopped == "length"
        #: Whether the order in which scores grew is known, not only where they ended.
        self.timed = made.attention is not None
        self._written = written_under
        self._rows = self._paid()
        self._peaks: dict[tuple[Trigger, int], float] = {}
        self._closed: dict[Stop, tuple[int, str] | None] = {}

    def _paid(self) -> np.ndarray | None:
        """(n + 1, n) float32: row r holds the largest attention that tokens 0 … r - 1 pay to each token before them."""
        made, n = self.made, len(self.made)
        if made.attention is None:
            return None
        p = len(made.prompt_ids)
        mean = made.attention[:, 1:, p:].astype(np.float32).mean(axis=0)  # (n, n)
        grown = np.zeros((n + 1, n), np.float32)
        np.maximum.accumulate(np.tril(mean, k=-1), axis=0, out=grown[1:])
        # Where a maximum is reached its float32 value is known; on the way to it float16 has to do.
        return np.where(grown >= grown[-1], made.received, np.minimum(grown, made.received)).astype(np.float32)

    def received(self, n: int, *, ended: bool = False) -> np.ndarray:
        """(n,) float32, the attention received once n tokens are made; ``ended``: the last one has looked back too.

        Without stored attention it is what was received in the end: at least as much.
        """
        if ended and n == self.known:
            return self.made.received[:n]
        if self._rows is None:
            seen = self.made.received[:n].copy()
            seen[max(n - 1 - (not ended), 0) :] = 0.0
            return seen
        return self._rows[n if ended else n - 1][:n]

    def so_far(self, n: int) -> SoFar:
        """The draft as a ``Stop`` saw it after its token n - 1."""
        made, end = self.made, int(self.made.offsets[n - 1, 1])
        return SoFar(
            made.ids[:n].tolist(), made.text[:end], [(int(a), int(b)) for a, b in made.offsets[:n]],
            made.entropy[:n].tolist(), made.logprob[:n].tolist(), self.received(n), made.alternative_ids[:n],
            made.alternative_probs[:n],
            None if made.attention is None else made.attention[:, : n + 1, : len(made.prompt_ids) + n],
            None if made.hidden is None else made.hidden[:n],
        )  # fmt: skip

    def fires(self, watch: Watch) -> int | None:
        """After how many tokens the trigger fires first; None where it does not, as far as the draft is stored."""
        theta = watch.trigger.theta
        assert theta is not None
        for n in range(1, len(self.made) + 1):
            watched = self._recorded(watch, n) or not watch.trigger.is_silent(watch.draft(self.so_far(n)))
            if watched and self._peak(watch, n) > theta:
                return n
        return None

    def _same_score(self, watch: Watch) -> bool:
        """Whether the draft was written under the same trigger, thresholds aside."""
        return replace(self._written, threshold=0.0) == replace(watch.trigger, threshold=0.0)  # type: ignore[call-arg]

    def _recorded(self, watch: Watch, n: int) -> bool:
        """Whether the trigger that wrote the draft fired after n tokens."""
        return self._same_score(watch) and n == self.known and self.reason == watch.trigger.name

    def _peak(self, watch: Watch, n: int) -> float:
        key = (replace(watch.trigger, threshold=0.0), n)  # type: ignore[call-arg]
        if key not in self._peaks:
            peak, threshold = watch.peak(self.so_far(n)), self._written.theta
            if threshold is not None and self._same_score(watch) and n <= self.known:
                fired = self._recorded(watch, n)
                peak = max(peak, np.nextafter(threshold, np.inf)) if fired else min(peak, threshold)
            self._peaks[key] = peak
        return self._peaks[key]

    def closes(self, stop: Stop) -> tuple[int, str] | None:
        """After how many tokens a stop that heeds no threshold is reached, and its reason."""
        if stop not in self._closed:
            found = ((n, stop.reached(self.so_far(n))) for n in range(1, len(self.made) + 1))
            self._closed[stop] = next(((n, reason) for n, reason in found if reason), None)
        return self._closed[stop]

    def served(self, watch: Watch | None, stop: Stop) -> Continuation | None:
        """What the model would have made of the same prompt with these stops; None where the draft ends too early."""
        fired = None if watch is None else self.fires(watch)
        ends = [] if watch is None or fired is None else [(fired, watch.trigger.name)]
        ends += [closed] if (closed := self.closes(stop)) is not None else []
        made = self.made
        if not ends:
            return made if self.whole else None
        n, reason = min(ends, key=lambda end: end[0])
        if (n, reason) == (self.known, self.reason) or (n == len(made) and self.whole):
            return made
        return replace(made.beginning(n), received=self.received(n, ended=True), stopped=reason)
