"""The batch explorer in a browser: three clicks to "dragin right, wo-rag wrong, why", by mouse and by key."""

from __future__ import annotations

import pytest
from answering import AnsweringModel, answer
from lab import NARROW, PHONE, WIDE
from run_folders import write_run
from tidy import card_problems, sideways

from dragin_lab.catalog.methods import method
from dragin_lab.run.lines import Prediction, decode, encode
from dragin_lab.views import browse_page


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A page over 200 questions, some of which the model fails on."""
    root = tmp_path_factory.mktemp("runs")
    lm = AnsweringModel({7: RuntimeError("lost")})
    answer(root / "dragin", 200, lm)
    answer(root / "wo-rag", 200, how=method("wo-rag", variant="paper"))
    return browse_page(root).save(root / "runs.html")


@pytest.fixture
def page(new_page, saved):
    opened = new_page()
    opened.goto(saved.as_uri())
    return opened


def status(page) -> str:
    return page.locator(".bar [role=status]").inner_text()


def test_three_clicks_from_the_table_to_two_traces_side_by_side(page, picture):
    assert status(page) == "200 of 200 questions"
    assert page.locator("tr[data-at]").count() < 100  # the others are drawn as they are seen
    page.get_by_label("outcome of dragin").select_option("right")
    page.get_by_label("outcome of wo-rag").select_option("wrong")
    assert status(page) == "199 of 200 questions"
    page.locator('tr[data-at="0"]').click()
    assert page.locator(".q").inner_text() == "Who made thing 1?"
    left, right = page.locator(".two").nth(0).locator("> div").all()
    assert "✓ right" in left.inner_text()
    assert "✗ wrong" in right.inner_text()
    assert "unknown:" in right.inner_text()
    assert "null" not in page.locator(".dl").first.inner_text()  # what JavaScript writes for nothing
    first = page.locator(".two.first")
    assert first.locator("ins").all_inner_texts() == ["Li.", "Bo", "Ek."]
    assert first.locator(".came q").inner_text() == "Who made thing 1?"
    boxes = [side.bounding_box() for side in first.locator("> div:not(.vh2)").all()]
    assert abs(boxes[0]["y"] - boxes[1]["y"]) < 1
    assert boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in (WIDE, NARROW):
            page.set_viewport_size({"width": width, "height": 900})
            page.screenshot(path=picture(f"browse-{scheme}-{width}"), full_page=True)
            assert sideways(page) <= 0
            assert card_problems(page.locator(".dl")) == []


def test_everything_by_key(page):
    page.locator('tr[data-at="0"]').focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.locator(".q").inner_text() == "Who made thing 2?"
    page.keyboard.press("n")
    assert page.locator(".q").inner_text() == "Who made thing 3?"
    page.keyboard.press("p")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.at") == "1"


LONG = "When was the city where the director of the film The Lantern of the Western Shore was born founded by settlers?"


@pytest.mark.parametrize("width", [PHONE, WIDE])
def test_a_question_has_the_width_that_the_methods_leave_and_is_not_cut(width, new_page, tmp_path, picture):
    for name in ("dragin", "wo-rag"):
        folder = write_run(tmp_path, name, "mine", [1.0, 0.0, 1.0])
        lines = (folder / "predictions.jsonl").read_text().splitlines()
        texts = [encode([decode(line.encode(), Prediction) | {"question": LONG, "readable": True}]) for line in lines]
        (folder / "predictions.jsonl").write_bytes(b"".join(texts))
    opened = new_page()
    opened.set_viewport_size({"width": width, "height": 900})
    opened.goto(browse_page(tmp_path).save(tmp_path / "runs.html").as_uri())
    for scheme in ("light", "dark"):
        opened.emulate_media(color_scheme=scheme)
        opened.screenshot(path=picture(f"browse-questions-{scheme}-{width}"))
    asked = opened.locator("td .asked").first
    assert asked.inner_text() == asked.get_attribute("title") == LONG
    assert asked.evaluate("node => node.scrollHeight <= node.clientHeight")
    if width == WIDE:
        table = opened.locator(".grid table").bounding_box()
        assert asked.bounding_box()["width"] > 0.6 * table["width"]
    rows = [row.bounding_box() for row in opened.locator("tr[data-at]").all()]
    assert rows[1]["y"] - rows[0]["y"] == pytest.approx(81 if width == PHONE else 47, abs=1)
    assert sideways(opened) <= 0


def test_search_sort_and_filters(page):
    page.get_by_label("search").fill("thing 12 passage")
    page.wait_for_function("!document.querySelector('.bar [role=status]').textContent.startsWith('200')")
    shown = int(status(page).partition(" ")[0])
    assert 0 < shown < 200
    page.get_by_label("search").fill("")
    page.wait_for_function("document.querySelector('.bar [role=status]').textContent.startsWith('200')")
    page.get_by_label("outcome of dragin").select_option("failed")
    assert status(page) == "1 of 200 questions"
    page.get_by_label("outcome of dragin").select_option("")
    page.get_by_label("retrievals at least").fill("1")
    assert status(page) == "199 of 200 questions"
    page.locator("thead button", has_text="dragin").click()
    page.locator("thead button", has_text="dragin").click()
    assert page.locator("thead button[aria-sort=descending]").count() == 1


def test_a_print_holds_every_row(page):
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("tr[data-at]").count() == 200
    assert page.locator(".grid").evaluate("node => node.scrollHeight <= node.clientHeight + 1")
