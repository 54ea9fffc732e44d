"""Small tokenizers of both families, made here: every byte can be written, digits stand alone, a
few words whole.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from dragin_lab.engines.tokenizer import TextSpans

WORDS = ("film", "by", "is", "The", "director", "wro")


def _merges(tokens: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Merges that build each word from the left, and the tokens they make."""
    made, merges = [], []
    for word in tokens:
        for end in range(2, len(word) + 1):
            pair = (word[: end - 1], word[end - 1])
            if pair not in merges:
                merges.append(pair)
                made.append(word[:end])
    return made, merges


@functools.cache
def byte_level() -> Tokenizer:
    """As Llama 3: bytes as printable characters, Ġ for the space, a character of several bytes
    in several tokens.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made, merges = _merges([*WORDS, *(f"Ġ{word}" for word in WORDS)])
    vocabulary = {
        token: i for i, token in enumerate([*letters, *made], start=20)
    }  # 13 means a newline in the released code
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@functools.cache
def sentencepiece() -> Tokenizer:
    """As Llama 2: ▁ for the space, unknown characters as bytes (<0xF0>), a text's first space
    not decoded.
    """
    letters = [*"▁abcdefghijklmnopqrstuvwxyzTDWŻł0123456789.,;!?\"'-"]
    made, merges = _merges([*WORDS, *(f"▁{word}" for word in WORDS)])
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters, *made]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


TOKENIZERS = {"byte-level": byte_level, "sentencepiece": sentencepiece}


@dataclass(frozen=True)
class Cut:
    """A text in tokens: ids, raw vocabulary strings, and the (n, 2) spans in the decoded text."""

    text: str
    ids: list[int]
    tokens: list[str]
    offsets: np.ndarray


def cut(kind: str, text: str, silent: tuple[str, ...] = ()) -> Cut:
    """A text as a model with that vocabulary would write it."""
    tokenizer = TOKENIZERS[kind]()
    encoded = tokenizer.encode(text, add_special_tokens=False)
    decoded, spans = TextSpans(
        lambda ids: tokenizer.decode(list(ids), skip_special_tokens=True)
    ).all(encoded.ids)
    return Cut(decoded, encoded.ids, encoded.tokens, np.array(spans, np.int32).reshape(-1, 2))
