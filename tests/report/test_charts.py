from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from fedskew.errors import FedskewError
from fedskew.report import charts, files, parts, reached, theme
from fedskew.report.parts import Chart
from fedskew.report.population import population

RUNS = ["sgd", "fedavg, iid", "fedavg, classes:1"]
CURVES = [
    {"run": run, "round": t, "accuracy": 0.3 * i + 0.01 * t + 0.02 * seed, "seed": seed}
    for i, run in enumerate(RUNS, 1)
    for t in (1, 2, 3)
    for seed in (0, 1)
]
LAYERS = [
    {"run": run, "layer": layer, "value": 0.1 * i} for i, run in enumerate(RUNS[1:], 1) for layer in ("fc2", "fc1")
]
POINTS = [
    {"run": "fedavg, iid", "algorithm": "fedavg", "emd": 0.1, "accuracy": 0.95},
    {"run": "fedavg, classes:1", "algorithm": "fedavg", "emd": 1.8, "accuracy": 0.6},
]
ALPHAS = [{"run": "fedavg", "x": x, "value": v, "low": v, "high": v} for x, v in ((0.0, 0.3), (100.0, 0.8))]
PAIRS = [
    {"run": "beta = 0", "lr": 0.01, "effective": 0.01, "accuracy": 0.4},
    {"run": "beta = 0.97", "lr": 0.0003, "effective": 0.01, "accuracy": 0.7},
]


def svg(chart: Chart, tmp_path: Path) -> str:
    return files.save(chart, tmp_path / "chart.svg").read_text()


def texts(drawing: str) -> list[str]:
    return [e.text or "" for e in ElementTree.fromstring(drawing).iter() if e.tag.endswith("}text")]


def colours(chart: Chart) -> dict[str, str]:
    """Which colour each run has, read from the document."""
    found: dict[str, str] = {}

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            scale = part.get("color", {}).get("scale") if isinstance(part.get("color"), dict) else None
            if scale:
                found.update(zip(scale["domain"], scale["range"], strict=True))
            for value in part.values():
                walk(value)
        elif isinstance(part, list):
            for value in part:
                walk(value)

    walk(theme.spec(chart))
    return found


@pytest.mark.parametrize(
    ("chart", "words"),
    [
        (charts.accuracy_curves(CURVES, title="Accuracy"), {"Accuracy", "test accuracy", "100%", *RUNS}),
        (charts.divergence_by_layer(LAYERS, percent=True), {"fc1", "fc2", "20%", "weight divergence"}),
        (reached.emd_accuracy(POINTS, baseline=0.97), {"SGD 97.0%", "fedavg, classes:1", "2.0"}),
        (charts.accuracy_curves(CURVES, level=("centralised", 0.86)), {"centralised 86.0%"}),
        (
            reached.against(ALPHAS, x="alpha", steps=(100, 0.5, 0), level=("chance", 0.1)),
            {"100", "0.5", "chance 10.0%"},
        ),
        (reached.sensitivity(PAIRS), {"0.0003", "0.01", "beta = 0.97", "beta = 0"}),
    ],
)
def test_a_chart_draws_its_words(chart: Chart, words: set[str], tmp_path: Path) -> None:
    assert words <= set(texts(svg(chart, tmp_path)))


def test_seeds_give_their_mean_and_range(tmp_path: Path) -> None:
    drawing = svg(charts.accuracy_curves(CURVES), tmp_path)
    assert "accuracy: 92.0%" in drawing  # the mean of 0.91 and 0.93, where run 3 stands in round 1


def test_alphas_stand_in_the_order_given(tmp_path: Path) -> None:
    words = texts(svg(reached.against(ALPHAS, x="alpha", steps=(100, 0.5, 0)), tmp_path))
    assert words.index("100") < words.index("0.5") < words.index("0")


