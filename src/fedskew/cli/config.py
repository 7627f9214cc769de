"""A run's TOML file, read in one place for every command that takes one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from fedskew.errors import FedskewError


def read(path: Path, named: str = "--config") -> dict[str, Any]:
    """The keys of a run, or of a grid of runs, as the file gives them."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as e:
        raise FedskewError(f"{named} {path}: {e}; give a TOML file") from e
    except tomllib.TOMLDecodeError as e:
        raise FedskewError(f"{named} {path} is not valid TOML: {e}") from e
