"""`fedskew bench`: the plain loop beside the engine's own choice, on this machine."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from fedskew.cli import console


def bench(
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    engine: Annotated[str, typer.Option(help="auto, stacked, threaded, loop.")] = "auto",
    precision: Annotated[
        str, typer.Option(help="Of products, on a GPU: tf32, bf16, fp32; bf16 also on a CPU.")
    ] = "tf32",
    only: Annotated[str, typer.Option(help="Measure the cases whose name contains this.")] = "",
    as_json: console.Json = False,
) -> None:
    """Measure a round of the papers' settings: loop, ours, their ratio, FLOP/s and its share of this device's peak.

    Example: fedskew bench --only softmax --json
    """
    from fedskew import bench
    from fedskew.errors import FedskewError
    from fedskew.laboratory import find_device

    place = find_device(device)
    cases = tuple(c for c in (bench.GPU if place.type == "cuda" else bench.CPU) if only in c.name)
    if not cases:
        raise FedskewError(f"--only {only!r} is in no case's name; run fedskew bench without it to see them")
    chosen: Any = {"engine": engine, "precision": precision}
    records = []
    for record in bench.measure(cases, place, **chosen):
        console.note(f"{record['name']}: {record['ratio']:.1f} times the loop")
        records.append(record)
    peak = records[0]["flops"] / records[0]["peak_share"]
    if as_json:
        console.print_json({"device": bench.device_name(place), "peak_flops": peak, "cases": records})
        return
    table = Table("case", "path", "loop, s", "ours, s", "ratio", "GFLOP/s", "of peak", title=bench.device_name(place))
    for r in records:
        numbers = f"{r['loop_s']:.3g}", f"{r['ours_s']:.3g}", f"{r['ratio']:.1f}", f"{r['flops'] / 1e9:,.0f}"
        table.add_row(r["name"], r["path"], *numbers, f"{r['peak_share']:.0%}")
    console.out.print(table)
