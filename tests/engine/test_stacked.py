"""All clients at once, held to the loop: ragged cohorts, every network, batch norm, dropout, momentum, decay."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import NETWORKS, cohort_of, compare, problem_of, ragged, terms_of

from fedskew import models, rng
from fedskew.engine import dense, folded, stacked
from fedskew.engine.problem import Task, weights
from fedskew.engine.seeded import with_seeded_dropout


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("momentum", [0, 0.5])
def test_every_network_equals_the_loop(name, momentum):
    problem = problem_of(*NETWORKS[name], weight_decay=0.01, momentum=momentum)
    compare(stacked.local, problem, [7, 3, 5], epochs=2)


def test_all_networks_of_ours_have_the_fast_form():
    for name, (factory, shape) in NETWORKS.items():
        lowered = folded.lower(with_seeded_dropout(models.build(factory, shape, 4, seed=0)))
        assert (lowered is None) == (name == "foreign"), name
    assert set(NETWORKS) - {"foreign"} == set(models.MODELS)


def test_chains_of_linear_layers_are_differentiated_by_hand():
    found = {name: dense.chain(problem_of(factory, shape)) for name, (factory, shape) in NETWORKS.items()}
    assert {name: chain for name, chain in found.items() if chain} == {
        "softmax": ["fc"],
        "mlp": ["fc1", None, "fc2", None, "fc3"],
    }
    assert dense.chain(problem_of(*NETWORKS["mlp"], momentum=0.5)) is None


@settings(max_examples=25)
@given(ragged, st.integers(1, 3), st.integers(1, 6) | st.none(), st.sampled_from([0, 0.1]), st.sampled_from([0, 0.9]))
@pytest.mark.parametrize("name", ["softmax", "mlp"])
def test_ragged_cohorts_equal_the_loop(name, sizes, epochs, batch, weight_decay, momentum):
    problem = problem_of(*NETWORKS[name], weight_decay=weight_decay, momentum=momentum)
    compare(stacked.local, problem, sizes, epochs, batch)


@settings(max_examples=8)
@given(ragged.filter(lambda sizes: min(sizes) > 1), st.integers(2, 5))
@pytest.mark.parametrize("name", ["lahoti-cifar", "foreign"])
def test_batch_norm_and_dropout_on_ragged_cohorts(name, sizes, batch):
    if any(n % min(batch, n) == 1 and min(batch, n) > 1 for n in sizes):
        batch = max(sizes)  # torch refuses to normalise a batch of one example
    compare(stacked.local, problem_of(*NETWORKS[name], momentum=0.5), sizes, batch=batch)


def test_crops_and_flips_are_the_same():
    images = torch.from_numpy(rng.stream(0, "images").integers(0, 256, (60, 3, 12, 12), dtype=np.uint8))
    problem = replace(problem_of(models.cifar_cnn, (3, 9, 9)), x=images, transform="crop-flip")
    compare(stacked.local, problem, [7, 3], batch=4)


@pytest.mark.parametrize("name", NETWORKS)
def test_single_precision_stays_close(name):
    compare(stacked.local, problem_of(*NETWORKS[name], dtype=torch.float32), [6, 4], batch=2, rtol=2e-4)


def test_it_is_the_same_from_run_to_run():
    problems = [problem_of(*NETWORKS["lahoti-cifar"], dtype=torch.float32) for _ in range(2)]
    (_, one), (_, two) = (compare(stacked.local, problem, [7, 4], rtol=2e-4) for problem in problems)
    assert all(torch.equal(one.w[key], two.w[key]) for key in one.w)


@settings(max_examples=10)
@given(ragged, st.sampled_from([0, 0.1]))
@pytest.mark.parametrize("name", ["softmax", "mlp"])
def test_bytes_are_scaled_as_in_the_loop(name, sizes, weight_decay):
    factory, shape = NETWORKS[name]
    images = torch.from_numpy(rng.stream(0, "images").integers(0, 256, (60, *shape), dtype=np.uint8))
    problem = replace(problem_of(factory, shape, weight_decay=weight_decay), x=images, transform="scale")
    compare(stacked.local, problem, sizes, epochs=2)


@pytest.mark.parametrize("parts", [(), ("pull", "shift"), ("logits",)], ids=str)
def test_threads_that_share_the_clients_out_change_no_bit(parts, one_thread):
    problem = problem_of(*NETWORKS["mlp"], dtype=torch.float32, weight_decay=0.01)
    task = Task(*weights(problem.model), cohort_of(problem, [7, 3, 5, 4, 6]), terms_of(problem, 5, *parts))
    alone = stacked.local(problem, task)
    for several in (2, 3, 8):
        torch.set_num_threads(several)
        shared = stacked.local(problem, task)
        assert torch.get_num_threads() == several
        assert all(torch.equal(alone.w[key], shared.w[key]) for key in alone.w)
        assert torch.equal(alone.loss, shared.loss)
