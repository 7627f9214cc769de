from __future__ import annotations

from made import entry

from fedskew.report.groups import LONGEST, grouped


def labels(*entries):  # type: ignore[no-untyped-def]
    return [group.label for group in grouped((e, []) for e in entries)]


def test_runs_that_differ_in_seed_and_name_are_one_group_in_the_order_of_seeds() -> None:
    (group,) = grouped([(entry("b" * 8, seed=1, name="second"), ["b"]), (entry("a" * 8, seed=0), ["a"])])  # type: ignore[list-item]
    assert group.seeds == [0, 1]
    assert group.rows == (["a"], ["b"])
    assert group.label == "fedavg, classes:1"


def test_a_name_that_all_seeds_share_is_the_label() -> None:
    assert labels(entry("a" * 8, name="mine"), entry("b" * 8, name="mine", seed=1)) == ["mine"]


def test_a_key_that_is_younger_than_a_run_does_not_part_it_from_its_seeds() -> None:
    young = entry("a" * 8, seed=1, smoothing=0.0, start="", divergence=False)
    assert len(labels(entry("b" * 8), young)) == 1


def test_groups_of_one_name_are_told_apart_by_what_differs() -> None:
    assert labels(entry("a" * 8, lr=0.1), entry("b" * 8, lr=0.5)) == [
        "fedavg, classes:1, lr 0.1",
        "fedavg, classes:1, lr 0.5",
    ]
    more = {"kind": "classes", "clients": 9, "n": 1}
    assert labels(entry("a" * 8, name="x"), entry("b" * 8, name="x", partition=more))[1] == "x, partition.clients 9"


def test_long_names_are_cut_and_still_differ() -> None:
    first, second = labels(entry("a" * 8, name="n" * 200, lr=1), entry("b" * 8, name="n" * 199, lr=2))
    assert first.startswith("n" * (LONGEST - 1) + "…")
    assert first != second


def test_a_remedy_is_named_without_its_numbers() -> None:
    assert labels(entry("a" * 8, share={"beta": 0.1, "alpha": 0.5})) == ["fedavg, share, classes:1"]
