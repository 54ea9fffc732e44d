"""Which characters of the decoded text belong to each token, while the text grows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from dragin_lab.trace.kept import common

#: What a decoder writes for bytes that are no complete character (U+FFFD).
BROKEN = "\ufffd"

Span = tuple[int, int]
Decode = Callable[[Sequence[int]], str]

_LONG = 24  # tokens decoded again at every step before the window moves on


class Spans:
    """Text and character spans of a growing list of ids.

    ``text`` is the part that no later token can change: a character whose bytes are not all there is held back until
    they are, and ``spans`` then covers only the tokens before it. ``decode`` must skip special tokens; ``silent`` are
    the ids of those, whose spans are empty. Only a window of the last tokens is decoded at each step, so the cost of
    a step does not grow with the text; ``finish`` compares the result with the text decoded as a whole.
    """

    def __init__(self, decode: Decode, silent: Collection[int] = ()) -> None:
        self.text = ""
        self.spans: list[Span] = []  # one per settled token
        self.ids: list[int] = []
        self._decode = decode
        self._silent = silent
        self._anchor = 0  # first token of the window
        self._window = ""  # the settled tokens of the window, decoded

    def push(self, token: int) -> str:
        """Add one token and return the text that is settled now and was not before; often the empty string."""
        self.ids.append(token)
        window = self._decode(self.ids[self._anchor :])
        if window.endswith(BROKEN):
            return ""
        if not window.startswith(self._window):  # bytes that turned out broken took back characters
            before = len(self.text)
            self._rebuild(self._decode(self.ids))
            self._window = window
            return self.text[before:]
        return self._settle(window)

    def provisional(self) -> list[Span]:
        """Spans of all tokens so far; those of an unfinished character are empty and stand at the end of the text."""
        here = len(self.text)
        return self.spans + [(here, here)] * (len(self.ids) - len(self.spans))

    def all(self, ids: Sequence[int]) -> tuple[str, list[Span]]:
        """Push all of ``ids`` and finish."""
        for token in ids:
            self.push(token)
        return self.finish()

    def finish(self) -> tuple[str, list[Span]]:
        """The whole text, equal to decoding all ids at once, and the span of every token."""
        whole = self._decode(self.ids)
        if len(self.spans) < len(self.ids) and (window := self._decode(self.ids[self._anchor :])).startswith(
            self._window
        ):
            self._settle(window)
        if self.text != whole or len(self.spans) < len(
            self.ids
        ):  # a decoder that looks further back than the window, or bytes that stayed broken
            self._rebuild(whole)
        return self.text, self.spans

    def _rebuild(self, whole: str) -> None:
        self.text = whole
        decoded = [self._decode(self.ids[: i + 1]) for i in range(len(self.ids))]
        self.spans = spans_of(decoded, whole, [i in self._silent for i in self.ids])

    def _settle(self, window: str) -> str:
        """Take ``window`` as the final text of the window and give the waiting tokens their spans."""
        done, here = len(self.spans), len(self.text) - len(self._window)
        waiting = self.ids[done:]
        decoded = [self._decode(self.ids[self._anchor : done + i + 1]) for i in range(len(waiting) - 1)] + [window]
        settled = spans_of(decoded, window, [i in self._silent for i in waiting], start=len(self._window))
        self.spans += [(a + here, b + here) for a, b in settled]
        new = window[len(self._window) :]
        self.text += new
        self._window = window
        if len(self.ids) - self._anchor > _LONG and new:
            # Decoders treat the first token of a list differently (they strip its space), so the new window starts
            # with a token that has text of its own and ends a character.
            tail = self._decode(self.ids[done:])
            if tail and not tail.startswith(BROKEN) and self.ids[done] not in self._silent:
                self._anchor, self._window = done, tail
        return new


def spans_of(decoded: Sequence[str], whole: str, silent: Sequence[bool], start: int = 0) -> list[Span]:
    """Spans of tokens from the text decoded up to and with each of them.

    A token owns the characters that it completes. One that completes none but holds bytes of the next character
    shares that character's span; one that adds nothing at all (a special token, a stripped space) has an empty span.
    Where the text itself contains U+FFFD, the token after it may own it too.

    Args:
        decoded: one string per token, everything up to and with it decoded.
        whole: the final text.
        silent: one flag per token, True for special tokens.
        start: characters of ``whole`` that were there before the first token.
    """
    spans: list[Span] = []
    end = start
    for i, (text, special) in enumerate(zip(decoded, silent, strict=True)):
        # A broken character at the end may look like a real U+FFFD of the whole text; only the last token can tell.
        complete = text if i == len(decoded) - 1 else text.rstrip(BROKEN)
        reach = max(end, common(complete, whole))
        if special or (reach == end and len(text) <= end):
            spans.append((end, end))
        else:
            spans.append((end, max(reach, min(end + 1, len(whole)))))
        end = reach
    return spans
