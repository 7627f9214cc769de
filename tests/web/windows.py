"""The dashboard in a window of chromium: opened, waited for, and quiet."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Browser, Page

from fedskew.store import Store
from visits import Watched


class Visit(Watched):
    """The dashboard in a window of its own."""

    def __init__(self, browser: Browser, address: str, *, width: int = 1600, scheme: Any = "light") -> None:
        super().__init__(browser, width, scheme)
        self.address = address

    def go(self, view: str, **params: str) -> Page:
        query = "&".join(f"{key}={value}" for key, value in params.items())
        self.page.goto(f"{self.address}#/{view}?{query}")
        self.page.wait_for_selector(f".view.{view}")
        self.page.wait_for_selector(".loading", state="detached")
        return self.page

    def quiet(self) -> None:
        assert self.noise == []
        own = self.address.split("?")[0]
        assert [url for url in self.requests if not url.startswith((own, "data:", "blob:"))] == []


def until(what: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What it gives as soon as that is true; the page's own policy forbids Playwright's waiting by eval."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return found


def every(store: Store) -> str:
    return ",".join(entry.id for entry in store.runs())


def drawn(page: Page, charts: int) -> None:
    until(lambda: page.locator(".chart svg.marks").count() == charts)
