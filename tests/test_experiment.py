"""Laws of the round loop on real digits."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from fedskew import rng
from fedskew.data import datasets
from fedskew.errors import FedskewError
from fedskew.experiment import train
from fedskew.rounds import Row
from fedskew.run import Run
from fedskew.sides import split

SMALL = {"data": "digits", "model": "softmax", "rounds": 3, "lr": 0.5, "batch": 10}


def last(run, **options):
    *_, row = train(run, **options)
    return row


def numbers(row):
    return {k: v for k, v in row.record().items() if k != "seconds"}


def test_one_client_is_sgd():
    """The same examples in the same batches; only the streams have different names, so a full batch shows it."""
    alone = last(Run(**SMALL | {"batch": None}, partition="iid", clients=1))
    sgd = last(Run(**SMALL | {"batch": None}, partition="iid", clients=1, algorithm="sgd"))
    torch.testing.assert_close(alone.state["w"], sgd.state["w"])


def test_full_batch_fedavg_of_one_step_is_sgd_whatever_the_partition():
    """McMahan's FedSGD: with E = 1 and B = everything the average of gradients is the gradient."""
    options = SMALL | {"batch": None, "clients": 10}
    skewed = last(Run(**options, partition="classes:1,keep"))
    sgd = last(Run(**options, partition="classes:1,keep", algorithm="sgd"))
    torch.testing.assert_close(skewed.state["w"], sgd.state["w"], rtol=1e-4, atol=1e-6)


def test_divergence_is_zero_for_sgd_and_grows_with_skew():
    run = lambda **kw: last(Run(**SMALL, clients=10, divergence=True, **kw))  # noqa: E731
    assert run(partition="iid", algorithm="sgd").divergence["relative"]["total"] == 0
    iid, one = run(partition="iid"), run(partition="classes:1")
    assert 0 < iid.divergence["relative"]["total"] < one.divergence["relative"]["total"]
    assert set(one.divergence["rms"]["layers"]) == {"fc"}


def test_emd_is_that_of_the_cohort():
    rows = list(train(Run(**SMALL, partition="classes:1", clients=10, cohort=3)))
    assert all(row.clients == 3 for row in rows)
    assert all(1.7 < row.emd <= 1.8 for row in rows)
    assert last(Run(**SMALL, partition="classes:1", clients=10, algorithm="sgd")).emd == 0


def test_learning_rate_follows_the_round():
    rows = list(train(Run(**SMALL, lr_decay=0.5)))
    assert [row.lr for row in rows] == [0.5, 0.25, 0.125]


def test_a_decayed_rate_is_the_rate_that_trains():
    flat, decayed = (last(Run(**SMALL, lr_decay=d)).state["w"]["fc.weight"] for d in (1.0, 1e-6))
    first = last(Run(**SMALL | {"rounds": 1})).state["w"]["fc.weight"]
    torch.testing.assert_close(decayed, first, rtol=1e-3, atol=1e-4)
    assert (flat - first).abs().max() > 0.01


@pytest.mark.parametrize("engine", ["loop", "stacked", "threaded"])
def test_a_cosine_falls_to_nothing_and_is_the_rate_that_trains(engine):
    """Half a cosine over the rounds: the whole rate first, half of it in the middle; decay comes on top."""
    run = Run(**SMALL | {"rounds": 4}, lr_schedule="cosine", lr_decay=0.5)
    rows = list(train(run, engine=engine))
    share = [(1 + math.cos(math.pi * t / 4)) / 2 for t in range(4)]
    assert [row.lr for row in rows] == pytest.approx([0.5 * 0.5**t * s for t, s in enumerate(share)])
    assert share[2] == 0.5
    moved = {}
    for schedule in ("constant", "cosine"):
        first, *_, before, end = train(
            Run(**SMALL | {"rounds": 30, "examples": 200}, lr_schedule=schedule), engine=engine
        )
        moved[schedule] = (end.state["w"]["fc.weight"] - before.state["w"]["fc.weight"]).norm().item()
        assert first.lr == 0.5
    assert moved["cosine"] < 0.05 * moved["constant"]


def test_participation_is_seeded_and_as_large_as_asked():
    run = Run(**SMALL, partition="iid", clients=20, participation=0.25)
    rows = list(train(run))
    assert [row.clients for row in rows] == [5, 5, 5]
    again = list(train(run))
    assert [numbers(r) for r in rows] == [numbers(r) for r in again]
    other = list(train(run.model_copy(update={"seed": 1})))
    assert [r.loss for r in rows] != [r.loss for r in other]


def test_bytes_are_weights_times_clients_both_ways():
    row = last(Run(**SMALL, partition="iid", clients=20, cohort=4))
    assert row.bytes_up == row.bytes_down == 4 * 650 * 4
    assert 4 * 71 <= row.examples <= 4 * 72  # 1,437 examples over 20 clients


def test_evaluation_happens_when_asked_and_at_the_end():
    rows = list(train(Run(**SMALL | {"rounds": 5}, eval_every=2)))
    assert [row.accuracy is not None for row in rows] == [False, True, False, True, True]
    assert len(rows[-1].per_class) == 10
    assert np.mean(rows[-1].per_class) == pytest.approx(rows[-1].accuracy, abs=0.02)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedavgm:0.9", "sgd"])
