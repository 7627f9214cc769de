import pytest
import torch
from oracle import cohort_of, problem_of
from torch import nn

from fedskew import models
from fedskew.engine.pick import pick

ALIKE = [6] * 10


def picked(factory, shape, sizes=ALIKE, batch=2):
    problem = problem_of(factory, shape, dtype=torch.float32)
    return pick(problem, cohort_of(problem, sizes, batch=batch))


@pytest.mark.parametrize(
    ("factory", "shape", "way"),
    [
        (models.softmax, (1, 28, 28), "stacked"),
        (models.mlp, (1, 8, 8), "stacked"),
        (models.mnist_cnn, (1, 8, 8), "threaded"),
        (models.kws_cnn, (1, 22, 8), "threaded"),
        (models.resnet8, (3, 8, 8), "threaded"),
        (lambda: nn.Sequential(nn.Linear(5, 4), nn.Softplus()), (5,), "threaded"),  # a layer we do not know
    ],
)
def test_dense_networks_are_stacked_and_the_rest_is_threaded(factory, shape, way):
    assert picked(factory, shape) == way


def test_bfloat16_is_trained_in_threads():
    problem = problem_of(models.softmax, (5,), dtype=torch.float32, half=True)
    assert pick(problem, cohort_of(problem, ALIKE, batch=2)) == "threaded"


def test_very_ragged_clients_and_momentum_speak_against_stacking():
    assert picked(models.softmax, (5,), sizes=[42, *[2] * 9]) == "threaded"
    assert picked(models.softmax, (5,), sizes=[6]) == "stacked"
    problem = problem_of(models.softmax, (5,), dtype=torch.float32, momentum=0.9)
    assert pick(problem, cohort_of(problem, ALIKE, batch=2)) == "threaded"
