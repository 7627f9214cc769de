"""A run's TOML file, read in one place for every command that takes one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from fedskew.errors import FedskewError


def read(path: Path) -> dict[str, Any]:
    """The keys of a run as the file gives them."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as e:
        raise FedskewError(f"--config {path}: {e}; give a TOML file") from e
    except tomllib.TOMLDecodeError as e:
        raise FedskewError(f"--config {path} is not valid TOML: {e}") from e
