"""Pages that may ask nobody but the server under test, and that hear of every complaint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lab import PATIENCE, WIDE, Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route


@dataclass
class Heard:
    """What a page complained of, and what it asked for outside this machine."""

    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def nothing(self) -> None:
        """Fail where the page complained or asked for something outside."""
        assert not self.errors, self.errors
        assert not self.outside, self.outside


class Pages:
    """Opens pages that may ask one server alone, or files only, and hears what they say."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.contexts: list[BrowserContext] = []
        self.heard = Heard()

    def __call__(self, server: Server | None = None, *, scripts: bool = True, scheme: str = "light") -> Page:
        options: dict[str, Any] = {"java_script_enabled": scripts, "color_scheme": scheme}
        context = self.browser.new_context(viewport={"width": WIDE, "height": 900}, **options)
        context.set_default_timeout(1000 * PATIENCE)
        self.contexts.append(context)

        def gate(route: Route) -> None:
            url = route.request.url
            if url.startswith(("file:", "data:", "blob:")) or (server is not None and url.startswith(server.url)):
                route.continue_()
            else:
                self.heard.outside.append(url)
                route.abort()

        context.route("**/*", gate)
        page = context.new_page()
        page.on("console", lambda said: self.heard.errors.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: self.heard.errors.append(str(error)))
        return page

    def close(self) -> None:
        """Close them all; fail where one of them complained."""
        for context in self.contexts:
            context.close()
        self.heard.nothing()
