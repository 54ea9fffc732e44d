"""What the browser tests share: Debian's Chromium driven by Playwright, pages that hear of every error, a JupyterLab.

Where Playwright or Chromium is absent, every test skips and says what is missing. Pictures go to ``test-results/``.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab import ROOT, WIDE, Server, jupyterlab

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route

sys.path.append(str(ROOT / "tests" / "views"))  # the traces of the views' own tests

PICTURES = ROOT / "test-results"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@dataclass
class Heard:
    """What a page complained of, and what it asked for outside this machine."""

    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def nothing(self) -> None:
        """Fail where the page complained or asked for something outside."""
        assert self.errors == []
        assert self.outside == []


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium without a window."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        pytest.skip(f"Playwright is not installed ({error}); run pip install 'dragin-lab[dev]'")
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no browser on the PATH ({', '.join(BROWSERS)}); on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]
        running = playwright.chromium.launch(executable_path=program, args=flags)
        yield running
        running.close()


Opener = Callable[..., "Page"]


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Opener]:
    """``new_page(server, scripts=, scheme=, width=)``: a page that may ask ``server`` alone, or files only.

    At the end of the test every page must have been quiet; ``page.heard`` holds what it said till then.
    """
    contexts: list[BrowserContext] = []
    heards: list[Heard] = []

    def opened(
        server: Server | None = None, *, scripts: bool = True, scheme: str = "light", width: int = WIDE, height: int = 900
    ) -> Page:
        options: dict[str, Any] = {"java_script_enabled": scripts, "color_scheme": scheme}
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        context.set_default_timeout(20_000)
        contexts.append(context)
        heard = Heard()
        heards.append(heard)

        def gate(route: Route) -> None:
            url = route.request.url
            if url.startswith(("file:", "data:", "blob:")) or (server is not None and url.startswith(server.url)):
                route.continue_()
            else:
                heard.outside.append(url)
                route.abort()

        context.route("**/*", gate)
        page = context.new_page()
        page.on("console", lambda said: heard.errors.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: heard.errors.append(str(error)))
        return page

    yield opened
    for context in contexts:
        context.close()
    for heard in heards:
        heard.nothing()


@pytest.fixture(scope="session")
def lab(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A JupyterLab on a copy of the notebooks."""
    root = tmp_path_factory.mktemp("notebooks")
    shutil.copytree(ROOT / "notebooks", root, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    with jupyterlab(root, tmp_path_factory.mktemp("jupyter")) as server:
        yield server


@pytest.fixture
def picture(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """``picture(name)``: where a picture of this test goes."""

    def path(name: str) -> Path:
        folder = PICTURES / re.sub(r"^test_", "", request.module.__name__)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / (re.sub(r"[^\w.-]+", "-", name) + ".png")

    return path
