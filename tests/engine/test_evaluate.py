"""Scores of many sets of weights at once, held to one after another; and that, to numbers counted by hand."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import NETWORKS, cohort_of, problem_of
from torch import nn

from fedskew import models, rng, tree
from fedskew.engine import evaluate as evaluation
from fedskew.engine import folded, loop, threads
from fedskew.engine.evaluate import Exam, Scores, evaluate, evaluate_many, in_threads, together
from fedskew.engine.problem import Problem, Task, weights


def exams_of(problem, runs, x, y, classes=4):
    """Weights of one client each after some training, so that batch-norm statistics differ from run to run."""
    w, stats = weights(problem.model)
    trained = loop.local(problem, Task(w, stats, cohort_of(problem, [4] * runs, batch=2)))
    return [Exam(tree.one(trained.w, k), tree.one(trained.stats, k), x, y, classes) for k in range(runs)]


def close(found, expected):
    assert found.accuracy == expected.accuracy
    assert found.loss == pytest.approx(expected.loss, rel=1e-10)
    assert found.per_class == pytest.approx(expected.per_class, rel=0, abs=0, nan_ok=True)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "foreign"])
@pytest.mark.parametrize("runs", [1, 3])
def test_every_network_of_ours_is_scored_stacked(name, runs):
    problem = problem_of(*NETWORKS[name])
    exams = exams_of(problem, runs, problem.x, problem.y)
    found = together(problem, folded.lower(problem.model), exams)
    for scores, exam in zip(found, exams, strict=True):
        close(scores, evaluate(problem, exam))
    assert len({scores.loss for scores in found}) == runs


@pytest.mark.parametrize("examples", [1, 7, 360])
@pytest.mark.parametrize("name", ["softmax", "mlp"])
def test_scores_are_the_same_bits_whoever_is_scored_beside(name, examples):
    """Of ten classes: a product ten columns wide is another than one of twenty on some processors."""
    model, g = models.build(models.MODELS[name], (1, 8, 8), 10, seed=0), rng.stream(0, "beside")
    x = torch.from_numpy(g.normal(size=(examples, 1, 8, 8))).float()
    problem = Problem(model, x, torch.from_numpy(g.integers(0, 10, examples)), "none")
    w, stats = weights(model)
    exams = [Exam({key: leaf * (1 + 0.3 * i) for key, leaf in w.items()}, stats, x, problem.y, 10) for i in range(7)]
    found = evaluate_many(problem, exams)
    assert len({scores.loss for scores in found}) == len(exams)
    for some in (slice(0, 1), slice(1, 3), slice(4, 7)):
        beside = evaluate_many(problem, exams[some])
        assert [scores.loss for scores in beside] == [scores.loss for scores in found[some]]


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "foreign"])
def test_some_examples_a_thread_score_as_all_at_once(name, monkeypatch):
    monkeypatch.setattr(evaluation, "A_THREAD", 5)
    problem = problem_of(*NETWORKS[name])
    (exam,) = exams_of(problem, 1, problem.x, problem.y)
    found = in_threads(problem, exam)
    close(found, evaluate(problem, exam))
    with threads.restored():
        torch.set_num_threads(1)
        assert in_threads(problem, exam) == found
    problem.model.load_state_dict(problem.model.state_dict())  # the network keeps its own weights
    close(in_threads(problem, exam), found)


@cache
def five(name):
    problem = problem_of(*NETWORKS[name])
    return problem, exams_of(problem, 5, problem.x, problem.y)


@settings(max_examples=15)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.integers(1, 40), st.integers(1, 40))
@pytest.mark.parametrize("name", ["mlp", "lahoti-cifar"])
def test_test_sets_of_any_size_in_any_chunks(name, where, n, chunk):
    """Exams on several test sets, in any order; class 3 has no example."""
    problem, exams = five(name)
    sets = [(problem.x[at : at + n], problem.y[at : at + n] % 3) for at in range(3)]
    exams = [replace(exam, x=sets[i][0], y=sets[i][1]) for exam, i in zip(exams, where, strict=False)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "CHUNK", chunk)
        found = together(problem, folded.lower(problem.model), exams)
    for scores, exam in zip(found, exams, strict=True):
        close(scores, evaluate(problem, exam))
        assert np.isnan(scores.per_class[3])


@pytest.mark.parametrize("name", NETWORKS)
def test_whatever_way_is_taken_the_scores_are_the_same(name):
    problem = problem_of(*NETWORKS[name])
    exams = exams_of(problem, 2, problem.x[:50], problem.y[:50])
    for scores, exam in zip(evaluate_many(problem, exams), exams, strict=True):
        close(scores, evaluate(problem, exam))


def test_images_are_cropped_alike():
    images = torch.from_numpy(rng.stream(0, "images").integers(0, 256, (60, 3, 12, 12), dtype=np.uint8))
    problem = replace(problem_of(models.cifar_cnn, (3, 9, 9)), x=images, transform="crop-flip")
    (exam,) = exams_of(problem, 1, images, problem.y)
    (scores,) = together(problem, folded.lower(problem.model), [exam])
    close(scores, evaluate(problem, exam))


def test_a_network_may_begin_with_any_layer():
    """Only a convolution and a linear layer have a form of their own for examples that all runs see."""
    for first in (nn.BatchNorm2d(3), nn.AvgPool2d(1), nn.GroupNorm(1, 3), nn.Conv2d(3, 3, 3, padding=1, bias=False)):
        layers = nn.Sequential(first, nn.Conv2d(3, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(2 * 36, 4, bias=False))
        problem = problem_of(lambda layers=layers: layers, (3, 8, 8))
        exams = exams_of(problem, 3, problem.x, problem.y)
        for scores, exam in zip(together(problem, folded.lower(problem.model), exams), exams, strict=True):
            close(scores, evaluate(problem, exam))


def test_more_runs_mean_fewer_examples_at_a_time():
    problem = problem_of(*NETWORKS["cifar-cnn"])
    widest = 64 * 8 * 8
    sizes = {r: evaluation._chunk(problem, problem.x, r) for r in (1, 100, 1000, 10**9)}
    assert sizes == {1: 1000, 100: evaluation.NUMBERS // (100 * widest), 1000: 32, 10**9: 1}


def test_evaluation_counts_by_class():
    problem = problem_of(models.softmax, (3,))
    w = {
        "fc.weight": torch.zeros(4, 3, dtype=torch.float64),
        "fc.bias": torch.tensor([0, 9.0, 0, 0]).double(),
    }
    y = torch.tensor([1] * 1500 + [0] * 700)
    low = np.log(3 + np.exp(9))
    loss = (1500 * (low - 9) + 700 * low) / 2200
    for scores in (evaluate(problem, exam := Exam(w, {}, torch.zeros(2200, 3), y, 4)), *evaluate_many(problem, [exam])):
        assert scores == Scores(1500 / 2200, pytest.approx(loss), (0.0, 1.0, *scores.per_class[2:]))
        assert np.isnan(scores.per_class[2:]).all()
    assert evaluate_many(problem, []) == []
