"""A node's own data stays on it, and it says no more of them than its operator allows."""

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord
from loopback import Loopback

from fedskew import measure
from fedskew.data import datasets
from fedskew.errors import FedskewError
from fedskew.experiment import train
from fedskew.flower.node import Node
from fedskew.flower.privacy import noisy
from fedskew.flower.rounds import federate
from fedskew.flower.settings import Settings
from fedskew.flower.wire import Card
from fedskew.rounds import Beginning
from fedskew.run import Run
from fedskew.sides import split

OWN = Run(partition="nodes", clients=3, rounds=2, algorithm="fedavgm:0.9")
DEALT = Run(partition="dirichlet:0.3", clients=3, rounds=2, algorithm="fedavgm:0.9")


def federated(run, data, configs, tamper=None, **settings):
    how = {"device": "cpu", "engine": "loop", "deadline": 0.5, "limit": 0.8} | settings
    grid = Loopback([{"partition-id": k} | c for k, c in enumerate(configs)], tamper)
    return list(federate(grid, run, data, Settings(**how), Beginning())), grid


@pytest.fixture
def files(tmp_path, digits):
    """Each client's part of the digits in a file, a folder of two files, and a file with names for classes."""
    parts = split(DEALT, digits)
    for k in (0, 2):
        y = digits.y[parts[k]]
        np.savez(tmp_path / f"{k}.npz", x=digits.x[parts[k]], y=y if k == 0 else y.astype(str))
    folder = tmp_path / "1"
    folder.mkdir()
    half = len(parts[1]) // 2
    for name, part in (("a", parts[1][:half]), ("b", parts[1][half:])):
        np.savez(folder / f"{name}.npz", x=digits.x[part], y=digits.y[part])
    return [{"data": str(tmp_path / name)} for name in ("0.npz", "1", "2.npz")]


def test_machines_with_their_own_data_train_as_if_it_had_been_dealt_out(files, digits, one_thread):
    rows, _ = federated(OWN, digits, files)
    *_, expected = train(DEALT, data=digits, engine="loop", device="cpu")
    assert all(torch.equal(rows[-1].state["w"][n], leaf) for n, leaf in expected.state["w"].items())
    assert rows[-1].accuracy == expected.accuracy


def test_only_numbers_and_weights_leave_a_machine(files, digits):
    seen = []
    federated(OWN, digits, files, lambda m, r: [seen.append((m, r)), [r]][1])
    network = {name: tuple(a.shape) for name, a in seen[-1][0].content["arrays"].items()}
    for message, reply in seen:
        told = set(reply.content["metrics"])
        if message.metadata.message_type == "query.hello":
            assert told == {"partition-id", "num-examples"}
            assert list(reply.content) == ["metrics"]
        else:
            assert told == {"partition-id", "num-examples", "loss", "server-round"}
            assert {n: tuple(a.shape) for n, a in reply.content["arrays"].items()} == network
            assert [k for k, r in reply.content.items() if isinstance(r, ArrayRecord)] == ["arrays"]


def test_emd_is_known_only_from_what_is_reported(digits):
    run = DEALT.model_copy(update={"rounds": 1})
    (silent,), _ = federated(run, digits, [{}] * 3)
    (told,), _ = federated(run, digits, [{"report-label-counts": True}] * 3)
    counts = measure.counts(digits.y, split(run, digits), 10)
    assert np.isnan(silent.emd)
    assert told.emd == pytest.approx(measure.emd(counts).mean(), abs=1e-12)
    (partly,), _ = federated(run, digits, [{"report-label-counts": True}] * 2 + [{}])
    assert partly.emd == pytest.approx(measure.emd(counts[:2]).mean(), abs=1e-12)


def test_sharing_with_machines_that_hold_their_own(files, digits, one_thread):
    """G comes from the server's whole training set, since none of that is a client's."""
    run = Run(**OWN.spec() | {"share": "beta=0.2,alpha=0.5", "warm_up": "rounds=1"})
    rows, grid = federated(run, digits, files)
    held = sum(map(len, split(DEALT, digits)))
    shared = round(0.2 * held)
    assert rows[0].prepared["shared"] == shared
    assert np.isnan(rows[0].prepared["emd_before"])
    trained = [m for m in grid.sent if m.metadata.message_type == "train"]
    assert trained[0].content["config"]["population"] == [3, held + 3 * round(0.5 * shared)]
    assert [r.round for r in rows] == [0, 1, 2]


def card(data):
    return Card.of(data, data.transform)


def node(run, digits, **config):
    return Node(run, card(digits), "loop", {"partition-id": 0} | config)


