"""The one error a user can cause; its text gives the rule, the value and the remedy in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class FedskewError(Exception):
    """A mistake the user can mend. Not a ValueError, so that pydantic passes it on untouched."""


def from_validation(what: str, error: ValidationError) -> FedskewError:
    """One line for everything pydantic found wrong with the fields of `what`."""
    found = []
    for e in error.errors(include_url=False, include_context=False):
        field = ".".join(str(part) for part in e["loc"]) or what
        rule = e["msg"].removeprefix("Value error, ").replace("Input should", "it should")
        if e["type"] == "extra_forbidden":
            found.append(f"unknown key {field!r}")
        elif e["type"] == "missing":
            found.append(f"{field} is missing")
        else:
            found.append(f"{field} = {e['input']!r}: {rule}")
    return FedskewError(f"{what}: " + "; ".join(found))
