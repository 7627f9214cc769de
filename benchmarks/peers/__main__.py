"""fedskew and its peers beside the plain loop: python -m benchmarks.peers --python flower=PATH --python pfl=PATH ...

A peer lives in an environment of its own, PATH being its python. Everyone trains the four rounds of `fedskew bench` on
a CPU from the same weights on the same batches. A system's rounds alternate with the loop's, each in a process of its
own, so a ratio is the median of a round's time over the mean of the loop's just before and just after it. A figure is
kept in the results as soon as it is measured; `--again` measures only what is missing there or was disturbed by others.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import fedskew
from benchmarks import figures
from benchmarks.peers import quiet
from benchmarks.peers.work import ANSWER, Weights, load
from fedskew import bench

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "peers.json"
# How far weights may be from the loop's, of the loop's update, in norm and double precision. pfl keeps the differences
# that it averages in single precision whatever the network's; batches in the wrong order are off by more than 0.1.
TOLERANCE = {"pfl": 1e-4, "pfl, 2 processes": 1e-4}
USUAL_TOLERANCE = 1e-9
PACKAGES = {
    "flower": ("flwr", "ray", "torch"),
    "pfl": ("pfl", "torch"),
    "fedlab": ("fedlab", "torch"),
    "fedjax": ("fedjax", "jax", "jaxlib"),
}
TWO_PROCESSES = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
# name: whose environment, and how it starts
SYSTEMS: dict[str, tuple[str, list[str]]] = {
    "Flower (Ray)": ("flower", []),
    "pfl": ("pfl", []),
    "pfl, 2 processes": ("pfl", TWO_PROCESSES),
    "FedLab": ("fedlab", []),
    "FedJAX": ("fedjax", []),
}


class Server:
    """A system in a process of its own that trains a round when asked."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.command, self.log = shlex.join(command), log
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
        path = os.pathsep.join([str(ROOT), str(Path(fedskew.__file__).parents[1])])
        environment = {**os.environ, **quiet, "PYTHONPATH": path, "OMP_WAIT_POLICY": "PASSIVE"}
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env=environment,
            )

    def round(self, save: str = "") -> float:
        """Its own count of seconds."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(save, file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                return float(line.removeprefix(ANSWER))
        raise SystemExit(f"{self.command} ended:\n{self.log.read_text()[-2000:]}")

    def memory_mb(self) -> float | None:
        """The peak resident memory of all its processes, shared pages counted in each; None where there is no /proc."""
        if not Path("/proc/self/status").exists():
            return None
        return round(sum(quiet.peak_kb(pid) for pid in quiet.family(self.process.pid)) / 1024)

    def close(self) -> None:
        """No more rounds."""
        self.process.communicate(timeout=60)


def measured(
    case: bench.Case, wanted: list[str], pythons: dict[str, str], seconds: float, patience: float
) -> Iterator[tuple[str, dict[str, Any]]]:
    """One system after another, each held to the loop in double precision and then timed beside it."""
    with tempfile.TemporaryDirectory() as full, tempfile.TemporaryDirectory() as small:
        timed, compared = (_commands(case, pythons, size, at) for size, at in (("full", full), ("small", small)))
        loop = Server(timed["loop"], Path(full) / "loop.log")
        loop.round()
        theirs = _weights(compared["loop"], Path(small))
        for name in wanted:
            error = _error(_weights(compared[name], Path(small)), theirs, Path(small))
            if error > TOLERANCE.get(name, USUAL_TOLERANCE):
                raise SystemExit(f"{name} does not train the loop's round: {case.name}, off by {error:.2g}")
            server = Server(timed[name], Path(full) / f"{name}.log")
            server.round()
            found = _beside(loop, server, seconds, patience)
            memory = {"memory_mb": server.memory_mb(), "loop_memory_mb": loop.memory_mb()}
            server.close()
            yield name, found | memory | {"weights_error": error}
        loop.close()


def _commands(case: bench.Case, pythons: dict[str, str], size: str, folder: str) -> dict[str, list[str]]:
    """How each system starts on this work, which is written."""
    ours = [sys.executable, "-m", "benchmarks.peers.ours", folder]
    subprocess.run([*ours, "work", size, case.name], check=True, cwd=ROOT)
    commands = {name: [*ours, way, size, case.name] for name, way in (("loop", "loop"), ("fedskew", "auto"))}
    for name, (peer, start) in SYSTEMS.items():
        if peer in pythons:
            commands[name] = [pythons[peer], *start, "-m", f"benchmarks.peers.{peer}", folder]
    return commands


def _weights(command: list[str], folder: Path) -> Weights:
    """What comes of one round."""
    server = Server(command, folder / "log")
    server.round(str(folder / "weights.npz"))
    server.close()
    with np.load(folder / "weights.npz") as arrays:
        return dict(arrays)


def _beside(loop: Server, server: Server, seconds: float, patience: float) -> dict[str, Any]:
    """Loop, system, loop, ...: for about so long and three quiet rounds at least, or until patience is spent."""
    triples: list[tuple[float, float, float]] = []  # the system's seconds, the loop's around it, others' share
    began = time.perf_counter()
    before: tuple[float, float] | None = None
    while True:
        spent, calm = time.perf_counter() - began, sum(others <= quiet.QUIET for *_, others in triples)
        if len(triples) >= 3 and (spent > patience or (calm >= 3 and (spent > seconds or calm >= 15))):
            break
        if quiet.wait(began + patience) or before is None:
            first, others = _watched(loop)
            before = first, others
        its, after, others = _watched(server, loop)
        triples.append((its, (before[0] + after) / 2, max(before[1], others)))
        before = after, others
    used = [t for t in triples if t[2] <= quiet.QUIET] if calm >= 3 else triples
    ratios = sorted(its / around for its, around, _ in used)
    return {
        "seconds": round(statistics.median(t[0] for t in used), 4),
        "loop_s": round(statistics.median(t[1] for t in used), 4),
        "ratio": round(statistics.median(ratios), 4),
        "ratio_range": [round(ratios[0], 4), round(ratios[-1], 4)],
        "rounds": len(used),
        "rounds_left_out": len(triples) - len(used),
        "others": round(statistics.median(t[2] for t in used), 3),
        "disturbed": calm < 3,
    }


def _watched(*servers: Server) -> tuple[float, ...]:
    """A round's seconds of each, and what others used of the machine meanwhile."""
    watch = quiet.Watch([os.getpid()])
    return *(server.round() for server in servers), watch.others()


