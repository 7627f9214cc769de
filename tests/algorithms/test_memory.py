"""What methods remember of single clients: how much, where, and exactly enough to go on."""

import pytest
import torch
from handmade import Federation, assert_same, tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from fedskew import Run, from_arrays, rng, train, tree
from fedskew.algorithms import parse_algorithm
from fedskew.store.checkpoints import pack, unpack

REMEMBER = {"scaffold": "c", "feddyn:0.1": "h", "moon:1": "previous"}


def table():
    """Twelve ragged users of five features, four classes."""
    g = rng.stream(0, "users")
    users = g.choice(12, 240, p=rng.stream(1, "users").dirichlet([3] * 12))
    y = (g.integers(0, 2, 240) + users) % 4
    x = g.normal(size=(240, 5)) + y[:, None]
    return from_arrays(x, y, x[:80], y[:80], groups=users)


DATA = table()
SMALL = {"data": "arrays", "model": tiny, "partition": "groups", "batch": 4, "lr": 0.1, "cohort": 3, "rounds": 5}


def rows(algorithm, device="cpu", **options):
    return list(train(Run(**SMALL, algorithm=algorithm), data=DATA, device=device, **options))


def memory(state):
    return {key: leaves for key, leaves in state.items() if key.startswith("client.")}


@settings(max_examples=6)
@given(st.lists(st.sets(st.integers(0, 4), min_size=1).map(sorted), min_size=1, max_size=4))
@pytest.mark.parametrize("method", REMEMBER)
def test_memory_grows_with_those_who_took_part_and_is_theirs_alone(method, schedule):
    before, seen = {}, set()
    states = Federation([3, 8, 5, 2, 4]).rounds(parse_algorithm(method), schedule)
    assert memory(next(states)) == {}
    for clients, s in zip(schedule, states, strict=True):
        seen |= set(clients)
        after = memory(s)
        assert set(after) == {f"client.{k}.{REMEMBER[method]}" for k in seen}
        for key, leaves in after.items():
            assert list(leaves) == list(s["w"])
            k = int(key.split(".")[1])
            if k in clients:
                for leaf in leaves.values():  # its own memory, not a view of the cohort's
                    assert leaf.untyped_storage().nbytes() == leaf.numel() * leaf.element_size()
            else:
                assert leaves is before[key]  # kept as it was
        before = after


@pytest.mark.parametrize("method", REMEMBER)
def test_a_run_remembers_no_more_clients_than_have_trained(method):
    known = set()
    for row in rows(method):
        now = memory(row.state)
        assert len(set(now) - known) <= 3
        assert sum(map(tree.nbytes, now.values())) == len(now) * tree.nbytes(row.state["w"])
        known |= set(now)
        assert set(now) == known
    assert 3 < len(known) < 12


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "fednova", "fedadam", "fedavgm", "swa:0.5"])
def test_other_methods_remember_no_client(method):
    assert memory(rows(method)[-1].state) == {}


def numbers(row):
    return {key: value for key, value in row.record().items() if key != "seconds"}


def assert_same_states(a, b):
    assert list(a) == list(b)
    for key in a:
        assert_same(a[key], b[key], 0)


@pytest.mark.parametrize(
    "method",
    [
        *("scaffold", "scaffold,keep=cpu", "feddyn:0.1", "moon", "fedavg,swa=0.7", "moon:0.5,swa=0.7,loss=restricted"),
        *("fedadam", "fedavgm,mean=median,swa=0.7"),
    ],
)
def test_a_run_goes_on_from_a_saved_state_bit_for_bit(method):
    whole = rows(method)
    at = whole[2]
    rest = rows(method, start=unpack(pack(at.state)), first_round=at.round + 1)
    assert [numbers(row) for row in rest] == [numbers(row) for row in whole[3:]]
    assert_same_states(dict(sorted(rest[-1].state.items())), dict(sorted(whole[-1].state.items())))


@pytest.mark.parametrize("method", REMEMBER)
def test_where_memory_lives_changes_no_number(method):
    here, there = rows(method), rows(f"{method},keep=cpu")
    assert [numbers(row) for row in here] == [numbers(row) for row in there]
    assert_same_states(here[-1].state, there[-1].state)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("method", REMEMBER)
def test_memory_of_a_gpu_run_can_live_on_the_cpu(method):
    found = {}
    for keep, place in (("device", "cuda"), ("cpu", "cpu")):
        found[keep] = rows(f"{method},keep={keep}", device="cuda")
        for row in found[keep]:
            assert {x.device.type for leaves in memory(row.state).values() for x in leaves.values()} == {place}
            assert {x.device.type for x in row.state["w"].values()} == {"cuda"}
    assert [numbers(row) for row in found["device"]] == [numbers(row) for row in found["cpu"]]
    at = found["cpu"][2]
    rest = rows(f"{method},keep=cpu", device="cuda", start=unpack(pack(at.state)), first_round=4)
    assert [numbers(row) for row in rest] == [numbers(row) for row in found["cpu"][3:]]


def test_swa_tests_the_mean_of_the_last_rounds_and_changes_nothing_else():
    plain, swa = rows("fedavg"), rows("swa:0.6")  # the last three of five rounds
    model = tiny((5,), 4)
    x, y = torch.from_numpy(DATA.x_test), torch.from_numpy(DATA.y_test)
    for t, (a, b) in enumerate(zip(plain, swa, strict=True), start=1):
        assert_same(a.state["w"], b.state["w"], 0)
        assert (a.loss, a.examples) == (b.loss, b.examples)
        if t < 3:
            assert a.test_loss == b.test_loss
            assert "swa.w" not in b.state
            continue
        last = [row.state["w"] for row in plain[2:t]]
        mean = tree.apply(lambda *leaves: torch.stack(leaves).mean(dim=0), *last)
        assert_same(b.state["swa.w"], mean, 1e-6)
        with torch.no_grad():
            z = torch.func.functional_call(model, mean, (x,))
        assert b.accuracy == pytest.approx(float((z.argmax(dim=1) == y).double().mean()))
        assert b.test_loss == pytest.approx(float(torch.nn.functional.cross_entropy(z, y)), rel=1e-5)
    assert swa[-1].test_loss != plain[-1].test_loss
