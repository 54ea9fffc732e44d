"""Bounds of a served model's entropies: as figures, as bars and in words; and how many tokens were asked again."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from factories import make_trace

import dragin_lab as dl
from dragin_lab.trace.trace import Trace
from dragin_lab.views.trace import trace_html, trace_text

MOST = "Entropies are known to ± 0.250 nats or better; 2 tokens asked again."


@pytest.fixture
def trace() -> Trace:
    """Its first draft has bounds: every other token's are half a nat apart, the rest are exact."""
    trace = make_trace()
    draft = trace.steps[0].draft
    assert draft is not None
    width = np.where(np.arange(len(draft)) % 2, 0.5, 0.0).astype(np.float32)
    trace.steps[0] = replace(trace.steps[0], draft=replace(draft, entropy_width=width))
    return trace


def tips(html: str) -> list[str]:
    return [unescape(tip).split("\n")[1] for tip in re.findall(r'data-i="([^"]*)"', html)]


def test_a_token_says_how_closely_its_entropy_is_known(trace: Trace) -> None:
    n = len(trace.steps[0].draft.tokens)
    for html in (trace_html(trace),):
        apart = [bool(re.match(r"entropy \d\.\d{3} ± 0\.250   ", tip)) for tip in tips(html)]
        assert any(apart)
        assert not all(apart)
    table = trace_html(trace).split("Figures of ")[1]
    assert len(re.findall(r"<td>\d\.\d{3} ± 0\.250</td>", table)) == n // 2


def test_a_text_says_the_most_and_what_was_asked_again(trace: Trace) -> None:
    for shown in (trace_html(trace), trace_text(trace)):
        assert MOST.replace(" ", "") in re.sub(r"\s", "", shown)
    heading = re.search(r"Step 1 .*", trace_text(trace))
    assert heading is not None
    assert heading[0].endswith(" · 2 tokens asked again")
    assert re.search(r"<summary><b>Step 1.*?<small>2 tokens asked again · 0\.25 s</small></summary>", trace_html(trace))
    assert "2 tokens asked again" in re.sub(r"\s+", " ", trace_text(trace).split("Step 1")[0])


def test_a_model_that_has_all_of_it_says_nothing_of_bounds(trace: Trace) -> None:
    step = trace.steps[0]
    trace.steps[0] = replace(step, draft=replace(step.draft, entropy_width=None, asked_again=0))
    for shown in (trace_html(trace), trace_text(trace)):
        assert "±" not in shown
        assert "asked again" not in shown


def test_the_explorer_has_them(trace: Trace) -> None:
    data = dl.explore(trace).data
    cells = data["texts"][0]["cells"]
    assert {cell["d"] for cell in cells} == {0, 0.25}
