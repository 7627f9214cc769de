r"""`python -m fedskew.reproduce`: train a paper's cells where the command line's packages are missing, and pack them.

    python -m fedskew.reproduce hsu2019 figure5 --data cifar10 --only C=0.05 --precision bf16 --seconds 500 \
        --at-once 12 --pack figure5.zip --piece-mb 15 --most-mb 60

goes on from `--unpack FILE` and the store, stops in time, and writes what `fedskew runs unpack` reads elsewhere; also
after an error or SIGTERM, and with `--pack-every 120` before the end, for a machine that may be gone by then.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedskew.papers.protocol import Cell, check_only, kept
from fedskew.reproduce import cells, moved
from fedskew.signals import orderly
from fedskew.store import Store, archive

MB = 1_000_000
CHECKPOINT = 30.0  # seconds between checkpoints: as much is lost where a machine is gone without a word


class _OutOfTime(Exception):
    """The seconds that were given are over."""


def main() -> None:
    """Parse, train until the cells are done or the time is over, pack, print what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paper", help="zhao2018, lahoti or hsu2019")
    parser.add_argument("what", nargs="+", help="functions of the paper's file that give cells: table3, figure7, ...")
    parser.add_argument("--data", nargs="+", required=True, help="columns: mnist, cifar10, kws")
    parser.add_argument("--only", nargs="*", default=[], help="only cells with it: C=0.05 E=1 alpha=0")
    parser.add_argument("--scale", default="full")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--until", type=int, help="train no run past this round; it can go on later")
    parser.add_argument("--search-only", action="store_true", help="choose learning rates, and train no chosen run")
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--at-once", type=int, help="runs that train together, at most: fewer are lost by a stop")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--plan", action="store_true", help="say what is still to be trained, and train nothing")
    parser.add_argument("--unpack", nargs="*", default=[], type=Path)
    parser.add_argument("--pack", type=Path)
    parser.add_argument("--pack-every", type=float, default=float("inf"), help="seconds after which it is packed anew")
    parser.add_argument("--piece-mb", type=float, help="cut the packed file into pieces of so many MB: FILE.1, FILE.2")
    parser.add_argument("--most-mb", type=float, help="about this much in all: checkpoints beyond it stay behind")
    asked = parser.parse_args()
    until = time.monotonic() + asked.seconds
    store, wanted = Store(), _wanted(asked)
    for file in asked.unpack:
        print(f"unpacked {len(archive.unpack(store, file))} runs of {file}", flush=True)
    left = cells.cost(store, wanted, probe=asked.plan, until=asked.until, precision=asked.precision)
    print(f"{len(wanted)} cells; to be trained: {left}", flush=True)
    with orderly():  # around the packing, too: `timeout` sends a signal twice
        try:
            if not asked.plan:
                _train(store, wanted, asked, until)
        finally:
            _say(store, wanted)
            _pack(store, wanted, asked)


def _train(store: Store, wanted: list[Cell], asked: Any, until: float) -> None:
    how = {
        "at_once": asked.at_once,
        "precision": asked.precision,
        "checkpoint_seconds": min(CHECKPOINT, asked.pack_every),
    }
    watch = _watching(until, asked.pack_every, lambda: _pack(store, wanted, asked))
    try:
        cells.choose(store, wanted, watch, **how)
        if not asked.search_only:
            cells.train(store, wanted, watch, until=asked.until, **how)
    except _OutOfTime:
        print("out of time", flush=True)


def _pack(store: Store, wanted: list[Cell], asked: Any) -> None:
    """Put a new archive in the place of the last once all of it is written."""
    if asked.pack is None:
        return
    sizes = [each and int(each * MB) for each in (asked.piece_mb, asked.most_mb)]
    named = asked.pack.name
    before = {asked.pack, *asked.pack.parent.glob(f"{named}.[0-9]*")}
    for file in moved.pack(store, wanted, asked.pack.with_name(f"{named}-new"), *sizes):
        now = file.rename(file.with_name(file.name.replace(f"{named}-new", named)))
        before.discard(now)
        print(f"packed {now}: {now.stat().st_size:,} bytes", flush=True)
    for old in before:
        old.unlink(missing_ok=True)


def _wanted(asked: Any) -> list[Cell]:
    paper = importlib.import_module(f"fedskew.papers.{asked.paper}")
    scale = paper.SCALES[asked.scale]
    scale = replace(scale, seeds=asked.seeds) if asked.seeds else scale
    found = [cell for name in asked.what for column in asked.data for cell in getattr(paper, name)(column, scale)]
    check_only(found, asked.only)
    return kept(found, asked.only)


def _watching(until: float, every: float, pack: Callable[[], None]) -> cells.Watch:
    packed = time.monotonic()

    def watch(rows: Iterator[Any], rounds: int, label: str) -> Iterator[None]:
        nonlocal packed  # parts of the work that are shorter than `every` count together
        began = time.monotonic()
        print(f"{label}: {rounds} rounds", flush=True)
        for _ in rows:
            now = time.monotonic()
            if now > until:
                rows.close()  # type: ignore[attr-defined]  # saves where each run is
                raise _OutOfTime
            if now > packed + every:
                pack()
                packed = time.monotonic()
            yield
        print(f"{label}: {time.monotonic() - began:.0f} s", flush=True)

    return watch


def _say(store: Store, wanted: list[Cell]) -> None:
    """What the searches and the cells have come to."""
    for text in moved.searched(store, wanted):
        print(text, flush=True)
    for outcome in cells.outcomes(store, wanted):
        rounds, accuracies = outcome.so_far() if outcome.cell.runs else (0, [])
        if accuracies:
            run = outcome.cell.last[0]
            found = ", ".join(f"{accuracy:.4f}" for accuracy in accuracies)
            print(outcome.cell.setting, f"{run.algorithm}, lr {run.lr:g}, round {rounds}: {found}", flush=True)


if __name__ == "__main__":
    main()
