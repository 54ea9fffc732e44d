"""Weights of other kinds than float32 tensors: they open, are stamped and hashed, and write what
``generate`` writes.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import lm_tiny
import pytest
import torch
from torch.utils import _pytree as pytree

from dragin_lab.core.episode import Write
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import ModelError
from dragin_lab.trace.trace import Prompt


class Stored(torch.Tensor):
    """A subclass as torchao and quanto make them: its numbers lie in another tensor."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Stored:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=torch.float32)  # type: ignore[attr-defined, no-any-return]

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].inner)
        if "view" in str(func):
            raise NotImplementedError("it has no storage to view")
        args = pytree.tree_map_only(Stored, lambda one: one.inner.float(), args)
        return func(*args, **(kwargs or {}))


def exchange(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    """Exchange the weight of one layer."""

    def make(model: Any) -> Any:
        layer = model.model.layers[0].mlp.up_proj
        layer.weight = torch.nn.Parameter(change(layer.weight.detach()), requires_grad=False)
        return model

    return make


def keep(state: Any) -> Callable[[Any], Any]:
    """Give a module what it keeps beside its tensors."""

    def make(model: Any) -> Any:
        norm: Any = model.model.norm
        own = {"get_extra_state": lambda self: state, "set_extra_state": lambda self, given: None}
        norm.__class__ = type("Keeping", (type(norm),), own | {"__module__": __name__})
        return model

    return make


def quantize(model: Any) -> Any:
    return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)


def infer(model: Any) -> Any:
    with torch.inference_mode():
        for module in model.modules():
            for name, weight in list(module.named_parameters(recurse=False)):
                setattr(module, name, torch.nn.Parameter(weight.clone(), requires_grad=False))
    return model


KINDS: dict[str, Callable[[Any], Any]] = {
    "csr": exchange(torch.Tensor.to_sparse_csr),
    "csc": exchange(torch.Tensor.to_sparse_csc),
    "coo": exchange(torch.Tensor.to_sparse),
    "subclass": exchange(Stored),
    "a tensor beside": keep(torch.ones(2)),
    "bytes beside": keep(io.BytesIO(b"a")),
    "a dictionary beside": keep({"scale": 2.0, "kept": [torch.ones(1), None]}),
    "dynamic": quantize,
    "inference": infer,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_what_generate_runs_with_is_taken(kind: str) -> None:
    model = KINDS[kind](lm_tiny.build("llama"))
    lm = LanguageModel(model, lm_tiny.byte_level())
    facts = lm.provenance()
    draft = lm.write(Write(Prompt(lm_tiny.PROMPT), 8))
    ids = torch.tensor([draft.prompt_ids.tolist()])
    with torch.no_grad():
        own = model.generate(ids, max_new_tokens=len(draft), do_sample=False, eos_token_id=None)
    assert own[0, ids.shape[1] :].tolist() == draft.ids.tolist()
    again = LanguageModel(KINDS[kind](lm_tiny.build("llama")), lm_tiny.byte_level(), check=False)
    assert again.provenance()["weights_sha256"] == facts["weights_sha256"]
    other = LanguageModel(KINDS[kind](lm_tiny.build("llama", 1)), lm_tiny.byte_level(), check=False)
    assert other.provenance()["weights_sha256"] != facts["weights_sha256"]


def test_what_lies_beside_the_tensors_is_in_the_hash() -> None:
    hashes = [
        LanguageModel(
            keep({"scale": scale})(lm_tiny.build("llama")), lm_tiny.byte_level(), check=False
        )
        for scale in (1.0, 2.0)
    ]
    assert len({lm.provenance()["weights_sha256"] for lm in hashes}) == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_the_limits_are_those_of_its_type(dtype: torch.dtype) -> None:
    with torch.autocast("cpu", dtype):
        lm = LanguageModel(lm_tiny.build("llama"), lm_tiny.byte_level())
        draft = lm.write(Write(Prompt(lm_tiny.PROMPT), 8, attention=True))
    assert draft.rows is not None
    assert abs(float(draft.rows[0, 0].sum()) - 1) < 2e-3


def test_values_that_overflow_are_told_with_a_type_that_holds_them() -> None:
    model = lm_tiny.build("llama")
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight.mul_(1e7)
    for check in (True, False):
        with pytest.raises(ModelError, match='float16 may overflow: load it with dtype="bfloat16"'):
            LanguageModel(model.half(), lm_tiny.byte_level(), check=check).provenance()
