"""Stored drafts read again: what a trace tells of its tokenizer, and where a draft would have
ended otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dragin_lab.core.budget import NEVER
from dragin_lab.core.episode import Stop, Tokenizer, Watch
from dragin_lab.core.trigger import Trigger
from dragin_lab.errors import TraceFileError
from dragin_lab.study.same_episode import Thetas
from dragin_lab.trace.trace import Draft, Trace

#: What opens a token after a space in the vocabularies that there are (SentencePiece, byte-level
#: BPE).
MARKERS = ("▁", "Ġ")


def _count_spaces(text: str) -> int:
    """With how many spaces, or a vocabulary's marks for one, it begins."""
    return len(text) - len(text.lstrip(" " + "".join(MARKERS)))


def _lost_spaces(draft: Draft) -> bool:
    """Whether fewer spaces open its text than its tokens."""
    return _count_spaces(draft.text) < _count_spaces("".join(draft.pieces))


class StoredTokenizer:
    """``episode.Tokenizer`` as far as a trace tells: the tokens it generated and the alternatives
    it saw.

    It decodes single tokens; it cannot encode, and raises ``TraceFileError`` for what it does not
    know.
    """

    chats = False
    end_marks = ()

    def __init__(self, trace: Trace) -> None:
        self._tokens: dict[int, str] = {}
        self._shown: dict[int, str] = {}
        drafts = [draft for draft in trace.continuations if len(draft)]
        for draft in drafts:
            ids = draft.ids.tolist()
            self._tokens.update(zip(ids, draft.pieces, strict=True))
            for token, start, text in zip(ids, draft.offsets[:, 0], draft.tokens, strict=True):
                if start or token not in self._shown:  # a first token may have lost its space
                    self._shown[token] = text
        for draft in drafts:  # what the tokenizer itself gave goes before what the text shows
            alternatives = zip(draft.alternative_ids, draft.alternative_tokens, strict=False)
            for row, names in alternatives:
                self._shown.update(zip(row.tolist(), names, strict=False))
        openings = {piece[:1] for piece in self._tokens.values()}
        self.marker = next((marker for marker in MARKERS if marker in openings), "")
        opened = [draft for draft in drafts if draft.pieces[0].startswith(MARKERS)]
        #: Whether decoding drops the space before the first token, as SentencePiece's decoder does.
        self._strips = bool(opened) and all(map(_lost_spaces, opened))

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Raw vocabulary strings; raises ``TraceFileError`` for an id that the trace has not
        generated.
        """
        unknown = next((i for i in ids if i not in self._tokens), None)
        if unknown is not None:
            raise TraceFileError(
                f"the trace does not hold token {unknown}; give tokenizer=lm.tokenizer"
            )
        return [self._tokens[i] for i in ids]

    def decode(self, ids: Sequence[int], special: bool) -> str:
        """The text of one token by itself."""
        if len(ids) != 1:
            raise TraceFileError("a trace decodes single tokens only; give tokenizer=lm.tokenizer")
        raw = self.tokens(ids)[0]
        shown = self._shown[ids[0]]
        if not shown and raw.strip("".join(MARKERS)):  # a special token is no part of the text
            return raw if special else ""
        return shown.removeprefix(" ") if self._strips else shown

    def encode(self, text: str, special: bool) -> list[int]:
        raise TraceFileError("a trace cannot cut new text into tokens; give tokenizer=lm.tokenizer")

    def chat(self, turns: Sequence[tuple[str, str]]) -> str:
        raise TraceFileError("a trace holds no chat template; give tokenizer=lm.tokenizer")


def fits_trace(tokenizer: Tokenizer, trace: Trace) -> bool:
    """Whether a tokenizer is the one a trace was made with: it names the trace's ids as the
    trace does.
    """
    try:
        return all(tuple(tokenizer.tokens(c.ids.tolist())) == c.pieces for c in trace.continuations)
    except (
        IndexError,
        KeyError,
        OverflowError,
        ValueError,
    ):  # an id that the vocabulary does not have
        return False


class StoredDraft:
    """A draft of a trace that can be asked where it would have ended under other settings."""

    def __init__(self, stored: Draft) -> None:
        self.stored = stored
        #: Whether a score read the attention received so far where the trace only has what it was
        #: in the end.
        self.guessed = False
        #: After each token the highest score of a token, and what is compared with θ (NaN: not
        #: asked yet).
        self._scores: dict[tuple[Trigger, bool], list[list[float]]] = {}
        self._closed: dict[Stop, tuple[int, str] | None] = {}

    def fires(self, watch: Watch) -> int | None:
        """After how many tokens the trigger fires first; None where it does not, as far as the
        draft is stored.
        """
        for n in range(1, len(self.stored) + 1):
            if self._fires_after(watch, n):
                return n
        return None

    def fires_alike(self, watch: Watch, n: int) -> Thetas:
        """Where the trigger goes on, or fires, after each of the first n tokens as it does at
        its θ.
        """
        fires = self._fires_after(watch, n)
        silent = n - 1 if fires else n
        start = -np.inf
        for m in sorted(range(1, silent + 1), key=lambda m: -self._highest(watch, m)):
            if self._highest(watch, m) <= start:
                break
            start = max(start, self._peak(watch, m))
        return Thetas(start, self._peak(watch, n) if fires else np.inf)

    def _fires_after(self, watch: Watch, n: int) -> bool:
        theta = watch.trigger.theta
        assert theta is not None
        return self._highest(watch, n) > theta and self._peak(watch, n) > theta

    def _scores_of(self, watch: Watch) -> list[list[float]]:
        trigger = watch.trigger
        self.guessed |= self.stored.among is None and (
            "received" in trigger.needs or not trigger.built_in
        )
        quiet = replace(trigger, threshold=NEVER)  # type: ignore[call-arg]
        return self._scores.setdefault((quiet, watch.resumed), [])

    def _highest(self, watch: Watch, n: int) -> float:
        """What no word scores above after n tokens: the highest score of a token, where that
        tells.
        """
        scores = self._scores_of(watch)
        for m in range(len(scores) + 1, n + 1):
            draft = watch.read(self.stored[:m])
            quiet = replace(watch.trigger, threshold=NEVER)  # type: ignore[call-arg]
            tells = quiet.is_silent(draft)
            highest = watch.trigger.check_score(draft).max(initial=-np.inf) if tells else np.inf
            scores.append([float(highest), np.nan])
        return scores[n - 1][0]

    def _peak(self, watch: Watch, n: int) -> float:
        """What is compared with θ after n tokens."""
        entry = self._scores_of(watch)[n - 1]
        if np.isnan(entry[1]):
            entry[1] = watch.judge_so_far(watch.read(self.stored[:n])).peak
        return entry[1]

    def closes(self, stop: Stop) -> tuple[int, str] | None:
        """After how many tokens a stop that heeds no threshold is reached, and its reason."""
        if stop not in self._closed:
            self._closed[stop] = None
            for n in range(1, len(self.stored) + 1):
                reason = stop.reached(self.stored[:n])
                if reason:
                    self._closed[stop] = n, reason
                    break
        return self._closed[stop]

    def served(self, watch: Watch | None, stop: Stop) -> Draft | None:
        """What the model would have written under these stops; None where the stored draft ends
        too early.
        """
        stored = self.stored
        whole = stored.closed or stored.stopped == "length"
        end = self.closes(stop)
        fired = None if watch is None else self.fires(watch)
        if watch is not None and fired is not None and (end is None or fired <= end[0]):
            end = fired, watch.trigger.name
        if end is None:
            return stored if whole else None
        n, reason = end
        if n == len(stored) and (whole or reason == stored.stopped):
            return stored
        return stored.ended_at(n, reason)
