"""The batch explorer in a browser: three clicks to "dragin right, wo-rag wrong, why", by mouse and by key."""

from __future__ import annotations

import pytest
from answering import AnsweringModel, answer
from lab import NARROW, PHONE, WIDE
from run_folders import write_run
from tidy import card_problems, sideways

import dragin_lab as dl
from dragin_lab.catalog.methods import method
from dragin_lab.run.benchmark import open_benchmark
from dragin_lab.run.lines import Prediction, decode, encode
from dragin_lab.views import browse_page
from dragin_lab.views.html import printable


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


def test_dragin_wrong_flare_right_why_on_a_fresh_run_of_almanac(new_page, tmp_path, picture):
    dl.Lab().run(open_benchmark("almanac/hotpotqa", limit=40), ["dragin", "flare"], output=tmp_path, batch_size=16)
    runs = dl.Runs.load(tmp_path)
    opened = new_page()
    opened.goto(browse_page(runs).save(tmp_path / "runs.html").as_uri())
    assert status(opened) == "40 of 40 questions"
    frame = runs.outcomes.pivot(index="qid", columns="method", values="right")
    shown = 0
    for first, second in (("wrong", "right"), ("right", "wrong"), ("wrong", "wrong")):
        expected = frame[(frame["dragin"] == (first == "right")) & (frame["flare"] == (second == "right"))]
        if not len(expected):
            continue
        opened.get_by_label("outcome of dragin").select_option(first)
        opened.get_by_label("outcome of flare").select_option(second)
        assert status(opened) == f"{len(expected)} of 40 questions"
        shown += 1
        opened.locator("tr[data-at]").first.click()
        line = next(line for line in runs.lines("almanac/hotpotqa", "dragin").values()
                    if line["question"] == opened.locator(".q").inner_text())  # fmt: skip
        assert line["qid"] in expected.index
        for name, side in zip(("dragin", "flare"), opened.locator(".two").nth(0).locator("> div").all(), strict=True):
            cause = runs.cause(line["qid"], name)
            seen = " ".join(side.inner_text().split())
            assert ("✓ right" in seen) == (cause is None)
            assert cause is None or " ".join(printable(str(cause)).split()) in seen
        opened.screenshot(path=picture(f"almanac-{first}-{second}"), full_page=True)
        opened.keyboard.press("Escape")
    assert shown


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
