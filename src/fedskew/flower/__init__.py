"""The same run in a real federation, on Flower: apps, strategies and partitioners (the extra `flower`).

A name is imported from its room when it is first used: Flower takes half a second.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fedskew.errors import FedskewError

if TYPE_CHECKING:
    from fedskew.flower.client import client_app
    from fedskew.flower.partitioner import SkewPartitioner
    from fedskew.flower.server import server_app
    from fedskew.flower.settings import Settings
    from fedskew.flower.strategy import MethodStrategy

_ROOMS = {
    "MethodStrategy": "fedskew.flower.strategy",
    "Settings": "fedskew.flower.settings",
    "SkewPartitioner": "fedskew.flower.partitioner",
    "client_app": "fedskew.flower.client",
    "server_app": "fedskew.flower.server",
}

__all__ = ["MethodStrategy", "Settings", "SkewPartitioner", "client_app", "server_app"]


def installed() -> None:
    """Refuse to go on without Flower."""
    if find_spec("flwr") is None:
        raise FedskewError("Flower is not installed: pip install 'fedskew[flower]'")


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'fedskew.flower' has no attribute {name!r}")
    installed()
    return getattr(import_module(_ROOMS[name]), name)
