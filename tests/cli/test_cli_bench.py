import json

import pytest

from fedskew.cli import main


def bench(capsys, *args):
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "--device", "cpu", *args])
    return stopped.value.code, *capsys.readouterr()


def test_json_has_the_agreed_shape(capsys):
    code, out, err = bench(capsys, "--only", "softmax", "--json")
    assert code == 0
    document = json.loads(out)
    (case,) = document["cases"]
    assert set(document) == {"device", "peak_flops", "cases"}
    assert set(case) == {"name", "path", "loop_s", "ours_s", "ratio", "flops", "peak_share"}
    assert case["path"] == "stacked"
    assert case["ratio"] == pytest.approx(case["loop_s"] / case["ours_s"])
    assert case["peak_share"] == pytest.approx(case["flops"] / document["peak_flops"])
    assert 0 < case["peak_share"] < 1
    # forward, and backward to the weights only: two products of 784 x 10 for each of 6,000 examples
    assert case["flops"] * case["ours_s"] == pytest.approx(2 * 2 * 784 * 10 * 6000)
    assert "times the loop" in err


def test_a_case_that_is_not_there_is_one_line(capsys):
    code, out, err = bench(capsys, "--only", "nothing")
    assert (code, out) == (2, "")
    assert err.startswith("fedskew: --only 'nothing' is in no case's name")