def test_the_best_pair_is_crossed_and_a_rate_is_a_size() -> None:
    document = theme.spec(reached.sensitivity(PAIRS))
    layers = document["layer"]
    sizes = layers[0]["encoding"]["size"]["scale"]
    assert (sizes["domain"], sizes["range"][0] < sizes["range"][1]) == (["0.0003", "0.01"], True)
    assert [document["datasets"][layer["data"]["name"]] for layer in layers[1:]] == [[PAIRS[1]]] * 2
    assert len(theme.spec(reached.sensitivity([]))["layer"]) == 1


def test_layers_and_runs_keep_the_order_of_the_records(tmp_path: Path) -> None:
    words = texts(svg(charts.divergence_by_layer(LAYERS), tmp_path))
    assert words.index("fc2") < words.index("fc1")


def test_a_run_keeps_its_colour_from_chart_to_chart() -> None:
    everywhere = [
        colours(chart)["fedavg, classes:1"]
        for chart in (
            charts.accuracy_curves(CURVES),
            charts.divergence_by_layer(LAYERS, runs=RUNS),
            reached.emd_accuracy(POINTS, runs=RUNS),
        )
    ]
    assert everywhere == [theme.PALETTE[2]] * 3


def test_rounds_without_a_finite_accuracy_are_gaps() -> None:
    holes = [{"run": "a", "round": 1, "accuracy": x} for x in (None, float("nan"), float("inf"), 0.5)]
    spec = theme.spec(charts.accuracy_curves(holes))
    assert [r["value"] for r in spec["data"]["values"]] == [0.5]


def test_a_long_run_is_drawn_whole() -> None:  # Altair's own limit for data frames is 5,000 rows
    long = [{"run": "a", "round": t, "accuracy": 0.5} for t in range(6_000)]
    assert len(theme.spec(charts.accuracy_curves(long))["data"]["values"]) == 6_000


def test_charts_side_by_side_keep_their_own_records(tmp_path: Path) -> None:
    one, other = (population(np.array([[n, 1]]), ["a", "b"]) for n in (3, 5))
    drawing = svg(one | other, tmp_path)  # type: ignore[arg-type]
    assert "examples: 3" in drawing
    assert "examples: 5" in drawing


def test_a_document_names_no_host() -> None:
    assert "http" not in json.dumps(theme.spec(charts.accuracy_curves(CURVES)))


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("paper", ["#ffffff", "#0d1117"])
@pytest.mark.parametrize("colour", theme.PALETTE)
def test_colours_stand_out_in_light_and_dark(colour: str, paper: str) -> None:
    dark, light = sorted([luminance(colour), luminance(paper)])
    assert (light + 0.05) / (dark + 0.05) >= 3  # WCAG 2.1, 1.4.11


def test_a_png_is_drawn_at_twice_the_size(tmp_path: Path) -> None:
    with Image.open(files.save(charts.accuracy_curves(CURVES), tmp_path / "deep/chart.png")) as image:
        assert image.width > 2 * parts.WIDTH
        assert image.getpixel((1, 1))[:3] == (255, 255, 255)  # type: ignore[index]


def test_an_html_file_stands_alone(tmp_path: Path) -> None:
    text = files.save(charts.accuracy_curves(CURVES), tmp_path / "chart.HTML", title="My chart").read_text()
    assert "<title>My chart</title>" in text
    assert '<section><div class="figures' in text  # no empty heading


def test_an_unknown_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedskewError, match=r"must end in \.svg, \.png, \.html"):
        files.save(charts.accuracy_curves(CURVES), tmp_path / "chart.pdf")
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FedskewError, match=r"cannot write .*choose another place"):
        files.save(charts.accuracy_curves(CURVES), tmp_path / "file" / "chart.svg")
    (tmp_path / "chart.svg").mkdir()
    with pytest.raises(FedskewError, match="cannot write"):
        files.save(charts.accuracy_curves(CURVES), tmp_path / "chart.svg")
    assert {p.name for p in tmp_path.iterdir()} == {"file", "chart.svg"}
