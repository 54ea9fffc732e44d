"""Widgets at several widths, on a page of their own: their scripts with a stand-in for the kernel."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from lab import PHONE
from shown import samples
from tidy import card_problems, sideways

from dragin_lab.widgets.asking import AskLive
from dragin_lab.widgets.tuning import Tuner

SLIM = 330  # a notebook beside an open side bar
PAGE = """<!doctype html><meta charset="utf-8"><style>body {{ margin: 0; color-scheme: light dark }} {css}</style>
<div id="el"></div><script type="module">
const state = {state};
const model = {{ get: (key) => state[key], set() {{}}, save_changes() {{}}, on() {{}}, off() {{}}, send() {{}} }};
{script}
render({{ model, el: document.getElementById("el") }});
</script>"""


def page_of(widget: Any, *traits: str) -> str:
    state = json.dumps({name: getattr(widget, name) for name in traits}).replace("</", "<\\/")
    script = widget._esm.replace("export default { render };", "")
    return PAGE.format(css=widget._css, state=state, script=script)


def tuner() -> str:
    traces = [samples.almanac_trace() for _ in range(4)]
    return page_of(Tuner(traces), "data", "asked", "answer", "running")


def ask() -> str:
    corpus = SimpleNamespace(name="almanac")
    lab: Any = SimpleNamespace(model=SimpleNamespace(name="almanac"), retriever=SimpleNamespace(corpus=corpus))
    return page_of(AskLive(lab, samples.ASKED), "data", "state")


@pytest.mark.parametrize("width", [SLIM, PHONE, 700, 1200])
@pytest.mark.parametrize("make", [tuner, ask])
def test_a_widget_stays_within_its_width(make, width, new_page, tmp_path, picture):
    path = tmp_path / "page.html"
    path.write_text(make(), encoding="utf-8")
    page = new_page()
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(path.as_uri())
    card = page.locator(".dl-out > .dl").first
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=picture(f"{make.__name__}-{scheme}-{width}"), full_page=True)
        assert sideways(page) <= 0
        assert card_problems(card) == []
    for box in page.locator(".wide").all():
        assert box.evaluate("node => node.scrollWidth <= node.clientWidth"), "no figure of a trace needs rolling"
    for row in page.locator("tr[data-trace]").all():
        edge = row.bounding_box()
        assert all(cell.bounding_box()["width"] > 20 for cell in row.locator("td").all())
        if width < 900:
            assert row.locator("th").bounding_box()["width"] > 0.9 * edge["width"], "the question has its own line"
            assert row.evaluate("row => getComputedStyle(row.cells[3], '::before').content") == '"retrievals "'
