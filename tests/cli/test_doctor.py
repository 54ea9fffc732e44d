"""``dragin-lab doctor``: a healthy installation, and what it says of a sick one."""

from __future__ import annotations

import importlib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import spacy
from command import Command

from dragin_lab.cli import app as cli
from dragin_lab.engines.check import Check
from dragin_lab.engines.load import LanguageModel


def test_a_healthy_installation(command: Command) -> None:
    ran = command("doctor")
    assert (ran.code, ran.err) == (cli.DONE, "")
    assert {line[:6] for line in ran.out.splitlines()} <= {"ok    ", "lacks "}
    for part in (
        "torch ",
        "embedded corpus: ",
        "attention rows sum to 1 (",
        "a left-padded batch gives the rows of one pass",
    ):
        assert part in ran.out


def test_a_model_that_is_none_or_fails_its_checks(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = command("doctor", "--model", tmp_path)
    assert ran.code == cli.FAILED
    assert ran.out.splitlines()[-1].startswith("FAIL  ")
    assert str(tmp_path) in ran.out.splitlines()[-1]
    assert ran.err.startswith(
        "error: this installation needs a repair: 1 of the lines above is marked FAIL"
    )
    assert "embedded corpus" in ran.out  # the rest was looked at all the same
    bad = [Check("attention rows sum to 1", 0.5, 1e-3), Check("logits equal", float("nan"), 1e-4)]
    monkeypatch.setattr(LanguageModel, "check", lambda self: bad)
    ran = command("doctor")
    assert ran.code == cli.FAILED
    assert "FAIL  attention rows sum to 1 (0.5, limit 0.001)" in ran.out
    assert "2 of the lines above are marked FAIL" in ran.err


def test_what_is_missing_or_breaks_does_not_hide_the_rest(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dragin_lab.core import sentences

    real, version = importlib.import_module, metadata.version

    def without(name: str, *args: Any) -> Any:
        if name == "safetensors":
            raise ImportError("no such library\nand more")
        return real(name, *args)

    def unknown(name: str) -> str:
        if name == "datasets":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    def broken(nlp: Any = None) -> None:
        raise ZeroDivisionError("spaCy is upside down")

    monkeypatch.setattr(importlib, "import_module", without)
    monkeypatch.setattr(metadata, "version", unknown)
    monkeypatch.setattr(sentences, "load_pipeline", broken)
    ran = command("doctor")
    assert ran.code == cli.FAILED
    assert "FAIL  safetensors cannot be imported (no such library); install it again" in ran.out
    assert "lacks datasets is not installed; it is needed for corpora and questions from" in ran.out
    assert "FAIL  ZeroDivisionError: spaCy is upside down" in ran.out
    assert "attention rows sum to 1" in ran.out


def test_a_pipeline_that_is_missing_is_not_ok(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dragin_lab.core import sentences

    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    rules = sentences.load_pipeline(nlp)
    monkeypatch.setattr(sentences, "load_pipeline", lambda nlp=None: rules)
    ran = command("doctor")
    (line,) = [line for line in ran.out.splitlines() if "spacy download" in line]
    assert line.startswith("lacks the paper's content words need parts of speech")
    assert ran.code == cli.DONE  # it works without
