"""A million clients over fifty million labels: seconds and memory of a partition, each in a fresh process."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import figures
from fedskew import measure, rng
from fedskew.data.partition import parse_partition

CLIENTS, EXAMPLES, CLASSES = 1_000_000, 50_000_000, 10
PARTITIONS = ("iid", "dirichlet:0.1", "classes:1")
RESULTS = Path(__file__).parent / "results" / "partition.json"


def peak() -> int:
    """The most memory this process has held so far, in bytes (macOS counts bytes, the others kilobytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measured(text: str) -> dict[str, Any]:
    """One partition, in this process."""
    labels = rng.stream(0, "labels").integers(0, CLASSES, EXAMPLES)  # int64, as in a Dataset
    before, start = peak(), time.perf_counter()
    parts = parse_partition(text, clients=CLIENTS)(labels, rng.stream(0, "partition"))
    seconds, extra = time.perf_counter() - start, peak() - before
    start = time.perf_counter()
    distance = measure.emd(measure.counts(labels, parts, CLASSES))
    dealt = len(parts.flat)
    return {
        "partition": text,
        "seconds": round(seconds, 2),
        "memory": extra,
        "times_index": round(extra / (8 * dealt), 2),
        "skew_seconds": round(time.perf_counter() - start, 2),
        "emd": float(distance.mean()),
        "dealt": dealt,
    }


def main() -> None:
    rows = []
    for text in PARTITIONS:
        child = [sys.executable, "-m", "benchmarks.partition", text]
        rows.append(json.loads(subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout))
    table = Table(title=f"{CLIENTS:,} clients over {EXAMPLES:,} labels")
    for name in ("partition", "seconds", "memory", "of the index arrays", "counts + EMD", "mean EMD"):
        table.add_column(name, justify="left" if name == "partition" else "right")
    for r in rows:
        memory, times = f"{r['memory'] / 1e6:,.0f} MB", f"{r['times_index']:.2f} x"
        table.add_row(
            r["partition"],
            f"{r['seconds']:.1f}",
            memory,
            times,
            f"{r['skew_seconds']:.1f} s",
            f"{r['emd']:.3f}",
        )
    Console().print(table)
    document = {
        "clients": CLIENTS,
        "examples": EXAMPLES,
        "classes": CLASSES,
        "rows": rows,
        "numpy": np.__version__,
    }
    figures.keep(RESULTS, document | figures.about())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measured(sys.argv[1])))
    else:
        main()
