"""Write docs/performance.md and its chart from the committed figures: python scripts/performance.py"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import altair as alt

from fedskew.report import files

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
REACH = {  # what was asked of a round, milliseconds: reach and stretch
    "CIFAR CNN, 10 x 5,000, B=100": "60 / 30",
    "CIFAR CNN, 10 x 5,000, B=10": "200 / 100",
    "CIFAR CNN, 5 x 500, B=64": "5 / 2",
    "CIFAR CNN, 5 x 500, B=64, 20 runs": "- / 20",
    "CIFAR CNN, 10 x 5,000, B=100, 40 runs": "2,400 / 1,200",
}
REACH_CPU = {  # ours over the loop
    "MNIST CNN, 10 x 600, B=10": 0.50,
    "MNIST CNN, 10 x 600, B=100": 0.50,
    "CIFAR CNN, 5 x 500, B=64": 0.55,
    "softmax regression, 100 x 60, B=10": 0.03,
}


def read(name: str) -> Any:
    """A committed result."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def table(header: list[str], rows: list[list[str]]) -> str:
    """Markdown; the first column is text, the others are numbers."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def gpu_table(found: Any) -> str:
    """Loop and ours in both precisions."""
    rows = []
    for tf32, bf16 in zip(found["tf32"]["cases"], found["bf16"]["cases"], strict=True):
        ours = [f"{case['ours_s'] * 1e3:,.1f}" for case in (tf32, bf16)]
        share = f"{bf16['flops'] / 1e12:.0f} ({bf16['peak_share']:.0%})"
        rows.append(
            [tf32["name"], f"{tf32['loop_s'] * 1e3:,.0f}", *ours, f"{bf16['ratio']:.0f}", share, REACH[tf32["name"]]]
        )
    header = [
        "a round",
        "loop, ms",
        "TF32, ms",
        "bf16, ms",
        "loop / bf16",
        "TFLOP/s in bf16 (of peak)",
        "reach / stretch, ms",
    ]
    return table(header, rows)


def cpu_table(found: Any) -> str:
    """Loop and ours."""
    rows = [
        [
            case["name"],
            case["path"],
            f"{case['loop_s']:.3g}",
            f"{case['ours_s']:.3g}",
            f"{case['ours_s'] / case['loop_s']:.3f}",
            f"{REACH_CPU[case['name']]:.2f}",
            f"{case['peak_share']:.0%}",
        ]
        for case in found["cases"]
    ]
    return table(["a round", "engine", "loop, s", "ours, s", "ours / loop", "reach", "of peak FLOP/s"], rows)


def peers_table(found: Any) -> str:
    """Each system's time over the loop's, and how far single rounds were from that."""
    names = peers_names(found)
    rows = []
    for case in found["cases"]:
        systems = case["systems"]
        loop = f"{statistics.median(its['loop_s'] for its in systems.values()):.3g}" if systems else "-"
        rows.append([case["name"], loop, *(_ratio(systems.get(name)) for name in names)])
    return table(["a round", "loop, s", *names], rows)


def _ratio(its: Any) -> str:
    if its is None:
        return "-"
    least, most = its["ratio_range"]
    mark = r"\*" if its["disturbed"] else ""
    return f"{its['ratio']:.2g} ({least:.2g}-{most:.2g}){mark}"


def peers_memory(found: Any) -> str:
    """Each system's memory, GB."""
    names = peers_names(found)
    rows = []
    for case in found["cases"]:
        systems = case["systems"]
        loop = max((its["loop_memory_mb"] for its in systems.values()), default=None)
        all_mb = [loop, *(systems.get(name, {}).get("memory_mb") for name in names)]
        rows.append([case["name"], *(f"{mb / 1024:.1f}" if mb else "-" for mb in all_mb)])
    return table(["memory, GB", "loop", *names], rows)


def peers_names(found: Any) -> list[str]:
    """The systems that were measured in some case."""
    return list(max((case["systems"] for case in found["cases"]), key=len))


def peers_device(found: Any) -> str:
    """Where, with what and when."""
    parts = [f"{name} {version}" for its in found["versions"].values() for name, version in its.items()]
    return f"{found['device']}, {found['date']}; {', '.join(dict.fromkeys(parts))}"


def peers_notes(found: Any) -> str:
    """Where a peer takes less time than ours, what is missing, and which figures to doubt."""
    names = peers_names(found)
    pairs = [
        (case["name"], case["systems"].get("fedskew"), n, case["systems"].get(n))
        for case in found["cases"]
        for n in names
    ]
    faster = [f"{n} on {case}" for case, ours, n, its in pairs if ours and its and its["ratio"] < ours["ratio"]]
    text = f"Faster than fedskew: {'; '.join(faster)}." if faster else "No peer was faster than fedskew where measured."
    if missing := sum(its is None for *_, its in pairs):
        text += f" {missing} of {len(pairs)} figures (-) are not measured yet."
    disturbed = [its["others"] for *_, its in pairs if its and its["disturbed"]]
    if disturbed:
        text += (
            f"\n\n\\* {len(disturbed)} of {len(pairs) - missing} figures were measured while other processes used more "
            f"than {found['quiet']:.0%} of the machine ({min(disturbed):.0%} to {max(disturbed):.0%}). Do not rely on "
            "them: two such runs of Flower on the MNIST CNN, B=10, gave 0.58 to 0.66 and 1.3 to 1.6."
        )
    return text


