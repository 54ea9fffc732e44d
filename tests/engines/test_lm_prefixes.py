"""The kept caches: a prompt goes on behind the parts it shares with an earlier one; the least recently used goes."""

from __future__ import annotations

from typing import Any

import lm_tiny
import numpy as np
import pytest
import torch
from transformers import DynamicCache

from dragin_lab.core.episode import Write
from dragin_lab.engines.kept import Kept, find_ends, list_states, open_cache, split_cache
from dragin_lab.trace.trace import Prompt

SHOTS = "Question: Who wrote Elm?\nAnswer: Bo Ek wrote Elm.\n\n"
PASSAGES = "Context:\n[1] Ann Lee was born in Ulm, and died there.\n"


def cache(ids: list[int]) -> DynamicCache:
    """A cache that holds the ids themselves as keys, so that a mix-up shows."""
    filled = DynamicCache(config=lm_tiny.config_of("llama"))
    states = torch.tensor(ids, dtype=torch.float32).reshape(1, 1, -1, 1).expand(1, 2, -1, 8)
    for layer in range(4):
        filled.update(states.clone(), states.clone(), layer)
    return filled


def asked(question: str, passages: str = "", shots: str = SHOTS) -> Prompt:
    """A prompt with its parts named, as templates write them."""
    ends = {"exemplars": (0, len(shots))} if shots else {}
    if passages:
        ends["passages"] = (len(shots), len(shots) + len(passages))
    return Prompt(f"{shots}{passages}Question: {question}\nAnswer:", ends)


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_the_longest_beginning_that_is_kept_is_served() -> None:
    kept = Kept()
    for ids in ([1, 2], [1, 2, 3, 4]):
        kept.keep(ids, cache(ids))
    for ids, ends, length in (
        ([1, 2, 3, 4, 5], (2, 4), 4),
        ([1, 2, 3, 9, 5], (2, 4), 2),
        ([1, 2, 3, 4, 5], (2,), 2),
        ([1, 2, 3, 4, 5], (), 0),
        ([1, 9, 3], (2,), 0),
    ):
        reused, served = kept.take(ids, ends)
        assert reused == length
        assert (served is None) if not length else list_states(served)[0][0][0, 0, :, 0].tolist() == ids[:length]


def test_the_least_recently_used_goes_and_what_others_begin_with_goes_last() -> None:
    kept = Kept(most=2)
    for ids in ([1, 1], [2, 2]):
        kept.keep(ids, cache(ids))
    kept.take([1, 1, 1], (2,))
    kept.keep([3, 3], cache([3, 3]))
    assert [kept.take([i, i, i], (2,))[0] for i in (1, 2, 3)] == [2, 0, 2]
    kept.clear()
    for ids in ([1, 1], [1, 1, 2, 2]):
        kept.keep(ids, cache(ids))
    kept.take([1, 1, 2, 2, 5], (2, 4))
    kept.keep([4, 4], cache([4, 4]))
    assert kept.take([1, 1, 2, 2, 5], (2, 4))[0] == 2


def test_memory_is_bounded() -> None:
    each = Kept()
    each.keep([1] * 10, cache([1] * 10))
    kept = Kept(most=100, limit=3 * each.nbytes)
    for i in range(20):
        kept.keep([i] * 10, cache([i] * 10))
        assert kept.nbytes <= kept.limit
    assert len(kept) == 3
    kept.keep([50] * 100, cache([50] * 100))  # more than allowed by itself: the next draft still goes on behind it
    assert len(kept) == 1
    kept.clear()
    assert (len(kept), kept.nbytes) == (0, 0)


def test_texts_of_any_length_go_on_side_by_side_and_each_is_split_off_again() -> None:
    config, texts = lm_tiny.config_of("llama"), [[1, 2, 3], [4], []]
    beside = [cache(text) if text else None for text in texts]
    for room in (0, 8):  # without room it grows
        joined: Any = open_cache(config, beside, room)
        new = torch.full((3, 2, 1, 8), 9.0)
        for _ in range(2):
            for layer in range(4):
                keys, _ = joined.update(new, new, layer)
        assert keys.shape == (3, 2, 5, 8)
        for row, text in enumerate(texts):
            own = split_cache(joined, row, 3 - len(text), config)
            assert all(keys[0, 0, :, 0].tolist() == [*text, 9, 9] for keys, _ in list_states(own).values())
    assert [0 if one is None else one.get_seq_length() for one in beside] == [3, 1, 0]  # as they were


# -- where parts end --------------------------------------------------------------------------------------------------


def test_parts_end_at_whole_tokens_and_leave_the_last() -> None:
    offsets = np.array([[0, 0], [0, 4], [4, 9], [9, 12], [12, 15], [0, 0]])
    for spans, ends in (
        ({"exemplars": (0, 9), "passages": (9, 12), "question": (12, 14)}, (3, 4)),
        ({"exemplars": (0, 8)}, (2,)),  # a token across the end stands behind it
        ({"exemplars": (0, 15)}, ()),  # nothing would be left to feed
        ({"passages": (0, 3)}, (1,)),
        ({"question": (0, 9)}, ()),
        ({}, ()),
    ):
        assert find_ends(Prompt("x" * 15, spans), offsets) == ends


# -- with models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2", "bloom"])
def test_what_was_read_before_changes_nothing(kind: str) -> None:
    lm = lm_tiny.tiny(kind)
    prompts = [
        asked("Who is Ann?"), asked("Who is Bo Ek?", PASSAGES), asked("Who is Bo Ek? Who?", PASSAGES),
        asked("Who is Ann?"), asked("Who?", shots=""), asked("Who is Cy?", "Context:\n[1] Cy.\n"),
    ]  # fmt: skip
    drafts = [Write(prompt, 6, attention=True) for prompt in prompts]
    fresh = [lm_tiny.tiny(kind).write(draft) for draft in drafts]
    shots = find_ends(prompts[0], lm.prompt(prompts[0])[1])[0]
    both = find_ends(prompts[1], lm.prompt(prompts[1])[1])[1]
    for order, reused in (
        ((0, 1, 2, 3, 4, 5), [0, shots, both, shots, 0, shots]),
        ((5, 2, 1, 0), [0, shots, both, shots]),
    ):
        lm.forget()
        filled = [lm.write(drafts[i]) for i in order]
        for i, one in zip(order, filled, strict=True):
            lm_tiny.alike(one, fresh[i])
        assert [one.reused for one in filled] == reused
    assert [one.reused for one in fresh] == [0] * 6
    assert lm.provenance()["prefix_reuse"] == "exemplars, passages"
