"""The tokenizer as methods and engines need it, and the characters of each token of a text."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from typing import Any

import jinja2
import numpy as np

from dragin_lab.checks import check_text, instance
from dragin_lab.core.answers import THOUGHT_MARK
from dragin_lab.core.loop import BROKEN, list_gaps
from dragin_lab.errors import ModelError, SettingError
from dragin_lab.trace.draft import count_common
from dragin_lab.trace.trace import Prompt

Span = tuple[int, int]
Encoded = tuple[list[int], np.ndarray]  # ids (p,), and their character spans (p, 2) int32
Decode = Callable[[Sequence[int]], str]

_LONG = 24  # tokens decoded again at every step before the window moves on


class HFTokenizer:
    """Implements ``episode.Tokenizer`` and adds character offsets; ``hf`` is the tokenizer of
    ``transformers`` itself.

    ``ends`` are the ids of the model's end marks: those given (the model's ``generation_config``),
    the tokenizer's own EOS and what closes a turn in the chat template. A text decoded without
    special tokens holds none of them, whether the vocabulary calls them special or not.
    """

    def __init__(self, hf: Any, ends: int | Sequence[int] | None = None) -> None:
        if not getattr(hf, "is_fast", False):
            raise ModelError(
                f"the tokenizer {type(hf).__name__} has no fast encoding, so tokens cannot be"
                " located in the text; use a model folder with a tokenizer.json"
            )
        self.hf = hf
        self._backend = hf.backend_tokenizer
        special = frozenset(hf.all_special_ids)
        known = [hf.eos_token_id] if ends is None else [hf.eos_token_id, *np.ravel(ends)]
        known = [int(i) for i in known if i is not None and 0 <= i < len(hf)]
        self.ends = frozenset(known) | self._find_end_of_turn()
        marks = {
            i
            for i in special - self.ends
            if THOUGHT_MARK.fullmatch(str(hf.convert_ids_to_tokens(i)))
        }
        self.silent = (special - marks) | self.ends
        # Control tokens that mark a thought stay in the text. Where there are some, ``_hidden``
        # lists those to skip.
        self._by_name = bool(marks)
        self._hidden = self.silent if marks else self.ends - special
        self.marker = find_marker(self)
        self._shown: dict[int, str] = {}
        self._openings: dict[str, list[int]] = {}

    def __len__(self) -> int:
        """How many ids there are, from 0."""
        return len(self.hf)

    def encode(self, text: str, special: bool) -> list[int]:
        """Ids of a text, with the special tokens the tokenizer itself puts before it or without
        any. Never cut.

        What it would put after a text is left out, as a model that reads it has nothing to add.
        """
        ids = self._encode_whole(text, special)
        return ids[: len(ids) - self.closing] if special else ids

    def _encode_whole(self, text: str, special: bool) -> list[int]:
        encoding = self.hf(text, add_special_tokens=special, truncation=False, verbose=False)
        return encoding["input_ids"]

    def encode_with_offsets(
        self, text: str, special: bool = True, *, plain: bool = False
    ) -> Encoded:
        """Ids, and (p, 2) int32 half-open character spans in ``text``; (0, 0) for specials that it
        does not hold.

        ``special`` as for ``encode``; with ``plain`` the text of a control token is text like any
        other.
        """
        encoding = self.hf(
            text,
            add_special_tokens=special,
            split_special_tokens=plain,
            truncation=False,
            return_offsets_mapping=True,
            verbose=False,
        )
        offsets = np.asarray(encoding["offset_mapping"], np.int32).reshape(-1, 2)  # (p, 2)
        n = len(offsets) - (self.closing if special else 0)
        return encoding["input_ids"][:n], offsets[:n]

    def encode_prompt(self, prompt: Prompt, model: str = "the model") -> Encoded:
        """Ids (p,) and character spans (p, 2) int32 of a prompt for a model of that name; BOS
        stands in for no text.
        """
        instance("prompt", prompt, Prompt, "give a Prompt, such as Prompt('Question: …')")
        check_text("prompt", prompt.text)
        ids, offsets = self._encode_parts(prompt)
        bos = self.hf.bos_token_id
        # a layout that writes a chat template's text has one already
        if bos is not None and ids[:2] == [bos, bos]:
            ids = ids[1:]
            offsets = offsets[1:]
        if ids:
            return ids, offsets
        if bos is None:
            raise ModelError(
                f"the prompt is empty and {model} has no BOS to start from; write something"
            )
        return [int(bos)], np.zeros((1, 2), np.int32)

    def _encode_parts(self, prompt: Prompt) -> Encoded:
        """Encode a prompt up to what the model wrote; that has its ids, and what stands after it
        is encoded as text.
        """
        text = prompt.text
        written = prompt.written
        if not written:
            return self._encode_foreign(prompt, len(text))
        ids, offsets = self._encode_foreign(prompt, written[0][0])
        gaps = [(start, stop, ()) for start, stop in list_gaps(written, len(text))]
        for start, stop, own in sorted([*written, *gaps]):
            if own:
                ids += own
                spans = self._place_within(own, stop - start)
            else:
                part, spans = self.encode_within(text[start:stop])
                ids += part
            offsets = np.concatenate([offsets, spans + start])
        return ids, offsets

    def _place_within(self, ids: Sequence[int], length: int) -> np.ndarray:
        """Character spans (n, 2) int32 of ids in their text of this length, where it begins."""
        text, spans = self.spans().all(ids)
        lead = max(length - len(text), 0)  # a space that decoding drops
        places = [(a + lead * (a > 0), b + lead) for a, b in spans]
        return np.array(places, np.int32).reshape(-1, 2).clip(max=length)

    def encode_within(self, text: str) -> Encoded:
        """Ids and character spans of a text that stands after another; a control token that it
        spells is text.
        """
        for before in "a.0":
            ids, offsets = self.encode_with_offsets(before + text, special=False, plain=True)
            n = int((offsets[:, 1] <= 1).cumprod().sum())
            if n and (offsets[n:, 0] >= 1).all():
                return ids[n:], offsets[n:] - 1
        return self.encode_with_offsets(text, special=False, plain=True)

    def _encode_foreign(self, prompt: Prompt, stop: int) -> Encoded:
        """Encode a prompt up to the character ``stop``.

        A control token spelled by passages or question is encoded as text, so it closes no turn.
        """
        text = prompt.text
        longest_first = sorted(self.control_tokens, key=len, reverse=True)
        # without control tokens, what matches nowhere
        spelled = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        foreign = [prompt.spans[name] for name in {"passages", "question"} & prompt.spans.keys()]
        cuts = [0]
        for begin, end in sorted(foreign):
            for token in spelled.finditer(text, begin, end):
                cuts += token.span()
        ids: list[int] = []
        offsets = []
        # every second piece is a spelled token
        for number, (begin, end) in enumerate(pairwise([*cuts, stop])):
            special = prompt.special and number == 0
            part, spans = self.encode_with_offsets(text[begin:end], special, plain=number % 2 == 1)
            ids += part
            offsets.append(np.where(spans[:, 1:] > spans[:, :1], spans + begin, spans))
        return ids, np.concatenate(offsets)

    def decode(self, ids: Sequence[int], special: bool) -> str:
        """Text of ids, with special tokens and end marks written out or skipped."""
        shown = list(ids) if special else self._drop_hidden(ids)
        skip = not (special or self._by_name)
        return self.hf.decode(shown, skip_special_tokens=skip, clean_up_tokenization_spaces=False)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Raw vocabulary strings; an id the vocabulary has no string for is written ``<id>``."""
        strings = self.hf.convert_ids_to_tokens([int(i) for i in ids])
        return [f"<{i}>" if token is None else token for i, token in zip(ids, strings, strict=True)]

    def _drop_hidden(self, ids: Sequence[int]) -> list[int]:
        return [i for i in ids if i not in self._hidden]

    @cached_property
    def closing(self) -> int:
        """How many special tokens the tokenizer puts after a text (add_eos_token, BERT's [SEP])."""
        text = self._encode_whole("a", False)
        whole = self._encode_whole("a", True)
        ends = [
            end for end in range(len(text), len(whole) + 1) if whole[end - len(text) : end] == text
        ]
        return len(whole) - ends[-1] if ends and text else 0

    @cached_property
    def sha256(self) -> str:
        """SHA-256 (hex) of the whole tokenizer."""
        return hashlib.sha256(self._backend.to_str().encode()).hexdigest()

    @cached_property
    def control_tokens(self) -> tuple[str, ...]:
        """The texts that are encoded as one special token wherever they stand, such as
        ``<|im_end|>``.
        """
        return tuple(
            token.content for token in self.hf.added_tokens_decoder.values() if token.special
        )

    @cached_property
    def end_marks(self) -> tuple[str, ...]:
        """The model's end marks as they stand in a text, longest first: ``</s>``, ``<|im_end|>``
        ...
        """
        marks = {self.decode([i], special=True) for i in self.ends} - {""}
        return tuple(sorted(marks, key=lambda mark: (-len(mark), mark)))

    def _find_end_of_turn(self) -> set[int]:
        """The token that closes the assistant's turn in the chat template; empty where there is
        none.
        """
        if not self.chats:
            return set()
        answer = "\ue000"  # private use: in no vocabulary, and no template strips it
        turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": answer}]
        try:
            text = str(self.hf.apply_chat_template(turns, tokenize=False))
        except (jinja2.TemplateError, TypeError, ValueError):
            return set()  # ``chat`` reports what is wrong with the template once it is used
        closing = text.rpartition(answer)[2].lstrip() if answer in text else ""
        first = self.encode(closing, special=False)[:1]
        return {*first} & self.hf.added_tokens_decoder.keys()

    @property
    def chats(self) -> bool:
        """Whether the model has a chat template."""
        return bool(self.hf.chat_template)

    @property
    def dated(self) -> bool:
        """Whether the chat template writes the day."""
        return "strftime_now" in str(self.hf.chat_template or "")

    def chat(self, turns: Sequence[tuple[str, str]], day: str = "") -> str:
        """As ``episode.Tokenizer.chat``, with all special tokens in the text; ``day`` (ISO) stands
        for now.

        Thinking is switched off where the template has a switch, so that the answer comes at once.
        """
        if not self.chats:
            raise SettingError(
                "layout 'chat' needs the model's chat template, and its tokenizer has none (a base"
                " model?); use layout='dragin', or set tokenizer.chat_template"
            )
        messages = [{"role": role, "content": text} for role, text in turns]
        try:
            # A template that does not know one of these names ignores it.
            then = {"strftime_now": datetime.fromisoformat(day).strftime} if day else {}
            return self.hf.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, enable_thinking=False, **then
            )
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            raise SettingError(
                f"the chat template refuses the prompt ({error}); use layout='dragin'"
            ) from error

    def openings(self, text: str) -> list[int]:
        """Ids of the tokens that ``text`` (ASCII) may begin with, after a space or not; special
        tokens aside.
        """
        if text not in self._openings:
            byte = f"<0x{ord(text[0]):02X}>"
            self._openings[text] = sorted(
                i
                for string, i in self.hf.get_vocab().items()
                if i not in self.silent
                and (bare := string.removeprefix(self.marker))
                and (text.startswith(bare) or bare == byte)
            )
        return self._openings[text]

    def spans(self) -> TextSpans:
        """An empty ``TextSpans`` on this tokenizer."""
        return TextSpans(
            lambda ids: self._backend.decode(
                self._drop_hidden(ids), skip_special_tokens=not self._by_name
            ),
            self.silent,
        )

    def show(self, token: int) -> str:
        """One token as text for people, with its leading space."""
        if token not in self._shown:
            # After another token, because decoders strip the space of the first one.
            pair = self.decode([token, token], True)
            single = self.decode([token], True)
            self._shown[token] = pair[len(single) :] if pair.startswith(single) else single
        return self._shown[token]


