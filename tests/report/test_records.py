from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import entry, row, seeds

from fedskew.report import records
from fedskew.report.groups import grouped


def test_seeds_give_mean_and_range_and_gaps_stay_gaps() -> None:
    group = seeds([0.2, None, 0.6], [0.4, None, 0.8], [0.6, math.nan, math.inf])
    first, last = records.curves([group])
    assert first == {
        "run": "fedavg, classes:1",
        "round": 1,
        "value": pytest.approx(0.4),
        "low": 0.2,
        "high": 0.6,
        "seeds": 3,
    }
    assert (last["round"], last["value"], last["seeds"]) == (3, pytest.approx(0.7), 2)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), min_size=40, max_size=80),
    st.integers(6, 30),
)
def test_a_thin_line_keeps_its_shape(points: list[tuple[float, float, float]], most: int) -> None:
    every = [("a", t, value) for t, seeds in enumerate(points) for value in seeds]
    whole, thin = records.banded(every), records.banded(every, most)
    assert len(thin) <= most
    assert [r for r in whole if r in thin] == thin  # points that were measured, in their order
    assert (thin[0], thin[-1]) == (whole[0], whole[-1])
    for key, extreme in (("value", min), ("value", max), ("low", min), ("high", max)):
        assert extreme(r[key] for r in thin) == extreme(r[key] for r in whole)


def test_a_peak_of_one_round_survives_thinning() -> None:
    (group,) = grouped([(entry("a" * 8), [row(t, 0.9 if t == 7_777 else 0.5) for t in range(10_000)])])
    thin = records.curves([group])
    assert len(thin) <= records.MOST
    assert [r["round"] for r in thin if r["value"] == 0.9] == [7_777]


@given(st.integers(0, 500), st.integers(1, 60))
def test_evenly_picks_from_the_first_to_the_last(number: int, most: int) -> None:
    picked = records.evenly(number, most)
    assert len(set(picked)) == len(picked) == min(number, most)
    assert picked == sorted(picked)
    if number and most > 1:
        assert (picked[0], picked[-1]) == (0, number - 1)


def test_drift_has_both_definitions_by_layer() -> None:
    (group,) = grouped([(entry("a" * 8), [row(1, 0.5, drift=0.2), row(2, 0.5, drift=0.4)])])
    for definition, scale in (("relative", 1.0), ("rms", 0.1)):
        found = {(r["layer"], r["round"]): r["value"] for r in records.drift([group], definition)}  # type: ignore[arg-type]
        assert found == pytest.approx(
            {
                ("all layers", 1): 0.2 * scale,
                ("all layers", 2): 0.4 * scale,
                ("fc1", 1): 0.2 * scale,
                ("fc1", 2): 0.4 * scale,
                ("fc2", 1): 0.4 * scale,
                ("fc2", 2): 0.8 * scale,
            }
        )
    assert records.drift([seeds([0.5])]) == []


def test_a_deep_network_shows_eleven_layers_with_the_first_and_the_last() -> None:
    names = [f"block{i}" for i in range(40)]
    half = {"total": 1.0, "layers": dict.fromkeys(names, 1.0)}
    (group,) = grouped([(entry("a" * 8), [row(1, 0.5, divergence={"relative": half, "rms": half})])])
    picked = records.layers_of([group])
    assert (len(picked), picked[0], picked[-1]) == (11, "block0", "block39")


def test_each_evaluation_of_a_class_lasts_until_the_next() -> None:
    group = seeds([0.2, None, 0.6], [0.4, None, 0.8])
    found = records.per_class(group, ["cat", "dog"])
    spans = [(r["class"], r["round"], r["until"], pytest.approx(r["accuracy"])) for r in found]
    assert spans == [("cat", 1, 3, 0.3), ("dog", 1, 3, 0.7), ("cat", 3, 5, 0.7), ("dog", 3, 5, pytest.approx(0.3))]


def test_a_class_without_test_examples_has_no_cell_and_long_runs_few_columns() -> None:
    rows = [row(t, 0.5, per_class=[0.5, math.nan]) for t in range(1, 1001)]
    (group,) = grouped([(entry("a" * 8), rows)])
    found = records.per_class(group, most=50)
    assert {r["class"] for r in found} == {"0"}
    assert (len(found), found[0]["round"], found[-1]["round"]) == (50, 1, 1000)


def test_the_chain_is_a_point_a_run_that_was_scored() -> None:
    scored = [row(1, 0.4, drift=0.3), row(2, 0.6)]
    groups = grouped([(entry("a" * 8), scored), (entry("b" * 8, seed=1), [row(1, None)]), (entry("c" * 8, lr=1), [])])
    (point,) = records.chain(groups)
    assert (point["id"], point["emd"], point["divergence"], point["accuracy"]) == ("a" * 8, 1.6, 0.3, 0.5)


def test_comparison_adds_up() -> None:
    group = seeds([0.2, 0.6, 0.8], [0.4, 0.7, 0.7])
    (found,) = records.comparison([group], target=0.65)
    assert found["accuracy"] == pytest.approx((1.6 / 3 + 1.8 / 3) / 2)
    assert found["std"] == pytest.approx(np.std([1.6 / 3, 0.6], ddof=1))
    assert (found["rounds_to_target"], found["bytes"], found["seconds"], found["seeds"]) == (2.5, 90, 1.5, 2)
    (missed,) = records.comparison([group], target=0.75)
    assert missed["rounds_to_target"] is None  # not every seed reached it


def test_a_run_without_rows_compares_as_nothing_and_a_diverged_one_as_zero() -> None:
    nothing, diverged = records.comparison(
        grouped([(entry("a" * 8), []), (entry("b" * 8, lr=9, status="diverged"), [row(1, 0.9)])]), 0.5
    )
    assert (nothing["accuracy"], nothing["emd"], nothing["rounds_to_target"]) == (None, None, None)
    assert (diverged["accuracy"], diverged["diverged"]) == (0.0, 1)
