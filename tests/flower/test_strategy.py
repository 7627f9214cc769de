"""Our methods as a strategy in somebody else's ServerApp, with somebody else's clients."""

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import given
from hypothesis import strategies as st
from loopback import Loopback

from fedskew.errors import FedskewError
from fedskew.flower import MethodStrategy

START = {"w": np.zeros(3, np.float32), "bn.running_var": np.ones(2, np.float32), "steps": np.array(0)}


class Nodes:
    """As much of a grid as a strategy asks."""

    def __init__(self, number):
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.number = number

    def get_node_ids(self):
        return list(range(10, 10 + self.number))


def record(arrays):
    return ArrayRecord({name: Array(np.asarray(a)) for name, a in arrays.items()})


def answer(message, arrays, **told):
    message.metadata.__dict__["_message_id"] = f"m{message.metadata.dst_node_id}"
    metrics = MetricRecord({"num-examples": 1} | told)
    return Message(RecordDict({"arrays": record(arrays), "metrics": metrics}), reply_to=message)


def started(strategy, nodes, start=START, round_=1):
    return strategy.configure_train(round_, record(start), ConfigRecord(), Nodes(nodes))


def numbers(arrays):
    return {name: a.numpy() for name, a in arrays.items()}


def shifted(by, steps=4):
    return {"w": np.full(3, by, np.float32), "bn.running_var": np.full(2, 1 + by, np.float32), "steps": np.array(steps)}


def test_the_average_is_by_examples_and_keeps_every_dtype():
    strategy = MethodStrategy("fedavg")
    a, b = started(strategy, 2)
    arrays, told = strategy.aggregate_train(
        1, [answer(a, shifted(1.0, 4), **{"num-examples": 3}), answer(b, shifted(5.0, 7))]
    )
    found = numbers(arrays)
    np.testing.assert_allclose(found["w"], 2.0)
    np.testing.assert_allclose(found["bn.running_var"], 3.0)
    assert found["steps"] == 5  # 4.75, and still a whole number
    assert {name: a.dtype for name, a in found.items()} == {n: np.asarray(x).dtype for n, x in START.items()}
    assert dict(told) == {"clients": 2, "lost": 0, "loss": 0.0}


def test_momentum_is_hsus_and_leaves_statistics_alone():
    """Two rounds by hand: v = delta, then 0.5 v + delta, in Nesterov's form."""
    strategy, at = MethodStrategy("fedavgm:0.5", nodes=1), START
    expected, v = np.zeros(3), np.zeros(3)
    for round_ in (1, 2):
        (message,) = started(strategy, 1, at, round_)
        arrays, _ = strategy.aggregate_train(round_, [answer(message, shifted(float(round_)))])
        at = numbers(arrays)
        delta = expected - round_
        v = 0.5 * v + delta
        expected = expected - (delta + 0.5 * v)
        np.testing.assert_allclose(at["w"], expected, rtol=1e-6)
        np.testing.assert_allclose(at["bn.running_var"], 1 + round_)


@given(st.permutations(range(4)), st.integers(0, 5))
def test_the_order_of_replies_does_not_matter(order, seed):
    """Floating-point sums depend on the order, so replies are sorted by partition-id."""
    updates = np.random.default_rng(seed).normal(size=(4, 3)).astype(np.float32)

    def averaged(order):
        strategy = MethodStrategy("fedavg")
        sent = list(started(strategy, 4))
        replies = [
            answer(sent[i], {**START, "w": updates[i]}, **{"partition-id": 3 - i, "num-examples": i + 1}) for i in order
        ]
        return numbers(strategy.aggregate_train(1, replies)[0])["w"]

    assert np.array_equal(averaged(order), averaged(range(4)))


