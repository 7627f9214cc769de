"""A sweep in worker processes: the same bits as here, whoever is killed on the way, and nobody left behind."""

import os
import re
import signal
import subprocess
import time
from functools import partial

import pytest
import torch

from contents import contents
from fedskew import Run, Store, sweep
from fedskew.sweep.agenda import Begun, Failed, Trained
from fedskew.sweep.conduct import Shift, abroad, here
from fedskew.sweep.processes import Processes
from stopped import ENDLESS, further

SMALL = {"model": "softmax", "examples": 300, "lr": 0.3, "clients": 5, "partition": "classes:2"}
TAKEN = "run {} is being trained by another process; wait for it or end it"
ROUNDS = 90


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with networks that fail: one until a file is there, one in the second round of every try."""
    (tmp_path / "broken.py").write_text(
        "from pathlib import Path\n"
        "from torch import nn\n\n\n"
        "def once(shape, classes):\n"
        "    if not Path('tried').exists():\n"
        "        Path('tried').touch()\n"
        "        raise OSError('the first try fails')\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n\n\n"
        "def always(shape, classes):\n"
        "    raise OSError('never\\nworks')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def runs_of_many_kinds(rounds=ROUNDS):
    shared = {"share": "beta=0.2,alpha=0.5", "warm_up": "rounds=2"}
    return [
        *(Run(**SMALL, rounds=rounds, seed=seed) for seed in (0, 1)),
        Run(**SMALL, rounds=rounds, algorithm="fedavgm:0.9", divergence=True),
        Run(**SMALL, rounds=rounds, algorithm="scaffold", participation=0.6),
        Run(**SMALL, rounds=rounds, **shared),
        *(Run(**SMALL | {"model": "mlp", "lr": lr}, rounds=rounds, batch=20) for lr in (0.1, 1e6)),
    ]


@pytest.fixture(scope="module")
def trained_here(tmp_path_factory):
    store, runs = Store(tmp_path_factory.mktemp("here")), runs_of_many_kinds()
    _, groups = sweep.plan(store, runs)
    assert {type(event) for event in here(store, groups)} == {Trained}
    return contents(store, runs)


def pid_of(where):
    return int(re.match(r"process (\d+) on ", where)[1])


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_same_bits_in_processes_of_which_two_are_ended(trained_here, monkeypatch):
    # A small pipe: a worker waits in the middle of its rounds until its rows are written down.
    monkeypatch.setattr(subprocess, "Popen", partial(subprocess.Popen, pipesize=4096))
    store, runs = Store(), runs_of_many_kinds()
    _, groups = sweep.plan(store, runs, hands=2)
    assert len(groups) == 3
    pids, failures = {}, []
    signals = {groups[0].ids[0]: signal.SIGKILL, groups[1].ids[0]: signal.SIGTERM}
    for event in abroad(store, groups, Processes("cpu", 2), checkpoint_seconds=0.05):
        match event:
            case Begun(ids, where):
                pids |= dict.fromkeys(ids, pid_of(where))
            case Failed():
                failures.append(event)
            case Trained(id, row) if id in signals and row.round == 3:
                os.kill(pids[id], signals.pop(id))
    how = sorted(re.search(r"ended: (.*)", failure.why)[1] for failure in failures)
    assert how == ["exit status 0", "killed by SIGKILL"]
    assert all(failure.next == "try 2 of 3" for failure in failures)
    assert contents(store, runs) == trained_here
    assert all(map(gone, pids.values()))


def test_stopped_with_a_checkpoint_nobody_left_and_on_from_there(tmp_path):
    store, runs = Store(), runs_of_many_kinds(ENDLESS)[:4]
    ids, groups = sweep.plan(store, runs, at_once=2)
    events = abroad(store, groups, Processes("cpu", 2), checkpoint_seconds=1000)
    seen, pids = {}, {}
    for event in events:
        match event:
            case Begun(begun, where):
                pids |= dict.fromkeys(begun, pid_of(where))
            case Trained(id, row):
                seen[id] = row.round
                if len(seen) == 4 and min(seen.values()) >= 3:
                    break
    events.close()
    assert len(set(pids.values())) == 2
    assert all(map(gone, pids.values()))
    for id in ids:
        entry = store.find(id)
        assert entry.status == "interrupted"
        assert seen[id] <= entry.round
        assert store.state(id)[0] == entry.round  # although no checkpoint was due
    before = [store.records(id) for id in ids]
    found, expected = further(store, runs, Store(tmp_path / "whole"))
    assert found == expected
    for id, rows in zip(ids, before, strict=True):
        assert store.records(id)[: len(rows)] == rows  # seconds and all: nothing was trained twice


@pytest.mark.parametrize("after", [False, True])
def test_a_signal_while_a_row_is_written_down_loses_no_row(tmp_path, monkeypatch, after):
    """It may come when a row is out of a worker's hands and not yet in the store; the worker is further by then."""
    store, runs = Store(), runs_of_many_kinds(ENDLESS)[:1]
    (id,), groups = sweep.plan(store, runs)
    crew, kept = Processes("cpu", 1), Shift.receive

    def struck(shift, header, blobs):
        if header["row"]["round"] != 3:
            return kept(shift, header, blobs)
        monkeypatch.setattr(Shift, "receive", kept)
        while crew.inbox.qsize() < 2:
            time.sleep(0.001)
        if after:
            kept(shift, header, blobs)
        raise KeyboardInterrupt

    monkeypatch.setattr(Shift, "receive", struck)
    with pytest.raises(KeyboardInterrupt):
        list(abroad(store, groups, crew, checkpoint_seconds=1000))
    entry = store.find(id)
    assert (entry.status, store.state(id)[0]) == ("interrupted", entry.round)
    assert entry.round > 3
    assert [row["round"] for row in store.records(id)] == list(range(1, entry.round + 1))
    found, expected = further(store, runs, Store(tmp_path / "whole"))
    assert found == expected


