"""What all controls share: a still picture before the box, a place for errors, and a thread for the model."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import ipywidgets as ipw
import plotly.graph_objects as go

from dragin_lab.errors import SettingError, describe_error
from dragin_lab.trace.trace import Trace
from dragin_lab.views.facts import esc

#: Where the box lives, the still picture and this note are hidden; where its kernel is gone, what stands for it is.
NOTE = """<div class="{name}-note" style="font: 12px system-ui; opacity: .75">The controls need a kernel: run this cell.
<style>
.jp-OutputArea:has(.{name}) > .jp-OutputArea-child:has(.{name}-note),
.jp-OutputArea:has(.{name}) > .jp-OutputArea-child:has(+ .jp-OutputArea-child .{name}-note),
.jp-OutputArea-child:has(.{name}-note) + .jp-OutputArea-child:not(:has(.{name})) {{ display: none }}
</style></div>"""


class Control(ipw.VBox):
    """A box of controls, a line that says what happens, and pages.

    ``still`` gives what is displayed before it and remains without a kernel.
    """

    def __init__(self, controls: Any, pages: Any, still: Callable[[], Any]) -> None:
        self._still, self._stop = still, threading.Event()
        self._worker: threading.Thread | None = None
        self.status = ipw.HTML()
        self.stop_button = button("Stop", self.stop, disabled=True)
        super().__init__([*controls, row(self.stop_button, self.status), *pages])
        self._name = f"dl-{uuid4().hex[:8]}"
        self.add_class(self._name)

    def _ipython_display_(self, **_: Any) -> None:
        from IPython.display import display

        note = {"text/html": NOTE.format(name=self._name), "text/plain": "The controls need a kernel: run this cell."}
        bundle: Any = self._repr_mimebundle_()
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        display(self._still())
        display(note, raw=True)
        display(data | {"text/plain": ""}, metadata=metadata, raw=True)  # its name says nothing where it cannot live

    def guard(self, call: Callable[[], None]) -> None:
        """Do what a control asks for; an error is shown beside the buttons, and nothing is lost."""
        try:
            self.say("")
            call()
        except Exception as error:  # noqa: BLE001 - in a callback an error would be seen in a log only
            self.say(describe_error(error), alert=True)

    def say(self, text: str, *, alert: bool = False) -> None:
        """A line beside the buttons."""
        self.status.value = f'<span role="{"alert" if alert else "status"}">{"⚠ " * alert}{esc(text)}</span>'

    # -- the model, in its own thread, so that the buttons stay live --------------------------------------------------

    def run(
        self,
        start: Callable[[], Any],
        after: Callable[[Trace], None],
        each: Callable[[Any, Trace], None] = lambda event, trace: None,
        says: str = "",
    ) -> Trace:
        """Take the events that ``start`` gives, one after another, until their end or ``stop``; returns their trace.

        ``each`` is called with every event, ``after`` at the end, be it an error's: ``trace.ended`` says which. Raises
        ``SettingError`` while the model runs already; otherwise as ``start``.
        """
        if self._worker is not None and self._worker.is_alive():
            raise SettingError("the model is still writing; stop it first, or wait for it. Nothing is lost")
        events = start()

        def work() -> None:
            self.say(says)
            try:
                for event in events:
                    each(event, events.trace)
                    if self._stop.is_set():
                        break
            finally:
                events.close()
                self.stop_button.disabled = True
                after(events.trace)

        self._stop.clear()
        self.stop_button.disabled = False
        self._worker = threading.Thread(target=self.guard, args=[work], daemon=True)
        self._worker.start()
        return events.trace

    def stop(self) -> None:
        """Stop generating after the current token; what was done is kept."""
        self._stop.set()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the model has ended. A ``KeyboardInterrupt`` stops it, and is raised once it has stopped."""
        if self._worker is None:
            return
        try:
            self._worker.join(timeout)
        except KeyboardInterrupt:
            self.stop()
            self._worker.join(5)
            raise


def button(label: str, call: Callable[[], Any], **options: Any) -> ipw.Button:
    """A button as wide as its label."""
    pressed = ipw.Button(description=label, layout={"width": "auto", "flex": "0 0 auto"}, **options)
    pressed.on_click(lambda _: call())
    return pressed


def row(*controls: ipw.Widget) -> ipw.HBox:
    """Controls beside one another, or under one another where it is narrow."""
    return ipw.HBox(controls, layout={"flex_flow": "row wrap"})


class LiveFigure(go.FigureWidget):
    """A figure that is sent to the browser as a whole.

    A ``FigureWidget`` sends itself empty and its traces after it; a browser that loads its script in between misses
    them, and the picture stays blank. So a control draws into a ``go.Figure`` first and makes this of it.
    """

    _whole = False

    def __init__(self, figure: go.Figure) -> None:
        super().__init__(figure)
        self._whole = True
        self.open()

    def open(self) -> None:
        if self._whole:
            super().open()


def draw_into(shown: go.Figure, figure: go.Figure) -> None:
    """Put another figure in the place of the one that is shown."""
    with shown.batch_update():
        shown.data = ()
        shown.add_traces(figure.data)
        shown.layout = figure.layout.update(autosize=True)
