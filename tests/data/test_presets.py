"""Published settings against where they were published."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dragin_lab.core.method import METHODS
from dragin_lab.data.presets import SOURCES, find_preset, preset, presets

PAGE = Path(__file__).parents[2] / "docs" / "reference-behaviour.md"
DATASETS = ("2wikimultihopqa", "hotpotqa", "iirc", "strategyqa")


def rows(section: str) -> dict[str, list[str]]:
    """The cells of a section's table of the page, by model, in the order of DATASETS."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {section}")[1].split("\n## ")[0]
    table = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if "|" in line
    ]
    assert table[0] == ["LLM", "2Wiki", "HotpotQA", "IIRC", "StrategyQA"]
    return {row[0]: row[1:] for row in table[2:]}


def test_dragin_as_the_page_on_the_released_code_has_it() -> None:
    for model, cells in rows("7.").items():
        for dataset, cell in zip(DATASETS, cells, strict=True):
            match = re.fullmatch(r"(\S+) / (\S+) \(n (\d+) / (\d+), len (\d+), shots (\d+)\)", cell)
            assert match
            theta, released_theta, n, released_n, length, shots = map(float, match.groups())
            paper, released = preset(model, dataset), preset(model, dataset, source="released")
            assert (paper.threshold, paper.top_n, paper.max_new_tokens) == (theta, n, length)
            assert (released.threshold, released.top_n, released.max_new_tokens) == (
                released_theta,
                released_n,
                length,
            )
            assert find_preset(model, dataset, source="released").shots == shots


def test_flare_as_the_page_has_it() -> None:
    for model, cells in rows("9.").items():
        for dataset, theta in zip(DATASETS, cells, strict=True):
            chosen = preset(model, dataset, source="released", method="flare")
            assert (chosen.variant, chosen.threshold) == ("reference", float(theta))
            assert (chosen.settings["sentence_solver"], chosen.formulator.name) == (
                "avg",
                "confident-sentence",
            )
            length = preset(model, dataset, source="released").max_new_tokens
            assert (chosen.top_k, chosen.max_new_tokens) == (3, length)


@pytest.mark.parametrize("name", ["wo-rag", "sr-rag", "fl-rag", "fs-rag"])
def test_baselines_share_length_passages_and_exemplars(name: str) -> None:
    for dataset in DATASETS:
        asked = ("vicuna-13b-v1.5", dataset)
        chosen = preset(*asked, method=name)
        assert (chosen.name, chosen.max_new_tokens, chosen.top_k) == (
            name,
            preset(*asked).max_new_tokens,
            3,
        )
        assert find_preset(*asked, method=name).shots == find_preset(*asked).shots
    assert preset("vicuna-13b-v1.5", "iirc", method="fl-rag").settings["n"] == 16


def test_every_preset_makes_a_method_and_says_where_it_is_from() -> None:
    keys = [(p.method, p.model, p.dataset, p.source) for p in presets()]
    assert len(set(keys)) == len(keys) == 24 + 12 + 1 + 16 + 12
    for one in presets():
        model = "llama2-7b-chat" if one.model == "*" else one.model
        chosen = preset(model, one.dataset, source=one.source, method=one.method)
        assert chosen.name == one.method in METHODS
        assert one.source in SOURCES
        assert one.cited


def test_names_are_read_as_people_write_them_and_settings_can_be_changed() -> None:
    chosen = preset("meta-llama/Llama-2-7b-chat-hf", "2WikiMultihopQA")
    assert chosen == preset("llama2-7b-chat", "2wikimultihopqa")
    chosen = preset("lmsys/vicuna-13b-v1.5", "IIRC", what="current", variant="paper")
    assert (chosen.formulator.name, chosen.variant, chosen.threshold) == ("current", "paper", 1.3)
    # as its own authors have it
    flare = preset("llama2-7b-chat", "2wikimultihopqa", source="flare", method="flare")
    assert (flare.variant, flare.top_k, flare.max_new_tokens) == ("paper", 2, 256)
    assert (flare.threshold, flare.settings["doubt_limit"]) == pytest.approx((1 - 0.8, 1 - 0.4))