@pytest.mark.parametrize(
    "bad",
    [
        {"arrays": START | {"w": np.array([0, np.nan, 0], np.float32)}},
        {"arrays": START | {"w": np.zeros(1, np.float32)}},
        {"arrays": START | {"w": np.zeros(3)}},
        {"arrays": {"w": START["w"]}},
        {"arrays": START, "num-examples": -1},
        {"arrays": START, "num-examples": 0},
        {"arrays": START, "num-examples": 10**15},
        {"arrays": START, "server-round": 3},
    ],
)
def test_one_wrong_reply_does_not_touch_the_others(bad):
    strategy = MethodStrategy("fedavg")
    a, b = started(strategy, 2)
    told = {key: value for key, value in bad.items() if key != "arrays"}
    arrays, metrics = strategy.aggregate_train(1, [answer(a, bad["arrays"], **told), answer(b, shifted(2.0))])
    np.testing.assert_allclose(numbers(arrays)["w"], 2.0)
    assert (metrics["clients"], metrics["lost"]) == (1, 1)


def test_nobody_keeps_the_model():
    strategy = MethodStrategy("fedavgm:0.9")
    a, b = started(strategy, 2)
    arrays, told = strategy.aggregate_train(1, [answer(m, START, **{"num-examples": 0}) for m in (a, b)])
    assert arrays is None
    assert told["lost"] == 2
    assert torch.equal(strategy.state["w"]["w"], torch.zeros(3))


def test_a_reply_that_comes_twice_counts_once():
    strategy = MethodStrategy("fedavg")
    a, b = started(strategy, 2)
    replies = [answer(a, shifted(0.0)), answer(a, shifted(100.0)), answer(b, shifted(4.0))]
    arrays, _ = strategy.aggregate_train(1, replies)
    np.testing.assert_allclose(numbers(arrays)["w"], 2.0)


def test_sampling_is_seeded_and_differs_from_round_to_round():
    def chosen(seed):
        strategy = MethodStrategy("fedavg", fraction=0.3, seed=seed)
        return [[m.metadata.dst_node_id for m in started(strategy, 20, round_=t)] for t in range(1, 6)]

    assert chosen(1) == chosen(1)
    assert chosen(1) != chosen(2)
    assert len({tuple(c) for c in chosen(1)}) > 1
    assert all(len(c) == 6 for c in chosen(1))


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("scaffold", "changes what clients do"),
        ("fedprox:0.1", "changes what clients do"),
        ("fedavg,loss=restricted", "changes what clients do"),
        ("fedavg,swa=0.5", "changes what clients do"),
        ("nope", "not known"),
    ],
)
def test_a_method_that_needs_our_clients_is_refused(method, says):
    with pytest.raises(FedskewError, match=says):
        MethodStrategy(method)


def test_it_gives_up_when_nodes_never_come():
    with pytest.raises(FedskewError, match="1 nodes are there after 0 s, 2 are needed"):
        started(MethodStrategy("median", patience=0), 1)


def test_flowers_own_loop_drives_it_with_somebody_elses_clients():
    """Strategy.start of Flower, a ClientApp that knows nothing of us; one of three clients breaks in round 2."""
    theirs, seen = ClientApp(), []

    @theirs.train()
    def step(message, context):
        config, k = message.content["config"], context.node_config["partition-id"]
        if (config["server-round"], k) == (2, 1):
            moved = np.full(2, np.nan, np.float32)
        else:
            moved = message.content["arrays"]["w"].numpy() + k
        metrics = MetricRecord({"num-examples": 10})
        return Message(RecordDict({"arrays": record({"w": moved}), "metrics": metrics}), reply_to=message)

    grid = Loopback([{"partition-id": k} for k in range(3)], app=theirs)
    strategy = MethodStrategy("fedavgm:0.5,plain", nodes=3)

    def tested(round_, arrays):
        seen.append(arrays["w"].numpy().tolist())
        return MetricRecord({"round": round_})

    result = strategy.start(grid, record({"w": np.zeros(2, np.float32)}), num_rounds=3, evaluate_fn=tested)
    # every round moves the mean by 1, of clients 0 and 2 as of all three; v is 1, 1.5, 1.75
    assert seen == [[0, 0], [1, 1], [2.5, 2.5], [4.25, 4.25]]
    assert result.arrays["w"].numpy().tolist() == [4.25, 4.25]
    assert [result.train_metrics_clientapp[t]["lost"] for t in (1, 2, 3)] == [0, 1, 0]