def _error(its: Weights, loops: Weights, folder: Path) -> float:
    """How far the weights after a round are from the loop's, relative to the loop's update."""
    start = load(str(folder)).w
    off = sum(float(((its[k] - loops[k]) ** 2).sum()) for k in loops)
    return float(np.sqrt(off / sum(float(((loops[k] - start[k]) ** 2).sum()) for k in loops)))


def versions(python: str, packages: tuple[str, ...]) -> dict[str, str]:
    """What is installed in an environment."""
    code = "import json, sys, importlib.metadata as m; print(json.dumps({p: m.version(p) for p in sys.argv[1:]}))"
    found = subprocess.run([python, "-c", code, *packages], check=True, capture_output=True, text=True)
    return json.loads(found.stdout)  # type: ignore[no-any-return]


def document(pythons: dict[str, str]) -> dict[str, Any]:
    """What was measured before on this machine with these versions, to be gone on with; else a new one."""
    about = {
        **figures.about(),
        "tolerance": {"usual": USUAL_TOLERANCE, **TOLERANCE},
        "quiet": quiet.QUIET,
        "versions": {peer: versions(python, PACKAGES[peer]) for peer, python in pythons.items()},
    }
    old = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if all(old.get(key) == value for key, value in about.items()):
        return dict(old)
    return about | {"cases": [{"name": case.name, "systems": {}} for case in bench.CPU]}


def main() -> None:
    """All cases, or those whose name holds a word given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH", help=", ".join(PACKAGES))
    parser.add_argument("--seconds", type=float, default=20.0, help="a system and a case, three rounds at least")
    parser.add_argument("--patience", type=float, default=180.0, help="the longest wait for three quiet rounds")
    parser.add_argument("--again", action="store_true", help="only what is missing or was disturbed")
    parser.add_argument("cases", nargs="*", metavar="WORD")
    asked = parser.parse_args()
    pythons = dict(one.split("=", 1) for one in asked.python)
    if unknown := set(pythons) - set(PACKAGES):
        parser.error(f"no peer is called {', '.join(unknown)}: choose from {', '.join(PACKAGES)}")
    names = ["fedskew", *(name for name, (peer, _) in SYSTEMS.items() if peer in pythons)]
    results = document(pythons)
    for case, row in zip(bench.CPU, results["cases"], strict=True):
        kept = row["systems"]
        wanted = [name for name in names if not asked.again or kept.get(name, {"disturbed": True})["disturbed"]]
        if not wanted or (asked.cases and not any(word in case.name for word in asked.cases)):
            continue
        for name, found in measured(case, wanted, pythons, asked.seconds, asked.patience):
            print(case.name, name, json.dumps(found), file=sys.stderr, flush=True)
            if not asked.again or name not in kept or found["others"] < kept[name]["others"]:
                kept[name] = found
            row["systems"] = {name: kept[name] for name in names if name in kept}
            kept = row["systems"]
            figures.keep(RESULTS, results)
    table = Table("a round", *names, title="Time over the loop's")
    for row in results["cases"]:
        cells = [row["systems"].get(name) for name in names]
        table.add_row(row["name"], *(f"{its['ratio']:.3f}{'*' * its['disturbed']}" if its else "" for its in cells))
    Console().print(table, "* while others used the machine", sep="\n")


if __name__ == "__main__":
    main()
