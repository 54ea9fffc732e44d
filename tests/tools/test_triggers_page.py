"""The script behind docs/triggers.md: every trigger has its place, and the page and notebook 10 show one run."""

from __future__ import annotations

import json
from pathlib import Path

from dragin_lab.core.formulators import DEFAULT_TOP_N
from dragin_lab.core.trigger import TRIGGERS
from tools.pages import triggers, triggers_work
from tools.pages.triggers_page import DRAWN, FORMULAS

ROOT = Path(__file__).parents[2]


def test_every_trigger_of_the_page_has_its_formula_and_its_place() -> None:
    given = triggers.options(["--limit", "3"])
    assert given.dev_limit == 10
    assert triggers.options([]).dev_limit == 80
    assert triggers_work.TOP_N == DEFAULT_TOP_N  # with which notebook 10 asks
    work = triggers_work.Work.__new__(triggers_work.Work)
    work.variant = "paper"
    stand_ins = [TRIGGERS.make(name) for name in ("entropy", "prefix-entropy", "renyi")]
    methods = work.methods(*stand_ins)
    assert set(methods) == set(FORMULAS)
    assert set(DRAWN) < set(FORMULAS)
    assert len(methods) >= 20
    assert len({str(method) for method in methods.values()}) == len(methods) - 1  # entropy's stand-in


def test_the_files_of_notebook_10_are_of_one_run() -> None:
    tables = json.loads((ROOT / "notebooks" / "almanac_triggers.json").read_text(encoding="utf-8"))
    fitted = json.loads((ROOT / "notebooks" / "almanac_fitted.json").read_text(encoding="utf-8"))
    assert {row["method"] for row in tables["frontier"]} == set(FORMULAS)
    assert set(tables["headroom"]) == {"rind", "fitted"}
    assert fitted["fitted_on"]["missing"] > 0
    page = (ROOT / "docs" / "triggers.md").read_text(encoding="utf-8")
    assert f"| questions | {tables['questions']} test questions of Almanac |" in page
    assert tables["model"][:12] in page
