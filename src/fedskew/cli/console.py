"""What every command shares: results on standard output, progress and notes on standard error."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console

out = Console()
err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]


def print_json(document: Any) -> None:
    """The one JSON document of a `--json` command; NaN has no place in JSON and becomes null."""
    typer.echo(json.dumps(_finite(document), indent=2, allow_nan=False))


def note(text: str) -> None:
    """A remark for the person at the terminal."""
    err.print(text, style="dim", highlight=False, markup=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if isinstance(value, float) and value - value != 0.0:
        return None
    return value
