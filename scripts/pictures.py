"""Make the README's picture and table from a real demo: python scripts/pictures.py"""

from __future__ import annotations

from pathlib import Path

import altair as alt

from fedskew import demo
from fedskew.experiment import train
from fedskew.report import files

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def picture(outcomes: list[demo.Outcome]) -> alt.HConcatChart:
    """Who holds what, beside what it does to accuracy."""
    shown = [o for o in outcomes if o.run.algorithm.kind == "fedavg" and o.run.warm_up is None]
    bars = [
        demo.population_of(o.run).properties(
            width=230, height=104, title=f"{demo.population_name(o.run)}: EMD {o.rows[-1].emd:.2f}"
        )
        for o in shown
    ]
    curves = demo.curves(outcomes).properties(width=470, height=560, title="accuracy of the global model")
    both: alt.HConcatChart = alt.hconcat(alt.vconcat(*bars), curves, spacing=40).resolve_scale(color="independent")
    return both


def main() -> None:
    """Train, draw, print."""
    outcomes = [demo.Outcome(run, list(train(run, device="cpu"))) for run in demo.runs()]
    print(files.save(picture(outcomes), IMAGES / "demo.svg"))
    print(demo.table(outcomes).markdown())


if __name__ == "__main__":
    main()
