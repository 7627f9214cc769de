"""The stacked engine on a real GPU, held to the loop there."""

import numpy as np
import pytest
import torch

from fedskew import Run, from_arrays, models, rng, train, tree
from fedskew.engine import convolutions, loop
from fedskew.engine.batches import Plan, cohort
from fedskew.engine.choose import many_of, set_precision
from fedskew.engine.evaluate import Exam, evaluate, evaluate_many
from fedskew.engine.problem import Problem, Task, weights
from fedskew.engine.seeded import with_seeded_dropout
from fedskew.experiment import train_together

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
GPU = torch.device("cuda")
NETWORKS = {
    "softmax": (models.softmax, (5,), "none"),
    "mlp": (models.mlp, (1, 8, 8), "scale"),
    "mnist-cnn": (models.mnist_cnn, (1, 28, 28), "scale"),
    "cifar-cnn": (models.cifar_cnn, (3, 32, 32), "crop-flip"),
    "kws-cnn": (models.kws_cnn, (1, 50, 10), "scale"),
    "lahoti-cifar": (models.lahoti_cifar, (3, 32, 32), "scale"),
    "resnet8": (models.resnet8, (3, 32, 32), "standardise"),
}


def setting(name, sizes, batch=8, **options):
    factory, shape, transform = NETWORKS[name]
    g = rng.stream(0, "gpu")
    n = sum(sizes)
    x = g.integers(0, 256, (n, *shape), dtype=np.uint8) if len(shape) == 3 else g.normal(size=(n, *shape))
    seen = (3, 24, 24) if transform == "crop-flip" else shape
    model = with_seeded_dropout(models.build(factory, seen, 4, seed=0)).to(GPU)
    problem = Problem(
        model, torch.from_numpy(x).to(GPU), torch.from_numpy(g.integers(0, 4, n)).to(GPU), transform, **options
    )
    parts = np.split(np.arange(n), np.cumsum(sizes)[:-1])
    c = cohort(Plan(1, batch, False, transform, shape), range(len(sizes)), parts, 0.02, 0, 1, GPU)
    return problem, Task(*weights(model), c)


@pytest.mark.parametrize("name", NETWORKS)
def test_single_precision_is_close_to_the_loop(name):
    """Few steps: rounding flips a max-pool now and then, and what follows drifts."""
    set_precision("fp32", GPU)
    problem, task = setting(name, [16, 10, 24], momentum=0.5, weight_decay=0.01)
    slow = loop.local(problem, task)
    many = many_of(problem, "stacked")
    (fast,), (again,) = many([task]), many([task])
    for key, value in slow.w.items():
        moved = (value - task.w[key]).norm()
        assert (fast.w[key] - value).norm() <= 0.02 * moved + 1e-6, key
        assert torch.equal(fast.w[key], again.w[key])  # bit-identical from run to run
    torch.testing.assert_close(fast.loss, slow.loss, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("name", ["cifar-cnn", "mnist-cnn", "lahoti-cifar", "resnet8"])
def test_lower_precision_trains_to_the_same_loss(name, precision):
    set_precision(precision, GPU)
    problem, task = setting(name, [64, 40], half=precision == "bf16")
    (fast,) = many_of(problem, "stacked")([task])
    set_precision("fp32", GPU)
    slow = loop.local(problem, task)
    torch.testing.assert_close(fast.loss, slow.loss, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_of_many_runs_at_once(name, dtype):
    """On our kernels where they fit (single precision), else on folded layers; one run takes the same way."""
    set_precision("fp32", GPU)
    problem, task = setting(name, [16, 10, 24, 7, 5], dtype=dtype)
    problem.model.to(dtype)
    trained = loop.local(problem, Task(*weights(problem.model), task.cohort))
    parts = [(tree.one(trained.w, k), tree.one(trained.stats, k)) for k in range(5)]
    labels = problem.y % 3  # class 3 has no example
    exams = [Exam(*part, problem.x, labels, 4) for part in parts]
    expected = [evaluate(problem, exam) for exam in exams]
    within = {"rel": 1e-10 if dtype == torch.float64 else 1e-4}
    for found in (evaluate_many(problem, exams), [evaluate_many(problem, [exam])[0] for exam in exams]):
        assert [s.loss for s in found] == pytest.approx([s.loss for s in expected], **within)
        for scores, alone in zip(found, expected, strict=True):
            assert scores.per_class == pytest.approx(alone.per_class, abs=0.1, nan_ok=True)  # one example in ten
            assert scores.accuracy == pytest.approx(alone.accuracy, abs=1.5 / len(problem.y))
    one, two = ([s.loss for s in evaluate_many(problem, exams)] for _ in range(2))
    assert one == two


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("patches", [False, True])
@pytest.mark.parametrize("name", ["kws-cnn", "lahoti-cifar", "resnet8"])
def test_convolutions_either_way(name, patches, dtype, monkeypatch):
    """All grouped, or all by patches, as a recorded graph."""
    monkeypatch.setattr(convolutions, "by_patches", lambda shape: patches)
    set_precision("fp32", GPU)
    problem, task = setting(name, [16, 10, 24], dtype=dtype)
    problem.model.to(dtype)
    task = Task(*weights(problem.model), task.cohort)
    slow = loop.local(problem, task)
    many = many_of(problem, "stacked")
    (fast,), (again,) = many([task]), many([task])
    torch.testing.assert_close(fast.loss, slow.loss, rtol=1e-3, atol=1e-4)
    assert all(torch.equal(fast.w[key], again.w[key]) for key in fast.w)
    if dtype == torch.float64:
        torch.testing.assert_close(fast.w, slow.w, rtol=1e-8, atol=1e-10)


def data():
    g = rng.stream(0, "images")
    y = g.integers(0, 4, 400)
    x = np.kron(g.integers(0, 200, (4, 3, 8, 8))[y], np.ones((1, 1, 4, 4))) + g.integers(0, 55, (400, 3, 32, 32))
    return from_arrays(x.astype(np.uint8), y)


def test_fused_runs_and_a_resumed_run():
    fields = {"model": "cifar-cnn", "transform": "crop-flip", "batch": 20, "lr": 0.05, "clients": 4, "rounds": 3}
    runs = [Run(**fields), Run(**fields, seed=1, algorithm="fedavgm:0.9", partition="dirichlet:1")]
    rows = {}
    for i, row in train_together(runs, data=data()):
        rows.setdefault(i, []).append(row)
    for i, run in enumerate(runs):
        alone = list(train(run, data=data()))
        assert [r.loss for r in alone] == pytest.approx([r.loss for r in rows[i]], rel=5e-3)
        rest = list(train(run, data=data(), start=alone[0].state, first_round=2))
        assert [r.loss for r in rest] == [r.loss for r in alone[1:]]
    assert rows[0][-1].loss < rows[0][0].loss
