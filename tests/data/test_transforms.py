import numpy as np
import pytest
import torch

from fedskew import rng
from fedskew.data import transforms
from fedskew.errors import FedskewError


def images(n=6, side=32):
    return torch.from_numpy(rng.stream(0, "images").integers(0, 256, (n, 3, side, side), dtype=np.uint8))


def test_a_crop_is_a_window_of_the_image_and_a_flip_its_mirror():
    x = images()
    drawn = torch.tensor([[0, 0, 0], [8, 8, 0], [3, 5, 0], [3, 5, 1], [8, 0, 1], [0, 8, 1]])
    got = transforms._crop(x, *drawn.T)
    for i, (top, left, flip) in enumerate(drawn.tolist()):
        window = x[i, :, top : top + 24, left : left + 24]
        assert torch.equal(got[i], window.flip(-1) if flip else window)


def test_draws_cover_every_window_and_both_sides():
    drawn = transforms.draws("crop-flip", (3, 32, 32), 5000, rng.stream(0, "draws"))
    assert drawn.min(axis=0).tolist() == [0, 0, 0]
    assert drawn.max(axis=0).tolist() == [8, 8, 1]
    assert abs(drawn[:, 2].mean() - 0.5) < 0.05


@pytest.mark.parametrize("name", ["standardise", "crop-flip"])
def test_every_image_has_mean_zero_and_deviation_one(name):
    x = transforms.testing(name, images(), torch.float64)
    torch.testing.assert_close(x.mean(dim=(1, 2, 3)), torch.zeros(6, dtype=torch.float64))
    torch.testing.assert_close(x.std(dim=(1, 2, 3), correction=0), torch.ones(6, dtype=torch.float64))


def test_a_flat_image_is_not_divided_by_zero():
    assert transforms.testing("standardise", torch.full((1, 3, 4, 4), 7, dtype=torch.uint8)).abs().max() == 0


def test_the_test_image_is_the_centre():
    x = images()
    got = transforms.testing("crop-flip", x)
    same = transforms.training("crop-flip", x, torch.tensor([[4, 4, 0]] * 6))
    assert got.shape == (6, 3, 24, 24)
    torch.testing.assert_close(got, same)


def test_scale_takes_bytes_to_the_unit_interval_and_leaves_floats():
    assert transforms.testing("scale", torch.tensor([[0, 255]], dtype=torch.uint8)).tolist() == [[0.0, 1.0]]
    assert transforms.testing("scale", torch.tensor([[3.5]])).tolist() == [[3.5]]
    assert transforms.testing("none", torch.tensor([[7]], dtype=torch.uint8)).tolist() == [[7.0]]


def test_a_crop_of_something_that_is_no_image_is_refused():
    with pytest.raises(FedskewError, match="crop-flip needs images"):
        transforms.output_shape("crop-flip", (64,))
