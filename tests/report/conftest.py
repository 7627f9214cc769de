from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from visits import Visit


@pytest.fixture(scope="module")
def visit(browser: Browser, report: Path) -> Iterator[Visit]:
    """The module's report in a wide window."""
    visit = Visit(browser, report, 1600)
    yield visit
    visit.page.close()
