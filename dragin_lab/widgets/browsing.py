"""``browse``: the batch explorer in a notebook."""

from __future__ import annotations

from pathlib import Path

from dragin_lab.study.runs import Runs
from dragin_lab.views import browsing
from dragin_lab.views.frame import View
from dragin_lab.views.rendering import read_asset
from dragin_lab.widgets.base import Card, load_style


class Browse(Card):
    """The widget; ``runs`` are what it shows, ``save`` writes the same as one page that opens offline."""

    _esm = browsing.load_browse_script() + read_asset("widgets/browsing.js")
    _css = load_style("browse")

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        super().__init__(data={"runs": browsing.browse_data(runs)})

    def save(self, path: str | Path) -> Path:
        return browsing.browse_page(self.runs).save(path)

    def static(self) -> View:
        return browsing.browse_still(self.runs)
