"""Saved pages in a browser: whole without scripts and without a network, readable in both colour schemes, tidy."""

from __future__ import annotations

import pytest
from lab import NARROW, PHONE, WIDE
from shown import BAD, CARDS, FIGURES, RAN, page_of, samples
from tidy import card_problems, figure_problems, sideways

from dragin_lab import views


def looks(page):
    """The page in both colour schemes and both widths, and what to call each."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in (WIDE, NARROW):
            page.set_viewport_size({"width": width, "height": 900})
            yield f"{scheme}-{width}"


@pytest.fixture
def saved(tmp_path):
    """``saved(html)``: the address of a page with this text."""

    def write(html: str) -> str:
        path = tmp_path / "page.html"
        path.write_text(html, encoding="utf-8")
        return path.as_uri()

    return write


def read_whole(page, says: str = "") -> None:
    """One card is seen whole, its text stand-in is not, and the page is as wide as its window."""
    for card in page.locator(".dl-out").all():
        assert card.locator("> .dl").is_visible()
        assert not card.locator("> .alt").is_visible()
        assert card_problems(card.locator("> .dl")) == []
    assert says in page.locator("body").inner_text()
    assert sideways(page) <= 0


@pytest.mark.parametrize("name", CARDS)
def test_a_static_view_needs_no_script(name, new_page, saved, picture):
    page = new_page(scripts=False)
    page.goto(saved(page_of(CARDS[name]())))
    for look in looks(page):
        page.screenshot(path=picture(f"{name}-{look}"), full_page=True)
        read_whole(page)
    page.set_viewport_size({"width": PHONE, "height": 900})
    read_whole(page)


@pytest.mark.parametrize("name", BAD)
def test_bad_input_says_so_in_place(name, new_page, saved, picture):
    make, says = BAD[name]
    page = new_page(scheme="dark" if "heatmap" in name else "light")
    page.goto(saved(page_of(make())))
    page.screenshot(path=picture(f"bad-{name}"))
    read_whole(page, says)
    assert page.title() != RAN
    assert page.locator(".dl script, img").count() == 0  # the page's own script stands outside the card


def test_an_export_of_all_views_opens_offline_without_scripts(new_page, tmp_path, picture):
    path = views.save_html(tmp_path / "all.html", *(make() for make in (*CARDS.values(), *FIGURES.values())))
    page = new_page(scripts=False)
    page.goto(path.as_uri())
    for look in looks(page):
        for name, figure in zip(FIGURES, page.locator("figure").all(), strict=True):
            figure.screenshot(path=picture(f"{name}-{look}"))
            assert figure_problems(figure) == []
        read_whole(page)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_read_on_a_telephone(name, new_page, saved, picture):
    page = new_page(scripts=False, scheme="dark")
    page.set_viewport_size({"width": PHONE, "height": 900})
    page.goto(saved(page_of(FIGURES[name]())))
    page.screenshot(path=picture(f"{name}-{PHONE}"), full_page=True)
    assert figure_problems(page.locator("figure")) == []
    read_whole(page)


def test_a_printed_page_shows_what_is_folded_and_its_colours(new_page, saved, picture):
    page = new_page(scripts=False, scheme="dark")
    page.goto(saved(page_of(CARDS["trace"]())))
    tables = page.locator("details.part table")
    assert not any(table.is_visible() for table in tables.all())
    page.set_viewport_size({"width": 718, "height": 900})  # A4 with the margins of a browser, in CSS pixels
    page.emulate_media(media="print", color_scheme="dark")
    page.screenshot(path=picture("printed"), full_page=True)
    read_whole(page)
    assert all(table.is_visible() for table in tables.all())
    card = page.locator(".dl-out > .dl")
    assert card.evaluate("card => getComputedStyle(card).colorScheme") == "light"
    assert card.evaluate("card => getComputedStyle(card.querySelector('.h9')).printColorAdjust") == "exact"


@pytest.mark.parametrize("name", ["trace", "1 heatmap, reference variant"])
def test_the_figures_of_a_token_cover_no_other_text(name, new_page, saved, picture):
    page = new_page(scripts=False)
    page.goto(saved(page_of(CARDS[name]())))
    box = page.locator('[data-part="draft"] .txt, .strip').first
    token = box.locator("[data-i]").nth(4)
    token.hover()
    page.screenshot(path=picture(f"hover {name}"))
    # Where the card begins, against the lines of tokens that it may not cover.
    top = token.evaluate(
        """token => {
          const block = token.closest('.txt, .strip').getBoundingClientRect(), own = token.getBoundingClientRect();
          const css = getComputedStyle(token, '::after');
          return token.closest('.txt') ? parseFloat(css.top) - block.height : parseFloat(css.marginTop);
        }"""
    )
    assert top >= 0
    card = token.evaluate("token => parseFloat(getComputedStyle(token, '::after').height)")
    if name != "trace":
        height = token.evaluate("token => token.getBoundingClientRect().height")
        assert top + card <= height, "the card stays over the bars of its own line"
    page.emulate_media(media="print")
    assert token.evaluate("token => getComputedStyle(token, '::after').display") == "none"


def test_hidden_texts_are_not_copied(new_page, saved):
    page = new_page()
    page.goto(saved(page_of(CARDS["trace"]())))
    copied = page.evaluate(
        """() => {
          const text = document.querySelector('[data-part="draft"] .txt'), area = document.createRange();
          area.selectNodeContents(text);
          getSelection().removeAllRanges();
          getSelection().addRange(area);
          return getSelection().toString();
        }"""
    )
    assert "Bealtha." in copied
    assert "hit, score" not in copied
    assert "◆" not in copied


@pytest.mark.parametrize("width", [PHONE, WIDE, 1600])
def test_a_heatmap_fills_the_width_of_its_page(width, new_page, saved, picture):
    page = new_page(scripts=False)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(saved(page_of(views.heatmap(samples.long_trace(60)))))
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=picture(f"heatmap-{scheme}-{width}"), full_page=True)
    strip = page.locator(".strip").first
    room = strip.locator(".cols").bounding_box()
    boxes = [column.bounding_box() for column in strip.locator(".cols i").all()]
    lines: dict[float, float] = {}
    for box in boxes:
        lines[box["y"]] = max(lines.get(box["y"], 0), box["x"] + box["width"])
    full = [right - room["x"] for right in list(lines.values())[:-1]]
    assert min(full, default=room["width"]) > room["width"] - 90, "a line ends where the next word has no room"
    assert room["x"] + room["width"] > width - 60
    labels = [label.bounding_box()["y"] for label in strip.locator(".names > div > div").all()]
    shown = [y for y in labels if y < boxes[-1]["y"] + 1]
    assert len(shown) == len(lines), "each line has its labels"
    assert shown == pytest.approx(list(lines), abs=2)
