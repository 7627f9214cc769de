"""`python -m fedskew.reproduce`: train a paper's cells on a machine without the command line's packages, and pack them.

    python -m fedskew.reproduce zhao2018 table2 --data cifar10 --precision bf16 --seconds 500 --pack table2.zip

goes on from `--unpack FILE` and the store, stops in time, and writes what `fedskew runs unpack` reads elsewhere.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedskew.reproduce import cells
from fedskew.store import Store, archive


class _OutOfTime(Exception):
    """The seconds that were given are over."""


def main() -> None:
    """Parse, train until the cells are done or the time is over, pack, print what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paper", help="zhao2018 or lahoti")
    parser.add_argument("what", nargs="+", help="functions of the paper's file that give cells: table3, figure7, ...")
    parser.add_argument("--data", nargs="+", required=True, help="columns: mnist, cifar10, kws")
    parser.add_argument("--scale", default="full")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--at-once", type=int, help="runs that train together, at most: fewer are lost by a stop")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--unpack", nargs="*", default=[], type=Path)
    parser.add_argument("--pack", type=Path)
    asked = parser.parse_args()
    until = time.monotonic() + asked.seconds
    store, paper = Store(), importlib.import_module(f"fedskew.papers.{asked.paper}")
    for file in asked.unpack:
        print(f"unpacked {len(archive.unpack(store, file))} runs of {file}", flush=True)
    scale = paper.SCALES[asked.scale]
    scale = replace(scale, seeds=asked.seeds) if asked.seeds else scale
    wanted = [cell for name in asked.what for column in asked.data for cell in getattr(paper, name)(column, scale)]

    def watch(rows: Iterator[Any], rounds: int, label: str) -> Iterator[None]:
        print(f"{label}: {rounds} rounds", flush=True)
        for _ in rows:
            if time.monotonic() > until:
                rows.close()  # type: ignore[attr-defined]  # saves where each run is
                raise _OutOfTime
            yield

    try:
        cells.train(
            store, wanted, watch, at_once=asked.at_once, precision=asked.precision, checkpoint_seconds=float("inf")
        )
    except _OutOfTime:
        print("out of time", flush=True)
    for outcome in cells.outcomes(store, wanted):
        print({key: value for key, value in outcome.record().items() if key != "runs"}, flush=True)
    if asked.pack:
        archive.pack(store, [entry.id for entry in store.runs()], asked.pack)
        print(f"packed {asked.pack.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
