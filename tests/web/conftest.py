"""One store with real runs for all tests of the dashboard."""

from __future__ import annotations

from pathlib import Path

import pytest
from dashboards import EVIL

from fedskew.run import Run
from fedskew.store import Store


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
