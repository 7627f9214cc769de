"""`fedskew partition` and `fedskew skew`: clients out of a data set or a table of counts, and how skewed they are."""

from __future__ import annotations

import colorsys
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from fedskew.cli import console
from fedskew.errors import FedskewError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedskew.data.partition import Parts

SHOWN = 20  # clients in the table; --json lists them all
NAMED = 36  # classes in its legend
BAR = 40

Chart = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the population: .svg, .png or .html.")]


def partition(
    data: Annotated[str, typer.Option(help="A data set of `fedskew data list`, or an .npz file.")] = "digits",
    partition: Annotated[
        str,
        typer.Option(
            help="iid, classes:N, shards:N, dirichlet:ALPHA, dirichlet-by-class:ALPHA, quantity:ALPHA, groups, "
            "emd:VALUE or file:PATH."
        ),
    ] = "iid",
    clients: Annotated[int | None, typer.Option(help="How many clients. [10]", show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="Decides every random choice.", min=0)] = 0,
    chart: Chart = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Write user,index,class; `file:FILE.csv` reads it.")
    ] = None,
    as_json: console.Json = False,
) -> None:
    """Split a data set into clients and say how skewed they are.

    Example: fedskew partition --data cifar10 --partition emd:1.44 --clients 10 --chart clients.svg
    """
    _check_chart(chart)
    from fedskew import measure, rng
    from fedskew.data import datasets
    from fedskew.data.partition import Emd, parse_partition

    spec = parse_partition(partition, clients=clients)
    labels = datasets.load_labels(data)
    parts = spec(labels.y, rng.stream(seed, "partition"), labels.groups)
    counts = measure.counts(labels.y, parts, len(labels.classes))
    distances = measure.emd(counts)
    target = spec.value if isinstance(spec, Emd) else None
    document = {"partition": str(spec)} | _document(counts, distances, labels.classes, None if as_json else SHOWN)
    document |= {"data": labels.name, "seed": seed, "unused": len(labels.y) - document["examples"]}
    document["emd"] |= {
        "target": target,
        "max_error": None if target is None else float(abs(distances - target).max()),
    }
    if out is not None:
        _write_split(out, parts, labels.y)
    _show(document, counts, None, f"{spec} of {labels.name}, seed {seed}", chart, as_json)


def skew(
    table: Annotated[Path, typer.Argument(metavar="COUNTS.csv", help="A line a client, a column a class.")],
    chart: Chart = None,
    as_json: console.Json = False,
) -> None:
    """Say how skewed your own clients are, from a table of their label counts alone.

    Example: fedskew skew counts.csv --chart clients.html
    """
    _check_chart(chart)
    from fedskew import measure
    from fedskew.data import datasets

    counts, clients, classes = datasets.read_counts(table)
    shown = None if as_json else SHOWN
    document = {"file": str(table)} | _document(counts, measure.emd(counts), classes, shown)
    for client, name in zip(document["clients"], clients[:shown], strict=True):
        client["client"] = name
    _show(document, counts, clients, table.name, chart, as_json)


def _document(
    counts: NDArray[np.int64], distances: NDArray[np.float64], classes: Sequence[str], shown: int | None
) -> dict[str, Any]:
    """The measures of all clients, and the `shown` first of them one by one."""
    from fedskew import measure

    these = counts[:shown]
    rows = zip(these.sum(axis=1).tolist(), these.tolist(), distances[:shown].tolist(), strict=True)
    return {
        "clients": [{"size": n, "counts": c, "emd": d} for n, c, d in rows],
        "classes": list(classes),
        "examples": int(counts.sum()),
        **measure.skew(counts),
    }


