"""`fedskew partition` and `fedskew skew` as a person or a script meets them."""

import json
import subprocess
import sys

import numpy as np
import pytest

from fedskew.cli import main
from fedskew.data import datasets
from fedskew.errors import FedskewError


@pytest.fixture
def fedskew(capsys):
    def call(*args):
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in args])
        out, err = capsys.readouterr()
        return stop.value.code, out, err

    return call


@pytest.fixture
def ten(tmp_path):
    """Ten classes of forty examples, in 20 groups."""
    y = np.tile(np.arange(10), 40)
    path = tmp_path / "ten.npz"
    np.savez(path, x=np.zeros((400, 1, 2, 2), np.uint8), y=y, x_test=np.zeros((10, 1, 2, 2), np.uint8),
             y_test=np.arange(10), groups=np.arange(400) // 20)  # fmt: skip
    return path


def test_json_is_one_document_with_what_was_realised(fedskew, ten):
    code, out, _ = fedskew("partition", "--data", ten, "--partition", "emd:1.44", "--clients", 10, "--json")
    got = json.loads(out)
    assert code == 0
    assert set(got) == {
        "partition", "clients", "emd", "data", "seed", "classes", "examples", "unused",
        "jensen_shannon", "hellinger", "sizes", "effective_classes",
    }  # fmt: skip
    assert got["partition"] == "emd:1.44"
    assert len(got["clients"]) == 10
    for client in got["clients"]:
        assert set(client) == {"size", "counts", "emd"}
        assert sum(client["counts"]) == client["size"] == 40
    assert set(got["emd"]) == {"target", "mean", "weighted", "max", "max_error"}
    assert got["emd"]["target"] == 1.44
    assert got["emd"]["max_error"] <= 1 / 40
    assert got["emd"]["max_error"] == max(abs(c["emd"] - 1.44) for c in got["clients"])
    assert got["examples"] + got["unused"] == 400
    assert len(got["classes"]) == 10


def test_only_emd_has_a_target(fedskew, ten):
    code, out, _ = fedskew("partition", "--data", ten, "--partition", "classes:1", "--json")
    got = json.loads(out)
    assert code == 0
    assert got["emd"] == {"mean": 1.8, "weighted": 1.8, "max": 1.8, "target": None, "max_error": None}


def test_groups_come_from_the_data(fedskew, ten):
    _, out, _ = fedskew("partition", "--data", ten, "--partition", "groups", "--json")
    assert [c["size"] for c in json.loads(out)["clients"]] == [20] * 20


def test_the_seed_decides(fedskew, ten):
    args = ("partition", "--data", ten, "--partition", "dirichlet:0.3", "--json")
    first, again, other = (fedskew(*args, "--seed", s)[1] for s in (3, 3, 4))
    assert first == again
    assert json.loads(first)["clients"] != json.loads(other)["clients"]


def test_a_table_for_people(fedskew, ten):
    code, out, _ = fedskew("partition", "--data", ten, "--partition", "classes:2", "--clients", 40)
    assert code == 0
    assert "classes:2 of" in out
    assert "and 20 more clients" in out
    assert "40 clients, 400 examples" in out
    assert "mean 1.6000" in out
    # without colours a class is told by its digit: two of them fill a bar of forty cells
    bar = next(line.split()[3] for line in out.splitlines() if line.split()[:1] == ["0"])
    assert len(bar) == 40
    assert sorted(bar.count(c) for c in set(bar)) == [20, 20]


def test_surplus_is_said(fedskew, ten):
    _, out, _ = fedskew("partition", "--data", ten, "--partition", "classes:1", "--clients", 30)
    assert "30 clients, 390 examples (10 unused)" in out


def test_out_is_read_back_by_file(fedskew, ten, tmp_path):
    split = tmp_path / "split.csv"
    args = ("partition", "--data", ten, "--json")
    _, first, _ = fedskew(*args, "--partition", "dirichlet:0.5", "--clients", 20, "--out", split)
    assert split.read_text().splitlines()[0] == "user,index,class"
    _, again, _ = fedskew(*args, "--partition", f"file:{split}")
    assert json.loads(first)["clients"] == json.loads(again)["clients"]
    code, _, err = fedskew(*args, "--out", tmp_path / "no" / "folder.csv")
    assert (code, "cannot be written" in err) == (2, True)


@pytest.mark.parametrize(("ending", "begins"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("html", b"<!DOCTYPE html>")])
def test_chart(fedskew, ten, tmp_path, ending, begins):
    chart = tmp_path / f"population.{ending}"
    code, out, err = fedskew("partition", "--data", ten, "--partition", "dirichlet:1", "--chart", chart, "--json")
    assert code == 0
    assert chart.read_bytes().startswith(begins)
    assert json.loads(out)
    assert str(chart.name) in err.replace("\n", "")


def test_chart_shows_thirty_of_many(fedskew, ten, tmp_path):
    chart = tmp_path / "population.svg"
    fedskew("partition", "--data", ten, "--clients", 100, "--chart", chart)
    assert "iid of ten, seed 0 (30 of 100 clients)" in chart.read_text().replace("ten.npz", "ten")


COUNTS = "client,cat,dog\nann,10,0\nbob,0,10\ncid,0,0\n"


def test_skew_of_a_table_of_counts(fedskew, tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text(COUNTS)
    code, out, _ = fedskew("skew", path, "--json")
    got = json.loads(out)
    assert code == 0
    assert got["clients"] == [
        {"size": 10, "counts": [10, 0], "emd": 1.0, "client": "ann"},
        {"size": 10, "counts": [0, 10], "emd": 1.0, "client": "bob"},
        {"size": 0, "counts": [0, 0], "emd": None, "client": "cid"},
    ]
    assert got["emd"] == {"mean": 1.0, "weighted": 1.0, "max": 1.0}
    assert got["classes"] == ["cat", "dog"]
    assert got["sizes"]["min"] == 0
    chart = tmp_path / "counts.svg"
    code, out, _ = fedskew("skew", path, "--chart", chart)
    assert code == 0
    assert "ann" in out
    assert all(name in chart.read_text() for name in ("ann", "cid", "dog"))


def test_many_classes_and_two_clients_of_one_name(fedskew, tmp_path):
    path, chart = tmp_path / "counts.csv", tmp_path / "counts.svg"
    path.write_text("client," + ",".join(f"c{i}" for i in range(40)) + "\n" + ("ann" + ",1" * 40 + "\n") * 2)
    code, out, _ = fedskew("skew", path, "--chart", chart)
    assert code == 0
    assert "and 4 more" in out
    assert "effective classes 40.00 of 40" in out
    assert all(name in chart.read_text() for name in ("ann (0)", "ann (1)"))


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--partition", "emd:1.95"), "emd:1.95 cannot be reached with 10 classes: the largest is 1.8; lower it"),
        (("--partition", "dirichlet:-1"), "alpha = '-1': it should be greater than or equal to 0"),
        (("--partition", "dirichlet:nan"), "alpha = 'nan'"),
        (("--clients", "100000"), "clients = 100000: there are only"),
        (("--clients", "0"), "clients = 0"),
        (("--clients", "many"), "'many' is not a valid integer"),
        (("--partition", "fancy:3"), "partition 'fancy:3' is not known"),
        (("--partition", "groups"), "names no groups"),
        (("--chart", "a.pdf"), "must end in .svg, .png, .html"),
        (("--seed", "-1"), "-1"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(fedskew, args, says):
    code, out, err = fedskew("partition", "--data", "digits", *args)
    assert (code, out) == (2, "")
    assert says in err
    assert len(err.strip().splitlines()) == 1


def test_a_process_needs_no_torch_and_leaves_standard_output_to_json(tmp_path):
    script = (
        "import sys; from fedskew.cli import main\n"
        "try: main(['partition', '--partition', 'dirichlet:0.1', '--clients', '50', '--json'])\n"
        "finally: print([m for m in ('torch', 'altair', 'sklearn', 'scipy') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert len(json.loads(done.stdout)["clients"]) == 50
    assert done.stderr.strip() == "[]"


def labels_or_skip(name):
    try:
        datasets.load_labels(name)
    except FedskewError as e:
        pytest.skip(str(e))


@pytest.mark.data
def test_cifar10_at_emd_1_44(fedskew):
    labels_or_skip("cifar10")
    _, out, _ = fedskew("partition", "--data", "cifar10", "--partition", "emd:1.44", "--clients", 10, "--json")
    got = json.loads(out)
    assert got["emd"]["max_error"] == 0
    assert [c["size"] for c in got["clients"]] == [5000] * 10
    assert got["unused"] == 0


@pytest.mark.data
def test_mnist_one_class_drops_and_counts_the_surplus(fedskew):
    labels_or_skip("mnist")
    _, out, _ = fedskew("partition", "--data", "mnist", "--partition", "classes:1", "--json")
    got = json.loads(out)
    assert [c["size"] for c in got["clients"]] == [5421] * 10  # the fives
    assert got["unused"] == 60_000 - 54_210
    assert got["emd"]["mean"] == 1.8
    _, out, _ = fedskew("partition", "--data", "mnist", "--partition", "classes:1,keep", "--json")
    assert json.loads(out)["unused"] == 0


@pytest.mark.data
def test_speakers_are_clients(fedskew):
    labels_or_skip("speech-commands")
    _, out, _ = fedskew("partition", "--data", "speech-commands", "--partition", "groups", "--json")
    got = json.loads(out)
    assert len(got["clients"]) > 1000
    assert got["unused"] == 0
