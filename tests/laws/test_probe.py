"""A changed model is another model, and an unchanged one the same, whatever was changed and by
whom.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dragin_lab as dl
from dragin_lab.almanac import embedded_model_path
from dragin_lab.trace.records import probe_distance, probe_tolerance

EXEMPLARS = dl.almanac.exemplars("2wikimultihopqa")[:2]
QUESTION = "In which town was the director of The Ashen Rooftop born?"


def hook(factor: float) -> Callable[..., Any]:
    return lambda module, inputs, output: output * factor


def edit_data(model: Any) -> None:
    model.model.layers[1].mlp.down_proj.weight.data[1:] *= -1.5


def edit_in_place(model: Any) -> None:
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight.mul_(-1.5)


def exchange_parameter(model: Any) -> None:
    layer = model.model.layers[0].self_attn.o_proj
    layer.weight = torch.nn.Parameter(layer.weight * 2)


def exchange_module(model: Any) -> None:
    model.model.layers[2].mlp = torch.nn.Identity()


def patch_forward(model: Any) -> None:
    norm, own = model.model.norm, model.model.norm.forward
    norm.forward = lambda states: own(states) * 1.5


def patch_class(model: Any) -> None:
    layer = model.model.layers[1].mlp
    kind = type(layer)
    layer.__class__ = type(
        "Scaled", (kind,), {"forward": lambda self, states: kind.forward(self, states) * 2}
    )


#: Kinds of changes, as people of this field make them.
CHANGES: dict[str, Callable[[Any], Any]] = {
    "forward hook": lambda m: m.model.layers[1].mlp.register_forward_hook(hook(0.2)),
    "another hook in its place": lambda m: m.model.layers[1].mlp.register_forward_hook(hook(-1.5)),
    "forward pre-hook": lambda m: m.model.layers[1].mlp.register_forward_pre_hook(
        lambda module, args: (args[0] * 0.5,)
    ),
    "hook on the embeddings": lambda m: m.model.embed_tokens.register_forward_hook(hook(2.0)),
    "hook on the output layer": lambda m: m.lm_head.register_forward_hook(hook(0.7)),
    "data": edit_data,
    "in place": edit_in_place,
    "parameter": exchange_parameter,
    "module": exchange_module,
    "forward": patch_forward,
    "class": patch_class,
    "one embedding": lambda m: m.model.embed_tokens.weight.data[5].mul_(3),
    "scale of attention": lambda m: setattr(m.model.layers[2].self_attn, "scaling", 0.01),
}


def ask(lab: dl.Lab) -> Any:
    return lab.ask(QUESTION, "wo-rag", max_new_tokens=5).steps[0].draft


#: One of each way to change a model; the others are in the slow tier.
QUICK = ("forward hook", "data", "module", "forward", "class")


@pytest.mark.parametrize(
    "change", [pytest.param(c, marks=() if c in QUICK else pytest.mark.slow) for c in CHANGES]
)
def test_a_change_is_seen_by_prefixes_cache_and_record(change: str) -> None:
    lab = dl.Lab(str(embedded_model_path()), retriever=lambda query, k: [], exemplars=EXEMPLARS)
    how = dl.method("wo-rag", max_new_tokens=5)
    before = lab.ask(QUESTION, how).provenance["probe"]
    caching = lab.replace(cache=True)  # of the same model
    assert ask(lab).reused
    ask(caching)
    assert ask(caching).stored
    CHANGES[change](lab.model.model)
    trace = lab.ask(QUESTION, how)
    seen = [trace.steps[0].draft, ask(caching)]
    assert trace.provenance["probe"] != before or change == "one embedding"
    assert not seen[1].stored
    assert ask(caching).stored
    lab.model.prefixes.clear()
    right = ask(lab)
    for draft in seen:
        assert draft.ids.tolist() == right.ids.tolist()
        np.testing.assert_allclose(draft.entropy, right.entropy, atol=1e-4)


def test_a_change_that_is_taken_back_is_the_model_before() -> None:
    lab = dl.Lab(cache=True)
    plain = ask(lab)
    layer = lab.model.model.model.layers[1].mlp
    handle = layer.register_forward_hook(hook(0.2))
    other = ask(lab)
    handle.remove()
    again = ask(lab)
    assert (other.stored, again.stored) == (False, True)
    assert again.ids.tolist() == plain.ids.tolist()
    with layer.register_forward_hook(hook(0.2)):
        assert ask(lab).stored


def test_a_hook_of_another_strength_is_another_model() -> None:
    lab, strength = dl.Lab(cache=True), [0.2]
    lab.model.model.model.layers[1].mlp.register_forward_hook(lambda m, i, o: o * strength[0])
    ask(lab)
    strength[0] = 0.2001
    assert not ask(lab).stored


SCRIPT = """
import json, sys, torch
torch.set_num_threads(int(sys.argv[2]))
import dragin_lab as dl
lab = dl.Lab()
trace = lab.ask("Who directed The Silent Fukain?", "sr-rag", max_new_tokens=6)
folder, limit = sys.argv[1] + "/run", int(sys.argv[2])
short = dl.method("wo-rag", max_new_tokens=4)
lab.run(["Who?", "Where?"], short, output=folder, limit=limit, progress=False)
if limit == 2:
    old = dl.Trace.load(sys.argv[1] + "/a.trace")
    assert lab.branch(old, step=1, query=old.steps[0].query.text).text == old.text
else:
    trace.save(sys.argv[1] + "/a.trace")
lab.close()
print(json.dumps([trace.provenance["probe"], trace.text]))
"""


@pytest.mark.slow
def test_an_unchanged_model_is_the_same_in_another_process_on_other_threads_and_other_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run resumes and a trace branches."""
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path), "1"])
    exec(SCRIPT, {"__name__": "__main__"})
    first = json.loads(capsys.readouterr().out.splitlines()[-1])
    paths = {
        "PYTHONPATH": str(Path(dl.__file__).parents[1]),
        "OMP_NUM_THREADS": "2",
        "ATEN_CPU_CAPABILITY": "default",
    }
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), "2"]
    done = subprocess.run(
        command, env=os.environ | paths, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    second = json.loads(done.stdout.splitlines()[-1])
    assert probe_distance(first[0], second[0]) <= probe_tolerance("float32") / 10
    assert second[1] == first[1]
    lines = (
        (tmp_path / "run" / "questions" / "wo-rag-max_new_tokens=4" / "predictions.jsonl")
        .read_text()
        .splitlines()
    )
    assert len(lines) == 2
