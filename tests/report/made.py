"""Stored runs made by hand, with numbers that can be checked by eye."""

from __future__ import annotations

from typing import Any

from fedskew.report.groups import Group, grouped
from fedskew.store.entry import Entry

SPEC = {
    "data": "digits",
    "partition": {"kind": "classes", "clients": 5, "n": 1},
    "algorithm": {"kind": "fedavg"},
    "rounds": 3,
    "lr": 0.1,
    "share": None,
}


def entry(id: str, *, status: str = "finished", round: int = 3, accuracy: float | None = 0.5, **spec: Any) -> Entry:
    whole = SPEC | {"name": "", "seed": 0} | spec
    return Entry(
        id=id,
        name=whole["name"],
        created="2026-01-01T00:00:00+00:00",
        data=whole["data"],
        partition="classes:1",
        algorithm=whole["algorithm"]["kind"],
        rounds=whole["rounds"],
        spec=whole,
        fingerprint={},
        environment={},
        status=status,
        message="",
        finished=None,
        round=round,
        accuracy=accuracy,
    )


def row(t: int, accuracy: float | None = None, *, drift: float | None = None, **more: Any) -> dict[str, Any]:
    layers = {"fc1": 1.0, "fc2": 2.0}
    divergence = drift and {
        name: {"total": drift * scale, "layers": {k: drift * scale * v for k, v in layers.items()}}
        for name, scale in (("relative", 1.0), ("rms", 0.1))
    }
    return {
        "round": t,
        "lr": 0.1,
        "loss": 1 / t if t else None,
        "accuracy": accuracy,
        "test_loss": None if accuracy is None else 1 - accuracy,
        "per_class": None if accuracy is None else [accuracy, 1 - accuracy],
        "divergence": divergence,
        "emd": 1.6,
        "clients": 5,
        "examples": 100,
        "bytes_up": 10,
        "bytes_down": 20,
        "seconds": 0.5,
    } | more


def seeds(*curves: list[float | None], **spec: Any) -> Group:
    """One group: a run for each curve."""
    runs = [
        (entry(f"{i:08x}", seed=i, **spec), [row(t, a) for t, a in enumerate(curve, 1)])
        for i, curve in enumerate(curves)
    ]
    (group,) = grouped(runs)
    return group