def told(events):
    """By runs: why they failed and what came next."""
    found = {}
    for event in events:
        if isinstance(event, Failed):
            found.setdefault(tuple(event.ids), []).append((event.why, event.next))
    return found


def runs_of_which_some_fail():
    """The third is alone; the last two train together until one of them turns out to be wrong."""
    broken = [Run(**SMALL | {"model": f"broken:{name}"}, rounds=2) for name in ("once", "always")]
    together = [Run(**SMALL | {"model": "mlp"}, rounds=2, cohort=cohort) for cohort in (6, 5)]
    return [*broken, Run(**SMALL, rounds=2), *together]


TOO_MANY = "cohort = 6, but there are only 5 clients; lower it"


def test_what_fails_once_goes_on_and_what_always_fails_stops_nobody(folder):
    store = Store()
    ids, groups = sweep.plan(store, runs_of_which_some_fail())
    assert told(here(store, groups, retries=1)) == {
        (ids[0],): [("OSError: the first try fails", "try 2 of 2")],
        (ids[1],): [("OSError: never\nworks", "try 2 of 2"), ("OSError: never\nworks", "given up")],
        (ids[3], ids[4]): [(TOO_MANY, "each is tried alone")],
        (ids[3],): [(TOO_MANY, "given up")],
    }
    statuses = [store.find(id).status for id in ids]
    assert statuses == ["finished", "failed", "finished", "failed", "finished"]
    assert [group.ids for group in sweep.plan(store, runs_of_which_some_fail())[1]] == [[ids[1]], [ids[3]]]


def test_a_worker_that_fails_is_replaced_and_what_others_train_is_left_to_them(folder):
    store = Store()
    once, _, good, wrong, fine = runs_of_which_some_fail()
    ids, groups = sweep.plan(store, [once, good, wrong, fine])
    taken, rest = sweep.plan(store, [Run(**SMALL, rounds=3, seed=seed) for seed in (0, 1)])
    with store.alone(taken[0]):
        events = list(abroad(store, [*groups, *rest], Processes("cpu", 1), retries=1))
    assert told(events) == {
        (ids[0],): [("OSError: the first try fails", "try 2 of 2")],
        (ids[2], ids[3]): [(TOO_MANY, "each is tried alone")],
        (ids[2],): [(TOO_MANY, "given up")],
        tuple(taken): [(TAKEN.format(taken[0]), "each is tried alone")],
        (taken[0],): [(TAKEN.format(taken[0]), "given up")],
    }
    assert len({event.where for event in events if isinstance(event, Begun)}) == 2
    assert [store.find(id).status for id in ids] == ["finished", "finished", "failed", "finished"]
    assert store.find(ids[2]).message == TOO_MANY
    assert [store.find(id).round for id in taken] == [0, 3]


def test_threads_are_shared_out_and_gpus_are_named(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    assert (Processes("cpu", 3).size, Processes("cpu", 3).threads) == (3, 2)
    assert (Processes("cpu").size, Processes("cpu").threads) == (8, 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    crew = Processes("auto", 3)
    assert (crew.gpus, crew.threads) == (["2", "5"], None)
    assert Processes("auto").size == 2
    try:
        visible = [_environment(crew.hire(i).child.pid)["CUDA_VISIBLE_DEVICES"] for i in range(3)]
        assert visible == ["2", "5", "2"]
        assert crew.hire(3) is None
    finally:
        crew.close()


def _environment(pid):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - until the process has become its own
            found = dict(entry.split("=", 1) for entry in file.read().decode().split("\0") if "=" in entry)
        if "CUDA_VISIBLE_DEVICES" in found:
            return found
    raise AssertionError(f"process {pid} has no CUDA_VISIBLE_DEVICES")
