"""What boards of θ share: a slider, a cost to aim at, the call to copy, a figure, and one answer to
look into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as ipw

from dragin_lab.views.curves import mark_theta
from dragin_lab.views.facts import shorten
from dragin_lab.widgets.control import Control, Drawing, row


class ThetaBoard(Control):
    """``theta`` is the slider, ``target`` the cost, ``code`` the call; ``which`` and ``texts``
    choose an answer and its step, whose ``tokens`` are drawn.

    ``base`` is the figure without the line of θ.
    """

    base: dict[str, Any]

    def __init__(self, thetas: list[float], own: float, asked: Sequence[tuple[str, Any]]) -> None:
        self.thetas = thetas
        options = [(f"{theta:.4g}", theta) for theta in thetas]
        wide = {"width": "460px"}
        self.theta = ipw.SelectionSlider(options=options, value=own, description="θ", layout=wide)
        self.target = ipw.FloatText(description="aim at", layout={"width": "160px"}, step=0.1)
        self.code = ipw.Text(description="copy", layout={"width": "560px"})
        named = [(shorten(text, 80), value) for text, value in asked]
        wide = {"width": "auto", "max_width": "640px"}
        self.which = ipw.Dropdown(description="look into", options=named, layout=wide)
        self.texts = ipw.Dropdown(description="step")
        self.drawing = Drawing()
        self.tokens = Drawing()
        self.words = ipw.HTML()

    def place(self, slider: ipw.Widget, more: Sequence[Any], pages: Sequence[Any]) -> None:
        """Put the controls into the box, ``more`` below them."""
        aim = row(self.target, ipw.Label("retrievals a question"))
        controls = [slider, aim, self.code, self.drawing, self.words]
        controls += [row(self.which, self.texts), self.tokens, *more]
        super().__init__(controls, pages, lambda: self.figure)

    def listen(
        self,
        show_theta: Callable[[], None],
        aim_at: Callable[[float], None],
        look_into: Callable[[], None],
        show_tokens: Callable[[], None],
    ) -> None:
        """Say what follows a change of each control."""
        self.on_value(self.theta, show_theta)
        self.on_value(self.target, lambda: aim_at(self.target.value))
        self.on_value(self.which, look_into)
        self.on_value(self.texts, show_tokens)

    def draw_theta(self, *, log: bool) -> None:
        """The figure with a line at θ."""
        shown = mark_theta(self.base, self.theta.value, log=log)
        self.drawing.show(shown)
        self.refresh_still(shown)