@pytest.mark.parametrize("divergence", [False, True])
def test_going_on_from_a_row_is_exact(algorithm, divergence):
    run = Run(**SMALL | {"rounds": 4}, clients=5, algorithm=algorithm, divergence=divergence)
    whole = list(train(run))
    rest = list(train(run, start=whole[1].state, first_round=3))
    assert [numbers(r) for r in rest] == [numbers(r) for r in whole[2:]]
    assert all(torch.equal(rest[-1].state["w"][k], whole[-1].state["w"][k]) for k in whole[-1].state["w"])


@pytest.mark.parametrize("round_", [0, 1])
def test_going_on_from_a_prepared_row_is_exact(round_):
    run = Run(**SMALL, partition="classes:1", clients=10, share="beta=0.1,alpha=0.5", warm_up=0.6, divergence=True)
    whole = list(train(run))
    rest = list(train(run, start=whole[round_].state, first_round=round_ + 1))
    assert [numbers(r) for r in rest] == [numbers(r) for r in whole[round_ + 1 :]]


SCRIPT = """
import json
import math
from fedskew import Run, train
run = Run(model="mlp", partition="dirichlet:0.1", algorithm="fedavgm:0.9", lr=0.05, rounds=3, divergence=True)
print(json.dumps([{k: v for k, v in row.record().items() if k != "seconds"} for row in train(run)]))
"""


def test_seeds_give_bit_identical_rows_in_two_processes():
    one, two = (subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True) for _ in range(2))
    assert one.stdout == two.stdout
    assert len(json.loads(one.stdout)) == 3


def test_a_row_survives_json():
    for row in train(Run(**SMALL, divergence=True, share="beta=0.1")):
        assert Row.from_record(json.loads(json.dumps(row.record()))) == row


def test_divergence_to_nan_ends_the_run():
    rows = list(train(Run(**SMALL | {"rounds": 50, "lr": 1e30, "model": "mlp"})))
    assert len(rows) < 50
    assert rows[-1].diverged
    assert not any(row.diverged for row in rows[:-1])


def test_batch_norm_and_dropout_train_in_the_round_loop():
    data = datasets.from_arrays(
        np.random.default_rng(0).integers(0, 256, (60, 3, 8, 8), dtype=np.uint8), np.arange(60) % 10
    )
    row = last(Run(model="lahoti-cifar", clients=3, rounds=2, algorithm="fedavgm:0.9", batch=8), data=data)
    assert row.state["stats"]["norm1.num_batches_tracked"].dtype == torch.int64
    assert (row.state["stats"]["norm1.running_var"] > 0).all()


def own_network():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))


def test_a_users_network_as_a_function():
    run = Run(**SMALL | {"model": own_network})
    assert last(run).accuracy > 0.5
    assert run.spec()["model"] == f"{__name__}:own_network"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"lr": -1}, "lr = -1: it should be greater than 0"),
        ({"lr": float("nan")}, "lr = nan: it should be a finite number"),
        ({"speed": 3}, "unknown key 'speed'"),
        ({"partition": "classes:0"}, "classes"),
        ({"partition": "dirichlet:-1"}, "alpha"),
        ({"participation": 0.5, "cohort": 3}, "give one of them"),
        ({"participation": 1.5}, "participation"),
    ],
)
def test_a_wrong_spec_is_one_line_with_field_value_and_rule(fields, says):
    with pytest.raises(FedskewError) as error:
        Run(**fields)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"clients": 5000}, "5000"),
        ({"partition": "emd:1.95"}, "the largest is 1.8"),
        ({"cohort": 11}, "only 10 clients"),
        ({"examples": 10**6}, "has only 1437"),
        ({"data": "nope"}, "nope"),
        ({"model": "kws-cnn"}, "choose another model"),
        ({"partition": "groups"}, "groups"),
    ],
)
def test_a_spec_that_does_not_fit_the_data_is_one_line(fields, says):
    with pytest.raises(FedskewError) as error:
        next(train(Run(**{"partition": "iid", **fields})))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_device_is_one_line():
    with pytest.raises(FedskewError, match="device 'toaster' cannot be used here"):
        next(train(Run(), device="toaster"))
    if not torch.cuda.is_available():
        with pytest.raises(FedskewError, match="device 'cuda' cannot be used here"):
            next(train(Run(), device="cuda"))


def test_a_part_of_the_training_set():
    parts = split(Run(examples=200, clients=4), datasets.load("digits"))
    assert len({*np.concatenate(parts).tolist()}) == sum(map(len, parts)) == 200
    assert max(map(max, parts)) > 1000


def test_specs_round_trip_through_json_and_toml():
    run = Run(data="digits", partition="dirichlet:0.1", clients=7, algorithm="fedavgm:0.97,plain", batch=None)
    assert Run(**json.loads(json.dumps(run.spec()))) == run
    assert Run.from_toml('batch = "full"') == Run(batch=None)
    toml = 'partition = "dirichlet:0.1"\nclients = 7\nalgorithm = "fedavgm:0.97,plain"\nlr = 0.2'
    assert Run.from_toml(toml) == Run(partition="dirichlet:0.1", clients=7, algorithm="fedavgm:0.97,plain", lr=0.2)
    with pytest.raises(FedskewError, match="not valid TOML"):
        Run.from_toml("lr = ")


def test_read_only_arrays_train_without_a_word():
    x = np.frombuffer(rng.stream(0, "pixels").bytes(60 * 64), np.uint8).reshape(60, 1, 8, 8)
    data = datasets.from_arrays(x, np.arange(60) % 10, x, np.arange(60) % 10)
    assert not data.x.flags.writeable
    assert last(Run(**SMALL, clients=3), data=data).examples == len(data.y)
