"""Grouped convolutions against patches for every layer of the shipped networks: python -m benchmarks.convolutions

Time of a layer's forward and backward pass; on a GPU as a replayed graph, the way it is trained there. The rule in
engine/convolutions.py is set from this table: `picked` is its choice, `best` what was measured. `--json FILE` keeps it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import figures
from fedskew import models
from fedskew.engine import threads
from fedskew.engine.choose import set_precision
from fedskew.engine.convolutions import Pair, Shape, by_patches, grouped, patches

SHAPES = {
    "mnist-cnn": (1, 28, 28),
    "cifar-cnn": (3, 24, 24),
    "kws-cnn": (1, 50, 10),
    "lahoti-mnist": (1, 28, 28),
    "lahoti-cifar": (3, 32, 32),
    "resnet8": (3, 32, 32),  # resnet20 has the same layers, more of them
}
COHORTS = {"cpu": ((5, 10), (20, 2)), "cuda": ((10, 10), (10, 100), (5, 64), (100, 10))}  # clients, batch
WAYS = {"grouped": grouped, "patches": patches}


@dataclass(frozen=True)
class Layer:
    """One convolution of a network, with the size of its input; the first passes no gradient back."""

    model: str
    name: str
    size: Pair
    channels: int
    outputs: int
    kernel: Pair
    stride: Pair
    padding: Pair
    first: bool


def layers() -> list[Layer]:
    """Every convolution of the shipped networks, equal ones once."""
    found: dict[tuple[Any, ...], Layer] = {}
    for model, shape in SHAPES.items():
        for i, (name, m, size) in enumerate(_convolutions(model, shape)):
            how = (size, m.in_channels, m.out_channels, m.kernel_size, m.stride, m.padding, i == 0)
            found.setdefault(how, Layer(model, name, *how))  # type: ignore[arg-type]
    return list(found.values())


def _convolutions(model: str, shape: tuple[int, ...]) -> list[tuple[str, nn.Conv2d, Pair]]:
    """In the order in which an example meets them, with the size of what they are given."""
    network = models.build(models.MODELS[model], shape, 10, seed=0)
    names = {module: name for name, module in network.named_modules() if isinstance(module, nn.Conv2d)}
    seen: list[tuple[str, nn.Conv2d, Pair]] = []
    for module in names:
        module.register_forward_pre_hook(lambda m, given: seen.append((names[m], m, tuple(given[0].shape[2:]))))
    with torch.no_grad():
        network(torch.zeros(2, *shape))
    return seen


def measured(layer: Layer, clients: int, batch: int, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """One row: milliseconds each way, alternating."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, dtype=dtype)

    x = normal(batch, clients * layer.channels, *layer.size).requires_grad_(not layer.first)
    w = normal(clients, layer.outputs, layer.channels, *layer.kernel).requires_grad_()
    bias = normal(clients, layer.outputs).requires_grad_()
    inputs = [a for a in (x, w, bias) if a.requires_grad]
    how = layer.stride, layer.padding, (1, 1)
    above = torch.ones_like(grouped(x, w, bias, *how))
    steps = {
        name: _prepared(lambda way=way: torch.autograd.grad(way(x, w, bias, *how), inputs, above), device)  # type: ignore[misc]
        for name, way in WAYS.items()
    }
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(5):
        for name, step in steps.items():
            times[name].append(_seconds(step, device))
    ms = {name: round(1e3 * statistics.median(t), 4) for name, t in times.items()}
    pixels = above.shape[2] * above.shape[3]
    shape = Shape(device.type, dtype, clients, batch, layer.channels, layer.outputs, layer.kernel, pixels)
    return {
        **{key: getattr(layer, key) for key in ("model", "name", "size", "channels", "outputs", "kernel", "stride")},
        "padding": layer.padding,
        "clients": clients,
        "batch": batch,
        "dtype": str(dtype).removeprefix("torch."),
        "ms": ms,
        "patches_over_grouped": round(ms["patches"] / ms["grouped"], 3),
        "picked": "patches" if by_patches(shape) else "grouped",
        "best": min(ms, key=lambda name: ms[name]),
    }


def _prepared(step: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    """The step after it has run once; on a GPU recorded as a graph, whose replays have no launch to wait for."""
    if device.type == "cpu":
        step()
        return step
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = step()

    def replay() -> Any:
        graph.replay()
        return kept  # what a graph writes must stay referenced

    return replay


def _seconds(step: Callable[[], Any], device: torch.device) -> float:
    if device.type == "cpu":
        began = time.process_time()  # one thread, whatever else the machine is doing
        step()
        return time.process_time() - began
    torch.cuda.synchronize(device)
    began = time.perf_counter()
    for _ in range(10):
        step()
    torch.cuda.synchronize(device)
    return (time.perf_counter() - began) / 10


def rows(device: torch.device) -> Iterator[dict[str, Any]]:
    """Every layer with every cohort and precision that a device trains it in."""
    dtypes = (torch.float32, torch.bfloat16, torch.float64) if device.type == "cuda" else (torch.float32,)
    for layer in layers():
        for clients, batch in COHORTS[device.type]:
            for dtype in dtypes:
                if dtype != torch.float64 or clients * batch <= 100:  # double precision is for checks, which are small
                    yield measured(layer, clients, batch, dtype, device)
                    if device.type == "cuda":
                        torch.cuda.empty_cache()


def main(path: str | None) -> None:
    """The table as it is measured, and what the rule costs against always taking the better way."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    set_precision("tf32", device)
    if device.type == "cpu":
        torch.set_num_threads(1)
        threads.keep_memory()  # as training does
    found = []
    for row in rows(device):
        found.append(row)
        what = f"{row['model']} {row['name']} {row['channels']} -> {row['outputs']}, {row['kernel']} / {row['stride']}"
        print(
            f"{what:58} K={row['clients']:<3} B={row['batch']:<3} {row['dtype']:8} grouped {row['ms']['grouped']:9.3f}"
            f" patches {row['ms']['patches']:9.3f} ms  {row['patches_over_grouped']:6.2f}  picked {row['picked']}"
            f"{'' if row['picked'] == row['best'] else ' (slower)'}",
            flush=True,
        )
    totals = {
        "grouped": sum(row["ms"]["grouped"] for row in found),
        "patches": sum(row["ms"]["patches"] for row in found),
        "picked": sum(row["ms"][row["picked"]] for row in found),
        "best": sum(row["ms"][row["best"]] for row in found),
    }
    print("all rows, ms: " + ", ".join(f"{name} {total:.1f}" for name, total in totals.items()))
    if path is not None:
        figures.keep(path, figures.about(device) | {"totals_ms": totals, "rows": found})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write every row there")
    main(parser.parse_args().json)
