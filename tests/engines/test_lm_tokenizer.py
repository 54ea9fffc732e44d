"""Characters of tokens, the space marker, and what the methods ask of a tokenizer."""

from __future__ import annotations

from typing import Any

import lm_tiny
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from dragin_lab.engines.load import LanguageModel
from dragin_lab.engines.tokenizer import BROKEN, HFTokenizer
from dragin_lab.errors import ModelError
from dragin_lab.trace.trace import Prompt

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=40) | st.lists(
    st.sampled_from(
        ["🙂", "👩‍👩‍👧", "東京", "你好", " the", "  ", "é", "1", "\n", "a", BROKEN, "👍🏽", "한"]
    ),
    max_size=20,
).map("".join)


def both() -> list[Any]:
    return [lm_tiny.byte_level(), lm_tiny.byte_fallback()]


def characters_of_bytes(
    tokenizer: HFTokenizer, ids: list[int], text: str
) -> list[tuple[int, int]] | None:
    """Spans by counting bytes: token i holds bytes a..b of the text, and owns every character that
    ends in them.

    Only for tokenizers whose tokens are bytes of the text and nothing else; None where they are
    not.
    """
    alphabet = {c: b for b, c in bytes_to_unicode().items()}
    held = [bytes(alphabet[c] for c in token) for token in tokenizer.tokens(ids)]
    if b"".join(held) != text.encode():
        return None
    ends = np.cumsum([len(c.encode()) for c in text])  # byte at which each character ends
    spans, at, done = [], 0, 0
    for token in held:
        at += len(token)
        reach = int(np.searchsorted(ends, at, side="right"))
        partial = reach == done
        spans.append((done, done + 1 if partial else reach))
        done = reach
    return spans


# a real U+FFFD looks like a broken character
@given(TEXTS.map(lambda text: text.replace(BROKEN, "")))
def test_byte_level_spans_are_what_the_bytes_say(text: str) -> None:
    tokenizer = HFTokenizer(lm_tiny.byte_level())
    ids = tokenizer.encode(text, special=False)
    decoded, spans = tokenizer.spans().all(ids)
    assert decoded == text
    assert spans == characters_of_bytes(tokenizer, ids, text)


@given(TEXTS, st.integers(0, 1))
def test_spans_cover_the_text_in_order(text: str, which: int) -> None:
    tokenizer = HFTokenizer(both()[which])
    ids = tokenizer.encode(text, special=True)
    decoded, spans = tokenizer.spans().all(ids)
    assert decoded == tokenizer.decode(ids, special=False)
    assert len(spans) == len(ids)
    covered = 0
    for start, end in spans:
        assert start <= covered <= max(end, covered)
        covered = max(covered, end)
    assert covered == len(decoded)


@given(st.lists(st.integers(0, 320), max_size=60), st.integers(0, 1))
def test_any_ids_decode_as_a_whole(ids: list[int], which: int) -> None:
    tokenizer = HFTokenizer(both()[which])
    ids = [i % len(tokenizer.hf) for i in ids]
    spans = tokenizer.spans()
    for token in ids:
        spans.push(token)
        assert len(spans.provisional()) == len(spans.ids)
    text, owners = spans.all(ids)
    assert text == tokenizer.decode(ids, special=False)
    assert len(owners) == len(ids)
    assert all(0 <= a <= b <= len(text) for a, b in owners)
    for token, (a, b) in zip(ids, owners, strict=True):
        if token in tokenizer.silent:
            assert a == b


def test_text_grows_only_by_whole_characters() -> None:
    tokenizer = HFTokenizer(lm_tiny.byte_level())
    spans = tokenizer.spans()
    seen = []
    for token in tokenizer.encode("x🙂東y", special=False):
        spans.push(token)
        seen.append(spans.text)
    assert [t for i, t in enumerate(seen) if i == 0 or t != seen[i - 1]] == [
        "x",
        "x🙂",
        "x🙂東",
        "x🙂東y",
    ]


def test_the_marker_comes_from_the_tokenizer() -> None:
    assert HFTokenizer(lm_tiny.byte_level()).marker == "Ġ"
    assert HFTokenizer(lm_tiny.byte_fallback()).marker == "▁"
    raw = Tokenizer(models.BPE({"a": 0, "b": 1, "e": 2, "x": 3}, []))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    assert HFTokenizer(PreTrainedTokenizerFast(tokenizer_object=raw)).marker == ""
    raw = Tokenizer(models.BPE({"a": 0, "b": 1, "e": 2, "x": 3, "▁": 4}, []))
    raw.pre_tokenizer = pre_tokenizers.Metaspace()
    assert HFTokenizer(PreTrainedTokenizerFast(tokenizer_object=raw)).marker == "▁"


def test_encoding_is_never_cut_and_offsets_point_into_the_text() -> None:
    hf = lm_tiny.byte_fallback()
    hf.model_max_length, before = 8, hf.model_max_length
    try:
        tokenizer = HFTokenizer(hf)
        text = "the mother, the answer is " * 4
        ids, offsets = tokenizer.encode_with_offsets(text)
        assert len(ids) == len(offsets) > 40
        assert ids == tokenizer.encode(text, special=True)
        assert ids[1:] == tokenizer.encode(text, special=False)
        assert offsets[0].tolist() == [0, 0]
        assert offsets.dtype == np.int32
        assert "".join(text[a:b] for a, b in offsets) == text
    finally:
        hf.model_max_length = before


def test_single_tokens_are_shown_with_their_space() -> None:
    for hf in both():
        tokenizer = HFTokenizer(hf)
        ids = tokenizer.encode("a the", special=False)
        assert "".join(tokenizer.show(i) for i in ids).strip() == "a the"
    assert HFTokenizer(lm_tiny.byte_level()).show(2) in ("", "</s>")


def test_a_slow_tokenizer_is_refused() -> None:
    class Slow:
        is_fast = False

    class Foreign:
        """Says nothing of its speed."""

    for own in (Slow, Foreign):
        with pytest.raises(ModelError, match=f"{own.__name__} has no fast encoding"):
            HFTokenizer(own())


@pytest.mark.parametrize("name", ["passages", "question"])
def test_a_control_token_that_a_passage_spells_is_text(name: str) -> None:
    lm = LanguageModel.load(lm_tiny.PARITY / "almanac-small")
    end = lm.tokenizer.end_marks[0]
    before, foreign, after = "Context: ", f"turns end with {end} here", "\nAnswer:"
    prompt = Prompt.join([("", before), (name, foreign), ("", after)])
    ids, offsets = lm.tokenizer.encode_prompt(prompt)
    assert not lm.eos & set(ids[1:])
    assert offsets[-1, 1] == len(prompt.text)
    own = Prompt.join([("", before + foreign + after)])
    assert lm.eos & set(lm.tokenizer.encode_prompt(own)[0]), (
        "what the layout itself writes is a control token"
    )


def test_control_tokens_that_mark_a_thought_are_a_part_of_the_text() -> None:
    hf = lm_tiny.byte_level()
    hf.add_special_tokens({"additional_special_tokens": ["<think>", "</think>", "<|x|>"]})
    tokenizer = HFTokenizer(hf)
    ids = tokenizer.encode("<think>Al</think><|x|>Bo", special=False)
    assert tokenizer.decode(ids, special=False) == "<think>Al</think>Bo"
    assert tokenizer.spans().all(ids)[0] == "<think>Al</think>Bo"
