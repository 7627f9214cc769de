"""Figures with where and when they were measured, kept as JSON: one form for every benchmark."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from fedskew import bench


def about(device: torch.device | None = None) -> dict[str, Any]:
    """Device, versions and date; without a device, the machine and its cores."""
    cores = f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"
    return {
        "device": bench.device_name(device) if device else cores,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }


def keep(path: Path | str, document: dict[str, Any]) -> None:
    """Write it where people and scripts/performance.py read it."""
    Path(path).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
