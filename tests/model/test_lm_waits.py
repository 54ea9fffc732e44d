"""How often decoding waits for the device: once a token, to learn which token it is; counted on the CPU."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

import lm_tiny
import pytest
import torch

from dragin_lab.core.episode import Never, SoFar, Stop, Write
from dragin_lab.model.load import LanguageModel
from dragin_lab.trace.trace import Prompt

#: What fetches values from a device; ``numpy`` is only possible behind ``cpu``.
DOWN = ("item", "tolist", "cpu", "__int__", "__float__", "__bool__", "__index__")
#: What sends values to a device, which waits as well where they come from pageable memory.
UP = ("tensor", "as_tensor")
FEW, MANY = 8, 8 + 3 * 16  # tokens; what happens every 16th of them is seen too


@dataclass(frozen=True)
class Text:
    """Looks at the text alone."""

    def reached(self, so_far: SoFar) -> str | None:
        return "never" if so_far.text == "?" else None


@dataclass(frozen=True)
class Scores:
    """Looks at everything that a trigger looks at."""

    def reached(self, so_far: SoFar) -> str | None:
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
                    counts["ours" if "dragin_lab/model" in caller else "theirs"] += 1
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


@pytest.mark.parametrize("stop", [Never(), Text(), Scores()])
@pytest.mark.parametrize("attention", [True, False])
def test_a_draft_waits_once_a_token(waits: Counter[str], stop: Stop, attention: bool) -> None:
    lm = model()
    waited = ours(waits, lambda n: lm.generate(Write(Prompt(lm_tiny.PROMPT), n, stop, attention=attention)))
    assert waited == {"ours": 1.0, "theirs": 0.0}


def test_sampling_and_processors_wait_no_more_often(waits: Counter[str]) -> None:
    raw = lm_tiny.build("llama")
    raw.generation_config.update(do_sample=True, eos_token_id=None, top_k=20, repetition_penalty=1.2)
    lm = LanguageModel(raw, lm_tiny.byte_level(), sample=True)
    assert ours(waits, lambda n: lm.generate(Write(Prompt(lm_tiny.PROMPT), n), 3))["ours"] == 1.0


@pytest.mark.parametrize("stop", [Never(), Scores()])
def test_who_watches_waits_no_more_often(waits: Counter[str], stop: Stop) -> None:
    lm = model()
    assert ours(waits, lambda n: list(lm.stream(Write(Prompt(lm_tiny.PROMPT), n, stop))))["ours"] == 1.0


@pytest.mark.parametrize("rows", [2, 5])
@pytest.mark.parametrize("stop", [Never(), Text(), Scores()])
def test_a_batch_waits_once_a_step_however_many_drafts_it_has(waits: Counter[str], stop: Stop, rows: int) -> None:
    lm = model()

    def write(n: int) -> None:
        batch = lm.batch(rows)
        for i in range(rows):
            batch.ask(i, Write(Prompt(lm_tiny.PROMPT[i:]), n, stop, attention=True))
        while len(batch):
            assert not any(isinstance(output, Exception) for _, output in batch.step())
        batch.close()

    waited = ours(waits, write)
    assert waited["ours"] == 1.0
    assert waited["theirs"] <= 1.0  # transformers looks whether its mask masks anything
