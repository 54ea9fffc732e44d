"""What all widgets share: scripts, styles, a thread for the model, a static view where no front end runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

import anywidget
import traitlets

from dragin_lab.views.frame import View
from dragin_lab.views.rendering import stylesheet


@cache
def script(name: str) -> str:
    """A widget's module: what all share, then its own file."""
    folder = resources.files("dragin_lab.widgets")
    return "\n".join(folder.joinpath(f"{part}.js").read_text(encoding="utf-8") for part in ("common", name))


@cache
def style(*sheets: str) -> str:
    """The views' style sheets and the widgets' own."""
    own = resources.files("dragin_lab.widgets").joinpath("widgets.css").read_text(encoding="utf-8")
    return stylesheet(*sheets) + own


class Card(anywidget.AnyWidget):
    """A widget in a card. Where nothing can run it, its static view is shown, and as text its text."""

    _esm: Any = "export default { render() {} }"
    _css: Any = ""
    #: What the script draws; plain data, sent once.
    data: Any = traitlets.Dict().tag(sync=True)

    def static(self) -> View:
        """The same without a front end."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        found = super()._repr_mimebundle_(**kwargs)
        if found is None:
            return None
        bundle, metadata = found if isinstance(found, tuple) else (found, {})
        view = self.static()
        return {**bundle, "text/html": view.html, "text/plain": view.text}, metadata

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.static().title!r}; display it in a notebook)"


class Running(Card):
    """A widget that runs a model in its own thread, so that its buttons stay live."""

    def __init__(self, **traits: Any) -> None:
        self._stop = threading.Event()
        self._worker: threading.Thread | None = None
        super().__init__(**traits)
        self.on_msg(self._heard)

    def _heard(self, _: Any, content: Any, __: Any) -> None:
        """What a button of the front end says: ``{"kind": …}``."""
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
        """Stop generating after the current piece; what was done is kept."""
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
