"""What the browser tests share: Debian's Chromium driven by Playwright, pages that hear of every
error, a JupyterLab.

Where Playwright or Chromium is absent, every test skips and says what is missing. Pictures go to
``test-results/``.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lab import ROOT, Notebook, Pages, Server, jupyterlab

if TYPE_CHECKING:
    from playwright.sync_api import Browser


PICTURES = ROOT / "test-results"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The program."""
    pytest.importorskip(
        "playwright", reason="Playwright is not installed; run pip install 'dragin-lab[dev]'"
    )
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip(
            f"no browser on the PATH ({', '.join(BROWSERS)}); on Debian: apt-get install chromium"
        )
    return program


# its loop runs until it is left, and other tests of this process run their own
@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]
        running = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield running
        running.close()


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Pages]:
    """``new_page(server, scripts=, scheme=)``: a page; at the end of the test none must have
    complained.
    """
    pages = Pages(browser)
    yield pages
    pages.close()


@pytest.fixture
def open_notebook(lab: Server, new_page: Pages) -> Iterator[Callable[[str], Notebook]]:
    """``open_notebook(name)``: a notebook of the server's folder, its kernel shut down at the
    end of the test.
    """
    opened: list[Notebook] = []

    def open_one(name: str) -> Notebook:
        opened.append(Notebook.open(new_page(lab), lab, name))
        return opened[-1]

    yield open_one
    for notebook in opened:
        notebook.end()


@pytest.fixture(scope="session")
def lab(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A JupyterLab on a copy of the notebooks, beside a copy of what they read."""
    root = tmp_path_factory.mktemp("lab")
    for name in ("notebooks", "corpora", "docs/examples"):
        shutil.copytree(
            ROOT / name, root / name, ignore=shutil.ignore_patterns(".ipynb_checkpoints")
        )
    with jupyterlab(root / "notebooks", tmp_path_factory.mktemp("jupyter")) as server:
        yield server


@pytest.fixture
def picture(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """``picture(name)``: where a picture of this test goes."""

    def path(name: str) -> Path:
        folder = PICTURES / re.sub(r"^test_", "", request.module.__name__)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / (re.sub(r"[^\w.-]+", "-", name) + ".png")

    return path
