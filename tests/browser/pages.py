"""Pages that may ask nobody but the server under test, and that hear of every complaint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab import PATIENCE, WIDE, Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route


class Pages:
    """Opens pages that may ask one server alone, or files only, and hears what they say."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.contexts: list[BrowserContext] = []
        self.heard: list[str] = []  # complaints, and addresses outside this machine

    def __call__(self, server: Server | None = None, *, scripts: bool = True, scheme: str = "light") -> Page:
        size = {"width": WIDE, "height": 900}
        context = self.browser.new_context(viewport=size, java_script_enabled=scripts, color_scheme=scheme)
        context.set_default_timeout(1000 * PATIENCE)
        self.contexts.append(context)

        def gate(route: Route) -> None:
            url = route.request.url
            if url.startswith(("file:", "data:", "blob:")) or (server is not None and url.startswith(server.url)):
                route.continue_()
            else:
                self.heard.append(url)
                route.abort()

        context.route("**/*", gate)
        page = context.new_page()
        page.on("console", lambda said: self.heard.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: self.heard.append(str(error)))
        return page

    def close(self) -> None:
        """Close them all; fail where one of them complained."""
        for context in self.contexts:
            context.close()
        assert self.heard == []
