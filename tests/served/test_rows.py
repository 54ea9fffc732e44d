"""Attention of a GGUF file that llama.cpp serves: the rows, drafts and episodes of the same model in transformers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from gguf_files import write_gguf
from model_server import MANY, almanac
from test_served_drafts import PROMPT, close
from test_served_llamacpp import same

import dragin_lab as dl
from dragin_lab.almanac import questions
from dragin_lab.catalog.methods import method as make
from dragin_lab.core.episode import Write
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import ModelError, SettingError
from dragin_lab.served import rows

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

IDS = almanac().tokenizer.encode("Who directed The Silent Fukain? It was directed by Harald Fukain.", special=True)


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "almanac.gguf"
    return write_gguf(path, almanac().model, almanac().tokenizer.hf.backend_tokenizer)


@pytest.fixture
def served(file: Path) -> Iterator[Callable[..., dl.Lab]]:
    """Opens a file in float32; Almanac's by default."""
    labs = []

    def open_lab(path: Path = file, **loading: Any) -> dl.Lab:
        loading = {"tokenizer": "almanac", "dtype": "float32", "threads": 1} | loading
        labs.append(dl.Lab(path, engine="llama.cpp", **loading))
        return labs[-1]

    yield open_lab
    for lab in labs:
        lab.close()


@pytest.fixture(scope="module")
def lab(file: Path) -> Iterator[dl.Lab]:
    with dl.Lab(file, engine="llama.cpp", tokenizer="almanac", dtype="float32", threads=1, slots=2) as lab:
        yield lab


def attending_methods() -> list[Any]:
    @dl.when("looks-back", threshold=0.2, needs=("attention",))
    def looks_back(draft: dl.Draft) -> np.ndarray:
        """What a token pays to the prompt, times its doubt."""
        paid = draft.attention[:, :, : draft.attention.shape[-1] - len(draft)].sum(-1).mean(0)  # (n,)
        return paid * (1 - np.exp(draft.logprob))

    @dl.when("ignored", threshold=0.97, needs=("received",))
    def ignored(draft: dl.Draft) -> np.ndarray:
        """Large where nothing is received, so that it would fire at once on a draft without rows."""
        return 1 - draft.received

    return [
        make("dragin", scale="sentence"),
        make("dragin", when="rind@0.3", what="current"),
        make("dragin", when="looks-back"),
        make("dragin", when="ignored"),
        make("flare", what="qfs"),
        make("fl-rag", what="qfs"),
        make("dragin", variant="reference"),
        make("etc"),
    ]


@pytest.mark.parametrize("method", attending_methods(), ids=str)
def test_every_method_with_attention_gives_the_same_episodes(lab: dl.Lab, method: Any) -> None:
    (trace,) = same(lab, method, questions("2wikimultihopqa", "test")[:1])
    assert trace.queries


@pytest.mark.parametrize("count", [6, pytest.param(MANY, marks=pytest.mark.slow)])
def test_dragin_gives_the_same_texts_queries_and_decisions(lab: dl.Lab, count: int) -> None:
    traces = same(lab, make("dragin"), questions("2wikimultihopqa", "test")[:count])
    drafts = [step.draft for trace in traces for step in trace.steps]
    assert sum(trace.retrievals_count for trace in traces) > count
    assert 0 < sum(trace.asked_again for trace in traces) < sum(map(len, drafts)) / 10


@pytest.mark.parametrize("prefix", [(), tuple(IDS[1:22])], ids=["from its start", "after more ids than a stretch has"])
def test_a_draft_has_the_rows_of_transformers(lab: dl.Lab, prefix: tuple[int, ...]) -> None:
    draft = Write(PROMPT, 32, attention=True, among=True, received=True, prefix=prefix)
    ours, theirs = lab.model.generate(draft), almanac().generate(draft)
    close(ours, theirs)
    assert ours.ids.tolist()[: len(prefix)] == list(prefix)
    np.testing.assert_allclose(ours.among, theirs.among, atol=1e-5)
    np.testing.assert_allclose(ours.received, theirs.received, atol=1e-5)
    np.testing.assert_allclose(ours.attention, theirs.attention, atol=1e-3)  # float16
    np.testing.assert_allclose(lab.model.attend(IDS), almanac().attend(IDS), atol=1e-4)
    assert lab.model.attend([]).shape == almanac().attend([]).shape


