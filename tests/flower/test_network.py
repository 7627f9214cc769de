"""On a real network of loopback: SuperLink, SuperNodes, TLS and keys. Cases 25 to 29, and parity."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from loopback import Loopback

from fedskew.data import datasets
from fedskew.experiment import train
from fedskew.flower import keys, project
from fedskew.flower.processes import Link, Processes, free_port, program
from fedskew.flower.rounds import federate
from fedskew.flower.settings import Settings
from fedskew.flower.trial import register, start_nodes
from fedskew.rounds import Beginning
from fedskew.run import Run
from fedskew.store import Store

pytestmark = [pytest.mark.network, pytest.mark.slow]

HOSTS = ["localhost", "127.0.0.1"]
SLOW = """
import time
from fedskew.flower import client_app

def slow(message, context, call_next):
    config = context.node_config
    if "slow-round" in config and message.content["config"].get("server-round") == config["slow-round"]:
        time.sleep(context.node_config["slow-seconds"])
    return call_next(message, context)

app = client_app(mods=[slow])
"""


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "rows")


def app_of(folder, run, store, **settings):
    how = {"engine": "loop", "device": "cpu", "store": str(store.folder), "deadline": 90.0, "limit": 120.0} | settings
    project.write(folder, run, nodes=run.partition.clients, tls=False, settings=Settings(**how))
    return folder


def flwr_run(programs, app, name="run", **config):
    told = [x for key, value in config.items() for x in ("-c", f'{key}="{value}"')]
    command = [program("flwr"), "run", str(app), "here", "--stream", *told]
    return programs.start(name, command, home="superlink")


def enough():
    """Seconds in which two nodes surely answer here and now: each message starts a Python that imports torch."""
    began = time.monotonic()
    importing = [subprocess.Popen([sys.executable, "-c", "import fedskew.flower.client"]) for _ in range(2)]
    assert [process.wait() for process in importing] == [0, 0]
    return 5.0 + 4.0 * (time.monotonic() - began)


def until(true, running, seconds=400.0):
    """What `true` gives once it is something; a program that it depends on must go on running."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert running.poll() is None, "it has ended"
        assert time.monotonic() < end, "it never came"
        time.sleep(0.1)
    return found


def test_a_killed_superlink_and_a_new_run_with_the_resume_key_end_like_the_simulation(tmp_path, store):
    """Case 28, with TLS and keys; and parity of FedAvg. FedAvgM and sharing over a network: cli/test_cli_deploy.py."""
    run = Run(partition="dirichlet:0.3", clients=2, rounds=2, examples=300)
    app, link = app_of(tmp_path / "app", run, store), Link(tmp_path / "superlink", free_port(), tmp_path / "keys")
    keys.write(link.keys, 2, HOSTS)
    link.configure()
    with Processes(tmp_path) as programs:
        programs.start("superlink", link.command())
        programs.wait_for(link)
        start_nodes(programs, link, 2)
        running = flwr_run(programs, app)
        (entry,) = until(lambda: [e for e in store.runs() if e.round >= 1], running)
        os.kill(programs.started["superlink"].pid, signal.SIGKILL)
        programs.started["superlink"].wait()
        programs.stop("superlink", "run")
        assert store.find(entry.id).round < run.rounds
        programs.start("superlink", link.command())
        programs.wait_for(link)
        assert flwr_run(programs, app, "again", resume=entry.id).wait(180) == 0
    assert store.find(entry.id).status == "finished", programs.tail("again")
    expected = list(train(run, engine="loop", device="cpu"))
    round_, state = store.state(entry.id)
    assert round_ == 2
    assert {key: list(leaves) for key, leaves in state.items()} == {
        key: list(leaves) for key, leaves in expected[-1].state.items()
    }
    for key, leaves in expected[-1].state.items():
        assert all(torch.equal(state[key][name], leaf) for name, leaf in leaves.items())
    assert [r["accuracy"] for r in store.records(entry.id)] == [r.accuracy for r in expected]
    assert [r["emd"] for r in store.records(entry.id)] == [r.emd for r in expected]


