"""The kept caches: the longest common beginning is served, the least recently used goes."""

from __future__ import annotations

from typing import Any

import lm_tiny
import pytest
import torch

from dragin_lab.episode import Draft
from dragin_lab.lm.load import LanguageModel
from dragin_lab.lm.prefixes import Prefix, Prefixes
from dragin_lab.trace import Prompt

CONFIG = lm_tiny.config_of("llama")


def prefix(ids: list[int], config: Any = CONFIG) -> Prefix:
    """A cache that holds the ids themselves as keys, so that a mix-up shows."""
    made = Prefix(config)
    states = torch.tensor(ids, dtype=torch.float32).reshape(1, 1, -1, 1).expand(1, 2, -1, 8)
    for layer in range(4):
        made.cache.update(states.clone(), states.clone(), layer)
    made.ids = list(ids)
    return made


def held(found: Prefix) -> list[int]:
    return found.states()[0][0][0, 0, :, 0].tolist() if found.ids else []


def test_the_longest_common_beginning_is_served_and_never_the_last_piece() -> None:
    kept = Prefixes(CONFIG)
    kept.keep(prefix([1, 2, 3, 4, 5]))
    kept.keep(prefix([1, 2, 9, 9]))
    for ids, common in (([1, 2, 3, 7, 7], 3), ([1, 2, 9, 9], 3), ([1, 2, 3, 4, 5, 6], 5), ([7], 0), ([1], 0)):
        found, reused = kept.take(ids)
        assert reused == common
        assert held(found) == found.ids == ids[:common]


def test_takers_do_not_disturb_what_is_kept_or_one_another() -> None:
    kept = Prefixes(CONFIG)
    kept.keep(prefix([1, 2, 3]))
    one, _ = kept.take([1, 2, 5])
    two, _ = kept.take([1, 2, 6])
    more = torch.full((1, 2, 1, 8), 5.0)
    for layer in range(4):
        one.cache.update(more, more, layer)
    assert held(two) == [1, 2]
    assert held(kept.take([1, 2, 3, 4])[0]) == [1, 2, 3]


def test_what_another_begins_with_is_not_kept_twice() -> None:
    kept = Prefixes(CONFIG)
    kept.keep(prefix([1, 2]))
    kept.keep(prefix([1, 2, 3]))
    kept.keep(prefix([1]))
    assert len(kept) == 1
    assert kept.take([1, 2, 3, 4])[1] == 3


def test_the_least_recently_used_goes() -> None:
    kept = Prefixes(CONFIG, most=2)
    kept.keep(prefix([1, 1]))
    kept.keep(prefix([2, 2]))
    kept.take([1, 1, 1])
    kept.keep(prefix([3, 3]))
    assert [kept.take([i, i, i])[1] for i in (1, 2, 3)] == [2, 0, 2]


def test_memory_is_bounded() -> None:
    each = Prefixes(CONFIG)
    each.keep(prefix([1] * 10))
    kept = Prefixes(CONFIG, most=100, limit=3 * each.nbytes)
    for i in range(20):
        kept.keep(prefix([i] * 10))
        assert kept.nbytes <= kept.limit
    assert len(kept) == 3
    kept.keep(prefix([50] * 100))  # more than allowed by itself: the next text of its episode still goes on behind it
    assert len(kept) == 1
    kept.clear()
    assert (len(kept), kept.nbytes) == (0, 0)


def test_half_a_cache_is_not_kept() -> None:
    kept = Prefixes(CONFIG)
    broken = prefix([1, 2, 3])
    broken.sound = False
    kept.keep(broken)
    assert len(kept) == 0


def test_a_sliding_window_serves_only_what_goes_on_where_it_ended() -> None:
    config = lm_tiny.config_of("gemma3")
    kept = Prefixes(config)
    assert kept.uncuttable
    assert not Prefixes(CONFIG).uncuttable
    kept.keep(prefix([1, 2, 3], config))
    assert kept.take([1, 2, 4])[1] == 0
    found, reused = kept.take([1, 2, 3, 4])
    assert (reused, found.ids) == (3, [1, 2, 3])
    assert len(kept) == 0  # it cannot be shared, so it is the taker's


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bloom"])
def test_drafts_with_and_without_passages_both_find_their_own(kind: str) -> None:
    lm = LanguageModel(lm_tiny.build(kind), lm_tiny.byte_level())
    lm.eos = frozenset()
    plain, passages = lm_tiny.PROMPT, "Context: Ann Lee was born in Ulm. " + lm_tiny.PROMPT
    lm.generate(Draft(Prompt(plain), 4))
    lm.generate(Draft(Prompt(passages), 4))
    assert lm.generate(Draft(Prompt(plain + " The"), 4)).reused >= len(lm.prompt(Prompt(plain))[0])
    assert lm.provenance()["prefix_reuse"] == "any"
