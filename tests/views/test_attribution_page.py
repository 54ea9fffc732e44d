"""The page and figure of an attribution, and its marks on the trace's own page."""

from __future__ import annotations

import re

import pytest
from answering import embedded

import dragin_lab as dl
from dragin_lab import almanac, views
from dragin_lab.views.attribution import attribution_page

QUESTION = almanac.questions("2wikimultihopqa")[0]


@pytest.fixture(scope="module")
def attribution() -> dl.Attribution:
    lab = embedded()
    return lab.attribute(lab.ask(QUESTION, "dragin", max_new_tokens=48))


def test_each_word_has_the_number_of_its_passage(attribution: dl.Attribution) -> None:
    html = attribution._repr_html_()
    used = attribution.words[attribution.words["mark"] == "passage"]
    assert len(used)
    numbered = re.findall(r">([^<>]+)<sup aria-label=\"from passage (\d+)\">", html)
    assert numbered == [(row.word, str(row.passage)) for row in used.itertuples()]
    for title, words in attribution.passages[["title", "words"]].to_numpy():
        assert title in html
        assert f"gave: {words}" in html or not words
    assert f"{used.iloc[0]['word']}[{used.iloc[0]['passage']}]" in attribution_page(attribution).text


def test_the_page_of_the_trace_has_the_marks(attribution: dl.Attribution) -> None:
    trace, used = attribution.trace, attribution.words[attribution.words["mark"] == "passage"]
    shown = views.trace(trace).html
    numbers = re.findall(r'</span><sup class="from">(\d)\??</sup>', shown)
    assert numbers == [str(one) for one in used[used["source"] != "extraction"]["passage"]]
    trace.attributed, kept = None, trace.attributed
    assert '<sup class="from">' not in views.trace(trace).html
    trace.attributed = kept


def test_the_figure_has_what_the_table_has(attribution: dl.Attribution) -> None:
    bars = attribution.plot().data
    assert [bar.name for bar in bars] == [name for name in attribution.tokens if name.startswith("passage ")]
    for bar in bars:
        assert sum(bar.y) == pytest.approx(attribution.tokens[bar.name].sum(), abs=1e-4)
        assert len(set(bar.x)) == len(bar.x)
    assert len({bar.marker.pattern.shape for bar in bars}) == len(bars)


def test_without_a_retrieval_the_figure_says_so() -> None:
    lab = embedded()
    alone = lab.attribute(lab.ask(QUESTION, "wo-rag", max_new_tokens=8))
    assert "No passage was in view" in alone.plot().layout.annotations[0].text
    assert "0 of 0 used" in alone._repr_html_()
