"""The base of all widgets: scripts, styles, a thread for the model, a static view where no front end runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import anywidget
import traitlets
from markupsafe import Markup

from dragin_lab.text import json_in_html
from dragin_lab.views.frame import View, save_page
from dragin_lab.views.rendering import load_stylesheet, read_asset, render_template

#: The static view as an output before the widget's own, which is not shown until the widget is there.
STAND_IN = (
    '<div class="dl-stand-in" data-widget="{id}"><style>.jp-OutputArea-child:has(.dl-stand-in) + '
    ".jp-OutputArea-child:not(:has(.dl-host)) {{ display: none }}</style>{html}</div>"
)


@cache
def load_script(name: str, *, draws: str = "") -> str:
    """A widget's module: what all share, then its own file; ``draw`` in it is the ``render`` of the widget it draws."""
    other = read_asset(f"widgets/{draws}.js").replace("export default { render };", "return render;") if draws else ""
    within = f"const draw = (() => {{\n{other}}})();\n" if draws else ""
    return read_asset("views/templates/common.js") + within + read_asset(f"widgets/{name}.js")


@cache
def load_style(*sheets: str) -> str:
    """The views' style sheets and the widgets' own."""
    return load_stylesheet(*sheets) + read_asset("widgets/widgets.css")


class Card(anywidget.AnyWidget):
    """A widget in a card. Where nothing can run it, its static view is shown, and as text its text."""

    _esm: Any = "export default { render() {} }"
    _css: Any = ""
    #: What the script draws; plain data, sent once.
    data: Any = traitlets.Dict().tag(sync=True)

    def __init__(self, *, data: dict[str, Any], **traits: Any) -> None:
        super().__init__(data={"id": uuid4().hex, **data}, **traits)

    def static(self) -> View:
        """The same without a front end."""
        raise NotImplementedError

    def save(self, path: str | Path) -> Path:
        """Write one page that opens offline; return its path.

        Raises ``ViewError`` where the file cannot be written.
        """
        still, traits = self.static(), Markup(json_in_html(self._recorded()))
        parts = {"style": Markup(self._css), "script": Markup(self._esm), "still": Markup(still.html)}
        return save_page(path, still.title, render_template("widget.html", traits=traits, **parts))

    def _recorded(self) -> dict[str, Any]:
        """The traits that a saved page begins with."""
        return {"data": self.data}

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        shown = super()._repr_mimebundle_(**kwargs)
        if shown is None:
            return None
        bundle, metadata = shown if isinstance(shown, tuple) else (shown, {})
        view = self.static()
        return {**bundle, "text/html": view.html, "text/plain": view.text}, metadata

    def _ipython_display_(self, **_: Any) -> None:
        """Show the static view and, in its place where a front end runs it, the widget.

        Jupyter would rather show an error than the HTML of a widget that it has lost, so the two are outputs by
        themselves: the script takes the first one away, and its style hides what stands for a lost widget.
        """
        from IPython.display import display

        shown = self._repr_mimebundle_()
        if shown is None:
            print(self.static().text)
            return
        bundle, metadata = shown
        static = {"text/html": STAND_IN.format(id=self.data["id"], html=bundle["text/html"])}
        display({**static, "text/plain": bundle["text/plain"]}, raw=True)
        display({**bundle, "text/html": "<i></i>", "text/plain": ""}, metadata=metadata, raw=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.static().title!r}; display it in a notebook)"


class Running(Card):
    """A widget that runs a model in its own thread, so that its buttons stay live."""

    def __init__(self, *, data: dict[str, Any], **traits: Any) -> None:
        self._stop = threading.Event()
        self._worker: threading.Thread | None = None
        super().__init__(data=data, **traits)
        self.on_msg(self._heard)

    def _heard(self, _: Any, content: Any, __: Any) -> None:
        """Handle a message of the front end: ``{"kind": …}``."""
        raise NotImplementedError

    @property
    def busy(self) -> bool:
        """Whether the model is being run."""
        return self._worker is not None and self._worker.is_alive()

    def _begin(self, work: Callable[..., None], *values: Any) -> None:
        self._stop.clear()
        self._worker = threading.Thread(target=work, args=values, daemon=True)
        self._worker.start()

    def stop(self) -> None:
        """Stop generating after the current token; what was done is kept."""
        self._stop.set()

    def wait(self, timeout: float | None = None) -> Any:
        """Wait until the run has ended, at most ``timeout`` seconds. While a cell waits, no button is heard.

        A ``KeyboardInterrupt`` stops the run, and is raised once it has stopped.
        """
        if self._worker is not None:
            try:
                self._worker.join(timeout)
            except KeyboardInterrupt:
                self.stop()
                self._worker.join(5)
                raise
