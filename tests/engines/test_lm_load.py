"""Loading: defaults, provenance, the model's own checks, and bad input in one or two clear
lines.
"""

from __future__ import annotations

import copy
import importlib
import json
import multiprocessing
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import lm_tiny
import numpy as np
import pytest
import torch
import transformers
from lm_tiny import refused
from safetensors.torch import load_file, save_file
from tokenizers.processors import TemplateProcessing

import dragin_lab as dl
from dragin_lab import engines
from dragin_lab.core.episode import Write
from dragin_lab.engines import load, names, tap, writing
from dragin_lab.engines import transformers as engine
from dragin_lab.engines.check import FLOAT32, HALF, Limits
from dragin_lab.engines.layers import choose_layer, describe_layer
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import ModelError, SettingError
from dragin_lab.run.cache import Cache
from dragin_lab.trace.trace import Prompt

SMALL = lm_tiny.PARITY / "almanac-small"


def search(query: str, k: int) -> list[dl.Passage]:
    return [dl.Passage(str(i), "Ann Lee", "Ann Lee was born in Ulm.") for i in range(k)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A writable copy of a model folder."""
    return Path(shutil.copytree(SMALL, tmp_path / "model", copy_function=shutil.copyfile))


def test_a_folder_loads_in_float32_with_all_it_needs() -> None:
    lm = LanguageModel.load(SMALL)
    assert lm.model.dtype == torch.float32  # the files hold bfloat16
    assert (lm.name, lm.context_window, lm.hard_window, lm.layer) == (
        "almanac-small",
        2048,
        False,
        2,
    )
    assert repr(lm).startswith(
        "LanguageModel(almanac-small, LlamaForCausalLM, float32 on cpu, layer 3 of 3, "
    )
    checks = lm.check()
    for what in ("decoding", "a prompt read in parts", "a left-padded batch"):
        said = {f"{what} gives the probabilities of one pass", f"{what} gives the rows of one pass"}
        assert said <= {check.name for check in checks}
    assert all(check.passed and 0 <= check.value <= check.limit for check in checks)


@pytest.mark.parametrize(("dtype", "limits"), [("float32", FLOAT32), ("bfloat16", HALF)])
def test_every_check_of_what_is_written_has_the_limits_of_its_type(
    dtype: str, limits: Limits
) -> None:
    lm = LanguageModel.load(str(SMALL), dtype=dtype)
    assert lm.model.dtype == getattr(torch, dtype)
    checks = lm.check()
    for ending, limit in (("the probabilities", limits.decoded), ("the rows", limits.rows)):
        written = [check.limit for check in checks if check.name.endswith(f"{ending} of one pass")]
        assert written == [limit] * 3  # decoding, in parts, side by side


def test_provenance_says_what_decides_the_output(folder: Path) -> None:
    lm = LanguageModel.load(folder, heads=[1, 2], layer=0)
    facts = json.loads(json.dumps(lm.provenance()))
    assert facts["model"] == "model"
    assert (facts["layer"], facts["heads"], facts["dtype"], facts["decoding"]) == (
        0,
        [1, 2],
        "float32",
        "greedy",
    )
    assert facts["transformers"] == transformers.__version__
    assert facts["generation_config"]["eos_token_id"] == 2
    assert facts["weights_sha256"] == LanguageModel.load(SMALL).provenance()["weights_sha256"]
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][0] += 1
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert LanguageModel.load(folder).provenance()["weights_sha256"] != facts["weights_sha256"]
    in_memory = [
        LanguageModel(lm_tiny.build("llama", seed), lm_tiny.byte_level(), check=False)
        for seed in (0, 0, 1)
    ]
    hashes = [lm.provenance()["weights_sha256"] for lm in in_memory]
    assert hashes[0] == hashes[1] != hashes[2]


def test_an_adapter_that_is_off_is_in_neither_name_nor_hash() -> None:
    class Adapted:
        """What of peft's model is asked, around one whose norm it adds to."""

        peft_config: ClassVar[dict[str, Any]] = {}
        active_adapters = ("default",)
        base_model = SimpleNamespace(prefix="lora_")
        enabled = True

        def __init__(self, model: Any) -> None:
            self.model = model
            model.model.norm.register_parameter("lora_A", torch.nn.Parameter(torch.ones(1)))

        def get_base_model(self) -> Any:
            return self.model

        def get_model_status(self) -> Any:
            return SimpleNamespace(enabled=self.enabled)

    def open_model(adapter: bool) -> LanguageModel:
        model: Any = lm_tiny.build("llama", 0)
        model = Adapted(model) if adapter else model
        return LanguageModel(model, lm_tiny.byte_level(), check=False, name="tiny")

    plain, adapted = open_model(False), open_model(True)
    on = adapted.provenance()
    assert on["model"] == "tiny+default"
    adapted._adapted.enabled = False
    adapted._hash, adapted._met = "", []  # as another probe would have it
    off = adapted.provenance()
    assert (off["model"], off["weights_sha256"]) == (
        "tiny",
        plain.provenance()["weights_sha256"],
    )
    assert on["weights_sha256"] != off["weights_sha256"]


def test_the_embedded_model_is_asked_for_by_no_source_or_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "embedded_model_path", lambda: SMALL)
    assert LanguageModel.load().name == LanguageModel.load("almanac").name == "almanac"


