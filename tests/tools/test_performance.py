"""The benchmarks run, small; and docs/performance.md is what their files give."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
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
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *options: object
) -> dict[str, Any]:
    """What a benchmark writes, run with these options."""
    out = folder / f"{name}.json"
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--out", str(out), *map(str, options)])
    loaded(f"benchmarks/{name}.py").main()
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def test_rounds_alternate_and_ratios_are_within_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    common = loaded("benchmarks/common.py")
    now, order = [0.0], []
    monkeypatch.setattr(common.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(common.gc, "collect", int)

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
    found = loaded("benchmarks/common.py").machine()
    assert found["cores"] >= 1
    assert found["memory_GiB"] > 0
    said = json.dumps(found)
    assert "/" not in said.replace("w/", "")
    assert platform.node() not in said or len(platform.node()) < 3


@pytest.mark.deep
def test_an_episode_reads_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ran(
        "episode",
        tmp_path,
        monkeypatch,
        "--questions",
        1,
        "--settings",
        "tuned",
        "--max-new-tokens",
        24,
    )
    for one in found["episodes"]:
        fed, forwards = one["fed"], one["forwards"]
        assert fed["ours"] < fed["first"] < fed["naive"]  # nothing is read twice
        # without one, nothing is written twice, and parts of a prompt are forwards of their own
        if one["retrievals"]:
            assert forwards["ours"] <= forwards["first"] <= forwards["naive"]
        assert one["tokens_kept"] <= one["tokens_generated"] <= one["tokens_generated_naive"]
    assert any(one["retrievals"] for one in found["episodes"])
    assert len(found["budgets"]) == 4


@pytest.mark.deep
def test_a_batch_and_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ran("batch", tmp_path, monkeypatch, "--questions", 2, "--batch-size", 2, "--rounds", 1)
    assert [(one["variant"], one["differences"]) for one in found["batch"]] == [
        ("paper", []),
        ("reference", []),
    ]
    found = ran(
        "sweep", tmp_path, monkeypatch, "--questions", 1, "--rounds", 1, "--variants", "paper"
    )
    assert all(one["stored"]["drafts_served"] for one in found["sweeps"])
    assert all(curve["pieces_a_question"] > 1 for curve in found["curves"])
    assert len(found["budgets"]) == 2 + len(found["curves"])


@pytest.mark.deep
def test_a_corpus_beside_bare_tantivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (made,) = ran("corpus", tmp_path, monkeypatch, "--passages", 3000, "--queries", 8)["corpora"]
    assert all(made[what]["peak_MiB"] > 0 for what in ("ours", "bare"))
    found = ran(
        "search", tmp_path, monkeypatch, "--passages", 500, 1000, "--queries", 4, "--rounds", 1
    )
    assert "extrapolated from" in found["budgets"][1]["what"]


# -- the page --------------------------------------------------------------------------------------


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
