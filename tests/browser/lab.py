"""Pages that hear of every complaint, a JupyterLab of its own, and a person's hands on a notebook
in it.

The server listens on 127.0.0.1 alone and keeps its settings, workspaces, kernels and history in a
temporary folder; its kernels run this tree's package. The page is driven with Playwright.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route

ROOT = Path(__file__).parents[2]
#: Seconds that a page has for one thing, a server to start, and a notebook to run all its cells.
PATIENCE, START, RUN = 60, 90, 400
#: Widths of a window in CSS pixels at which pages are looked at.
WIDE, NARROW, PHONE = 1280, 700, 400
#: What plotly's renderer of JupyterLab says where a figure, redrawn while a window changes its
#: width, goes from the page before it is resized, as the one below a live control does.
OF_PLOTLY = "Resize must be passed a displayed plot div element"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
#: What JupyterLab would ask the network for, and what hides cells that are not on screen.
SETTINGS: dict[str, dict[str, Any]] = {
    "@jupyterlab/apputils-extension:notification": {"checkForUpdates": False, "fetchNews": "false"},
    "@jupyterlab/apputils-extension:themes": {"theme": THEMES["light"], "adaptive-theme": False},
    "@jupyterlab/notebook-extension:tracker": {
        "windowingMode": "none",
        "autoStartDefaultKernel": True,
    },
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}
FLAGS = (
    "--no-browser",
    "--allow-root",
    "--expose-app-in-browser",
    "--ServerApp.ip=127.0.0.1",
    "--ServerApp.port_retries=0",
    "--ServerApp.terminals_enabled=False",
    "--LabApp.news_url=None",
    "--LabApp.extension_manager=readonly",
)


@dataclass(frozen=True)
class Server:
    """A JupyterLab that serves the folder ``root``."""

    url: str
    token: str
    root: Path

    def notebook(self, name: str) -> str:
        """The address at which a notebook opens by itself, without JupyterLab's other panels."""
        return f"{self.url}/doc/tree/{name}?token={self.token}&reset"

    def answers(self) -> bool:
        """Whether it listens."""
        try:
            with urllib.request.urlopen(f"{self.url}/api?token={self.token}", timeout=5):
                return True
        except OSError:
            return False


@contextmanager
def jupyterlab(root: Path, scratch: Path) -> Iterator[Server]:
    """A JupyterLab on ``root`` until the end of the block; all that it writes elsewhere lies
    below ``scratch``.
    """
    with socket.socket() as probe:  # a port on which nobody listens now
        probe.bind(("127.0.0.1", 0))
        port, token = probe.getsockname()[1], secrets.token_hex(16)
    own = {"HOME": str(scratch / "HOME"), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    own |= {"JUPYTER_PLATFORM_DIRS": "0", "JUPYTER_NO_CONFIG": ""}
    for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR", "LAB_SETTINGS_DIR", "LAB_WORKSPACES_DIR"):
        variable = f"JUPYTER_{name}" if not name.startswith("LAB") else f"JUPYTER{name}"
        own[variable] = str(scratch / name)
    own["IPYTHONDIR"] = str(scratch / "ipython")
    settings = scratch / "CONFIG_DIR" / "labconfig" / "default_setting_overrides.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(SETTINGS), encoding="utf-8")
    (scratch / "HOME").mkdir()
    address = [
        f"--ServerApp.port={port}",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={root}",
    ]
    command = [sys.executable, "-m", "jupyterlab", *FLAGS, *address]
    log = scratch / "server.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            command,
            env=os.environ | own,
            cwd=root,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            server = Server(f"http://127.0.0.1:{port}", token, root)
            until = time.monotonic() + START
            while not server.answers():
                waiting = time.monotonic() < until and process.poll() is None
                assert waiting, log.read_text(errors="replace")[-3000:]
                time.sleep(0.2)
            yield server
        finally:  # which ends its kernels; what is left of its group after ten seconds is killed
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)


def write_notebook(root: Path, name: str, sources: Sequence[str]) -> str:
    """Write a notebook of code cells without outputs; returns its name."""
    import nbformat
    from nbformat import v4

    cells = [v4.new_code_cell(source) for source in sources]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nbformat.write(v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), root / name)
    return name


