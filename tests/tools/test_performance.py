"""The benchmarks run, small; and docs/performance.md is what their files give."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scripts import loaded

from tools import performance

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripts import what lies beside them."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def ran(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *options: object, script: Any = None
) -> dict[str, Any]:
    """What a benchmark writes, run with these options."""
    out = folder / f"{name}.json"
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--out", str(out), *map(str, options)])
    (script or loaded(f"benchmarks/{name}.py")).main()
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def test_rounds_alternate_and_ratios_are_within_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    common = loaded("benchmarks/common.py")
    now, order = [0.0], []
    monkeypatch.setattr(common.time, "perf_counter", lambda: now[0])

    def way(name: str, *seconds: float) -> Any:
        each = iter(seconds)

        def run() -> str:
            order.append(name)
            now[0] += next(each)
            return name

        return run

    # The machine is three times as slow in one round; the first does not count.
    found = common.interleaved({"a": way("a", 9, 2, 6, 2), "b": way("b", 1, 4, 12, 5)}, 3)
    assert order == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert found.seconds == {"a": [2, 6, 2], "b": [4, 12, 5]}
    assert found.over("a") == {"b": 0.5}
    assert found.made == {"a": "a", "b": "b"}


def test_the_machine_is_described_without_its_name() -> None:
    found = loaded("benchmarks/common.py").machine("cpu")
    assert found["cores"] >= 1
    assert found["memory_GiB"] > 0
    assert found["device"] == "cpu"
    said = json.dumps(found)
    assert "/" not in said.replace("w/", "")
    assert platform.node() not in said or len(platform.node()) < 3


@pytest.mark.slow
def test_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = loaded("benchmarks/memory.py")
    shape = {"prompt": 96, "tokens": 3, "layers": 2, "heads": 4, "hidden": 64, "ffn": 96}
    # In this process, where the figures mean little, to save the time of starting others.
    monkeypatch.setattr(script, "child", lambda _, flag, way, *rest: script.peak(way, SimpleNamespace(**shape)))
    flags = [part for name, value in shape.items() for part in (f"--{name}", value)]
    counts = ("--layer-counts", 1, 3, "--layers-prompt", 24, "--layers-tokens", 4)
    found = ran("memory", tmp_path, monkeypatch, *flags, *counts, "--rounds", 1, script=script)
    # Capture computes the same rows however many layers there are, and keeps no more than what is promised.
    assert len({row["added_multiply_adds"] for row in found["layers"]}) == 1
    assert found["layers"][0]["added_multiply_adds"] > 0
    assert found["layers"][1]["multiply_adds"] > 2 * found["layers"][0]["multiply_adds"]
    assert 16 < found["kept"]["MiB"] <= 20
    assert found["peak"]["peak_MiB"]["capture"] > found["peak"]["above_MiB"]["capture"] >= 0
    assert found["budgets"][2]["what"].endswith("3 layers / 1")


@pytest.mark.slow
def test_a_gpu_script_that_can_be_tried_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = ("--layers", 2, "--heads", 2, "--hidden", 32, "--ffn", 48, "--vocab", 200, "--dtype", "float32")
    small = ("--prompt", 12, "--tokens", 4, "--sizes", 1, 3, "--rounds", 1, "--copy-mib", 2)
    found = ran("gpu", tmp_path, monkeypatch, "--device", "cpu", *shape, *small)
    assert [row["episodes"] for row in found["decoding"]] == [1, 3]
    assert [row["same_text_as_generate"] for row in found["decoding"]] == [1, 3]
    limit = found["decoding"][1]["limit_tokens_a_second"]
    assert limit["weights"] > limit["weights and cache"] > 0


@pytest.mark.slow
def test_a_batch_leaves_out_what_cannot_answer_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--questions", 2, "--batch-size", 2, "--rounds", 1, "--variants", "paper")
    found = ran("batch", tmp_path, monkeypatch, "--methods", "wo-rag,entity-rag", *options)
    assert [(one["method"], one["questions"], one["differences"]) for one in found["batch"]] == [("wo-rag", 2, [])]
    assert "finds no entities" in found["left_out"]["entity-rag, paper"]  # the default pipeline, always without them


@pytest.mark.slow
def test_growth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ran(
        "growth", tmp_path, monkeypatch, "--contexts", 16, 32, "--tokens", 3, "--questions", 1, 2, "--rounds", 1,
        "--batch-size", 2,
    )  # fmt: skip
    assert [row["prompt"] for row in found["context"]] == [16, 32]
    assert found["questions"][1]["reused"]["alone"] > found["questions"][0]["reused"]["alone"]


@pytest.mark.slow
def test_an_episode_and_its_first_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ran("episode", tmp_path, monkeypatch, "--questions", 1, "--settings", "tuned", "--max-new-tokens", 24)
    for one in found["episodes"]:
        fed, forwards = one["fed"], one["forwards"]
        assert fed["ours"] < fed["first"] < fed["naive"]  # nothing is read twice
        if one["retrievals"]:  # without one, nothing is written twice, and parts of a prompt are forwards of their own
            assert forwards["ours"] <= forwards["first"] <= forwards["naive"]
        assert one["tokens_kept"] <= one["tokens_generated"] <= one["tokens_generated_naive"]
    assert any(one["retrievals"] for one in found["episodes"])
    assert len(found["budgets"]) == 4
    found = ran("latency", tmp_path, monkeypatch, "--questions", 1, "--imports", 1)
    for one in found["asked"]:
        ms = one["median_ms"]["warm"]
        assert 0 < min(ms.values()) <= max(ms["token"], ms["decision"]) < ms["answer"]


@pytest.mark.slow
def test_a_corpus_beside_bare_tantivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (made,) = ran("corpus", tmp_path, monkeypatch, "--passages", 3000, "--queries", 8)["corpora"]
    assert made["check"]["wrong"] == 0
    assert all(made[what]["peak_MiB"] > 0 for what in ("ours", "bare"))


# -- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_is_what_the_files_say() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert page == performance.page(), "run python -m tools.performance"


def test_a_budget_is_held_or_missed_by_so_much(tmp_path: Path) -> None:
    budgets = [
        {"what": "good", "measured": 0.5, "at_most": 0.6, "unit": "x", "note": "all is well"},
        {"what": "bad", "measured": 0.5, "at_most": 0.25, "unit": "x", "note": "the limit is so"},
    ]
    (tmp_path / "extra.json").write_text(json.dumps({"budgets": budgets}))
    (tmp_path / "other.json").write_text(json.dumps({"rows": [{"n": 1234}]}))
    page = performance.page(tmp_path)
    assert "| good | 0.6 x | 0.5 x | held | `extra` |" in page
    assert "| bad | 0.25 x | 0.5 x | missed by 100% | `extra` |" in page
    assert "- bad: the limit is so." in page
    assert "all is well" not in page
    assert "other" not in page.partition("| --- |")[2]
