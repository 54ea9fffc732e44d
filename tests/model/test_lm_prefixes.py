"""The kept caches: a prompt goes on behind the parts it shares with an earlier one; the least recently used goes."""

from __future__ import annotations

from typing import Any

import lm_tiny
import numpy as np
import pytest
import torch

from dragin_lab.core.episode import Write
from dragin_lab.model.caches import Prefix, Prefixes, find_ends
from dragin_lab.trace.trace import Prompt

CONFIG = lm_tiny.config_of("llama")
SHOTS = "Question: Who wrote Elm?\nAnswer: Bo Ek wrote Elm.\n\n"
PASSAGES = "Context:\n[1] Ann Lee was born in Ulm, and died there.\n"


def prefix(ids: list[int], config: Any = CONFIG, *, ends: tuple[int, ...] | None = None) -> Prefix:
    """A cache that holds the ids themselves as keys, so that a mix-up shows."""
    filled = Prefix(config)
    states = torch.tensor(ids, dtype=torch.float32).reshape(1, 1, -1, 1).expand(1, 2, -1, 8)
    for layer in range(4):
        filled.cache.update(states.clone(), states.clone(), layer)
    filled.ids, filled.ends = list(ids), (len(ids),) if ends is None else ends
    return filled


def held(served: Prefix) -> list[int]:
    return served.states()[0][0][0, 0, :, 0].tolist() if served.ids else []


def asked(question: str, passages: str = "", shots: str = SHOTS) -> Prompt:
    """A prompt with its parts named, as templates write them."""
    ends = {"exemplars": (0, len(shots))} if shots else {}
    if passages:
        ends["passages"] = (len(shots), len(shots) + len(passages))
    return Prompt(f"{shots}{passages}Question: {question}\nAnswer:", ends)


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_as_many_whole_parts_as_are_kept_are_served() -> None:
    kept = Prefixes(CONFIG)
    kept.keep(prefix([1, 2]))
    kept.keep(prefix([1, 2, 3, 4], ends=(2, 4)))
    for ids, ends, length in (
        ([1, 2, 3, 4, 5], (2, 4), 4),
        ([1, 2, 3, 9, 5], (2, 4), 2),
        ([1, 2, 3, 4, 5], (2,), 2),  # the same tokens, read in other parts
        ([1, 2, 3, 4, 5], (4,), 0),
        ([1, 2, 3, 4, 5], (), 0),
        ([1, 9, 3], (2,), 0),
    ):
        served = kept.take(ids, ends)
        assert held(served) == served.ids == ids[:length]
        assert served.ends == ends[: len(served.ends)]


def test_takers_do_not_disturb_what_is_kept_or_one_another() -> None:
    kept = Prefixes(CONFIG)
    mine = prefix([1, 2])
    kept.keep(mine)
    one, two = kept.take([1, 2, 5], (2,)), kept.take([1, 2, 6], (2,))
    more = torch.full((1, 2, 1, 8), 5.0)
    for grown in (mine, one):
        for layer in range(4):
            grown.cache.update(more, more, layer)
        grown.ids.append(5)
    assert held(two) == [1, 2]
    assert held(kept.take([1, 2, 7], (2,))) == [1, 2]


def test_the_least_recently_used_goes_and_what_others_begin_with_goes_last() -> None:
    kept = Prefixes(CONFIG, most=2)
    kept.keep(prefix([1, 1]))
    kept.keep(prefix([2, 2]))
    kept.take([1, 1, 1], (2,))
    kept.keep(prefix([3, 3]))
    assert [len(kept.take([i, i, i], (2,)).ids) for i in (1, 2, 3)] == [2, 0, 2]
    kept.clear()
    kept.keep(prefix([1, 1]))
    kept.keep(prefix([1, 1, 2, 2], ends=(2, 4)))
    kept.take([1, 1, 2, 2, 5], (2, 4))
    kept.keep(prefix([4, 4]))
    assert len(kept.take([1, 1, 2, 2, 5], (2, 4)).ids) == 2


def test_memory_is_bounded() -> None:
    each = Prefixes(CONFIG)
    each.keep(prefix([1] * 10))
    kept = Prefixes(CONFIG, most=100, limit=3 * each.nbytes)
    for i in range(20):
        kept.keep(prefix([i] * 10))
        assert kept.nbytes <= kept.limit
    assert len(kept) == 3
    kept.keep(prefix([50] * 100))  # more than allowed by itself: the next draft of its episode still goes on behind it
    assert len(kept) == 1
    kept.clear()
    assert (len(kept), kept.nbytes) == (0, 0)


def test_a_state_that_is_overwritten_in_place_is_not_shared() -> None:
    kept = Prefixes(CONFIG)
    assert kept.shareable
    odd = prefix([1, 2, 3])
    odd.cache.layers[1] = type("Recurrent", (type(odd.cache.layers[1]),), {})()
    kept.keep(odd)
    assert len(kept) == 0


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
    fresh = [lm_tiny.tiny(kind).generate(draft) for draft in drafts]
    shots = find_ends(prompts[0], lm.prompt(prompts[0])[1])[0]
    both = find_ends(prompts[1], lm.prompt(prompts[1])[1])[1]
    for order, reused in (
        ((0, 1, 2, 3, 4, 5), [0, shots, both, shots, 0, shots]),
        ((5, 2, 1, 0), [0, shots, both, shots]),
    ):
        lm.forget()
        filled = [lm.generate(drafts[i]) for i in order]
        for i, one in zip(order, filled, strict=True):
            lm_tiny.alike(one, fresh[i])
        assert [one.reused for one in filled] == reused
    assert [one.reused for one in fresh] == [0] * 6
    assert lm.provenance()["prefix_reuse"] == "exemplars, passages"
