"""Make the dashboard's pictures from real runs: python scripts/screenshots.py

Trains small runs on the embedded digits into a store of its own, adds the committed full-scale runs of Zhao's Table 3,
opens the dashboard in chromium and takes every view: wide and light, narrow and dark.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from fedskew.run import Run
from fedskew.store import Store, archive
from fedskew.sweep import plan, train

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
LOOKS = {"wide": (1440, "light"), "narrow": (400, "dark")}
CHARTS = {"runs": 0, "compare": 2, "clients": 4, "drift": 3, "whatif": 3, "papers": 0}
TALLEST = {"wide": 1500, "narrow": 1700}  # pixels of a picture
BASE = {"model": "mlp", "lr": 0.05, "rounds": 40, "divergence": True, "holdout": 0.2}


def runs() -> list[Run]:
    """Settings of the demo with three seeds each."""
    settings: list[dict[str, object]] = [
        {"partition": "iid"},
        {"partition": "classes:2"},
        {"partition": "classes:1"},
        {"partition": "classes:1", "share": "beta=0.1,alpha=0.5"},
        {"partition": "classes:1", "share": "beta=0.1,alpha=0.5", "warm_up": 0.6},
        {"partition": "classes:1", "algorithm": "fedavgm:0.9"},
    ]
    return [Run(**BASE, **setting, clients=10, seed=seed) for setting in settings for seed in range(3)]


@contextmanager
def training(store: Store) -> Iterator[None]:
    """A run that is still training while pictures are taken."""
    options = ["--model", "mlp", "--partition", "dirichlet:0.1", "--clients", "100", "--lr", "0.05", "--rounds", "3000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedskew", "train", *options, "--name", "a hundred clients"],
        env=os.environ | {"FEDSKEW_STORE": str(store.folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not any(entry.round > 20 for entry in store.runs() if entry.name == "a hundred clients"):
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def dashboard(store: Store) -> Iterator[str]:
    """Its address."""
    command = [sys.executable, "-m", "fedskew", "ui", "--store", str(store.folder), "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def take(browser: Browser, address: str, store: Store, look: str, folder: Path) -> None:
    """Every view in one look."""
    width, scheme = LOOKS[look]
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    own = [e.id for e in store.runs() if e.data == "digits" and not e.name]
    (shared,) = [e.id for e in store.runs() if e.spec["warm_up"] and e.spec["seed"] == 0]
    queries = {
        "runs": "runs=" + ",".join(own[:3]),
        "compare": "runs=" + ",".join(own),
        "clients": f"run={shared}",
        "drift": "runs=" + ",".join(own),
        "whatif": "kind=dirichlet&value=0.1&clients=20&beta=0.1&alpha=0.5",
        "papers": "paper=zhao2018&name=table 3&scale=full",
    }
    for view, charts in CHARTS.items():
        page.goto(f"{address}#/{view}?{queries[view]}")
        page.wait_for_selector(f".view.{view}")
        page.wait_for_selector(".loading", state="detached", timeout=60_000)
        for i in range(charts):
            page.locator(".chart").nth(i).locator("svg.marks").wait_for()
        page.mouse.move(0, 0)
        page.wait_for_timeout(400)
        picture = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
        picture = picture.crop((0, 0, picture.width, min(picture.height, TALLEST[look])))
        path = folder / f"dashboard-{view}-{look}.png"
        picture.quantize(256, kmeans=1, dither=Image.Dither.NONE).save(path, optimize=True)
        print(f"{path.name}: {picture.width} x {picture.height}, {path.stat().st_size / 1e3:.0f} kB")
    page.close()


def main() -> None:
    """Train, open, look."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=IMAGES, help="where the pictures go")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        store = Store(Path(place) / "runs")
        archive.unpack(store, ROOT / "results" / "zhao2018" / "runs.zip")
        _, groups = plan(store, runs())
        for _ in train(store, groups, device="cpu"):
            pass
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with training(store), dashboard(store) as address:
            for look in LOOKS:
                take(browser, address, store, look, folder)
        browser.close()


if __name__ == "__main__":
    main()
