"""Cases 18 to 21: replies that cannot be used are dropped and counted, and the run goes on without them."""

import logging

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from loopback import Loopback

from fedskew.errors import FedskewError
from fedskew.flower.rounds import federate
from fedskew.flower.settings import Settings
from fedskew.rounds import Beginning
from fedskew.run import Run

RUN = Run(partition="dirichlet:0.5", clients=4, rounds=2, examples=200, algorithm="fedavgm:0.9")
NODES = [{"partition-id": k} for k in range(4)]
BAD = 102  # the node of client 2
CASES = {}  # name -> what becomes of (message, reply)


def changed(reply, message, arrays=None, metrics=None):
    """A reply with some of its records replaced."""
    content = RecordDict(dict(reply.content))
    if arrays is not None:
        content["arrays"] = arrays
    if metrics is not None:
        content["metrics"] = MetricRecord({**reply.content["metrics"], **metrics})
    return [Message(content, reply_to=message)]


def poisoned(reply, value):
    arrays = {name: a.numpy().copy() for name, a in reply.content["arrays"].items()}
    arrays["fc1.weight"][0, 0] = value
    return ArrayRecord({name: Array(a) for name, a in arrays.items()})


def reshaped(reply, f):
    arrays = {name: a.numpy() for name, a in reply.content["arrays"].items()}
    return ArrayRecord({name: Array(a) for name, a in f(arrays).items()})


for _value in (np.nan, np.inf, -np.inf):
    CASES[str(_value)] = lambda m, r, v=_value: changed(r, m, poisoned(r, v))
CASES["nan_loss"] = lambda m, r: changed(r, m, metrics={"loss": float("nan")})
_OTHER_NETWORKS = {
    "broadcastable": lambda a: a | {"fc1.bias": a["fc1.bias"][:1]},
    "scalar": lambda a: a | {"fc1.bias": np.float32(0)[None]},
    "transposed": lambda a: a | {"fc1.weight": a["fc1.weight"].T.copy()},
    "double": lambda a: a | {"fc1.weight": a["fc1.weight"].astype(np.float64)},
    "whole_numbers": lambda a: a | {"fc1.weight": a["fc1.weight"].astype(np.int32)},
    "missing_key": lambda a: {name: x for name, x in a.items() if name != "fc1.bias"},
    "foreign_key": lambda a: a | {"fc9.bias": a["fc1.bias"]},
}
for _name, _f in _OTHER_NETWORKS.items():
    CASES[_name] = lambda m, r, f=_f: changed(r, m, reshaped(r, f))
for _n in (-5, 0, float("nan"), 10**15, 7.5):
    CASES[f"examples_{_n}"] = lambda m, r, n=_n: changed(r, m, metrics={"num-examples": n})
CASES["more_examples_than_it_said"] = lambda m, r: changed(
    r, m, metrics={"num-examples": r.content["metrics"]["num-examples"] + 1}
)
CASES["stale_round"] = lambda m, r: changed(r, m, metrics={"server-round": 7})
CASES["no_arrays"] = lambda m, r: [Message(RecordDict({"metrics": r.content["metrics"]}), reply_to=m)]
CASES["no_metrics"] = lambda m, r: [Message(RecordDict({"arrays": r.content["arrays"]}), reply_to=m)]
CASES["unreadable"] = lambda m, r: [ValueError("Unexpected set of `children`")]
CASES["flowers_error"] = lambda m, r: [Message(Error(2, "it broke"), reply_to=m)]


def rows_of(tamper, data, run=RUN, nodes=NODES, **settings):
    grid = Loopback(nodes, tamper)
    settings = {"device": "cpu", "engine": "loop", "deadline": 1.0, "limit": 1.5} | settings
    return list(federate(grid, run, data, Settings(**settings), Beginning()))


def at(node, what, round_=None):
    """Tamper with the training replies of one node, of one round or all of them."""

    def tamper(message, reply):
        config = message.content["config"]
        wanted = message.metadata.message_type == "train" and message.metadata.dst_node_id == node
        return what(message, reply) if wanted and round_ in (None, config["server-round"]) else [reply]

    return tamper


@pytest.fixture(scope="module")
def without(digits):
    """The run in which client 2's first reply never comes."""
    return rows_of(at(BAD, lambda m, r: [Message(Error(8, "crashed"), reply_to=m)], 1), digits)