def test_one_pass_a_draft_gives_its_rows(lab: dl.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lab.model.has_attention
    passes, inputs = [], rows.AttentionRows.inputs
    monkeypatch.setattr(rows.AttentionRows, "inputs", lambda self, ids: passes.append(len(ids)) or inputs(self, ids))
    trace = lab.ask(questions("2wikimultihopqa", "test")[0], "dragin")
    assert len(passes) == len(trace.steps)
    passes.clear()
    lab.ask(questions("2wikimultihopqa", "test")[0], "flare")
    assert passes == []


def test_the_tokens_shown_are_those_of_the_draft_and_not_those_after_its_end(lab: dl.Lab) -> None:
    texts: dict[int, str] = {}
    with lab.stream(questions("2wikimultihopqa", "test")[0], "dragin") as events:
        for event in events:
            if getattr(event, "kind", "") == "draft":
                texts[event.step] = texts.get(event.step, "") + event.text
    assert {step.index: step.draft.text for step in events.trace.steps if step.draft} == texts


def test_side_by_side_drafts_are_those_alone(lab: dl.Lab) -> None:
    asked, method = questions("2wikimultihopqa", "test")[:3], make("dragin", max_new_tokens=24)
    alone = {trace.question.id: (trace.text, trace.queries) for trace in lab.ask_many(asked, method)}
    beside = lab.ask_many(asked, method, batch_size=2)
    assert {trace.question.id: (trace.text, trace.queries) for trace in beside} == alone


def test_a_cache_serves_drafts_with_their_rows(lab: dl.Lab) -> None:
    """Those of a larger threshold too, as the tokens after a draft's end are kept."""
    question, cached = questions("2wikimultihopqa", "test")[0], lab.replace(cache=True)
    cached.ask(question, "flare")  # its drafts have no rows
    first = cached.ask(question, "dragin")
    again = cached.ask(question, "dragin")
    assert again.stored["drafts"] == len(again.continuations)
    assert again.diff(first, arrays=True) == ""
    other = cached.ask(question, "dragin", threshold=0.3)
    assert other.stored["drafts"]
    fresh = lab.ask(question, "dragin", threshold=0.3)
    assert (other.text, other.queries) == (fresh.text, fresh.queries)


# -- other architectures ----------------------------------------------------------------------------------------------

SMALL = {
    "vocab_size": 1452, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    "initializer_range": 0.3,
}  # fmt: skip
LLAMA_3 = {
    "rope_type": "llama3", "rope_theta": 1000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
MODELS = {
    "llama": transformers.LlamaConfig(**SMALL, rope_parameters=LLAMA_3),
    "mistral": transformers.MistralConfig(**SMALL, head_dim=16, sliding_window=None),
    "qwen2": transformers.Qwen2Config(**SMALL, tie_word_embeddings=True),
    "qwen3": transformers.Qwen3Config(**SMALL, head_dim=16),
    "gemma3": transformers.Gemma3TextConfig(**SMALL, head_dim=16, query_pre_attn_scalar=16, sliding_window=8),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_rows_of_other_architectures_are_those_of_transformers(
    served: Callable[..., dl.Lab], tmp_path: Path, name: str
) -> None:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(MODELS[name], dtype=torch.float32)
    for parameter in model.parameters():  # norms and biases too
        parameter.data += 0.1 * torch.randn_like(parameter)
    theirs = LanguageModel(model, almanac().tokenizer.hf)
    lm = served(write_gguf(tmp_path / "small.gguf", model, almanac().tokenizer.hf.backend_tokenizer)).model
    assert lm.no_attention == ""
    np.testing.assert_allclose(lm.attend(IDS), theirs.attend(IDS), atol=1e-3)  # GELU is rounded


def write_settings(path: Path, architecture: str, tensors: tuple[str, ...] = (), **settings: Any) -> rows.GgufFile:
    """A file of settings, with the last block's tensors by name."""
    import gguf

    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_block_count(4)
    for key, value in settings.items():
        (writer.add_string if isinstance(value, str) else writer.add_float32)(f"{architecture}.{key}", value)
    for name in ("attn_q.weight", *tensors):
        writer.add_tensor(f"blk.3.{name}", np.zeros((2, 2), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return rows.GgufFile(path)


@pytest.mark.parametrize(
    ("architecture", "tensors", "settings", "match"),
    [
        ("qwen2", (), {"rope.scaling.type": "linear"}, "^$"),
        ("phi3", (), {}, "its architecture 'phi3' is none of llama, qwen2, qwen3, gemma3"),
        ("gemma3", (), {}, "the last of its 4 blocks attends within a window"),
        ("llama", ("ffn_gate_exps.weight",), {}, "its ffn_gate_exps.weight of architecture 'llama' would have to be"),
        ("llama", (), {"attn_logit_softcapping": 50.0}, "its attn_logit_softcapping of architecture 'llama' would"),
        ("qwen3", (), {"rope.scaling.type": "yarn"}, "its positions are scaled by 'yarn'"),
    ],
)
def test_what_is_not_followed_is_refused_by_name(
    tmp_path: Path, architecture: str, tensors: tuple[str, ...], settings: dict[str, Any], match: str
) -> None:
    file = write_settings(tmp_path / "settings.gguf", architecture, tensors, **settings)
    assert re.search(match, file.obstacle()), file.obstacle()


# -- what is refused --------------------------------------------------------------------------------------------------


def refuses_attention(lab: dl.Lab, match: str) -> None:
    """dragin is refused with a reason and with what can run; flare runs."""
    with pytest.raises(SettingError, match=f"'dragin' looks at attention, and .* has none; .*flare.*{match}"):
        lab.ask("Who directed The Silent Fukain?", "dragin")
    with pytest.raises(ModelError, match=match):
        lab.model.attend(IDS)
    assert lab.ask("Who directed The Silent Fukain?", "flare", max_new_tokens=8).text


def test_an_architecture_that_is_not_known_is_refused_by_name(
    served: Callable[..., dl.Lab], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(rows.ARCHITECTURES, "llama")
    refuses_attention(served(file), "its architecture 'llama' is none of qwen2, .* load it in transformers")


def halve_weights(path: Path) -> None:
    import gguf

    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path, "r+").tensors}
    tensors["blk.0.ffn_down.weight"].data[:] *= 0.5
    tensors["blk.1.attn_output.weight"].data[:] *= 0.5


@pytest.mark.parametrize("damaged", ["another block's weights", "another norm"])
def test_a_cut_that_is_not_the_served_models_is_refused_by_the_check(
    served: Callable[..., dl.Lab], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: str
) -> None:
    cut = shutil.copy(file if damaged == "another norm" else rows.GgufFile(file).cut(), tmp_path)
    if damaged != "another norm":
        halve_weights(Path(cut))
    monkeypatch.setattr(rows.GgufFile, "cut", lambda _: Path(cut))
    refuses_attention(served(), r"the served distributions: FAILED \(.*, limit 0.33\); load it in transformers")


def test_a_cut_that_cannot_be_written_is_an_error_and_later_is_none(
    served: Callable[..., dl.Lab], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").write_text("a file in the way")
    lab = served()
    with pytest.raises(ModelError, match=r"almanac.gguf: its conversion cannot be saved in .*; make room there"):
        lab.ask("Who directed The Silent Fukain?", "dragin")
    assert lab.ask("Who directed The Silent Fukain?", "flare", max_new_tokens=8).text
    (tmp_path / "cache").unlink()
    for _ in range(2):
        assert lab.model.has_attention
        lab = served()
    assert capfd.readouterr().err.count("converting it once") == 1


def test_a_server_elsewhere_says_how_to_have_attention(asking: Callable[..., Any]) -> None:
    lab, _ = asking()
    refuses_attention(lab, "open that with engine='llama.cpp'")


def test_the_doctor_prints_the_check_or_why_there_is_no_attention(file: Path, command: Any) -> None:
    ran = command("doctor", "--model", file, "--set", "engine=llama.cpp", "--set", "tokenizer=almanac")
    assert (ran.code, "the last block's attention gives the served distributions (" in ran.out) == (0, True)

    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(rows.ARCHITECTURES, "llama")
        ran = command("doctor", "--model", file, "--set", "engine=llama.cpp", "--set", "tokenizer=almanac")
    assert (ran.code, "looks at attention can be used: its architecture 'llama' is none of" in ran.out) == (0, True)
