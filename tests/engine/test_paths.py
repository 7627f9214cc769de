"""The laws of every fast path on a CPU: the loop's weights, for every network and for ragged cohorts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import NETWORKS, SINGLE, compare, problem_of, ragged

from fedskew import models, rng
from fedskew.engine import stacked, threaded, threads

pytestmark = pytest.mark.parametrize("local", [stacked.local, threaded.local], ids=["stacked", "threaded"])


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("momentum", [0, 0.5])
def test_every_network_equals_the_loop(local, name, momentum):
    problem = problem_of(*NETWORKS[name], weight_decay=0.01, momentum=momentum)
    with threads.restored():
        torch.set_num_threads(2)
        compare(local, problem, [7, 3, 5], epochs=2)


@settings(max_examples=25)
@given(ragged, st.integers(1, 3), st.integers(1, 6) | st.none(), st.sampled_from([0, 0.1]), st.sampled_from([0, 0.9]))
@pytest.mark.parametrize("name", ["softmax", "mlp", "kws-cnn"])
def test_ragged_cohorts_equal_the_loop(local, name, sizes, epochs, batch, weight_decay, momentum):
    problem = problem_of(*NETWORKS[name], weight_decay=weight_decay, momentum=momentum)
    compare(local, problem, sizes, epochs, batch)


@settings(max_examples=8)
@given(ragged.filter(lambda sizes: min(sizes) > 1), st.integers(2, 5))
@pytest.mark.parametrize("name", ["lahoti-cifar", "foreign"])
def test_batch_norm_and_dropout_on_ragged_cohorts(local, name, sizes, batch):
    if any(n % min(batch, n) == 1 and min(batch, n) > 1 for n in sizes):
        batch = max(sizes)  # torch refuses to normalise a batch of one example
    compare(local, problem_of(*NETWORKS[name], momentum=0.5), sizes, batch=batch)


def test_crops_and_flips_are_the_same(local):
    images = torch.from_numpy(rng.stream(0, "images").integers(0, 256, (60, 3, 12, 12), dtype=np.uint8))
    problem = replace(problem_of(models.cifar_cnn, (3, 9, 9)), x=images, transform="crop-flip")
    compare(local, problem, [7, 3], batch=4)


@pytest.mark.parametrize("name", NETWORKS)
def test_single_precision_stays_close(local, name):
    compare(local, problem_of(*NETWORKS[name], dtype=torch.float32), [6, 4], batch=2, rtol=SINGLE)
