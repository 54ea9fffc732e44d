"""A saved page keeps what it shows in its address: a reload and a copied link show it again, and code makes it anew."""

from __future__ import annotations

import ast

import pytest
from answering import answer
from shown import samples, views

import dragin_lab as dl
from dragin_lab.catalog.methods import method


def keywords(code: str) -> dict:
    """The keyword arguments of a call."""
    call = ast.parse(code, mode="eval").body
    return {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}


def copied(page) -> str:
    """The call that "Copy as code" shows."""
    page.get_by_role("button", name="Copy as code").first.click()
    return page.locator(".dl-call").first.input_value()


@pytest.fixture
def opened(new_page, tmp_path):
    """``opened(saved)``: a page of what has a ``save``."""

    def open_page(saved):
        page = new_page()
        page.goto(saved.save(tmp_path / "page.html").as_uri())
        return page

    return open_page


def test_the_explorer_finds_its_step_and_token_again(opened, new_page, picture):
    trace = samples.almanac_trace()
    page = opened(dl.explore(trace))
    page.get_by_role("tab").nth(2).click()
    for key in ("Home", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    seen = page.locator(".dl-token").inner_text()
    assert "token 3 of" in seen
    page.reload()
    assert page.locator(".dl-token").inner_text() == seen
    page.screenshot(path=picture("explorer"))
    other = new_page()
    other.goto(page.url)
    assert other.locator(".dl-token").inner_text() == seen
    at = keywords(copied(page))
    assert at == {"step": 2, "text": "draft", "token": 3}
    assert dl.explore(trace, **at).data["at"] == at
    other.goto(page.url.replace("token=3", "token=5"))
    assert "token 5 of" in other.locator(".dl-token").inner_text()


def test_a_saved_tuner_finds_its_threshold_again(opened, picture):
    trace = samples.almanac_trace()
    page = opened(dl.tuner(trace))
    assert "as it was run" in page.locator('[data-part="summary"]').inner_text()
    page.locator("input.dl-threshold").focus()
    page.keyboard.press("End")
    seen = page.locator('[data-part="summary"]').inner_text()
    assert "(was 1.2)" in seen
    page.reload()
    assert page.locator('[data-part="summary"]').inner_text() == seen
    page.screenshot(path=picture("tuner"), full_page=True)
    settings = keywords(copied(page))
    assert f"θ {settings['threshold']:.3g} (was 1.2)" in views.replayed(trace, **settings).text
    page.get_by_role("button", name="As it was run").click()
    assert "as it was run" in page.locator('[data-part="summary"]').inner_text()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Twenty questions, right by one method and wrong by the other."""
    root = tmp_path_factory.mktemp("runs")
    answer(root / "dragin", 20)
    answer(root / "wo-rag", 20, how=method("wo-rag", variant="paper"))
    return dl.Runs.load(root)


def test_the_explorer_of_runs_finds_its_filters_and_its_question_again(runs, opened, new_page, tmp_path):
    page = opened(views.browse_page(runs))
    page.get_by_label("outcome of dragin").select_option("right")
    page.get_by_label("search").fill("thing 1")
    page.locator("thead button", has_text="question").click()
    page.locator("thead button", has_text="question").click()
    page.wait_for_function("location.hash.includes('text=thing+1')")
    count = page.locator(".bar [role=status]").inner_text()
    asked = page.locator("td .asked").all_inner_texts()
    page.reload()
    assert page.locator(".bar [role=status]").inner_text() == count != "20 of 20 questions"
    assert page.locator("td .asked").all_inner_texts() == asked
    assert page.get_by_label("outcome of dragin").input_value() == "right"
    page.locator('tr[data-at="1"]').click()
    page.get_by_label("left").select_option("wo-rag")
    seen = page.locator(".dl").inner_text()
    page.reload()
    assert page.locator(".dl").inner_text() == seen
    page.keyboard.press("Escape")
    at = keywords(copied(page))["at"]
    again = new_page()
    again.goto(views.browse_page(runs, at=at).save(tmp_path / "again.html").as_uri())
    assert again.locator("td .asked").all_inner_texts() == asked


def test_a_static_page_finds_its_open_steps_and_its_token_again(opened):
    page = opened(views.trace_view(samples.almanac_trace()))
    page.locator("details.step > summary").nth(1).click()
    token = page.locator('details.step[open] [data-part="draft"] .txt [data-i]').nth(4)
    token.click()
    figures = token.get_attribute("data-i")
    page.reload()
    assert [step.get_attribute("open") is None for step in page.locator("details.step").all()] == [False, True, False]
    assert page.evaluate("document.activeElement.dataset.i") == figures
    page.locator(".dl-export summary").click()
    page.get_by_role("button", name="Code").click()
    assert page.locator(".dl-export [role=status]").inner_text() == "views.trace_view(trace)"
