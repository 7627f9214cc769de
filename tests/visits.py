"""A page opened in a real browser, and what a quiet page does not do."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Dialog, Page

QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


class Watched:
    """A page and everything it did that a quiet page does not do."""

    def __init__(self, browser: Browser, width: int, scheme: Literal["light", "dark"] = "light") -> None:
        self.noise: list[str] = []
        self.requests: list[str] = []
        self.page: Page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page.on("console", lambda m: self.noise.append(m.text))
        self.page.on("pageerror", lambda e: self.noise.append(str(e)))
        self.page.on("dialog", self.dismiss)
        self.page.on("request", lambda r: self.requests.append(r.url))

    def dismiss(self, dialog: Dialog) -> None:
        self.noise.append(dialog.message)
        dialog.dismiss()


class Visit(Watched):
    """A page from the disk, all of its charts drawn."""

    def __init__(self, browser: Browser, path: Path, width: int) -> None:
        super().__init__(browser, width)
        self.page.goto(path.as_uri())
        self.page.wait_for_function(
            "n => document.querySelectorAll('.chart svg.marks').length === n", arg=len(self.boxes())
        )

    def boxes(self) -> list[str]:
        return [box.get_attribute("class") or "" for box in self.page.query_selector_all(".chart")]


def sticks_out(page: Page, least: float = 0.9) -> list[str]:
    """What is wider than the window, drawn outside its own frame, or does not fill this part of its box."""
    return page.evaluate(  # type: ignore[no-any-return]
        """least => {
            const found = document.documentElement.scrollWidth > innerWidth ? ['page'] : [];
            for (const svg of document.querySelectorAll('.chart:not(.scroll) svg.marks')) {
                const frame = svg.getBoundingClientRect(), box = svg.closest('.chart').clientWidth;
                if (frame.width > box + 1 || frame.width < least * box) found.push(`${frame.width} in ${box}`);
                for (const part of svg.querySelectorAll('text, path.background, .mark-symbol path')) {
                    const r = part.getBoundingClientRect();
                    if (r.bottom > frame.bottom + 1) found.push(`below: ${part.outerHTML}`);
                    if (r.right > frame.right + 1) found.push(`right: ${part.outerHTML}`);
                    if (r.left < frame.left - 1) found.push(`left: ${part.outerHTML}`);
                }
            }
            return found;
        }""",
        least,
    )
