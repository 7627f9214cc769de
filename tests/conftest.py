import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import fedskew  # noqa: F401 - before torch, whose threads it tells how to wait

import torch  # isort: skip

from fedskew.engine import threads  # isort: skip

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Timings belong to benchmarks; the same examples on every machine make a red run mean something.
settings.register_profile("fedskew", deadline=None, derandomize=True)
settings.load_profile("fedskew")

# Started in the background of a script, Ctrl-C is ignored, and by every process that a test starts to interrupt it.
signal.signal(signal.SIGINT, signal.default_int_handler)

if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 0)):  # they share the cores
    torch.set_num_threads(max(1, torch.get_num_threads() // workers))


@pytest.fixture
def one_thread():
    """Networks this small only wait for each other on several."""
    with threads.restored():
        torch.set_num_threads(1)
        yield


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """Debian's chromium, once for all tests: Playwright starts once in a process."""
    from playwright.sync_api import sync_playwright

    from visits import QUIET

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture(autouse=True)
def _own_store(tmp_path, monkeypatch):
    """No test writes into the working folder's store."""
    monkeypatch.setenv("FEDSKEW_STORE", str(tmp_path / "store"))


@pytest.fixture
def mount():
    """`mount(*options, at=folder)`, undone after the test; the test is skipped where that is not allowed."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can mount")
    mounted = []

    def mount(*options, at):
        if subprocess.run(["mount", *options, at], capture_output=True).returncode:
            pytest.skip("mounting is not allowed here")
        mounted.append(at)

    yield mount
    for folder in reversed(mounted):
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def disk(tmp_path, mount):
    """A megabyte of its own, which can be full or read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", at=folder)
    return folder


def pytest_collection_modifyitems(items):
    """Files with slow tests first: while the last of them ran, the other worker had nothing left to do."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Where FEDSKEW_REQUIRE names a marker, a skipped test of that kind is a failure."""
    report = yield
    required = [m for m in os.environ.get("FEDSKEW_REQUIRE", "").split(",") if m and item.get_closest_marker(m)]
    if report.skipped and required:
        report.outcome = "failed"
        report.longrepr = f"skipped, although FEDSKEW_REQUIRE asks for {', '.join(required)}: {report.longrepr}"
    return report
