"""All clients at once: which networks have a faster form, bytes, threads; its laws are in test_paths.py."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import NETWORKS, SINGLE, cohort_of, compare, problem_of, ragged, terms_of

from fedskew import models, rng
from fedskew.engine import dense, folded, stacked
from fedskew.engine.problem import Task, weights
from fedskew.engine.seeded import with_seeded_dropout


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


def test_it_is_the_same_from_run_to_run():
    problems = [problem_of(*NETWORKS["lahoti-cifar"], dtype=torch.float32) for _ in range(2)]
    (_, one), (_, two) = (compare(stacked.local, problem, [7, 4], rtol=SINGLE) for problem in problems)
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


@pytest.mark.parametrize("sizes", [[[12, 12], [12, 12, 12]], [[20], [20], [20]], [[30, 11, 10], [12, 16]]], ids=str)
@pytest.mark.parametrize("name", ["softmax", "mlp"])
def test_a_run_has_the_same_bits_whatever_trains_beside_it(name, sizes, one_thread):
    """Also where a client's weights begin at odd addresses; its clients have a batch of examples at least."""
    for features, batch in itertools.product((5, 13, 30, 64), (2, 3, 10)):
        problem = problem_of(NETWORKS[name][0], (1, 1, features), dtype=torch.float32)
        cohorts = [cohort_of(problem, each, batch=batch, lr=0.1 * (i + 1)) for i, each in enumerate(sizes)]
        tasks = [Task(*weights(problem.model), cohort) for cohort in cohorts]
        for task, beside in zip(tasks, stacked.many(problem, tasks), strict=True):
            alone = stacked.local(problem, task)
            assert all(torch.equal(alone.w[key], beside.w[key]) for key in alone.w), (features, batch)
            assert torch.equal(alone.loss, beside.loss)
