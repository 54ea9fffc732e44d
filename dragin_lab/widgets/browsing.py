"""``browse``: the batch explorer in a notebook."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from dragin_lab.study.runs import Runs
from dragin_lab.views import browsing
from dragin_lab.views.frame import View
from dragin_lab.widgets.base import Card, load_script, load_style


class Browse(Card):
    """The widget; ``runs`` are what it shows, ``save`` writes the same as one page that opens offline."""

    _esm = browsing.load_browse_script() + load_script("browsing")
    _css = load_style("browse")

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self._still = partial(browsing.browse_still, runs)
        super().__init__(data={"runs": browsing.browse_data(runs)})

    def save(self, path: str | Path) -> Path:
        """Write the explorer as one page; raises ``ViewError`` where the file cannot be written."""
        return browsing.browse_page(self.runs).save(path)

    def static(self) -> View:
        return self._still()