def find_marker(tokenizer: HFTokenizer) -> str:
    """The string that opens a token after a space ("▁", "Ġ"); "" where the vocabulary has none.

    Read off the tokens of short texts, because neither the model type nor the tokenizer class tells
    it.
    """
    seen = Counter[str]()
    for letter in "xabe":
        ids = tokenizer.encode(f"{letter} {letter} {letter}", special=False)
        for token in tokenizer.tokens(ids[1:]):
            before = token.removesuffix(letter)
            if before and letter not in before and not before.startswith("<"):
                seen[before] += 1
    return seen.most_common(1)[0][0] if seen else ""


class TextSpans:
    """Text and character spans of a growing list of ids.

    ``text`` is the part that no later token can change: a character whose bytes are not all there
    is held back until they are, and ``spans`` then covers only the tokens before it. ``decode``
    must skip special tokens; ``silent`` are the ids of those, whose spans are empty. Only a window
    of the last tokens is decoded at each step, so the cost of a step does not grow with the text;
    ``all`` compares the result with the text decoded as a whole.
    """

    def __init__(self, decode: Decode, silent: Collection[int] = ()) -> None:
        self.text = ""
        self.spans: list[Span] = []  # one per settled token
        self.ids: list[int] = []
        self._decode = decode
        self._silent = silent
        self._anchor = 0  # first token of the window
        self._window = ""  # the settled tokens of the window, decoded

    def push(self, token: int) -> None:
        """Add one token."""
        self.ids.append(token)
        window = self._decode(self.ids[self._anchor :])
        if window.endswith(BROKEN):
            return
        if window.startswith(self._window):
            self._settle(window)
        else:  # bytes that turned out broken took back characters
            self._rebuild(self._decode(self.ids))
            self._window = window

    def provisional(self) -> list[Span]:
        """Spans of all tokens so far; those of an unfinished character are empty and stand at
        the end of the text.
        """
        here = len(self.text)
        return self.spans + [(here, here)] * (len(self.ids) - len(self.spans))

    def all(self, ids: Sequence[int]) -> tuple[str, list[Span]]:
        """Push what follows of ``ids``; the whole text, equal to decoding all of them at once,
        and every span.
        """
        for token in ids[len(self.ids) :]:
            self.push(token)
        window = self._decode(self.ids[self._anchor :])
        if len(self.spans) < len(self.ids) and window.startswith(self._window):
            self._settle(window)
        whole = self._decode(self.ids)
        # A decoder may look further back than the window, and bytes may stay broken.
        if self.text != whole or len(self.spans) < len(self.ids):
            self._rebuild(whole)
        return self.text, self.spans

    def _rebuild(self, whole: str) -> None:
        self.text = whole
        decoded = [self._decode(self.ids[: i + 1]) for i in range(len(self.ids))]
        self.spans = find_spans(decoded, whole, [i in self._silent for i in self.ids])

    def _settle(self, window: str) -> None:
        """Take ``window`` as the final text of the window and give the waiting tokens their
        spans.
        """
        first = len(self.spans)
        known = len(self._window)
        begin = len(self.text) - known  # of the window
        ends = range(first + 1, len(self.ids))
        decoded = [self._decode(self.ids[self._anchor : end]) for end in ends]
        decoded.append(window)
        silent = [token in self._silent for token in self.ids[first:]]
        settled = find_spans(decoded, window, silent, start=known)
        self.spans += [(begin + start, begin + stop) for start, stop in settled]
        self.text += window[known:]
        self._window = window
        if len(self.ids) - self._anchor > _LONG and len(window) > known:
            self._move_window(first)

    def _move_window(self, first: int) -> None:
        """Begin the window at a token, where that has text of its own and ends a character:
        decoders treat the first token of a list differently (they strip its space).
        """
        tail = self._decode(self.ids[first:])
        if tail and not tail.startswith(BROKEN) and self.ids[first] not in self._silent:
            self._anchor = first
            self._window = tail


def find_spans(
    decoded: Sequence[str], whole: str, silent: Sequence[bool], start: int = 0
) -> list[Span]:
    """Spans of tokens from the text decoded up to and with each of them.

    A token owns the characters that it completes. One that completes none but holds bytes of the
    next character shares that character's span; one that adds nothing at all (a special token, a
    stripped space) has an empty span. Where the text itself contains U+FFFD, the token after it may
    own it too.

    Args:
        decoded: one string per token, everything up to and with it decoded.
        whole: the final text.
        silent: one flag per token, True for special tokens.
        start: characters of ``whole`` that were there before the first token.
    """
    spans: list[Span] = []
    end = start
    for i, (text, special) in enumerate(zip(decoded, silent, strict=True)):
        # A broken character at the end may look like a real U+FFFD of the whole text; only the last
        # token can tell.
        complete = text if i == len(decoded) - 1 else text.rstrip(BROKEN)
        common = len(complete) if whole.startswith(complete) else count_common(complete, whole)
        reach = max(end, common)
        if special or (reach == end and len(text) <= end):
            spans.append((end, end))
        else:
            spans.append((end, max(reach, min(end + 1, len(whole)))))
        end = reach
    return spans
