"""Who is there: deadlines, quorums, nodes that go, come late or start anew. With messages in this process."""

import time

import pytest
import torch
from flwr.app import Error, Message, RecordDict
from loopback import Loopback

from fedskew.errors import FedskewError
from fedskew.experiment import train
from fedskew.flower import federation
from fedskew.flower.rounds import federate
from fedskew.flower.settings import Settings
from fedskew.rounds import Beginning
from fedskew.run import Run

RUN = Run(clients=3, rounds=3, examples=90, share="beta=0.2,alpha=0.5")
NODES = [{"partition-id": k} for k in range(3)]
HOW = {"device": "cpu", "engine": "loop", "deadline": 0.3, "limit": 0.6}


def federated(grid, data, run=RUN, **settings):
    return federate(grid, run, data, Settings(**HOW | settings), Beginning())


def silent(node, round_=None):
    """No reply from this node, in one round or ever."""

    def tamper(message, reply):
        config, train_ = message.content["config"], message.metadata.message_type == "train"
        quiet = train_ and message.metadata.dst_node_id == node and round_ in (None, config["server-round"])
        return [] if quiet else [reply]

    return tamper


def test_a_round_ends_at_the_deadline_and_a_late_reply_is_not_used(digits, one_thread):
    """Cases 25 and 27: the loss is counted; what comes after the deadline stays where it is."""
    grid, late = Loopback(NODES), []

    def tamper(message, reply):
        if silent(102, 1)(message, reply):
            return [reply]
        late.append(reply)
        return []

    grid.tamper = tamper
    rows = federated(grid, digits)
    next(rows)  # what was shared
    began = time.monotonic()
    first = next(rows)
    assert time.monotonic() - began >= 0.3
    assert (first.clients, first.lost) == (2, 1)
    grid.replies |= {late[0].metadata.reply_to_message_id: late}  # it is there now, but nobody asks for it
    second = next(rows)
    assert (second.clients, second.lost) == (3, 0)
    lossy = Loopback(NODES, lambda m, r: [r] if silent(102, 1)(m, r) else [Message(Error(8, "x"), reply_to=m)])
    *_, expected = federated(lossy, digits)
    *_, last = rows
    assert all(torch.equal(last.state["w"][n], leaf) for n, leaf in expected.state["w"].items())


def test_a_quorum_is_waited_for_until_the_limit(digits):
    began = time.monotonic()
    with pytest.raises(FedskewError, match=r"round 1, 2 of 3 clients .* 3 are needed \(client 2: no reply\); given up"):
        list(federated(Loopback(NODES, silent(102)), digits, quorum=1.0))
    assert time.monotonic() - began >= 0.6


def test_all_nodes_gone_ends_the_run_after_the_limit_with_its_rows(digits):
    """Case 26."""
    grid = Loopback(NODES)
    rows = federated(grid, digits)
    assert [next(rows).round, next(rows).round] == [0, 1]
    grid.away = set(grid.contexts)
    with pytest.raises(FedskewError, match=r"round 2, 0 of 3 clients"):
        next(rows)


def test_one_that_is_not_there_is_not_waited_for(digits):
    grid = Loopback(NODES)
    rows = federated(grid, digits, deadline=60, limit=60)
    next(rows), next(rows)
    grid.away = {101}
    began = time.monotonic()
    second = next(rows)
    assert time.monotonic() - began < 20
    assert (second.clients, second.lost) == (2, 1)
    grid.away = set()
    assert next(rows).lost == 0  # and is welcome again


def test_a_node_that_comes_late_is_given_what_was_shared_and_takes_part(digits):
    grid = Loopback(NODES)
    grid.away = {101}
    rows = federated(grid, digits, deadline=2, limit=4)
    next(rows)
    assert next(rows).lost == 1
    grid.away = set()
    while (row := next(rows)).lost:
        pass
    assert row.clients == 3
    shares = [m for m in grid.sent if m.metadata.message_type == "query.share" and m.metadata.dst_node_id == 101]
    assert len(shares) == 1


