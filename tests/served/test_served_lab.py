"""Recipes that open the same lab elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragin_lab.cli import run as cli_run
from dragin_lab.run.worker import Recipe


def test_a_folder_with_the_tokenizer_is_sent_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words").mkdir()
    recipe = Recipe("http://127.0.0.1:8080", tokenizer="words").absolute()
    assert (recipe.model, recipe.tokenizer) == ("http://127.0.0.1:8080", str(tmp_path / "words"))


def test_the_command_line_gives_workers_engine_and_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_run, "Cluster", lambda address, recipe, **pool: recipe)
    given = {"engine": ("llama.cpp",), "tokenizer": ("almanac",)}
    options = dict.fromkeys(("model", "retriever", "corpus", "corpus_fields", "ray")) | {"given": given}
    recipe = cli_run._open_cluster(options, searches=True)
    assert (recipe.engine, recipe.tokenizer) == ("llama.cpp", "almanac")