# -- bad input -------------------------------------------------------------------------------------


def test_paths_that_are_no_model(tmp_path: Path, folder: Path) -> None:
    for source in (tmp_path / "nowhere", "./nowhere", SMALL / "config.json"):
        refused(source, "no folder .*; give the folder of a saved model")
    refused("", "is empty")
    refused("a b", "cannot be loaded .*Repo id must")
    refused(tmp_path, "cannot be loaded .*config.json")
    (folder / "model.safetensors").unlink()
    refused(folder, "cannot be loaded .*no file named model.safetensors")
    (folder / "adapter_config.json").write_text("{}")
    refused(folder, "holds an adapter .*merge_and_unload")
    assert load.load_tokenizer(folder).ends == {2}  # peft keeps one beside the adapter


def test_weights_that_are_missing_or_of_another_shape(folder: Path) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    save_file({k: v for k, v in weights.items() if "layers.1" not in k}, file, {"format": "pt"})
    refused(folder, "weights are not in its files")
    weights["model.norm.weight"] = weights["model.norm.weight"][:5].clone()
    save_file(weights, file, {"format": "pt"})
    refused(folder, "cannot be loaded|another shape")


#: The second layer's weights stay on disk and come when they are needed; the first and the last are
#: in memory.
SPREAD = {
    "model.embed_tokens": "cpu",
    "model.layers.0": "cpu",
    "model.layers.1": "disk",
    "model.layers.2": "disk",
    "model.norm": "cpu",
    "model.rotary_emb": "cpu",
    "lm_head": "cpu",
}


def test_a_model_that_is_spread_writes_and_is_captured_like_one_that_is_not() -> None:
    pytest.importorskip("accelerate")
    draft = Write(Prompt("Question: Who is Bo?\nAnswer:"), 12, attention=True)
    plain = LanguageModel.load(SMALL).write(draft)
    lm = LanguageModel.load(SMALL, device_map=SPREAD)
    assert any(p.device.type == "meta" for p in lm.model.parameters()), "nothing is on disk"
    for spread in (lm.write(draft), *lm_tiny.written(lm.batch(2), [draft, draft])):
        assert spread.ids.tolist() == plain.ids.tolist()
        np.testing.assert_allclose(spread.entropy, plain.entropy, atol=1e-4)
        np.testing.assert_allclose(spread.attention, plain.attention, atol=1e-3)  # float16
    assert lm.provenance()["device"] == "cpu, disk"
    assert (
        lm.provenance()["weights_sha256"]
        == LanguageModel.load(SMALL).provenance()["weights_sha256"]
    )


# -- the checks ------------------------------------------------------------------------------------


def test_a_model_that_fails_a_check_is_refused_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from transformers.models.llama import modeling_llama

    eager = modeling_llama.eager_attention_forward

    def wrong(*args: Any, **kwargs: Any) -> Any:
        out, weights = eager(*args, **kwargs)
        return out, weights * 0.9

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", wrong)
    refused(SMALL, "attention rows sum to 1: FAILED .*check=False")
    lm = LanguageModel.load(SMALL, check=False)
    assert [c.name for c in lm.check() if not c.passed] == ["attention rows sum to 1"]


def test_logits_that_are_not_finite_are_named_at_opening_and_in_a_draft() -> None:
    model = lm_tiny.build("llama")
    with torch.no_grad():
        model.lm_head.weight[5] = torch.nan
    says = (
        r"^the logits of .* are not finite \(NaN\) after \d+ tokens; float16 may overflow: load it"
        r" with dtype="
    )
    with pytest.raises(ModelError, match=says):
        LanguageModel(model, lm_tiny.byte_level())
    with pytest.raises(ModelError, match=says):
        LanguageModel(model, lm_tiny.byte_level(), check=False).write(
            Write(Prompt(lm_tiny.PROMPT), 4)
        )