def test_a_node_that_was_started_anew_is_given_the_shared_set_again(digits, one_thread):
    """Its SuperNode has forgotten it; the round waits for both messages, and nothing is different."""
    grid = Loopback(NODES)
    rows = federated(grid, digits, deadline=30, limit=30)
    next(rows), next(rows)
    grid.contexts[101].state = RecordDict()
    *_, last = rows
    assert last.lost == 0
    shares = [m.metadata.dst_node_id for m in grid.sent if m.metadata.message_type == "query.share"]
    assert sorted(shares) == [100, 101, 101, 102]
    *_, expected = train(RUN, data=digits, engine="loop", device="cpu")
    assert all(torch.equal(last.state["w"][n], leaf) for n, leaf in expected.state["w"].items())


def test_another_machine_can_take_a_lost_ones_place(digits):
    grid = Loopback([*NODES, {"partition-id": 1}])
    grid.away = {103}
    rows = federated(grid, digits, deadline=60, limit=60)
    next(rows), next(rows)
    grid.away = {101}
    while next(rows).lost:
        pass
    assert {m.metadata.dst_node_id for m in grid.sent} >= {103}


def test_a_mean_that_needs_clients_waits_for_them(digits):
    run = RUN.model_copy(update={"algorithm": Run(algorithm="krum:0").algorithm})
    with pytest.raises(FedskewError, match="3 are needed"):
        list(federated(Loopback(NODES, silent(100)), digits, run, quorum=0.1))


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (Run(algorithm="sgd"), "nothing to federate"),
        (Run(partition="nodes", divergence=True), "divergence compares with SGD on everybody's data"),
    ],
)
def test_what_needs_all_data_in_one_place_is_refused(run, says, digits):
    with pytest.raises(FedskewError, match=says):
        list(federate(Loopback([]), run, digits, Settings(), Beginning()))


def test_divergence_is_reported_in_a_trial_as_in_a_simulation(digits, one_thread):
    run = RUN.model_copy(update={"divergence": True, "rounds": 2})
    *_, row = federated(Loopback(NODES), digits, run)
    *_, expected = train(run, data=digits, engine="loop", device="cpu")
    assert row.divergence == expected.divergence


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"quorum": 0}, "quorum = 0"),
        ({"quorum": 1.5}, "quorum = 1.5"),
        ({"deadline": -1.0}, "deadline = -1.0"),
        ({"deadline": float("nan")}, "deadline = nan"),
        ({"deadline": 60.0, "limit": 30.0}, "limit = 30 is shorter than deadline = 60"),
        ({"engine": "fast"}, "engine = 'fast'"),
    ],
)
def test_settings_say_what_is_wrong_with_them(given, says):
    with pytest.raises(FedskewError, match=says):
        Settings.of(given)


def test_an_apps_own_keys_are_left_alone():
    assert Settings.of({"learning-rate": 0.1, "deadline": 5}) == Settings(deadline=5)


class Shuffled(Loopback):
    """Replies come in the reverse order of the clients: a node with a small number is asked for its reply often."""

    def pull_messages(self, message_ids):
        (id,) = message_ids
        self.asked = [*getattr(self, "asked", []), id]
        node = next(m.metadata.dst_node_id for m in self.sent if m.metadata.message_id == id)
        return super().pull_messages([id]) if self.asked.count(id) > 102 - node else []


def test_the_order_in_which_replies_come_changes_nothing(digits, one_thread):
    run = RUN.model_copy(update={"algorithm": Run(algorithm="scaffold").algorithm})
    *_, last = federated(Shuffled(NODES), digits, run, deadline=60, limit=60)
    *_, expected = train(run, data=digits, engine="loop", device="cpu")
    assert list(last.state) == list(expected.state)
    assert all(torch.equal(last.state["w"][n], leaf) for n, leaf in expected.state["w"].items())


def test_a_node_whose_program_broke_is_greeted_again(digits, monkeypatch):
    monkeypatch.setattr(federation, "AGAIN", 0.05)
    hellos = []

    def breaks_once(message, reply):
        if message.metadata.message_type != "query.hello" or message.metadata.dst_node_id != 101:
            return [reply]
        hellos.append(message)
        return [Message(Error(8, "out of memory"), reply_to=message)] if len(hellos) == 1 else [reply]

    rows = list(federated(Loopback(NODES, breaks_once), digits, deadline=60, limit=60))
    assert len(hellos) == 2
    assert [row.lost for row in rows] == [0, 0, 0, 0]
