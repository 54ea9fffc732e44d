"""How often decoding waits for the device: a few times a token; counted on the CPU."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

import lm_tiny
import pytest
import torch

from dragin_lab.core.episode import Never, Stop, Write
from dragin_lab.engines.load import LanguageModel
from dragin_lab.trace.trace import Draft, Prompt

#: What fetches values from a device; ``numpy`` is only possible behind ``cpu``.
DOWN = ("item", "tolist", "cpu", "__int__", "__float__", "__bool__", "__index__")
#: What sends values to a device, which waits as well where they come from pageable memory.
UP = ("tensor", "as_tensor")
FEW, MANY = 8, 40  # tokens
MOST = 5  # waits a token: which it is, what was measured, its row, and what is kept of it


@dataclass(frozen=True)
class Scores(Stop):
    """Looks at everything that a trigger looks at."""

    measured = True

    def reached(self, so_far: Draft) -> str | None:
        assert len(so_far.entropy) == len(so_far.logprob) == len(so_far.received) == len(so_far.ids)
        return "never" if max(so_far.entropy) < 0 or so_far.received.max() > 2 else None


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the fetches and sends of our code ("ours") and of transformers ("theirs")."""
    counts: Counter[str] = Counter()

    def counting(original: Any, name: str, down: bool) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if down or not isinstance(args[0], torch.Tensor):
                caller = sys._getframe(1).f_code.co_filename
                if "dragin_lab" in caller or "transformers" in caller:
                    counts["ours" if "dragin_lab/engines" in caller else "theirs"] += 1
            return original(*args, **kwargs)

        return call

    for name in DOWN:
        monkeypatch.setattr(torch.Tensor, name, counting(getattr(torch.Tensor, name), name, True))
    for name in UP:
        monkeypatch.setattr(torch, name, counting(getattr(torch, name), name, False))
    return counts


def model(**options: Any) -> LanguageModel:
    lm = LanguageModel(lm_tiny.build("llama"), lm_tiny.byte_level(), **options)
    lm.eos = frozenset()
    return lm


def ours(waits: Counter[str], write: Any) -> dict[str, float]:
    """Waits for each further token: what ``MANY`` tokens take more than ``FEW``."""
    write(FEW)  # so that the prompt has been read
    waited = []
    for n in (FEW, MANY):
        waits.clear()
        write(n)
        waited.append(dict(waits))
    return {who: (waited[1].get(who, 0) - waited[0].get(who, 0)) / (MANY - FEW) for who in ("ours", "theirs")}


@pytest.mark.parametrize("stop", [Never(), Scores()])
@pytest.mark.parametrize("sample", [False, True])
def test_a_draft_waits_a_few_times_a_token(waits: Counter[str], stop: Stop, sample: bool) -> None:
    lm = model(sample=sample)
    waited = ours(waits, lambda n: lm.write(Write(Prompt(lm_tiny.PROMPT), n, stop, attention=True)))
    assert waited["ours"] <= MOST


@pytest.mark.parametrize("rows", [2, 5])
def test_drafts_side_by_side_wait_no_more_often(waits: Counter[str], rows: int) -> None:
    lm = model()

    def write(n: int) -> None:
        drafts = [Write(Prompt(lm_tiny.PROMPT[i:]), n, Scores(), attention=True) for i in range(rows)]
        assert not any(isinstance(output, Exception) for output in lm_tiny.written(lm.batch(rows), drafts))

    assert ours(waits, write)["ours"] <= MOST