def test_a_straggler_a_killed_node_and_nobody_left(tmp_path, store):
    """Cases 27, 25 and 26 in one run: late, dead, all gone."""
    run = Run(partition="dirichlet:0.5", clients=2, rounds=5, examples=100)
    deadline = enough()
    app = app_of(tmp_path / "app", run, store, deadline=deadline, limit=deadline + 1, quorum=0.5)
    (app / "federation" / "client.py").write_text(SLOW)
    link = Link(tmp_path / "superlink", free_port())
    link.configure()
    with Processes(tmp_path) as programs:
        programs.start("superlink", link.command())
        programs.wait_for(link)
        programs.start("node0", link.node("partition-id=0"))
        programs.start("node1", link.node(f"partition-id=1 slow-round=1 slow-seconds={deadline:.0f}"))
        running = flwr_run(programs, app)
        (entry,) = until(lambda: [e for e in store.runs() if e.round >= 2], running)
        os.killpg(programs.started["node1"].pid, signal.SIGKILL)
        until(lambda: store.find(entry.id).round >= 3, running)
        os.killpg(programs.started["node0"].pid, signal.SIGKILL)
        running.wait(400)
    first, second, third = store.records(entry.id)
    assert [(r["clients"], r["lost"]) for r in (first, third)] == [(1, 1), (1, 1)]
    assert second["lost"] < 2
    assert first["seconds"] >= deadline
    assert third["seconds"] < deadline + 10  # less where the SuperLink itself has missed the node by then
    end = store.find(entry.id)
    assert end.status == "failed"
    assert end.round == 3
    assert "round 4, 0 of 2 clients" in end.message
    assert store.state(entry.id)[0] == 3  # from which `resume` goes on

    # the late reply was not used: the weights are those of client 0 alone where client 1 was lost
    def lossy(message, reply):
        round_ = message.content["config"].get("server-round", 0)
        lost = round_ and message.metadata.dst_node_id == 101 and store.records(entry.id)[round_ - 1]["lost"]
        return [] if lost else [reply]

    grid = Loopback([{"partition-id": 0}, {"partition-id": 1}], lossy)
    how = Settings(engine="loop", device="cpu", deadline=0.2, limit=0.3)
    rows = federate(grid, run, datasets.load("digits"), how, Beginning())
    expected = [next(rows) for _ in range(3)][-1].state["w"]
    assert all(torch.equal(store.state(entry.id)[1]["w"][name], leaf) for name, leaf in expected.items())


def test_a_node_that_may_not_join_is_refused_in_seconds_with_the_reason(tmp_path):
    """Case 29."""
    ours, theirs, old = (tmp_path / name for name in ("ours", "theirs", "old"))
    keys.write(ours, 1, HOSTS)
    keys.write(theirs, 1, HOSTS)
    keys.write(old, 1, HOSTS, days=-1)
    keys.write_node(ours / "stranger")
    link = Link(tmp_path / "superlink", free_port(), ours)
    expired = Link(tmp_path / "expired", free_port(), old)
    link.configure()
    node = "partition-id=0"
    with Processes(tmp_path) as programs:
        programs.start("superlink", link.command())
        other = programs.start("expired", expired.command())
        programs.wait_for(link)
        until(lambda: "Uvicorn running" in programs.log("expired").read_text(), other)
        register(programs, link, "node0")
        tried = {
            "wrong-ca": (replace(link, keys=theirs).node(node, "node0"), "unable to get local issuer certificate"),
            "expired-certificate": (expired.node(node, "node0"), "certificate has expired"),
            "unregistered-key": (link.node(node, "stranger"), "Failed to activate SuperNode"),
            "no-key": (link.node(node), "All SuperNodes must be registered"),
            "plaintext": (
                [*replace(link, keys=None).node(node), "--max-retries", "1"],
                "Server disconnected|reset by peer",
            ),
        }
        started = {name: programs.start(name, command) for name, (command, _) in tried.items()}
        ends = {name: process.wait(60) for name, process in started.items()}
        said = {name: programs.log(name).read_text() for name in tried}
        known = programs.start("known", link.node(node, "node0"))
        until(lambda: "SuperNode ID" in programs.log("known").read_text(), known)
    assert set(ends.values()) == {1}
    for name, (_, reason) in tried.items():
        assert re.search(reason, said[name]), (name, said[name])
        assert "Exit Code: 305" in said[name]


def test_the_same_app_runs_on_flowers_own_simulation(tmp_path, store):
    """Ray's actors are the nodes; the state is that of our own simulation, clients' memory and shared data included."""
    run = Run(
        partition="classes:3", clients=4, rounds=3, examples=200, algorithm="scaffold", share="beta=0.2,alpha=0.5"
    )
    app, link = app_of(tmp_path / "app", run, store), Link(tmp_path / "superlink", free_port())
    link.configure()
    with Processes(tmp_path) as programs:
        programs.start("superlink", link.command("--simulation"))
        programs.wait_for(link)
        told = "num-supernodes=4 client-resources-num-cpus=1"
        command = [program("flwr"), "run", str(app), "here", "--stream", "--federation-config", told]
        assert programs.start("run", command, home="superlink").wait(180) == 0
    (entry,) = store.runs()
    assert entry.status == "finished", programs.tail("run")
    *_, expected = train(run, engine="loop", device="cpu")
    found = store.state(entry.id)[1]
    assert found.keys() == expected.state.keys() > {"client.3.c"}
    for key, leaves in expected.state.items():
        assert all(torch.equal(found[key][name], leaf) for name, leaf in leaves.items())
