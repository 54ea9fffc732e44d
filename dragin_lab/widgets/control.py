"""What all controls share: figures that cannot fall behind, a still picture before the box, a
thread for the model.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import ipywidgets as ipw

from dragin_lab.errors import SettingError, describe_error
from dragin_lab.trace.trace import Trace
from dragin_lab.views.facts import esc
from dragin_lab.views.theme import DARK

PLOTLY = "application/vnd.plotly.v1+json"
#: Where the box lives, the still picture and this note are hidden; where its kernel is gone, what
#: stands for it is.
NOTE = """<div class="{name}-note" style="font: 12px system-ui; opacity: .75">
The controls need a kernel: run this cell.
<style>
.jp-OutputArea:has(.{name}) > .jp-OutputArea-child:has(.{name}-note),
.jp-OutputArea:has(.{name}) > .jp-OutputArea-child:has(+ .jp-OutputArea-child .{name}-note),
.jp-OutputArea-child:has(.{name}-note) + .jp-OutputArea-child:not(:has(.{name})) {{ display: none }}
</style></div>"""
#: A front end marks a widget whose kernel was restarted, and JupyterLab a notebook whose kernel was
#: shut down: what no longer answers looks so, and does not take a click.
GONE = """<div role="alert" class="dl-gone">
⚠ The kernel is gone, so nothing here answers: run the cell again.</div>
<style>
.dl-gone { display: none; font-weight: 600; color: light-dark(#a8201a, #ff9a8f) }
.jupyter-widgets-disconnected .dl-gone,
.jp-NotebookPanel:has(.jp-Notebook-ExecutionIndicator[data-status="unknown"]) .dl-gone {
  display: block }
:is(.dl-host.jupyter-widgets-disconnected,
    .jp-NotebookPanel:has(.jp-Notebook-ExecutionIndicator[data-status="unknown"]) .dl-host)
    :is(button, select, input, textarea, .noUi-target) {
  pointer-events: none; opacity: .4; text-decoration: line-through }
.dl-host .dl-rows select { font: 12px/1.5 var(--jp-code-font-family, monospace) }
</style>"""


class Drawing(ipw.Output):
    """A place for a plain figure, which the front end draws by itself. What Python assigned last is
    what is shown.

    No state of the figure lives in the browser, so it cannot fall behind: there is one way, from
    Python to the page.
    """

    @property
    def figure(self) -> Any:
        """What is shown, as a figure of plotly; empty where nothing is."""
        import plotly.graph_objects as go

        data: Any = self.outputs[0]["data"] if self.outputs else {}
        return go.Figure(data.get(PLOTLY))

    def show(self, figure: Any) -> None:
        """Show a figure (plotly's, or its JSON as a dictionary) in the place of the last one;
        None for nothing.
        """
        shown = figure if isinstance(figure, dict | None) else figure_json(figure)
        height = shown["layout"].get("height", 0) if shown else 0
        self.layout.min_height = f"{height}px"  # or the page would jump while it is drawn anew
        outputs: tuple[Any, ...] = ()
        if shown is not None:
            data = bundle_figure(shown) | {"text/html": describe_figure(shown)}
            outputs = ({"output_type": "display_data", "metadata": {}, "data": data},)
        self.outputs = outputs


class Control(ipw.VBox):
    """A box of controls, a line that says what happens, and pages.

    ``still`` gives what is displayed before it and remains without a kernel; ``refresh_still``
    brings it up to date. A control closes all that it made, and is closed when the cell that made
    it is run again.
    """

    drawing: Drawing

    def __init__(self, controls: Any, pages: Any, still: Callable[[], Any]) -> None:
        self._still = still
        self._stop = threading.Event()
        self._worker: threading.Thread | None = None
        self.status = ipw.HTML()
        self.stop_button = button("Stop", self.stop, disabled=True)
        below = row(self.stop_button, self.status)
        super().__init__([ipw.HTML(GONE), *controls, below, *pages])
        self._handle = None
        self._name = f"dl-{uuid4().hex[:8]}"
        self.add_class(self._name)
        self.add_class("dl-host")
        close_earlier(self)

    @property
    def figure(self) -> Any:
        """What is drawn, as a figure of plotly."""
        return self.drawing.figure

    def _ipython_display_(self, **_: Any) -> None:
        from IPython.display import display

        note = {
            "text/html": NOTE.format(name=self._name) + DARK,
            "text/plain": "The controls need a kernel: run this cell.",
        }
        # its name says nothing where it cannot live
        box = self._repr_mimebundle_() | {"text/plain": ""}
        still = self._still()
        # a figure that displays itself takes no id, and could not be exchanged
        if hasattr(still, "to_plotly_json"):
            shown = still._repr_mimebundle_() | bundle_figure(figure_json(still))
            self._handle = display(shown, raw=True, display_id=self._name)
        else:
            self._handle = display(still, display_id=self._name)
        display(note, raw=True)
        display(box, raw=True)

    def refresh_still(self, figure: dict[str, Any]) -> None:
        """Put a figure's JSON in the place of what remains without a kernel."""
        if self._handle is not None:
            self._handle.update(bundle_figure(figure), raw=True)

    def close(self) -> None:
        """Stop the model, and close everything in the box."""
        self.stop()
        for widget in list(inner_widgets(self)):
            widget.close()
        super().close()

    def guard(self, call: Callable[[], None]) -> None:
        """Do what a control asks for; an error is shown beside the buttons, and nothing is lost."""
        try:
            self.say("")
            call()
        except Exception as error:  # noqa: BLE001 - in a callback an error would be seen in a log only
            self.say(describe_error(error), alert=True)

    def offer(self, label: str, call: Callable[[], Any], **options: Any) -> ipw.Button:
        """A button whose errors are shown beside it."""
        return button(label, lambda: self.guard(call), **options)

    def on_value(self, control: ipw.Widget, call: Callable[[], Any]) -> None:
        """Call it whenever the control has another value."""
        control.observe(lambda _: self.guard(call), "value")

    def say(self, text: str, *, alert: bool = False) -> None:
        """A line beside the buttons."""
        self.status.value = (
            f'<span role="{"alert" if alert else "status"}">{"⚠ " * alert}{esc(text)}</span>'
        )

    # -- the model, in its own thread, so that the buttons stay live -------------------------------

    def run(
        self,
        start: Callable[[], Any],
        after: Callable[[Trace], None],
        each: Callable[[Any, Trace], None] = lambda event, trace: None,
        says: str = "",
    ) -> Trace:
        """Take the events that ``start`` gives, one after another, until their end or ``stop``;
        returns their trace.

        ``each`` is called with every event, ``after`` at the end, be it an error's: ``trace.ended``
        says which. Raises ``SettingError`` while the model runs already; otherwise as ``start``.
        """
        if self._worker is not None and self._worker.is_alive():
            raise SettingError(
                "the model is still writing; stop it first, or wait for it. Nothing is lost"
            )
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
        """Wait until the model has ended. A ``KeyboardInterrupt`` stops it, and is raised once
        it has stopped.
        """
        if self._worker is None:
            return
        try:
            self._worker.join(timeout)
        except KeyboardInterrupt:
            self.stop()
            self._worker.join(5)
            raise


def bundle_figure(figure: dict[str, Any]) -> dict[str, Any]:
    """A figure's JSON as what a front end displays: nothing is loaded from a network."""
    return {PLOTLY: figure, "text/plain": "A figure of plotly"}


def describe_figure(figure: dict[str, Any]) -> str:
    """A figure as words, with what it says on hover: HTML for a front end whose Output draws
    none.
    """
    texts = [text for trace in figure["data"] for text in trace.get("customdata") or ()]
    lines = dict.fromkeys(text for text in texts if isinstance(text, str))
    items = "".join(f"<li>{line}</li>" for line in lines)
    title = figure["layout"].get("title", {}).get("text", "A figure")
    return f"<details><summary>{title}</summary><ol>{items}</ol></details>"


def figure_json(figure: Any) -> dict[str, Any]:
    """A figure of plotly as the plain data that a front end draws."""
    data: dict[str, Any] = json.loads(figure.to_json())
    return data


def button(label: str, call: Callable[[], Any], **options: Any) -> ipw.Button:
    pressed = ipw.Button(description=label, layout={"width": "auto", "flex": "0 0 auto"}, **options)
    pressed.on_click(lambda _: call())
    return pressed


def row(*controls: ipw.Widget) -> ipw.HBox:
    """Controls beside one another, or under one another where it is narrow."""
    return ipw.HBox(controls, layout={"flex_flow": "row wrap"})


def inner_widgets(widget: ipw.Widget) -> Iterator[ipw.Widget]:
    """All widgets that a widget holds, at any depth: its children, layout and style."""
    for name in widget.keys if widget.comm is not None else ():
        value = getattr(widget, name)
        for one in value if isinstance(value, tuple | list) else [value]:
            if isinstance(one, ipw.Widget):
                yield from inner_widgets(one)
                yield one


#: For each cell of a notebook its latest run, and the controls that this run made.
_MADE: dict[str, tuple[str, list[Control]]] = {}


def close_earlier(control: Control) -> None:
    """Close what an earlier run of the same cell made; a cell is its id, and where the front end
    has none its code.
    """
    from IPython import get_ipython

    shell = get_ipython()
    asked = shell.get_parent() if hasattr(shell, "get_parent") else {}
    if asked.get("header", {}).get("msg_type") != "execute_request":
        return  # made by a callback, or where there are no cells
    run = asked["header"]["msg_id"]
    cell = asked.get("metadata", {}).get("cellId") or asked["content"]["code"]
    before, controls = _MADE.get(cell, (run, []))
    if before != run:
        for earlier in controls:
            earlier.close()
        controls = []
    _MADE[cell] = run, [*controls, control]
