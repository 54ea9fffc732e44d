"""GGUF files: converted once, loaded as the folder they were made from, and bad ones refused in
a line.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import lm_tiny
import numpy as np
import pytest
import torch
from gguf_files import write_gguf
from lm_tiny import refused
from tokenizers import Tokenizer, models
from transformers import AutoConfig, AutoTokenizer

import dragin_lab as dl
from dragin_lab.core.episode import Write
from dragin_lab.engines import identity, llama_context, sources
from dragin_lab.engines.load import LanguageModel
from dragin_lab.errors import MissingPackageError
from dragin_lab.trace.trace import Prompt

pytest.importorskip("gguf")
pytest.importorskip("accelerate")

SOURCE = lm_tiny.PARITY / "almanac-prototype"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the user; the folder that conversions go to."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dragin_lab" / "models"


@pytest.fixture(scope="module")
def source() -> LanguageModel:
    return LanguageModel.load(SOURCE)


@pytest.fixture(scope="module")
def written(source: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    return write_gguf(path, source.model, source.tokenizer.hf.backend_tokenizer)


@pytest.fixture
def file(written: Path, tmp_path: Path) -> Path:
    """A file of its own, alone in its folder."""
    (tmp_path / "models").mkdir()
    return Path(shutil.copy(written, tmp_path / "models"))


def test_a_gguf_file_is_the_model_it_was_made_from(source: LanguageModel, file: Path) -> None:
    lm = dl.Lab(str(file)).model
    draft = Write(Prompt("Question: Who is Bo?\nAnswer:"), 20, attention=True)
    theirs, ours = source.write(draft), lm.write(draft)
    assert ours.ids.tolist() == theirs.ids.tolist()
    assert ours.text == theirs.text
    np.testing.assert_allclose(ours.entropy, theirs.entropy, atol=1e-4)
    assert (lm.tokenizer.marker, lm.eos) == (source.tokenizer.marker, source.eos)
    facts = lm.provenance()
    assert (facts["model"], facts["weights_sha256"]) == (
        "tiny.gguf",
        identity.hash_weights(None, [file]),
    )


def test_a_file_is_converted_once_but_again_where_it_was_killed_or_of_another_version(
    file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conversions = Mock(wraps=sources._read_model)
    monkeypatch.setattr(sources, "_read_model", conversions)
    LanguageModel.load(file)
    (folder,) = (path for path in cache.iterdir() if path.is_dir())
    os.utime(file, (1, 1))
    file = file.rename(file.with_name("other.gguf"))
    LanguageModel.load(file, check=False)
    assert conversions.call_count == 1
    folder.rename(f"{folder}.partial")
    LanguageModel.load(file, check=False)
    assert conversions.call_count == 2
    assert {path.name for path in cache.iterdir()} == {folder.name, f"{folder.name}.lock"}
    assert LanguageModel.load(file, dtype="bfloat16", check=False).model.dtype == torch.bfloat16
    monkeypatch.setattr(sources.transformers, "__version__", "99.0")
    LanguageModel.load(file, check=False)
    assert conversions.call_count == 4


def test_another_file_of_the_same_name_size_and_date_is_converted_anew(file: Path) -> None:
    before = LanguageModel.load(file, check=False)
    stat, content = file.stat(), bytearray(file.read_bytes())
    content[-4:] = np.float32(0.5).tobytes()
    file.write_bytes(content)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    after = LanguageModel.load(file, check=False)
    assert any(
        not torch.equal(a, b)
        for a, b in zip(before.model.parameters(), after.model.parameters(), strict=True)
    )


def test_a_folder_with_one_gguf_file_loads_and_with_several_lists_them(file: Path) -> None:
    assert LanguageModel.load(file.parent).name == "tiny.gguf"
    shutil.copy(file, file.with_name("tiny.Q8_0.gguf"))
    refused(
        file.parent, r"holds 2 GGUF files \(tiny\.Q8_0\.gguf, tiny\.gguf\); give the path of one"
    )
    shutil.copytree(SOURCE, file.parent, dirs_exist_ok=True, copy_function=shutil.copyfile)
    assert LanguageModel.load(file.parent).name == "models"  # a saved model comes first


@pytest.mark.parametrize("missing", [("gguf",), ("accelerate",), ("gguf", "accelerate")])
def test_an_error_names_the_missing_packages(
    file: Path, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sources, "find_spec", lambda name: None if name in missing else object())
    refused(
        file, rf"tiny\.gguf needs {' and '.join(missing)}; run pip install 'dragin-lab\[gguf\]'"
    )


def test_the_tokenizer_alone_needs_no_accelerate(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sources, "find_spec", lambda name: None if name == "accelerate" else object()
    )
    assert (sources.convert_tokenizer(file) / "tokenizer.json").is_file()


def sentencepiece() -> Tokenizer:
    """The vocabulary of ``lm_tiny.byte_fallback`` with a score for each piece, as a file has it."""
    tokens = json.loads(lm_tiny.byte_fallback().backend_tokenizer.to_str())["model"]["vocab"]
    scores = [(token, -float(number)) for token, number in tokens.items()]
    raw = Tokenizer(models.Unigram(scores, unk_id=0, byte_fallback=True))
    raw.add_special_tokens(["<unk>", "<s>", "</s>"])
    return raw


@pytest.mark.parametrize(
    ("architecture", "pre"),
    [
        *(("llama", pre) for pre in ("", "default", "llama-bpe", "tekken")),
        *(("qwen2", "qwen2"), ("gpt2", "gpt-2"), ("starcoder2", "starcoder")),
        *(("gemma2", ""), ("phi3", "")),
    ],
)
def test_the_tokenizer_and_configuration_are_those_that_transformers_converts(
    tmp_path: Path, architecture: str, pre: str
) -> None:
    raw = lm_tiny.byte_level().backend_tokenizer if pre else sentencepiece()
    file, model = tmp_path / "kind.gguf", lm_tiny.build("llama")
    model.resize_token_embeddings(raw.get_vocab_size())
    write_gguf(file, model, raw, architecture=architecture, pre=pre)
    folder = sources.convert_tokenizer(file)
    for kind in (AutoConfig, AutoTokenizer):
        kind.from_pretrained(tmp_path, gguf_file=file.name).save_pretrained(tmp_path / "theirs")
    names = {path.name for path in folder.iterdir()}
    assert names == {path.name for path in (tmp_path / "theirs").iterdir()}
    for name in names:
        assert (folder / name).read_text() == (tmp_path / "theirs" / name).read_text()
    assert AutoConfig.from_pretrained(folder).vocab_size == raw.get_vocab_size()


def test_llama_without_its_package_says_how_to_get_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llama_context.load_bindings.cache_clear()
    monkeypatch.setattr(llama_context, "find_spec", lambda name: None)
    with pytest.raises(
        MissingPackageError, match=r"llama-cpp-python.*run pip install 'dragin-lab\[llama\]'"
    ):
        _ = dl.Lab(file, engine="llama.cpp").model


def test_files_that_are_no_gguf(file: Path) -> None:
    refused(file.with_name("nowhere.gguf"), "no file .*nowhere.gguf'; give the path")
    refused("nowhere.gguf", "no file 'nowhere.gguf'")
    file.write_bytes(b"PK\x03\x04" + file.read_bytes())
    refused(file, "is not a GGUF file: .* fetch it again")
    file.write_bytes(b"")
    refused(file, "is not a GGUF file")
    refused(
        shutil.copy(file, file.with_name("big-00001-of-00003.gguf")),
        "one part of a model; join .* --merge",
    )


@pytest.mark.parametrize("share", [0.0000005, 0.003, 0.9999])
def test_a_truncated_file_says_what_to_do(file: Path, cache: Path, share: float) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: max(4, int(len(whole) * share))])
    refused(file, "tiny.gguf cannot be read as GGUF .*compare its size, or fetch it again")
    assert not [path for path in cache.iterdir() if path.suffix != ".lock"]


def test_an_architecture_that_is_not_converted(source: LanguageModel, tmp_path: Path) -> None:
    tokenizer = source.tokenizer.hf.backend_tokenizer
    path = write_gguf(tmp_path / "new.gguf", source.model, tokenizer, architecture="of-tomorrow")
    refused(
        path,
        "architecture of-tomorrow is not supported yet by transformers .*; give the folder or"
        " Hugging Face",
    )


def test_a_cache_that_cannot_be_written_says_where_and_what_to_do(file: Path, cache: Path) -> None:
    cache.parent.mkdir(parents=True)
    cache.write_text("a file in the way")
    refused(
        file,
        "tiny.gguf: its conversion cannot be saved in .*; make room there, or set XDG_CACHE_HOME",
    )