@pytest.mark.parametrize("name", CASES)
def test_a_reply_that_cannot_be_used_is_as_if_it_had_not_come(name, digits, without, caplog, one_thread):
    with caplog.at_level(logging.WARNING, "fedskew.flower"):
        rows = rows_of(at(BAD, CASES[name], 1), digits)
    assert [(r.clients, r.lost) for r in rows] == [(3, 1), (4, 0)]
    for key in ("w", "v"):
        assert all(torch.equal(rows[-1].state[key][n], leaf) for n, leaf in without[-1].state[key].items())
    assert any("round 1: client 2 is lost: " in message for message in caplog.messages)


def test_a_reply_that_comes_twice_counts_once(digits, one_thread):
    twice = rows_of(at(BAD, lambda m, r: [r, r]), digits)
    once = rows_of(None, digits)
    assert twice[-1].lost == 0
    assert all(torch.equal(twice[-1].state["w"][n], leaf) for n, leaf in once[-1].state["w"].items())


def test_a_reply_of_another_node_is_not_taken(digits, one_thread):
    def as_another(message, reply):
        content = reply.content
        message.metadata.dst_node_id = 103
        forged = Message(content, reply_to=message)
        message.metadata.dst_node_id = BAD
        return [forged]

    assert rows_of(at(BAD, as_another, 1), digits)[0].lost == 1


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"num-examples": 0}, "num-examples is 0"),
        ({"num-examples": -3}, "num-examples is -3"),
        ({"num-examples": float("nan")}, "num-examples is nan"),
        ({"num-examples": 10**15}, "not a whole number from 1 to 1000000000"),
        ({"partition-id": 4}, "partition-id is 4"),
        ({"partition-id": 1}, "already taken"),
        ({"label-counts": [1, 2]}, "label-counts are not 10"),
        ({"label-counts": [10**15] * 10}, "label-counts reach"),
        ({"label-counts": [0.5] * 10}, "label-counts are not 10"),
    ],
)
def test_a_node_whose_first_words_are_wrong_is_not_taken_in(told, says, digits, caplog, one_thread):
    def tamper(message, reply):
        lies = message.metadata.message_type == "query.hello" and message.metadata.dst_node_id == BAD
        return changed(reply, message, metrics=told) if lies else [reply]

    with caplog.at_level(logging.WARNING, "fedskew.flower"):
        rows = rows_of(tamper, digits, deadline=0.3)
    assert [(r.clients, r.lost) for r in rows] == [(3, 1), (3, 1)]
    assert any("node 102 is not taken in" in m and says in m for m in caplog.messages)


def test_nobody_with_examples_ends_the_run_with_the_model_as_it_was(digits):
    nothing = lambda m, r: changed(r, m, metrics={"num-examples": 0})  # noqa: E731
    with pytest.raises(FedskewError, match=r"at the start, 0 of 4 clients .* num-examples is 0"):
        rows_of(nothing, digits, deadline=0.2, limit=0.3)


def test_when_everybody_diverges_the_run_says_so(digits):
    """Case 32, in a federation: not an error of the network."""
    *_, last = rows_of(None, digits, RUN.model_copy(update={"lr": 1e30}))
    assert last.diverged
    assert last.round < RUN.rounds or not np.isfinite(last.loss)


def test_an_update_scaled_by_100_moves_a_robust_mean_little(digits, one_thread):
    """Case 22 over messages: clipping bounds the shift, a median stays near the honest mean."""

    def scaled(message, reply):
        before = message.content["arrays"]
        arrays = {
            n: before[n].numpy() + 100 * (a.numpy() - before[n].numpy()) for n, a in reply.content["arrays"].items()
        }
        return changed(reply, message, ArrayRecord({n: Array(a.astype("f4")) for n, a in arrays.items()}))

    def shift(algorithm):
        run = RUN.model_copy(update={"rounds": 1, "algorithm": Run(algorithm=algorithm).algorithm})
        honest, attacked = (rows_of(t, digits, run)[-1].state["w"] for t in (None, at(BAD, scaled)))
        return float(sum((attacked[n] - honest[n]).square().sum() for n in honest)) ** 0.5

    plain = shift("fedavg")
    assert shift("clip:0.5") <= 0.5
    assert shift("median") < plain / 20
