"""Drafts side by side: what is written, measured and captured is what a draft by itself gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import lm_tiny
import pytest
import torch
from lm_tiny import After, alike, sampling, tiny, written

from dragin_lab.core.episode import Bias, Stop, Write
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import ModelError, SettingError
from dragin_lab.trace.trace import Draft, Prompt

SLIDING = ("mistral", "gemma2", "gemma3", "gpt-oss")
CPU_FULL = (
    "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you"
    " tried to"
)


@dataclass(frozen=True)
class Broken(Stop):
    """Fails at its third token."""

    def reached(self, so_far: Draft) -> str | None:
        if len(so_far.ids) == 3:
            raise ValueError("no judgement")
        return None


#: Of all lengths, with a common beginning or none, ended in every way.
DRAFTS = [
    Write(Prompt(lm_tiny.PROMPT), 9, attention=True),
    Write(Prompt("Answer: Ulm"), 14, After(5, 1), attention=True),
    Write(Prompt(lm_tiny.PROMPT + " The mother"), 3),
    Write(Prompt("A"), 12, After(4, 1), attention=True),
    Write(Prompt(lm_tiny.PROMPT), 1),
    Write(Prompt("Question: Who?\nAnswer:"), 11, After(40, 1)),
    Write(Prompt("Answer: Ulm"), 8, After(7, 1), attention=True, prefix=(9, 5, 11)),
    Write(
        Prompt(lm_tiny.PROMPT + " Ulm"), 6, bias=(Bias("A", 50.0, 1, 3), Bias("e", -float("inf")))
    ),
]


@lm_tiny.matrix(*(k for k in lm_tiny.REGISTRY if k not in SLIDING))
def test_a_batch_gives_what_every_draft_gives_alone(kind: str) -> None:
    for size in (3, 50):
        batch = tiny(kind).batch(size)
        for draft, output in zip(DRAFTS, written(batch, DRAFTS), strict=True):
            alike(tiny(kind).write(draft), output)
        assert batch.describe() == {"asked": size, "size": size, "notes": []}


@lm_tiny.matrix(*SLIDING)
def test_a_sliding_window_is_written_one_at_a_time_and_says_so(kind: str) -> None:
    lm = tiny(kind)
    batch = lm.batch(3)
    assert batch.size == 1
    assert batch.describe()["notes"] == [
        "written one at a time: its key-value cache has a sliding window"
    ]
    for draft, output in zip(DRAFTS[:3], written(batch, DRAFTS[:3]), strict=True):
        alike(tiny(kind).write(draft), output)


def test_nobody_waits_for_the_slowest() -> None:
    batch = tiny().batch(2)
    for key, n in enumerate((30, 2, 2, 2, 2)):
        batch.ask(key, Write(Prompt("Answer: Ulm"), n))
    order = []
    while len(batch):
        order += [key for key, _ in batch.step()]
    assert order == [1, 2, 3, 4, 0]


def test_end_of_sequence_and_the_layer_and_heads_chosen() -> None:
    full = tiny().write(DRAFTS[0])
    options: dict[str, Any] = {"layer": 1, "heads": [3, 1]}
    alone, lm = tiny(**options), tiny(**options)
    alone.eos = lm.eos = frozenset({int(full.ids[4]), 10**6})
    for draft, output in zip(DRAFTS, written(lm.batch(4), DRAFTS), strict=True):
        alike(alone.write(draft), output)
    ended, first = lm.write(DRAFTS[0]), full.ids.tolist().index(full.ids[4])
    assert (ended.stopped, ended.ids.tolist()) == ("eos", full.ids[: first + 1].tolist())


def test_each_draft_has_its_own_draws_and_warpers() -> None:
    seeds, settings = range(5, 5 + len(DRAFTS)), {"top_k": 20, "repetition_penalty": 1.2}
    output = written(sampling(**settings).batch(3), DRAFTS, seeds)
    for draft, seed, one in zip(DRAFTS, seeds, output, strict=True):
        alike(sampling(**settings).write(draft, seed), one)
    assert output[0].entropy_processed is not None


def test_exemplars_are_read_once_for_all() -> None:
    lm = tiny()
    spans = {"exemplars": (0, len(lm_tiny.PROMPT))}
    drafts = [
        Write(Prompt(lm_tiny.PROMPT + end, spans), 4) for end in (" A", " B", " C", " D", " E")
    ]
    reused = [output.reused for output in written(lm.batch(5), drafts)]
    shared = len(lm.tokenizer.encode_prompt(Prompt(lm_tiny.PROMPT))[0])
    # the space before the last letter is in all of them too
    assert reused == [0, *[shared + 1] * 4]


def test_prompts_of_about_one_length_are_read_side_by_side() -> None:
    lm, shapes = tiny(), list[tuple[int, ...]]()
    spans, ends = (
        {"exemplars": (0, len(lm_tiny.PROMPT))},
        (" A mother", " B", " C was", " D " + 90 * "x"),
    )
    drafts = [Write(Prompt(lm_tiny.PROMPT + end, spans), 1, attention=True) for end in ends]
    lm.model.model.embed_tokens.register_forward_pre_hook(
        lambda _, given: shapes.append(tuple(given[0].shape))
    )
    output = written(lm.batch(5), drafts)
    # exemplars, shorter rests, the longest
    assert [rows for rows, columns in shapes if columns > 1] == [1, 3, 1]
    for draft, one in zip(drafts, output, strict=True):
        alike(tiny().write(draft), one)


# -- what goes wrong -------------------------------------------------------------------------------


def test_a_failing_draft_is_no_matter_of_the_others() -> None:
    lm = tiny("gpt2")
    drafts = [
        DRAFTS[0],
        Write(Prompt("x" * 300), 5),
        Write(Prompt("Answer"), 9, Broken()),
        *DRAFTS[1:4],
    ]
    output = written(lm.batch(3), drafts)
    assert isinstance(output[1], ModelError)
    assert "do not fit into the 256 positions" in str(output[1])
    assert isinstance(output[2], ValueError)
    for i in (0, 3, 4, 5):
        alike(tiny("gpt2").write(drafts[i]), output[i])


def small(lm: LanguageModel, rows: int, error: Exception) -> None:
    """Let every forward of more than some texts fail behind the second layer."""
    layer = lm.model.model.layers[2]
    forward = layer.forward

    def limited(hidden: Any, *args: Any, **kwargs: Any) -> Any:
        if hidden.shape[0] > rows:
            raise error
        return forward(hidden, *args, **kwargs)

    layer.forward = limited


@pytest.mark.parametrize(
    ("error", "size", "note"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory"),
            3,
            "a batch of 6 did not fit into memory; went on with 3",
        ),
        (RuntimeError(CPU_FULL), 3, "a batch of 6 did not fit into memory; went on with 3"),
        (
            RuntimeError("odd"),
            1,
            "written one at a time, because a batch of 6 met RuntimeError: odd",
        ),
    ],
)
def test_a_batch_that_fails_is_made_smaller_and_says_so(
    error: Exception, size: int, note: str
) -> None:
    lm = tiny()
    small(lm, size, error)
    batch = lm.batch(6)
    for draft, output in zip(DRAFTS, written(batch, DRAFTS), strict=True):
        alike(tiny().write(draft), output)
    assert batch.describe() == {"asked": 6, "size": size, "notes": [note]}


def test_a_draft_that_fits_nowhere_fails_alone() -> None:
    lm = tiny()
    embed = lm.model.model.embed_tokens

    def refuse(module: Any, args: Any) -> None:
        if args[0].shape[1] > 40:
            raise torch.OutOfMemoryError("CUDA out of memory")

    embed.register_forward_pre_hook(refuse)
    drafts = [DRAFTS[1], Write(Prompt("y" * 60), 5), DRAFTS[3]]
    batch = lm.batch(3)
    output = written(batch, drafts)
    assert isinstance(output[1], torch.OutOfMemoryError)
    alike(tiny().write(drafts[0]), output[0])
    alike(tiny().write(drafts[2]), output[2])
    assert batch.describe()["notes"] == ["a batch of 3 did not fit into memory; went on with 1"]


def test_closing_leaves_the_model_as_it_was() -> None:
    lm = tiny()
    limit, batch = lm.prefixes.limit, lm.batch(16)
    batch.ask(0, DRAFTS[0])
    batch.step()
    batch.close()
    assert (len(batch), lm.prefixes.limit) == (0, limit)
    with pytest.raises(SettingError, match="a batch of 0 drafts"):
        lm.batch(0)
    alike(tiny().write(DRAFTS[0]), lm.write(DRAFTS[0]))
