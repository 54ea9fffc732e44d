"""How often decoding waits for the device: once a token, twice a step of a batch; counted on the
CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import lm_tiny
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dragin_lab.core.episode import Stop, Write
from dragin_lab.trace.trace import Draft, Prompt

#: What waits for values of a device, in code of anyone's.
WAITING = ("aten.equal.default", "aten.is_nonzero.default", "aten._local_scalar_dense.default")
FEW, MANY = 8, 40  # tokens


class Waits(TorchDispatchMode):
    """Counts what waits for the device, beside ``Tensor.cpu``."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += str(func) in WAITING
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Scores(Stop):
    """Looks at everything that a trigger looks at."""

    measured = True

    def reached(self, so_far: Draft) -> str | None:
        assert len(so_far.entropy) == len(so_far.logprob) == len(so_far.received) == len(so_far.ids)
        return "never" if max(so_far.entropy) < 0 or so_far.received.max() > 2 else None


@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize(("sample", "beside"), [(False, 1), (True, 1), (False, 2), (False, 5)])
def test_drafts_wait_once_a_token_or_twice_a_step(
    monkeypatch: pytest.MonkeyPatch, attention: bool, sample: bool, beside: int
) -> None:
    lm, cpu, mode = lm_tiny.tiny(sample=sample), torch.Tensor.cpu, Waits()

    def fetch(self: torch.Tensor) -> torch.Tensor:
        mode.count += 1
        return cpu(self)

    def count(n: int) -> int:
        mode.count = 0
        drafts = [
            Write(Prompt(lm_tiny.PROMPT[i:]), n, Scores(), attention=attention)
            for i in range(beside)
        ]
        with mode:
            written = (
                [lm.write(drafts[0])] if beside == 1 else lm_tiny.written(lm.batch(beside), drafts)
            )
        assert [len(draft) for draft in written] == [n] * beside
        return mode.count

    monkeypatch.setattr(torch.Tensor, "cpu", fetch)
    count(FEW)  # so that the prompt has been read
    few = count(FEW)
    each = 1 if beside == 1 else 2  # a model asks once more whether its mask hides any padding
    assert MANY - FEW <= count(MANY) - few <= each * (MANY - FEW)
