"""The adaptive server optimisers against Reddi et al. 2021, Algorithm 2: the first step by hand, then by numpy."""

import numpy as np
import pytest
import torch
from handmade import cohort_of, ending_at
from hypothesis import given, settings
from hypothesis import strategies as st

from fedskew.algorithms import parse_algorithm
from fedskew.algorithms.fedopt import FedAdagrad, FedAdam, FedYogi

updates = st.lists(st.lists(st.floats(-5, 5), min_size=3, max_size=3), min_size=1, max_size=6)
START = np.array([1.0, -2.0, 0.5])


def steps(method, deltas):
    """The weights after each round in which the mean update was delta; two ragged clients share it out."""
    s = method.init({"w": torch.from_numpy(START)}, {})
    for delta in deltas:
        w, d = s["w"]["w"], torch.tensor(delta, dtype=torch.float64)
        s = method.step(s, cohort_of([3, 1]), ending_at(w + 2 * d, w - 2 * d))  # (3 * 2 - 2) / 4 = 1
        yield s["w"]["w"].numpy()


def reference(second, deltas, lr, beta1, tau):
    w, m, v = START, np.zeros(3), np.full(3, tau**2)
    for delta in np.array(deltas):
        m = beta1 * m + (1 - beta1) * delta
        v = second(v, delta**2)
        w = w + lr * m / (np.sqrt(v) + tau)
        yield w


SECONDS = {
    FedAdagrad: lambda v, square: v + square,
    FedAdam: lambda v, square: 0.95 * v + 0.05 * square,
    FedYogi: lambda v, square: v - 0.05 * square * np.sign(v - square),
}


@pytest.mark.parametrize("kind", SECONDS)
@settings(max_examples=30)
@given(updates, st.sampled_from([0.01, 1.0]), st.sampled_from([1e-3, 0.1]))
def test_rounds_follow_the_paper(kind, deltas, lr, tau):
    betas = {} if kind is FedAdagrad else {"beta1": 0.8, "beta2": 0.95}
    got = steps(kind(lr=lr, tau=tau, **betas), deltas)
    expected = reference(SECONDS[kind], deltas, lr, betas.get("beta1", 0.0), tau)
    for w, by_hand in zip(got, expected, strict=True):
        np.testing.assert_allclose(w, by_hand, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("size", [1e-5, 0.3, 40.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_first_step_in_closed_form(size, sign):
    """With the defaults, lr 0.01 (Adagrad 0.1), beta1 0.9, beta2 0.99, tau 1e-3; nothing corrects the first rounds."""
    d = sign * size
    grows = 1e-6 - 0.01 * size**2 if size**2 < 1e-6 else 1e-6 + 0.01 * size**2
    for name, moved in {
        "fedadagrad": 0.1 * d / (np.sqrt(1e-6 + d**2) + 1e-3),
        "fedadam": 0.01 * 0.1 * d / (np.sqrt(0.99 * 1e-6 + 0.01 * d**2) + 1e-3),
        "fedyogi": 0.01 * 0.1 * d / (np.sqrt(grows) + 1e-3),
    }.items():
        (w,) = steps(parse_algorithm(name), [[d, 0.0, 0.0]])
        np.testing.assert_allclose(w, START + np.array([moved, 0, 0]), rtol=1e-9, err_msg=name)


def test_yogi_forgets_more_slowly_than_adam():
    """After one large update, small ones: Adam's steps grow back at once, Yogi's hardly (Zaheer et al. 2018)."""
    deltas = [[10.0, 0.0, 0.0]] + [[0.1, 0.0, 0.0]] * 60
    adam, yogi = (
        np.diff([w[0] for w in steps(method, deltas)])[-1]
        for method in (FedAdam(beta1=0, beta2=0.9), FedYogi(beta1=0, beta2=0.9))
    )
    assert adam > 5 * yogi > 0
