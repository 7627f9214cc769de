"""The weights a run begins with: a file or another run, and resuming what was prepared."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import pytest
import safetensors.torch
import torch
from small_runs import expected, plain, rows, stop_after

from fedskew import models
from fedskew.errors import FedskewError
from fedskew.run import Run
from fedskew.store import Store
from fedskew.store.entry import checkpoint_name
from stopped import ENDLESS, further

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = {"data": "digits", "examples": 600, "model": "softmax", "partition": "classes:2", "clients": 5, "lr": 0.5}
PREPARED = {"share": "beta=0.1,alpha=0.5", "warm_up": "rounds=3"}


def small(**fields):
    return Run(**(SMALL | {"rounds": 3} | fields))


def finished(store, **fields):
    id = store.create(small(**fields))
    *_, last = store.advance(id)
    return id, last.state


def test_a_run_begins_with_another_runs_weights(store):
    id, state = finished(store)
    run = small(start=f"run:{id[:6]}", partition="iid", seed=3)
    given = list(store.advance(store.create(run)))
    assert given[0].round == 0
    assert all(torch.equal(given[0].state["w"][k], state["w"][k]) for k in state["w"])
    assert given[0].accuracy == store.find(id).accuracy
    assert given[0].prepared == {}
    assert [json.loads(json.dumps(plain(row.record()))) for row in given] == expected(run, initial=state["w"])


@pytest.mark.parametrize("kind", ["a network's state_dict", "one of our checkpoints", "another precision"])
def test_a_run_begins_with_a_file(store, tmp_path, kind):
    id, state = finished(store, algorithm="fedavgm:0.9")
    path = tmp_path / "weights.safetensors"
    if kind == "one of our checkpoints":
        path.write_bytes((store.folder / id / checkpoint_name(3)).read_bytes())
    else:
        safetensors.torch.save_file(
            {k: w.double() if kind == "another precision" else w for k, w in state["w"].items()}, path
        )
    with closing(store.advance(store.create(small(start=str(path))))) as given:
        row = next(given)
    assert all(torch.equal(row.state["w"][k], state["w"][k]) for k in state["w"])
    assert row.state["w"]["fc.weight"].dtype == torch.float32


def test_batch_norm_statistics_come_along(store, tmp_path):
    """A plain state_dict of a network with batch norm: parameters, running statistics and counters under one roof."""
    network = models.build(models.find("lahoti-cifar", "cifar10"), (3, 32, 32), 10, 5)
    for name, buffer in network.named_buffers():
        if name.endswith("running_mean"):
            buffer.fill_(0.25)
    path = tmp_path / "net.safetensors"
    safetensors.torch.save_file(dict(network.state_dict()), path)
    data = tmp_path / "colours.npz"
    g = np.random.default_rng(0)
    np.savez(data, x=g.integers(0, 256, (40, 3, 32, 32), dtype=np.uint8), y=np.arange(40) % 10)
    run = Run(data=str(data), model="lahoti-cifar", clients=2, rounds=1, start=str(path))
    with closing(store.advance(store.create(run))) as given:
        row = next(given)
    means = [leaf for name, leaf in row.state["stats"].items() if name.endswith("running_mean")]
    assert means
    assert all((leaf == 0.25).all() for leaf in means)
    lender = store.create(run)
    *_, last = store.advance(lender)
    with closing(store.advance(store.create(run.model_copy(update={"start": f"run:{lender}"})))) as given:
        lent = next(given).state["stats"]
    assert all(torch.equal(lent[name], leaf) for name, leaf in last.state["stats"].items())
    assert not torch.equal(lent["norm1.running_mean"], row.state["stats"]["norm1.running_mean"])


def test_an_unfinished_run_lends_its_last_checkpoint(store):
    id = store.create(small(rounds=9))
    with pytest.raises(FedskewError, match=f"start run:{id}: that run has no checkpoint; train it first"):
        store.create(small(start=f"run:{id}"))
    stop_after(store, id, 2)
    round, state = store.state(id)
    assert round == 2
    borrower = store.create(small(start=f"run:{id}"))
    with closing(store.advance(borrower)) as given:
        assert torch.equal(next(given).state["w"]["fc.weight"], state["w"]["fc.weight"])


@pytest.mark.parametrize(
    ("start", "says"),
    [
        ("nowhere.safetensors", "there is no such file; give a .safetensors file or run:ID"),
        ("text.safetensors", "is not a safetensors file"),
        ("pickle.safetensors", "is not a safetensors file"),
        ("folder", "is not a safetensors file"),
        ("run:../x", "is not 2 to 8 of the characters"),
        ("run:abcd", "no run 'abcd'"),
    ],
)
def test_a_start_that_cannot_be_read_is_one_line_and_leaves_no_run(store, tmp_path, monkeypatch, start, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.safetensors").write_text("hello")
    (tmp_path / "folder").mkdir()

    class Bomb:
        def __reduce__(self):
            return (os.mkdir, ("boom",))

    (tmp_path / "pickle.safetensors").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(FedskewError) as error:
        store.create(small(start=start))
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert store.runs() == []
    assert not (tmp_path / "boom").exists()


@pytest.mark.parametrize(
    ("model", "says"),
    [("mlp", "is missing"), ("wide", "fc.weight has shape (10, 64), but the network's is (10, 128)")],
)
def test_another_networks_weights_are_refused(store, tmp_path, model, says):
    _, state = finished(store)
    path = tmp_path / "softmax.safetensors"
    safetensors.torch.save_file(state["w"], path)
    run = small(start=str(path), model=wide if model == "wide" else model)
    with pytest.raises(FedskewError) as error:
        next(store.advance(store.create(run)))
    assert says in str(error.value)
    assert "these are another network's weights" in str(error.value)
    assert "\n" not in str(error.value)


def wide():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.ZeroPad1d((0, 64)))
    net.add_module("fc", torch.nn.Linear(128, 10))
    return net


def test_a_file_that_changed_is_refused_until_it_was_used(store, tmp_path):
    """Before the first checkpoint the weights are needed again; after it they are not."""
    _, state = finished(store)
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(state["w"], path)
    run = small(start=str(path))
    whole = expected(run, initial=state["w"])
    early, late = store.create(run), store.create(run)
    stop_after(store, late, 0)
    safetensors.torch.save_file({k: w + 1 for k, w in state["w"].items()}, path)
    with pytest.raises(FedskewError, match="start changed since its start"):
        next(store.advance(early))
    path.unlink()
    assert len(list(store.advance(late))) == 3
    assert rows(store, late) == whole


def test_without_a_whole_checkpoint_the_start_is_read_again(store, caplog):
    lender, _ = finished(store)
    run = small(start=f"run:{lender}", **PREPARED)
    id = store.create(run)
    stop_after(store, id, 1, checkpoint_seconds=0)
    whole = rows(store, id)
    for path in (store.folder / id).glob("round-*.safetensors"):
        path.write_bytes(b"")
    list(store.advance(id))
    assert "the run starts again" in caplog.text
    assert rows(store, id)[:2] == whole
    assert store.find(id).status == "finished"


@pytest.mark.parametrize("method", ["fedavg", "fedavgm:0.9", "scaffold", "sgd"])
@pytest.mark.parametrize("seconds", [0.0, 1000.0], ids=["every round", "when asked"])
def test_a_prepared_run_goes_on_bit_for_bit_from_row_0_and_later(store, method, seconds):
    run = small(algorithm=method, divergence=method != "sgd", participation=0.6, **PREPARED)
    id = store.create(run)
    stop_after(store, id, 0, checkpoint_seconds=seconds)
    assert (store.find(id).status, store.find(id).round) == ("interrupted", 0)
    assert [c["round"] for c in store.checkpoints(id)] == [0]  # warm-up is not done twice
    first = store.records(id)
    stop_after(store, id, 2, checkpoint_seconds=seconds)
    assert store.records(id)[:1] == first  # seconds and all
    list(store.advance(id))
    assert rows(store, id) == expected(run)
    assert [r["round"] for r in rows(store, id)] == [0, 1, 2, 3]
    assert store.find(id).status == "finished"


SCRIPT = """
import sys
import torch
torch.set_num_threads(1)
from fedskew.store import Store
for row in Store().advance(sys.argv[1], checkpoint_seconds=float(sys.argv[2])):
    print(row.round, flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(("seconds", "until"), [("1000", "0"), ("0", "1")])
def test_a_prepared_run_that_was_killed_goes_on_bit_for_bit(seconds, until, tmp_path):
    store = Store()
    run = small(rounds=ENDLESS, batch=None, divergence=True, **PREPARED | {"warm_up": 0.5})
    id = store.create(run)
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, id, seconds], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.strip() == until:
            break
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    process.stdout.close()
    while store.find(id).status == "running":
        time.sleep(0.02)
    stopped, straight = further(store, [run], Store(tmp_path / "whole"))
    assert stopped == straight


def test_the_shared_set_is_part_of_the_fingerprint(store):
    id, other = store.create(small(**PREPARED)), store.create(small(**PREPARED, seed=1))
    prints = [store.find(i).fingerprint["shared"] for i in (id, other)]
    assert prints[0] != prints[1]
    assert "shared" not in store.find(store.create(small())).fingerprint
    with pytest.raises(FedskewError, match="change beta or holdout"):
        store.create(small(share="beta=0.9"))
    assert len(store.runs()) == 3
