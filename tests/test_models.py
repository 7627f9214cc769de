import pytest
import torch
from torch import nn

from fedskew import models
from fedskew.errors import FedskewError

WEIGHTS = {
    ("softmax", (1, 28, 28)): 784 * 10 + 10,
    ("mlp", (1, 28, 28)): 199_210,
    ("mnist-cnn", (1, 28, 28)): 1_663_370,
    ("cifar-cnn", (3, 24, 24)): 1_068_298,
    ("kws-cnn", (1, 50, 10)): 68_980,
    ("lahoti-mnist", (1, 28, 28)): 21_840,
    ("lahoti-cifar", (3, 32, 32)): 2_168_746,
    ("resnet8", (3, 32, 32)): 75_290,
    ("resnet20", (3, 32, 32)): 269_722,
}


@pytest.mark.parametrize(("name", "shape"), WEIGHTS)
def test_weight_counts_are_the_papers(name, shape):
    model = models.build(models.find(name), shape, 10, seed=0)
    assert sum(p.numel() for p in model.parameters()) == WEIGHTS[name, shape]
    assert model(torch.zeros(3, *shape)).shape == (3, 10)


def test_every_model_is_counted():
    assert {name for name, _ in WEIGHTS} == set(models.MODELS)


def test_weights_depend_on_the_seed_alone():
    torch.manual_seed(1)
    a = models.build(models.mlp, (1, 8, 8), 10, seed=3)
    torch.manual_seed(2)
    b = models.build(models.mlp, (1, 8, 8), 10, seed=3)
    c = models.build(models.mlp, (1, 8, 8), 10, seed=4)
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.fc1.weight, c.fc1.weight)


def test_building_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    models.build(models.lahoti_cifar, (3, 32, 32), 10, seed=0)
    assert torch.equal(torch.rand(3), expected)


def own_model():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def test_a_users_model_by_name_and_by_function():
    named = models.find(f"{__name__}:own_model")
    assert named is own_model
    assert isinstance(models.build(named, (1, 8, 8), 10, seed=0), nn.Sequential)


@pytest.mark.parametrize(
    ("name", "says"),
    [("nope", "choose one of softmax"), ("no.such.module:f", "PYTHONPATH"), ("math:pi", "not callable")],
)
def test_a_model_that_cannot_be_found_is_one_line(name, says):
    with pytest.raises(FedskewError, match=says):
        models.find(name)


def test_a_model_that_does_not_fit_says_so():
    with pytest.raises(FedskewError, match=r"shape \(channels, height >= 20"):
        models.build(models.kws_cnn, (1, 8, 8), 10, seed=0)
    with pytest.raises(FedskewError, match="does not take examples of shape"):
        models.build(own_model, (1, 9, 9), 10, seed=0)
    with pytest.raises(FedskewError, match=r"should be \(2, 7 classes\)"):
        models.build(own_model, (1, 8, 8), 7, seed=0)
