"""What a model is loaded with: each row of the table in docs/how-to/models.md, and what two
arguments say together.
"""

from __future__ import annotations

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gguf_files
import lm_tiny
import pytest
import torch
import transformers
from lm_tiny import refused

from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import MissingPackageError, ModelError, SettingError
from dragin_lab.run.cluster import Recipe

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "models.md"
_TABLE = PAGE.read_text(encoding="utf-8").partition("| argument | |")[2].partition("\n\n")[0]
ROWS = re.findall(r"^\| `(.+?)` \|", _TABLE, re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of bfloat16 with its tokenizer, a variant, a subfolder with another and a file."""
    root = tmp_path_factory.mktemp("model")
    lm_tiny.byte_level().save_pretrained(root)
    shutil.copytree(root, root / "inner")
    lm_tiny.build("llama", seed=1).save_pretrained(root, variant="fp16")
    lm_tiny.build("llama").bfloat16().save_pretrained(root)
    lm_tiny.build("llama", seed=2).save_pretrained(root / "inner")
    return root


def read_row(row: str) -> dict[str, Any]:
    named = set(re.findall(r"[A-Z]\w+", row)) & set(dir(transformers))
    given: dict[str, Any] = eval(f"dict({row})", {n: getattr(transformers, n) for n in named})
    return given


def norm_of(lm: LanguageModel) -> float:
    weight: torch.Tensor = lm.model.get_input_embeddings().weight
    return float(weight.detach().float().norm())


@pytest.mark.parametrize("row", ROWS)
def test_what_the_page_says_is_taken(
    row: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    given = read_row(row)
    if "gguf_file" in given:
        pytest.importorskip("gguf")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        model, tokenizer = lm_tiny.build("llama"), lm_tiny.byte_level().backend_tokenizer
        gguf_files.write_gguf(folder / given["gguf_file"], model, tokenizer)
    if "offload_folder" in given:
        given["offload_folder"] = str(tmp_path)
    if "load_in_4bit" in row or "load_in_8bit" in row or "quantization" in given:
        if not find_spec("bitsandbytes"):
            with pytest.raises((MissingPackageError, SettingError), match="bitsandbytes"):
                LanguageModel.load(folder, **given)
            return
        if not torch.cuda.is_available():
            pytest.skip("bitsandbytes without a GPU")
    lm = LanguageModel.load(folder, check=False, **given)
    kind = str(given.get("dtype") or given.get("torch_dtype") or "float32")
    assert str(lm.model.dtype) == f"torch.{kind.replace('auto', 'bfloat16')}"
    assert "token" not in lm.provenance()
    seed = {"variant": 1, "subfolder": 2}.get(next(iter(given)), 0)
    if "gguf_file" not in given and "quantization" not in row:
        made = LanguageModel(lm_tiny.build("llama", seed=seed), lm_tiny.byte_level(), check=False)
        assert abs(norm_of(lm) - norm_of(made)) < 0.01
    if "attn_implementation" in given:
        assert lm.provenance()["attention"] == "eager"
    if "max_position_embeddings" in given:
        assert lm.context_window == 512


def test_the_table_has_rows_and_each_is_run() -> None:
    assert len(ROWS) > 15


def test_two_arguments_that_say_different_things(folder: Path) -> None:
    same = LanguageModel.load(folder, dtype=torch.float16, torch_dtype="float16", check=False)
    assert same.model.dtype == torch.float16
    pairs: list[tuple[dict[str, Any], str]] = [
        ({"dtype": "float32", "torch_dtype": "float16"}, "two names of one setting"),
        ({"device": "cpu", "device_map": "auto"}, "both say where the model goes"),
        ({"load_in_4bit": True, "quantization_config": {"load_in_8bit": True}}, "both say how"),
        ({"quantization": "5bit"}, "did you mean '8bit'"),
        ({"quantisation": "4bit"}, "'quantisation' does not exist; did you mean 'quantization'"),
    ]
    for given, why in pairs:
        with pytest.raises(SettingError, match=why):
            LanguageModel.load(folder, **given)
    LanguageModel.load(folder, device="cpu", device_map="cpu", load_in_4bit=False, check=False)


def test_what_transformers_refuses_names_the_argument(folder: Path) -> None:
    refused(folder, "^device_map='automatic' cannot be used.*\"auto\"", device_map="automatic")
    refused(folder, "not a dtype of torch.*auto", torch_dtype="fp16")
    refused(folder, "look at variant", variant="none")
    with pytest.raises(MissingPackageError, match="FlashAttention2"):
        LanguageModel.load(folder, attn_implementation="flash_attention_2")


def test_code_of_a_model_is_run_where_the_user_says_so(folder: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(folder, tmp_path / "own"))
    (own / "modeling_own.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class OwnConfig(LlamaConfig):\n    model_type = 'own'\n"
        "class OwnForCausalLM(LlamaForCausalLM):\n    config_class = OwnConfig\n"
    )
    config = own / "config.json"
    named = {"AutoConfig": "OwnConfig", "AutoModelForCausalLM": "OwnForCausalLM"}
    auto_map = {auto: f"modeling_own.{own_class}" for auto, own_class in named.items()}
    settings = json.loads(config.read_text()) | {"model_type": "own", "auto_map": auto_map}
    config.write_text(json.dumps(settings))
    with pytest.raises(ModelError, match="brings code of its own: read it"):
        LanguageModel.load(own)
    lm = LanguageModel.load(own, trust_remote_code=True, check=False)
    assert type(lm.model).__name__ == "OwnForCausalLM"


def test_a_worker_loads_its_model_with_the_same_arguments(folder: Path) -> None:
    recipe = Recipe(str(folder), searches=False, torch_dtype="float16", device_map="cpu")
    assert recipe.open().model.model.dtype == torch.float16
    assert "hf_" not in repr(Recipe("org/model", token="hf_secret"))