def peers_errors(found: Any) -> str:
    """How closely the systems trained the loop's round."""
    worst: dict[str, float] = {}
    for case in found["cases"]:
        for name, its in case["systems"].items():
            worst[name] = max(worst.get(name, 0.0), its["weights_error"])
    return ", ".join(f"{name} {error:.0e}" for name, error in worst.items())


def cifar_table(found: Any) -> str:
    """The papers' network on real data."""
    keys = ["sgd", "iid", "classes:2", "classes:1"]
    lines = [("Zhao et al. 2018, Table 3", found["paper"])]
    lines += [(f"ours, {precision}", ours["accuracy"]) for precision, ours in found["ours"].items()]
    rows = [[name, *(f"{100 * numbers[key]:.2f}" for key in keys)] for name, numbers in lines]
    return table(["accuracy, %", "SGD", "FedAvg IID", "non-IID(2)", "non-IID(1)"], rows)


def scaling_table(found: Any, series: str, unit: str) -> str:
    """Seconds of a round as something grows."""
    rows = []
    for r in found[series]:
        alone = f"{r['loop_s']:.3g}" if r["loop_s"] else "-"
        rows.append([str(r[series]), alone, f"{r['ours_s']:.3g}", f"{r['ours_s'] / r[series] * 1e3:.2f}"])
    return table([series, "loop, s", "ours, s", f"ours a {unit}, ms"], rows)


def population_table(found: Any) -> str:
    """Rounds of ten clients out of ever more."""
    rows = [
        [f"{r['clients']:,}", f"{r['round_s'] * 1e3:.1f}", f"{r['memory_mb']:.0f}", f"{r['index_mb']:.0f}"]
        for r in found["population"]
    ]
    return table(["population", "a round, ms", "memory above the data, MB", "index arrays, MB"], rows)


def population_bytes(found: Any) -> str:
    """Bytes a client beside the index arrays, in the largest population."""
    largest = found["population"][-1]
    return f"{(largest['memory_mb'] - largest['index_mb']) * 1e6 / largest['clients']:.0f}"


def partition_table(found: Any) -> str:
    """A million clients at once."""
    rows = [
        [
            f"`{r['partition']}`",
            f"{r['seconds']:.1f}",
            f"{r['memory'] / 1e6:,.0f}",
            f"{r['times_index']:.2f}",
            f"{r['skew_seconds']:.1f}",
        ]
        for r in found["rows"]
    ]
    return table(
        ["partition", "s", "memory at the peak, MB", "of the index arrays", "counts and EMD of all clients, s"], rows
    )


def chart(cpu: Any, gpu: Any) -> alt.HConcatChart:
    """Both series on both devices, on logarithmic axes."""
    panels = []
    for series, title in (("clients", "clients in a round"), ("runs", "runs trained together, five clients each")):
        values = [
            {"n": r[series], "ms": r[key] * 1e3, "what": f"{what}, {name}"}
            for what, found in (("H200, CIFAR CNN", gpu), ("two cores, softmax", cpu))
            for r in found[series]
            for key, name in (("ours_s", "fedskew"), ("loop_s", "loop"))
            if r[key]
        ]
        panels.append(
            alt.Chart(alt.Data(values=values))
            .mark_line(point=True)
            .encode(
                x=alt.X("n:Q", scale=alt.Scale(type="log"), title=title),
                y=alt.Y("ms:Q", scale=alt.Scale(type="log"), title="milliseconds a round"),
                color=alt.Color("what:N", title=None),
            )
            .properties(width=330, height=260)
        )
    both: alt.HConcatChart = alt.hconcat(*panels)
    return both


def main() -> None:
    """Write the page."""
    gpu, cpu, cifar = read("bench_gpu"), read("bench_cpu"), read("cifar_gpu")
    peers = read("peers")
    scale_cpu, scale_gpu = read("scaling_cpu"), read("scaling_gpu")
    files.save(chart(scale_cpu, scale_gpu), ROOT / "docs" / "images" / "scaling.svg")
    text = (Path(__file__).parent / "performance.template.md").read_text()
    parts = {
        "gpu": gpu_table(gpu),
        "gpu_device": f"{gpu['bf16']['device']}, torch {gpu['bf16']['torch']}, {gpu['bf16']['date']}",
        "cpu": cpu_table(cpu),
        "cpu_device": f"{cpu['device']}, torch {cpu['torch']}, {cpu['date']}",
        "peers": peers_table(peers),
        "peers_memory": peers_memory(peers),
        "peers_device": peers_device(peers),
        "peers_notes": peers_notes(peers),
        "peers_errors": peers_errors(peers),
        "cifar": cifar_table(cifar),
        "cifar_seconds": " and ".join(
            f"{ours['seconds_three_fedavg_runs_together']:.0f} s in {name}" for name, ours in cifar["ours"].items()
        ),
        "clients_gpu": scaling_table(scale_gpu, "clients", "client"),
        "clients_cpu": scaling_table(scale_cpu, "clients", "client"),
        "runs_gpu": scaling_table(scale_gpu, "runs", "run"),
        "runs_cpu": scaling_table(scale_cpu, "runs", "run"),
        "population": population_table(scale_cpu),
        "population_bytes": population_bytes(scale_cpu),
        "partition": partition_table(read("partition")),
    }
    for key, value in parts.items():
        text = text.replace("{{" + key + "}}", value)
    (ROOT / "docs" / "performance.md").write_text(text)


if __name__ == "__main__":
    main()
