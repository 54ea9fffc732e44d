"""docs/explanation/thresholds.md is what its script writes, and the defaults lie where it says."""

from __future__ import annotations

import json
import re

import pytest

from tools.pages import thresholds

MEASURED = json.loads(thresholds.RESULT.read_text(encoding="utf-8"))


def test_the_page_is_what_its_script_writes() -> None:
    assert thresholds.PAGE.read_text(encoding="utf-8") == thresholds.page(MEASURED), (
        "run python -m tools.pages.thresholds"
    )


@pytest.mark.parametrize("trigger", ["rind", "entropy", "margin", "attention"])
def test_a_measured_default_lies_among_the_thresholds_of_both_models(trigger: str) -> None:
    thetas = [theta for one in MEASURED for theta in one["thetas"][trigger] if theta is not None]
    assert min(thetas) <= thresholds.default_of(trigger) <= max(thetas)


def test_a_sweep_lies_in_the_measured_range_and_retrieves_from_often_to_seldom() -> None:
    assert thresholds.default_of("rind") in thresholds.EQUATIONS
    for one in MEASURED:
        retrievals = [one["grid"][f"{theta:g}"][1] for theta in thresholds.EQUATIONS]
        assert retrievals == sorted(retrievals, reverse=True)
        assert retrievals[0] > 2 * retrievals[-1]


def test_no_path_stands_for_a_model() -> None:
    assert not [one["model"] for one in MEASURED if re.search(r"[/\\]", one["model"])]
