"""What was done before the first round, for people."""

from __future__ import annotations

from typing import Any


def told(prepared: dict[str, Any]) -> list[str]:
    """Row 0's `prepared` in a line or two: what was shared and what it did to the skew, and how far warm-up came."""
    said = []
    if "shared" in prepared:
        said.append(
            f"shared {prepared['received']:,} of {prepared['shared']:,} examples with each client: EMD "
            f"{prepared['emd_before']:.2f} -> {prepared['emd']:.2f}, {prepared['bytes']:,} bytes"
        )
    if warm := prepared.get("warm_up"):
        reached = "" if warm["accuracy"] is None else f", accuracy {warm['accuracy']:.1%} on fresh ones"
        said.append(f"warm-up: {warm['passes']} passes over {warm['examples'] // warm['passes']:,} examples{reached}")
    return said