def _show(
    document: dict[str, Any],
    counts: NDArray[np.int64],
    clients: Sequence[str] | None,
    title: str,
    chart: Path | None,
    as_json: bool,
) -> None:
    if chart is not None:
        from fedskew.report import files
        from fedskew.report.population import population

        files.save(population(counts, document["classes"], clients=clients, title=title), chart, title=title)
        console.note(f"wrote {chart}")
    if as_json:
        console.print_json(document)
        return
    names = [str(k) for k in range(min(len(counts), SHOWN))] if clients is None else clients[:SHOWN]
    console.out.print(_table(document, len(counts), names, title))
    console.out.print(_summary(document, len(counts)), highlight=False, soft_wrap=True)


def _table(document: dict[str, Any], population: int, names: Sequence[str], title: str) -> Table:
    classes = document["classes"]
    colours = [_colour(c, len(classes)) for c in range(len(classes))]
    legend = Text("classes: ")
    for c, name in enumerate(classes[:NAMED]):
        legend.append(_mark(c), style=colours[c]).append(f" {name}  ")
    if len(classes) > NAMED:
        legend.append(f"and {len(classes) - NAMED:,} more")
    table = Table(title=Text(title), caption=legend, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
    for header in ("client", "size", "EMD"):
        table.add_column(header, justify="right")
    table.add_column("classes", no_wrap=True)
    for name, client in zip(names, document["clients"], strict=False):
        distance = f"{client['emd']:.3f}" if client["size"] else "–"
        table.add_row(Text(name), f"{client['size']:,}", distance, _bar(client["counts"], colours))
    if (more := population - len(names)) > 0:
        table.add_row("...", "", "", f"and {more:,} more clients; --json lists them all")
    return table


def _bar(counts: Sequence[int], colours: Sequence[str]) -> Text:
    """BAR cells shared out by class, by the cumulative sum so that they always fill the bar."""
    bar, seen, total = Text(), 0, sum(counts)
    for c, n in enumerate(counts):
        cells = round(BAR * (seen + n) / total) - round(BAR * seen / total) if total else 0
        bar.append(_mark(c) * cells, style=colours[c])
        seen += n
    return bar


def _mark(c: int) -> str:
    """A block where the terminal has the colours to tell classes apart, else a letter or digit."""
    return "█" if console.out.color_system in ("256", "truecolor") else "0123456789abcdefghijklmnopqrstuvwxyz"[c % 36]


def _colour(c: int, classes: int) -> str:
    # neighbours in hue differ in brightness, too
    red, green, blue = colorsys.hsv_to_rgb(c / classes, 0.75, 0.95 if c % 2 else 0.7)
    return f"#{int(255 * red):02x}{int(255 * green):02x}{int(255 * blue):02x}"


def _summary(document: dict[str, Any], population: int) -> str:
    emd, sizes = document["emd"], document["sizes"]
    wanted = (
        f", wanted {emd['target']:g} (off by at most {emd['max_error']:.2g})" if emd.get("target") is not None else ""
    )
    unused = f" ({document['unused']:,} unused)" if document.get("unused") else ""
    return (
        f"{population:,} clients, {document['examples']:,} examples{unused}; "
        f"sizes: min {sizes['min']:,}, mean {sizes['mean']:,.1f}, max {sizes['max']:,}\n"
        f"EMD: mean {emd['mean']:.4f}, weighted by size {emd['weighted']:.4f}, max {emd['max']:.4f}{wanted}\n"
        f"Jensen-Shannon {document['jensen_shannon']:.4f} bits, Hellinger {document['hellinger']:.4f}, "
        f"effective classes {document['effective_classes']:.2f} of {len(document['classes'])}"
    )


def _check_chart(chart: Path | None) -> None:
    if chart is not None:
        from fedskew.report import files

        files.check_ending(chart)


def _write_split(path: Path, parts: Parts, y: NDArray[np.int64]) -> None:
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["user", "index", "class"])
            for k, part in enumerate(parts):
                writer.writerows(zip([k] * len(part), part.tolist(), y[part].tolist(), strict=True))
    except OSError as e:
        raise FedskewError(f"--out {path} cannot be written: {e.strerror}; choose another place") from None
    console.note(f"wrote {path}")
