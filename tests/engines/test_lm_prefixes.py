"""The kept caches: a prompt goes on behind the parts it shares with an earlier one; the least
recently used goes.
"""

from __future__ import annotations

from pathlib import Path

import lm_tiny
import pytest
import torch
from transformers import DynamicCache

from dragin_lab.core.episode import Write
from dragin_lab.engines import writing
from dragin_lab.engines.writing import Prefixes, find_ends
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


def test_the_least_recently_used_goes_and_what_others_begin_with_goes_last() -> None:
    room = Prefixes()
    room.keep([1, 1], cache([1, 1]))
    kept = Prefixes(limit=2 * room.nbytes)
    for ids in ([1, 1], [2, 2]):
        kept.keep(ids, cache(ids))
    kept.find([1, 1, 1], (2,))
    kept.keep([3, 3], cache([3, 3]))
    assert [kept.find([i, i, i], (2,))[0] for i in (1, 2, 3)] == [2, 0, 2]
    kept.clear()
    kept.limit = 3 * room.nbytes
    for ids in ([1, 1], [1, 1, 2, 2]):
        kept.keep(ids, cache(ids))
    kept.find([1, 1, 2, 2, 5], (2, 4))
    kept.keep([4, 4], cache([4, 4]))
    assert kept.find([1, 1, 2, 2, 5], (2, 4))[0] == 2


@pytest.mark.parametrize("by_what_is_free", [False, True])
def test_memory_is_bounded(by_what_is_free: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    each = Prefixes()
    each.keep([1] * 10, cache([1] * 10))
    kept, most = Prefixes(limit=None if by_what_is_free else 3 * each.nbytes), 3 * each.nbytes
    monkeypatch.setattr(writing, "free_memory", lambda device: 2 * most - kept.nbytes)
    for i in range(20):
        kept.keep([i] * 10, cache([i] * 10))
        assert kept.nbytes <= most
    assert len(kept) == 3
    # more than allowed by itself: the next draft still goes on behind it
    kept.keep([50] * 100, cache([50] * 100))
    assert len(kept) == 1
    kept.clear()
    assert (len(kept), kept.nbytes) == (0, 0)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2"])
def test_what_was_read_before_changes_nothing(kind: str) -> None:
    lm = lm_tiny.tiny(kind)
    prompts = [
        asked("Who is Ann?"),
        asked("Who is Bo Ek?", PASSAGES),
        asked("Who is Bo Ek? Who?", PASSAGES),
        asked("Who is Ann?"),
        asked("Who?", shots=""),
        asked("Who is Cy?", "Context:\n[1] Cy.\n"),
    ]
    drafts = [Write(prompt, 6, attention=True) for prompt in prompts]
    fresh = [lm_tiny.tiny(kind).write(draft) for draft in drafts]
    shots = find_ends(prompts[0], lm.tokenizer.encode_prompt(prompts[0])[1])[0]
    both = find_ends(prompts[1], lm.tokenizer.encode_prompt(prompts[1])[1])[1]
    for order, reused in (
        ((0, 1, 2, 3, 4, 5), [0, shots, both, shots, 0, shots]),
        ((5, 2, 1, 0), [0, shots, both, shots]),
    ):
        lm.prefixes.clear()
        filled = [lm.write(drafts[i]) for i in order]
        for i, one in zip(order, filled, strict=True):
            lm_tiny.alike(one, fresh[i])
        assert [one.reused for one in filled] == reused
    assert [one.reused for one in fresh] == [0] * 6
    assert lm.provenance()["prefix_reuse"] == "exemplars, passages"


def test_a_container_has_no_more_than_its_limit_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_GROUP", tmp_path)
    cpu, machine = torch.device("cpu"), writing.free_memory(torch.device("cpu"))
    (tmp_path / "memory.current").write_text("3000\n")
    for limit, free in (("5000\n", 2000), ("1000\n", 0)):
        (tmp_path / "memory.max").write_text(limit)
        assert writing.free_memory(cpu) == free
    (tmp_path / "memory.max").write_text("max\n")
    assert writing.free_memory(cpu) > machine // 2
