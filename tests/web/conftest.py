"""One store with real runs for all tests of the dashboard."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from dashboards import EVIL, Site, dashboard, served

from fedskew.run import Run
from fedskew.store import Store

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from windows import Visit


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with small real runs: two seeds of two settings, a remedy, and a name that is a script."""
    folder = tmp_path_factory.mktemp("web") / "store"
    store = Store(folder)
    base = {"model": "softmax", "rounds": 6, "lr": 0.05, "divergence": True}
    runs = [Run(**base, partition=p, clients=10, seed=seed) for p in ("iid", "classes:1") for seed in (0, 1)]
    runs += [
        Run(**base, partition="classes:1", clients=10, share="beta=0.1,alpha=0.5"),
        Run(**base | {"divergence": False}, partition="dirichlet:0.5", clients=10, name=EVIL),
    ]
    for run in runs:
        for _ in store.advance(store.create(run), device="cpu"):
            pass
    return folder


@pytest.fixture(scope="module")
def site(filled: Path) -> Iterator[Site]:
    """A server on that store."""
    with served(filled) as site:
        yield site


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, filled: Path) -> Store:
    """A copy of it that a test may write to."""
    folder = tmp_path_factory.mktemp("browser") / "store"
    shutil.copytree(filled, folder)
    return Store(folder)


@pytest.fixture(scope="module")
def address(store: Store) -> Iterator[str]:
    """A dashboard on that copy."""
    with dashboard(store.folder) as address:
        yield address


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Visit]:
    """A window on the dashboard, which must stay quiet."""
    from windows import Visit  # which needs Playwright

    visit = Visit(browser, address)
    yield visit
    visit.quiet()
    visit.page.close()