def test_a_tap_that_ignores_padding_fails_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    additive = tap.additive_mask
    monkeypatch.setattr(tap, "additive_mask", lambda mask, *rest: additive(None, *rest))
    with pytest.warns(
        UserWarning, match="a left-padded batch gives the rows of one pass: FAILED .*one at a time"
    ):
        lm = LanguageModel(lm_tiny.build("qwen3"), lm_tiny.byte_level())
    assert lm.batch(4).describe()["size"] == 1


def test_a_cache_that_loses_its_state_between_parts_is_not_gone_on_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find = writing.Prefixes.find

    def lost(self: Any, *args: Any) -> Any:
        length, cache = find(self, *args)
        for layer in [] if cache is None else cache.layers:
            layer.keys.zero_()
        return length, cache

    monkeypatch.setattr(writing.Prefixes, "find", lost)
    with pytest.warns(
        UserWarning, match="a prompt read in parts gives .*: FAILED .*; prompts are read whole"
    ):
        lm = LanguageModel(lm_tiny.build("llama"), lm_tiny.byte_level())
    assert (lm.parts, lm.provenance()["prefix_reuse"]) == ((), "none")
    draft = Write(Prompt(lm_tiny.PROMPT, {"exemplars": (0, 20)}), 4)
    assert [lm.write(draft).reused for _ in range(2)] == [0, 0]


def test_a_layer_without_attention_is_refused_with_those_that_have_some() -> None:
    for kind in ("jamba", "lfm2", "granite-hybrid"):
        with pytest.raises(
            ModelError, match=r"layer=0: this layer of .* has no attention; .* are 1, 3$"
        ):
            LanguageModel(lm_tiny.build(kind), lm_tiny.byte_level(), layer=0)


@pytest.mark.parametrize("kind", ["rwkv", "minimax"])
def test_a_model_with_a_state_of_its_own_form_writes_what_generate_writes(kind: str) -> None:
    lm = LanguageModel(lm_tiny.build(kind), lm_tiny.byte_level())
    output = lm.write(Write(Prompt(lm_tiny.PROMPT), 12))
    assert output.ids.tolist() == lm_tiny.own_text(kind, output.prompt_ids, 12)
    assert lm.batch(4).size == 1


def test_a_model_without_attention_serves_the_methods_that_need_only_probabilities() -> None:
    lm = LanguageModel(lm_tiny.build("mamba"), lm_tiny.byte_level())
    assert (lm.layer, lm.has_attention, lm.no_attention) == (None, False, "it has no attention")
    output = lm.write(Write(Prompt(lm_tiny.PROMPT), 12, attention=True))
    assert output.ids.tolist() == lm_tiny.own_text("mamba", output.prompt_ids, 12)
    assert np.isnan(output.received).all()
    assert output.rows is None
    with pytest.raises(
        SettingError, match=r"'dragin' looks at attention, and .* has none; .* wo-rag, .*flare"
    ):
        dl.Lab(lm, retriever=search).ask("Who?")
    cache = Cache()
    labs = [dl.Lab(lm, retriever=search, cache=given) for given in (None, cache, cache)]
    traces = [lab.ask("Who?", "flare", max_new_tokens=8) for lab in labs]
    assert not traces[0].diff(traces[1])
    assert np.isnan(traces[2].continuations[0].received).all()
    assert "Who?" in traces[0]._repr_html_()
    with pytest.raises(ModelError, match="gives no attention map: it has no attention"):
        lm.attend([5, 6])
    with (
        pytest.raises(ModelError, match="nothing to capture: it has no attention"),
        dl.capture(lm.model, lm.tokenizer),
    ):
        pass
    with pytest.raises(ModelError, match="has no attention; leave layer=1"):
        LanguageModel(lm_tiny.build("mamba"), lm_tiny.byte_level(), layer=1)


@pytest.mark.parametrize(
    ("given", "used"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")]
)
def test_threads_wait_asleep_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], used: str
) -> None:
    with monkeypatch.context() as patch:
        patch.delenv("OMP_WAIT_POLICY", raising=False)
        for name, value in given.items():
            patch.setenv(name, value)
        importlib.reload(engines)
        assert os.environ["OMP_WAIT_POLICY"] == used


