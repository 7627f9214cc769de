"""Both ways of convolving for all clients at once, held to one client after another."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from fedskew.engine import convolutions
from fedskew.engine.convolutions import MOST_PATCHES, Shape, by_patches, convolve, grouped, patches

pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
paddings = st.tuples(st.integers(0, 2), st.integers(0, 2))


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()


def one_by_one(x, w, bias, *how):
    images = x.unflatten(1, (len(w), -1)).unbind(1)
    biases = [None] * len(w) if bias is None else bias
    return torch.cat([F.conv2d(*parts, *how) for parts in zip(images, w, biases, strict=True)], dim=1)


def with_gradients(way, x, w, bias, *how):
    y = way(x, w, bias, *how)
    above = normal(*y.shape).detach()
    return y, torch.autograd.grad(y, [x, w] if bias is None else [x, w, bias], above)


@settings(max_examples=60)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), pairs, pairs, paddings, pairs, st.booleans())
@pytest.mark.parametrize("way", [patches, grouped, convolve])
def test_both_ways_equal_the_loop(way, clients, batch, channels, kernel, stride, padding, dilation, has_bias):
    x = normal(batch, clients * channels, 9, 8)
    w = normal(clients, 2, channels, *kernel)
    bias = normal(clients, 2) if has_bias else None
    expected = with_gradients(one_by_one, x, w, bias, stride, padding, dilation)
    torch.testing.assert_close(
        with_gradients(way, x, w, bias, stride, padding, dilation), expected, rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("clients", [1, 3])
def test_images_that_all_clients_see(clients):
    x, w, bias = normal(4, 2, 6, 5), normal(clients, 3, 2, 3, 3), normal(clients, 3)
    how = (1, 1), (1, 1), (1, 1)
    torch.testing.assert_close(convolve(x, w, bias, *how), one_by_one(x.repeat(1, clients, 1, 1), w, bias, *how))


class Largest(TorchDispatchMode):
    """The type of the tensor with the most numbers that was written first."""

    numel, dtype = 0, None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **kwargs or {})
        if out.numel() > self.numel and out.is_contiguous():
            self.numel, self.dtype = out.numel(), out.dtype
        return out


def test_mixed_precision_rounds_before_there_are_patches():
    x, w, bias = (a.float().detach() for a in (normal(2, 6, 8, 8), normal(2, 4, 3, 3, 3), normal(2, 4)))
    how = (1, 1), (1, 1), (1, 1)
    with torch.autocast("cpu", torch.bfloat16), Largest() as largest:
        found = patches(x, w, bias, *how)
    assert largest.numel == 2 * 2 * 27 * 64
    assert largest.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), one_by_one(x, w, bias, *how), rtol=0.05, atol=0.1)


def shape_of(**changed):
    usual = {"device": "cpu", "dtype": torch.float32, "clients": 10, "batch": 10, "channels": 3, "outputs": 32}
    return Shape(**usual | {"kernel": (3, 3), "pixels": 32 * 32} | changed)


def test_the_choice_depends_on_the_shape_alone():
    assert by_patches(shape_of())
    assert by_patches(shape_of(clients=100)) == by_patches(shape_of(clients=2))
    assert not by_patches(shape_of(channels=16))
    assert by_patches(shape_of(device="cuda", dtype=torch.float64, channels=64))
    assert by_patches(shape_of(device="cuda", channels=64, batch=10))
    assert not by_patches(shape_of(device="cuda", channels=3, batch=100))
    assert not by_patches(shape_of(device="cuda", channels=3, dtype=torch.bfloat16))
    assert not by_patches(shape_of(batch=MOST_PATCHES // (10 * 3 * 9 * 32 * 32) + 1))  # too much memory


def test_convolve_takes_the_way_that_was_chosen(monkeypatch):
    seen = []
    x, w = normal(2, 6, 9, 8), normal(3, 4, 2, 3, 2)
    for choice in (True, False):
        monkeypatch.setattr(convolutions, "by_patches", lambda shape, choice=choice: seen.append(shape) or choice)
        y = convolve(x, w, None, (2, 1), (1, 0), (1, 2))
        way = patches if choice else grouped
        assert torch.equal(y, way(x, w, None, (2, 1), (1, 0), (1, 2)))
    assert seen[0] == Shape("cpu", torch.float64, 3, 2, 2, 4, (3, 2), y.shape[2] * y.shape[3])
