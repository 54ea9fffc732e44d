"""How often decoding waits for the device: a few times a token; counted on the CPU."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import lm_tiny
import pytest
import torch

from dragin_lab.core.episode import Stop, Write
from dragin_lab.trace.trace import Draft, Prompt

#: What fetches values from a device; ``numpy`` is only possible behind ``cpu``.
DOWN = ("item", "tolist", "cpu", "__int__", "__float__", "__bool__", "__index__")
#: What sends values to a device, which waits as well where they come from pageable memory.
UP = ("tensor", "as_tensor")
FEW, MANY = 8, 40  # tokens
MOST = 3  # waits a token: what was measured, its rows, and which drafts have ended


@dataclass(frozen=True)
class Scores(Stop):
    """Looks at everything that a trigger looks at."""

    measured = True

    def reached(self, so_far: Draft) -> str | None:
        assert len(so_far.entropy) == len(so_far.logprob) == len(so_far.received) == len(so_far.ids)
        return "never" if max(so_far.entropy) < 0 or so_far.received.max() > 2 else None


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The fetches and sends of our code."""
    called: list[str] = []

    def counting(original: Any, name: str, down: bool) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            ours = "dragin_lab/engines" in sys._getframe(1).f_code.co_filename
            if ours and (down or not isinstance(args[0], torch.Tensor)):
                called.append(name)
            return original(*args, **kwargs)

        return call

    for name in DOWN:
        monkeypatch.setattr(torch.Tensor, name, counting(getattr(torch.Tensor, name), name, True))
    for name in UP:
        monkeypatch.setattr(torch, name, counting(getattr(torch, name), name, False))
    return called


@pytest.mark.parametrize("stop", [Stop(), Scores()])
@pytest.mark.parametrize(("sample", "beside"), [(False, 1), (True, 1), (False, 2), (False, 5)])
def test_drafts_wait_a_few_times_a_token(waits: list[str], stop: Stop, sample: bool, beside: int) -> None:
    lm = lm_tiny.tiny(sample=sample)

    def count(n: int) -> int:
        waits.clear()
        drafts = [Write(Prompt(lm_tiny.PROMPT[i:]), n, stop, attention=True) for i in range(beside)]
        written = [lm.write(drafts[0])] if beside == 1 else lm_tiny.written(lm.batch(beside), drafts)
        assert not any(isinstance(output, Exception) for output in written)
        return len(waits)

    count(FEW)  # so that the prompt has been read
    few = count(FEW)
    assert (count(MANY) - few) / (MANY - FEW) <= MOST
