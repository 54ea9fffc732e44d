"""The strip of second choices under the heatmap."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import view_samples as samples

from dragin_lab.errors import SettingError
from dragin_lab.run.sensitivity import Effect, Place, Sensitivity
from dragin_lab.trace.trace import Trace
from dragin_lab.views import heatmap
from dragin_lab.views.heatmaps import sign_effect

TRACE = samples.almanac_trace("paper")


def effect(token: int, *, answer: bool = False, found: bool = False, em: float | None = None, **branch: Any) -> Effect:
    place = Place(0, "draft", token, "", 7, f" <other {token}>", 0.25, False)
    scores = {} if em is None else {"em": em}
    return Effect(place, replace(TRACE, scores=scores, **branch), answer, found, None if em is None else True)


def drawn(*effects: Effect, trace: Trace = TRACE) -> str:
    return heatmap(trace, sensitivity=Sensitivity(TRACE, list(effects))).html


def test_every_token_that_was_tried_has_its_other_one_and_signs_under_it() -> None:
    html = drawn(effect(0), effect(1, answer=True, found=True, em=0.0))
    assert html.count("<ruby") == 2
    assert "<rt>= &lt;other·0&gt;</rt>" in html or "<rt>= &lt;other 0&gt;</rt>" in html
    assert "▲◇✗ &lt;other" in html
    assert "0.25 less probable" in html
    assert "▲ another answer · ◇ other passages · ✓ now right · ✗ now wrong · = nothing" in html
    assert "<other" not in html
    assert "<ruby" not in heatmap(TRACE).html


@pytest.mark.parametrize(
    ("given", "sign"),
    [
        ({}, "="),
        ({"answer": True}, "▲"),
        ({"found": True}, "◇"),
        ({"answer": True, "em": 1.0}, "▲✓"),
        ({"ended": "error"}, "!"),
    ],
)
def test_signs(given: dict[str, Any], sign: str) -> None:
    assert sign_effect(effect(0, **given)) == sign


def test_the_sensitivity_of_another_trace_is_refused() -> None:
    with pytest.raises(SettingError, match=r"another trace's; draw views\.heatmap\(result\.trace, "):
        drawn(effect(0), trace=samples.almanac_trace())
