"""llama.cpp in this process, on Almanac's own model as a float32 GGUF file: the episodes of the transformers engine."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from gguf_files import write_gguf
from model_server import MANY, almanac
from test_served_drafts import PROMPT, close, decisions

import dragin_lab as dl
from dragin_lab.almanac import questions
from dragin_lab.catalog.methods import method as make
from dragin_lab.core.episode import Bias, Write
from dragin_lab.core.method import METHODS
from dragin_lab.errors import MissingPackageError, ModelError, SettingError
from dragin_lab.served import local

#: Every trigger that needs no attention, no hidden states and no pipeline that finds entities.
TRIGGERS = ("entropy@1.0", "margin", "random", "entropy-trend@1.0", "max-probability", "prefix-margin")


def exact_methods() -> list[Any]:
    methods = [make(name) for name in METHODS]
    methods = [m for m in methods if not m.reads_attention and "entities" not in m.trigger.needs]
    methods += [make(name, variant="reference") for name in ("wo-rag", "sr-rag", "fl-rag", "fs-rag", "flare")]
    return methods + [
        make("flare", variant="paper", when=when, what="question" if when.startswith("prefix") else None)
        for when in TRIGGERS
    ]


def same(lab: dl.Lab, method: Any, asked: Any) -> list[Any]:
    """The traces of llama.cpp, after they were compared with those of transformers."""
    theirs = list(dl.Lab(almanac()).ask_many(asked, method))
    ours = list(lab.ask_many(asked, method))
    for a, b in zip(ours, theirs, strict=True):
        assert (a.text, a.queries, a.answer, a.error) == (b.text, b.queries, b.answer, ""), f"{method}: {a.question}"
        assert decisions(a) == decisions(b)
    return ours


@pytest.mark.parametrize("method", exact_methods(), ids=str)
def test_every_method_without_attention_gives_the_same_episodes(lab: dl.Lab, method: Any) -> None:
    same(lab, method, questions("2wikimultihopqa", "test")[:1])


@pytest.mark.slow
@pytest.mark.parametrize("method", exact_methods(), ids=str)
def test_they_are_the_same_on_more_questions(lab: dl.Lab, method: Any) -> None:
    same(lab, method, questions("2wikimultihopqa", "test")[1:9])


@pytest.mark.slow
@pytest.mark.parametrize("when", ["probability", "entropy@1.0"])
def test_flare_is_the_same_on_many_questions(lab: dl.Lab, when: str) -> None:
    same(lab, make("flare", variant="paper", when=when), questions("2wikimultihopqa", "test")[:MANY])


def test_side_by_side_they_are_the_same(lab: dl.Lab) -> None:
    asked, method = questions("2wikimultihopqa", "test")[:4], make("flare", variant="paper", max_new_tokens=32)
    texts = {trace.question.id: trace.text for trace in same(lab, method, asked)}
    beside = list(lab.ask_many(asked, method, batch_size=4))
    assert {trace.question.id: trace.text for trace in beside} == texts
    assert beside[0].provenance["batch"] == {
        "asked": 4, "size": 2, "notes": ["written 2 at a time: the server has 2 slots"]
    }  # fmt: skip


def test_a_draft_has_the_numbers_of_transformers(lab: dl.Lab) -> None:
    close(lab.model.generate(Write(PROMPT, 24)), almanac().generate(Write(PROMPT, 24)))


def test_tokens_within_a_character_are_not_lost(lab: dl.Lab) -> None:
    """The server streams nothing of a character before it is whole, and never the bytes of one that stays broken."""
    euro = tuple(Bias(chr(byte), 1000.0, first=i, stop=i + 1) for i, byte in enumerate("€".encode()))
    half = (Bias("\xe2", 1000.0, first=4, stop=5),)
    for bias in (euro, euro + half):
        draft = Write(PROMPT, 12, bias=bias)
        close(ours := lab.model.generate(draft), almanac().generate(draft))
        assert ours.tokens[:3] == ("<0xE2>", "<0x82>", "<0xAC>")
        assert ours.text.startswith("€")


def test_it_says_what_runs_and_on_how_many_threads(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with dl.Lab(file, engine="llama.cpp", tokenizer="almanac", threads=1) as lab:
        assert "llama.cpp in this process on 1 threads" in repr(lab.model)
        assert f"{file.name}: served by llama.cpp on 1 threads" in capfd.readouterr().err
        address = lab.model.interface.server.address
        assert address.startswith("http://127.0.0.1:")
        with pytest.raises(urllib.error.HTTPError, match="401"):  # to whoever does not have its key
            urllib.request.urlopen(f"{address}/v1/models")
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{address}/health")


def test_the_files_own_tokenizer_is_the_default(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    byte_level = dl.LanguageModel.load(Path(__file__).parents[1] / "parity" / "models" / "almanac-prototype")
    path = write_gguf(tmp_path / "tiny.gguf", byte_level.model, byte_level.tokenizer.hf.backend_tokenizer)
    with dl.Lab(path, engine="llama.cpp", dtype="float32", threads=1) as lab:
        close(lab.model.generate(Write(PROMPT, 16)), byte_level.generate(Write(PROMPT, 16)), within=1e-3)
        assert lab.model.eos == byte_level.eos


def test_a_file_that_is_none_or_cut_short_is_refused(file: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    (tmp_path / "folder").mkdir()
    cut.write_bytes(file.read_bytes()[:100_000])
    for source, error, match in (
        (cut, ModelError, "cut.gguf cannot be served by llama.cpp .*compare its size"),
        (tmp_path / "folder", ModelError, "is no GGUF file; engine='llama.cpp' serves only those"),
        (None, SettingError, "serves a GGUF file; give the path of one"),
    ):
        with pytest.raises(error, match=match):
            _ = dl.Lab(source, engine="llama.cpp", tokenizer="almanac").model
    for argument in ({"threads": 0}, {"context": 0}, {"slots": 0}, {"dtype": "bfloat16"}, {"layer": 1}):
        with pytest.raises(SettingError, match=next(iter(argument))):
            _ = dl.Lab(file, engine="llama.cpp", tokenizer="almanac", **argument).model


def test_without_the_package_it_says_how_to_get_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"needs xllamacpp; run pip install 'dragin-lab\[llama\]'"):
        _ = dl.Lab(file, engine="llama.cpp", tokenizer="almanac").model


def test_the_command_line_asks_it(file: Path, command: Any) -> None:
    chosen = ("--model", file, "--set", "engine=llama.cpp", "--set", "tokenizer=almanac", "--method", "wo-rag")
    ran = command("ask", "Who directed The Silent Fukain?", *chosen, "--set", "max_new_tokens=8")
    assert (ran.code, "llama.cpp on 1 threads" in ran.err) == (0, True)
    assert almanac().name in ran.out or ran.out
