"""Saved pages in a browser: whole without a network, readable in both colour schemes, in print
and on a phone.
"""

from __future__ import annotations

import pytest
from lab import NARROW, PHONE, WIDE
from shown import BAD, CARDS, FIGURES
from tidy import card_problems, figure_problems, sideways

from dragin_lab import views


def looks(page):
    """The page in both colour schemes and both widths, and what to call each."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in (WIDE, NARROW):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(200)
            yield f"{scheme}-{width}"


def read_whole(page, says: str = "") -> None:
    """One card is seen whole, its text stand-in is not, and the page is as wide as its window."""
    for card in page.locator(".dl-out").all():
        assert card.locator("> .dl").is_visible()
        assert all(not alt.is_visible() for alt in card.locator("> .alt").all())
        assert card_problems(card.locator("> .dl")) == []
    assert says in page.locator("body").inner_text()
    assert sideways(page) <= 0


@pytest.mark.parametrize("name", CARDS)
def test_a_page_needs_no_script(name, new_page, tmp_path, picture):
    page = new_page(scripts=False)
    page.goto(views.page(tmp_path / "page.html", CARDS[name]()).as_uri())
    for look in looks(page):
        page.screenshot(path=picture(f"{name}-{look}"), full_page=True)
        read_whole(page)
    page.set_viewport_size({"width": PHONE, "height": 900})
    read_whole(page)


@pytest.mark.parametrize("name", BAD)
def test_bad_input_says_so_in_place(name, new_page, tmp_path, picture):
    make, says = BAD[name]
    page = new_page(scheme="dark")
    page.goto(views.page(tmp_path / "page.html", make()).as_uri())
    page.screenshot(path=picture(f"bad-{name}"))
    read_whole(page, says)
    assert page.title() != "x"
    assert page.locator(".dl script, img").count() == 0


def test_all_figures_on_one_page_open_offline(new_page, tmp_path, picture):
    path = views.page(tmp_path / "all.html", *(make() for make in FIGURES.values()))
    page = new_page()
    page.goto(path.as_uri())
    page.locator(".main-svg").last.wait_for()
    for look in looks(page):
        for name, figure in zip(FIGURES, page.locator(".js-plotly-plot").all(), strict=True):
            figure.screenshot(path=picture(f"{name}-{look}"))
            assert figure_problems(figure) == []
        assert sideways(page) <= 0
    assert page.locator(".modebar-btn").count() == 0, "none of them asks the network"
    first = page.locator(".js-plotly-plot").first
    first.locator(".bars .point").first.hover(force=True)
    assert "entropy" in first.locator(".hovertext").first.text_content()


def test_a_printed_page_shows_what_is_folded_and_its_colours(new_page, tmp_path, picture):
    page = new_page(scripts=False, scheme="dark")
    page.goto(views.page(tmp_path / "page.html", CARDS["trace"]()).as_uri())
    tables = page.locator("details.part table")
    assert not any(table.is_visible() for table in tables.all())
    # A4 with the margins of a browser, in CSS pixels
    page.set_viewport_size({"width": 718, "height": 900})
    page.emulate_media(media="print", color_scheme="dark")
    page.screenshot(path=picture("printed"), full_page=True)
    assert all(table.is_visible() for table in tables.all())
    card = page.locator(".dl-out > .dl")
    assert card.evaluate("card => getComputedStyle(card).colorScheme") == "light"


def test_what_the_marks_mean_is_said_once_on_a_page(new_page, tmp_path):
    page = new_page(scripts=False)
    page.goto(
        views.page(
            tmp_path / "page.html", CARDS["trace"](), CARDS["trace, paper variant"]()
        ).as_uri()
    )
    assert [
        marks.is_visible() for marks in page.get_by_text("Hover a word for its figures.").all()
    ] == [True, False]
    assert all(scale.is_visible() for scale in page.locator(".scale").all())


def test_hidden_texts_are_not_copied(new_page, tmp_path):
    page = new_page()
    page.goto(views.page(tmp_path / "page.html", CARDS["trace"]()).as_uri())
    copied = page.evaluate("""() => {
          const text = document.querySelector('[data-part="draft"] .txt');
          const area = document.createRange();
          area.selectNodeContents(text);
          getSelection().removeAllRanges();
          getSelection().addRange(area);
          return getSelection().toString();
        }""")
    assert "Bealtha." in copied
    assert "hit:" not in copied
    assert "◆" not in copied