def test_every_node_draws_its_own_alpha(digits):
    from fedskew.flower import wire

    run = Run(clients=3, share="beta=0.1,alpha=0.5")
    everything = wire.RecordDict({"arrays": wire.pack_arrays({"x": digits.x[:40], "y": digits.y[:40]})})
    drawn = [node(run, digits, **{"partition-id": k}).draw(everything) for k in range(3)]
    assert [len(y) for _, y in drawn] == [20, 20, 20]
    assert not np.array_equal(drawn[0][0], drawn[1][0])


@pytest.mark.parametrize(
    ("run", "config", "says"),
    [
        (OWN, {}, "this node has no data"),
        (OWN, {"data": "nowhere.npz"}, "does not exist"),
        (DEALT, {"data": "mine.npz"}, "but this run deals out digits"),
        (DEALT, {"partition-id": 3}, "partition-id = 3, but the run has 3 clients"),
        (DEALT, {"partition-id": "x"}, "partition-id = 'x'"),
        (DEALT, {"partition-id": -1}, "partition-id = -1"),
        (DEALT, {"report-label-counts": "yes"}, "report-label-counts = 'yes'"),
        (DEALT, {"report-label-counts": True, "epsilon": 0}, "epsilon = 0"),
        (DEALT, {"report-label-counts": True, "epsilon": float("inf")}, "epsilon = inf"),
    ],
)
def test_a_nodes_mistake_is_said_in_a_line_at_the_server(run, config, says, digits, caplog):
    run = run.model_copy(update={"rounds": 1})
    with pytest.raises(FedskewError, match="0 of 3 clients") as e:
        federated(run, digits, [config], limit=0.5)
    assert says in str(e.value)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": np.zeros((2, 8, 8), np.uint8), "y": [0, 11]}, "label 11 at index 1 is not in 0..9"),
        ({"x": np.zeros((2, 8, 8), np.uint8), "y": [0, -1]}, "label -1"),
        ({"x": np.zeros((2, 8, 8), np.uint8), "y": ["0", "cat"]}, "'cat' at index 1, not one of the classes"),
        ({"x": np.zeros((2, 4, 4), np.uint8), "y": [0, 1]}, r"uint8 of shape \(1, 4, 4\), the federation's"),
        ({"x": np.zeros((2, 8, 8), np.float32), "y": [0, 1]}, "x holds float32"),
        ({"x": np.zeros((0, 8, 8), np.uint8), "y": np.zeros(0, int)}, "no training examples"),
        ({"x": np.zeros((3, 8, 8), np.uint8), "y": [0, 1]}, "3 examples but 2 labels"),
        ({"x": np.zeros((2, 8, 8), np.uint8)}, "no y"),
    ],
)
def test_own_data_that_do_not_fit_are_refused(arrays, says, digits, tmp_path):
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(FedskewError, match=says):
        node(OWN, digits, data=str(tmp_path / "mine.npz")).own()


def test_one_class_is_enough_for_a_client(digits, tmp_path):
    ones = digits.y == 1
    np.savez(tmp_path / "ones.npz", x=digits.x[ones], y=digits.y[ones])
    x, y = node(OWN, digits, data=str(tmp_path / "ones.npz")).own()
    assert len(x) == ones.sum()
    assert set(y) == {1}


def test_a_folder_without_files_or_with_unlike_ones_is_refused(digits, tmp_path):
    with pytest.raises(FedskewError, match=r"holds no \.npz file"):
        node(OWN, digits, data=str(tmp_path)).own()
    for name, size in (("a", 8), ("b", 4)):
        np.savez(tmp_path / f"{name}.npz", x=np.zeros((2, size, size), np.uint8), y=[0, 1])
    with pytest.raises(FedskewError, match="make them alike"):
        node(OWN, digits, data=str(tmp_path)).own()


def test_a_simulation_refuses_data_that_lie_elsewhere():
    with pytest.raises(FedskewError, match="machines of their own"):
        list(train(OWN, data=datasets.load("digits")))


def test_noise_is_private_for_one_example_replaced():
    """log P(z) falls by epsilon / 2 a step, and replacing an example moves two counts by one each: epsilon in all."""
    epsilon = 0.8
    z = noisy(np.zeros(400_000, np.int64), epsilon, np.random.default_rng(0))
    share = np.array([(np.abs(z) == i).mean() / (1 + (i > 0)) for i in range(6)])
    np.testing.assert_allclose(np.diff(np.log(share)), -epsilon / 2, atol=0.03)
    assert abs((z > 0).mean() - (z < 0).mean()) < 0.005


def test_noise_differs_from_hello_to_hello_and_not_with_the_runs_seed(digits):
    y = digits.y[:200]
    told = [node(DEALT, digits, **{"report-label-counts": True, "epsilon": 0.5}).label_counts(y) for _ in range(4)]
    assert len({tuple(t) for t in told}) == 4
    exact = node(DEALT, digits, **{"report-label-counts": True}).label_counts(y)
    assert exact == np.bincount(y, minlength=10).tolist()