class Pages:
    """Opens pages that may ask one server alone, or files only, and hears what they say."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.contexts: list[BrowserContext] = []
        self.heard: list[str] = []  # complaints, and addresses outside this machine

    def __call__(
        self, server: Server | None = None, *, scripts: bool = True, scheme: str = "light"
    ) -> Page:
        size = {"width": WIDE, "height": 900}
        context = self.browser.new_context(
            viewport=size, java_script_enabled=scripts, color_scheme=scheme
        )
        context.set_default_timeout(1000 * PATIENCE)
        self.contexts.append(context)

        def gate(route: Route) -> None:
            url = route.request.url
            if url.startswith(("file:", "data:", "blob:")) or (
                server is not None and url.startswith(server.url)
            ):
                route.continue_()
            else:
                self.heard.append(url)
                route.abort()

        context.route("**/*", gate)
        page = context.new_page()
        page.on(
            "console", lambda said: self.heard.append(said.text) if said.type == "error" else None
        )
        page.on("pageerror", lambda error: self._hear(str(error)))
        return page

    def _hear(self, error: str) -> None:
        if OF_PLOTLY not in error:
            self.heard.append(error)

    def close(self) -> None:
        """Close them all; fail where one of them complained."""
        for context in self.contexts:
            context.close()
        assert self.heard == []


# -- a notebook on a page --------------------------------------------------------------------------

_READY = """() => {
  const panel = window.jupyterapp?.shell.currentWidget;
  return !!(panel?.content?.model && panel.context.isReady && panel.sessionContext.session?.kernel
    && panel.sessionContext.session.kernel.status === 'idle');
}"""
_DONE = """() => {
  const panel = window.jupyterapp.shell.currentWidget;
  const code = panel.content.widgets.filter(cell => cell.model.type === 'code');
  const asked = code.filter(cell => cell.model.sharedModel.getSource().trim());
  return panel.sessionContext.session.kernel.status === 'idle' && !window.running
    && asked.every(cell => cell.model.executionState !== 'running');
}"""
_CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets.map(cell => ({
  type: cell.model.type,
  source: cell.model.sharedModel.getSource(),
  count: cell.model.executionCount ?? null,
  outputs: cell.model.type === 'code' ? cell.model.outputs.toJSON() : [],
}))"""
_RUN_ALL = """() => {
  window.running = true;
  window.jupyterapp.commands.execute('notebook:run-all-cells')
    .finally(() => { window.running = false; });
}"""
_RUN_FROM = """place => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  notebook.activeCellIndex = place;
  notebook.deselectAll();
  window.running = true;
  window.jupyterapp.commands.execute('notebook:run-cell')
    .finally(() => { window.running = false; });
}"""
_THEME = "theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })"
_SCROLL = """top => {
  const outer = document.querySelector('.jp-NotebookPanel-notebook .jp-WindowedPanel-outer')
    ?? document.querySelector('.jp-NotebookPanel-notebook');
  outer.scrollTop = top;
  const last = outer.querySelector('.jp-Cell:last-of-type')?.getBoundingClientRect().bottom ?? 0;
  return { seen: outer.clientHeight, ends: last <= outer.getBoundingClientRect().bottom };
}"""


@dataclass(frozen=True)
class Cell:
    """A cell as it stands in the page; ``outputs`` are nbformat's."""

    type: str
    source: str
    count: int | None
    outputs: list[dict[str, Any]]

    @property
    def errors(self) -> list[str]:
        """What its error outputs say."""
        return [
            f"{out['ename']}: {out['evalue']}"
            for out in self.outputs
            if out["output_type"] == "error"
        ]


@dataclass(frozen=True)
class Notebook:
    """A notebook open on a page."""

    page: Page

    @classmethod
    def open(cls, page: Page, server: Server, name: str) -> Notebook:
        """Open a notebook of the server's folder and wait for its kernel."""
        page.goto(server.notebook(name))
        page.wait_for_function(_READY, timeout=1000 * PATIENCE)
        return cls(page)

    def run_all(self) -> list[Cell]:
        """Run all cells, as the menu does, and wait for the last one."""
        self.page.evaluate(_RUN_ALL)
        self.wait()
        return self.cells()

    def start(self, place: int) -> None:
        """Start the cell at this place, counted from 0 over all cells."""
        self.page.evaluate(_RUN_FROM, place)

    def run(self, place: int) -> Cell:
        """Run one cell and wait for its end."""
        self.start(place)
        self.wait()
        return self.cells()[place]

    def wait(self) -> None:
        """Wait until no cell runs and the kernel rests."""
        self.page.wait_for_function(_DONE, timeout=1000 * RUN, polling=100)

    def cells(self) -> list[Cell]:
        """All cells as they stand now."""
        return [Cell(**cell) for cell in self.page.evaluate(_CELLS)]

    def outputs(self, place: int) -> Locator:
        """What stands under the cell at this place."""
        return (
            self.page.locator(".jp-Notebook .jp-Cell").nth(place).locator(".jp-OutputArea-output")
        )

    def end(self) -> None:
        """Shut the kernel down: JupyterLab keeps the kernel of a notebook whose page is closed."""
        self.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")

    def save(self) -> None:
        """Write the notebook with its outputs to its file."""
        self.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")

    def theme(self, name: str) -> None:
        """Switch JupyterLab to its ``"light"`` or ``"dark"`` theme and wait until the page wears
        it.
        """
        self.page.evaluate(_THEME, THEMES[name])
        light = "true" if name == "light" else "false"
        self.page.wait_for_selector(f"body[data-jp-theme-light={light}]", state="attached")

    def pictures(
        self, path: Callable[[str], Path], name: str, width: int, height: int = 1500, most: int = 40
    ) -> None:
        """Photograph the notebook from top to bottom, in a window of this size."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.wait_for_timeout(500)  # figures take it up a moment later
        top = 0
        for number in range(1, most + 1):
            seen = self.page.evaluate(_SCROLL, top)
            self.page.wait_for_timeout(100)
            self.page.screenshot(path=path(f"{name}-{width}-{number:02}"))
            if seen["ends"]:
                return
            top += seen["seen"] - 60