@pytest.fixture
def two_threads() -> Iterator[None]:
    """For torch, which may have been started with one."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_a_fork_writes_by_itself_though_another_thread_had_the_model() -> None:
    lm = lm_tiny.tiny()
    expected = lm.write(Write(Prompt("Who?"), 8))
    fork = multiprocessing.get_context("fork")
    said = fork.SimpleQueue()
    with hold(lm.lock):
        child = fork.Process(target=write_alone, args=(lm, said), daemon=True)
        child.start()
        child.join(60)
    assert child.exitcode == 0, "it waits for a thread that it does not have"
    assert said.get() == (1, expected.ids.tolist())


def write_alone(lm: LanguageModel, said: Any) -> None:
    said.put((torch.get_num_threads(), lm.write(Write(Prompt("Who?"), 8)).ids.tolist()))


@contextmanager
def hold(lock: Any) -> Iterator[None]:
    """Hold a lock in another thread."""
    held = threading.Event()
    over = threading.Event()

    def keep() -> None:
        with lock:
            held.set()
            over.wait()

    thread = threading.Thread(target=keep)
    thread.start()
    held.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (
            (["sliding_attention"] * 5 + ["full_attention"]) * 5 + ["sliding_attention"] * 4,
            "30 of 34, the last with",
        ),
        (["sliding_attention"] * 2, "2 of 2"),
    ],
    ids=["Gemma 3 4B's", "none"],
)
def test_the_last_layer_is_the_last_that_sees_the_whole_text(kinds: list[str], said: str) -> None:
    config = transformers.Gemma3TextConfig(num_hidden_layers=len(kinds), layer_types=kinds)
    assert describe_layer(config, choose_layer(config, "last")).startswith(said)


# -- other people's machines -----------------------------------------------------------------------


def test_a_name_that_is_nowhere_is_refused_at_once_without_a_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(names.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(names.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(names, "getproxies", dict)
    for load_by_name in (LanguageModel.load, load.load_tokenizer):
        with pytest.raises(
            ModelError, match=r"'no/such-model' is no folder here .* 127\.0\.0\.1 does not answer"
        ):
            load_by_name("no/such-model")


def test_a_prompt_beyond_the_switch_of_longrope_is_read_whole_and_alone() -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * 4,
        "long_factor": [1.0, 2.0, 8.0, 20.0],
    }
    rope |= {"original_max_position_embeddings": 40, "factor": 8.0}
    config = lm_tiny.config_of("llama")
    config.update({"rope_parameters": rope, "max_position_embeddings": 512})
    torch.manual_seed(0)
    lm = LanguageModel(
        transformers.LlamaForCausalLM(config).eval(), lm_tiny.byte_level(), check=False
    )
    assert lm.rotary_switch == 40
    drafts = [
        Write(Prompt(text, {"exemplars": (0, 8)}), 3) for text in ("Who is Bo? " * 12, "Who is Bo?")
    ]
    drafts += [Write(Prompt("x" * 44), 3), Write(Prompt("y" * 34), 3)]  # of about one length
    x, y = (len(lm.tokenizer.encode_prompt(draft.prompt)[0]) for draft in drafts[2:])
    assert y + 3 <= lm.rotary_switch < x
    for draft, one in zip(drafts, lm_tiny.written(lm.batch(4), drafts), strict=True):
        whole = lm.write(replace(draft, prompt=Prompt(draft.prompt.text)))
        for _ in range(2):
            written = lm.write(draft)
        assert bool(written.reused) == (draft is drafts[1])
        for other in (written, one):
            assert other.ids.tolist() == whole.ids.tolist()
            np.testing.assert_allclose(other.entropy, whole.entropy, atol=lm_tiny.CLOSE)


@pytest.mark.parametrize("closing", ["</s>", "<pad>", "</s> <pad>"])
def test_what_a_tokenizer_puts_after_each_text_is_taken_off_prompts(closing: str) -> None:
    plain, closed = lm_tiny.byte_level(), copy.deepcopy(lm_tiny.byte_level())
    marks = [(mark, closed.convert_tokens_to_ids(mark)) for mark in closing.split()]
    closed.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"$A {closing}", special_tokens=marks
    )
    lms = [LanguageModel(lm_tiny.build("llama"), one, check=False) for one in (plain, closed)]
    spelt = f"{lm_tiny.PROMPT} </s> it was"
    own = tuple(plain("it was", add_special_tokens=False)["input_ids"])
    prompts = [
        Prompt(lm_tiny.PROMPT),
        Prompt(spelt, {"passages": (0, len(spelt))}),  # a spelt mark cuts it
        Prompt(
            f"{lm_tiny.PROMPT}it was",
            written=((len(lm_tiny.PROMPT), len(lm_tiny.PROMPT) + 6, own),),
        ),
    ]
    for prompt in prompts:
        ids = [lm.tokenizer.encode_prompt(prompt)[0] for lm in lms]
        assert ids[0] == ids[1]
    requests = [Write(prompt, 4) for prompt in prompts]
    alone = [lms[0].write(request).ids.tolist() for request in requests]
    beside = lm_tiny.written(lms[1].batch(3), requests)
    assert [draft.ids.tolist() for draft in beside] == alone


def test_what_else_a_model_asks_of_its_table_of_attention_is_the_tables_own() -> None:
    table = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS
    assert tap._Wrapped(table).valid_keys() == table.valid_keys()
