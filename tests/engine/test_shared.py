"""Layers and weights that a network uses twice: every way of training is held to the loop, and the loop to autograd."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import cohort_of, compare, problem_of, ragged, terms_of
from torch import nn
from torch.nn.functional import cross_entropy

from fedskew.engine import dense, folded, loop, stacked, threaded
from fedskew.engine.evaluate import Exam, evaluate
from fedskew.engine.problem import Task, weights
from fedskew.engine.seeded import SeededDropout
from fedskew.experiment import train
from fedskew.run import Run

WAYS = [stacked.local, threaded.local]


def layer_twice():
    fc, relu = nn.Linear(5, 5), nn.ReLU()
    return nn.Sequential(fc, relu, fc, relu, nn.Linear(5, 4))


def block_twice():
    block = nn.Sequential(nn.Linear(5, 5), nn.Tanh())
    return nn.Sequential(block, nn.Sequential(block, nn.ReLU()), nn.Linear(5, 4))


def only_relu_twice():
    relu = nn.ReLU()
    return nn.Sequential(nn.Linear(5, 6), relu, nn.Linear(6, 6), relu, nn.Linear(6, 4))


def weights_twice():
    first, second = nn.Linear(5, 5), nn.Linear(5, 5)
    second.weight = first.weight
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Linear(5, 4))


class Tied(nn.Module):
    """A foreign network: tied weights, a layer called twice, and a buffer that is not saved."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(5, 5, bias=False), nn.Linear(5, 5)
        self.decode.weight = self.encode.weight
        self.again = self.decode
        self.out = nn.Linear(5, 4)
        self.register_buffer("scale", torch.tensor(0.5), persistent=False)

    def forward(self, x):
        h = torch.tanh(self.decode(torch.tanh(self.encode(x))) * self.scale)
        return self.out(self.again(h) + h)


def drop_twice():
    drop = nn.Dropout(0.4)
    return nn.Sequential(nn.Linear(5, 5), drop, nn.Linear(5, 5), drop, nn.Linear(5, 4))


def norm_twice():
    conv, norm, relu = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU()
    return nn.Sequential(conv, norm, relu, conv, norm, relu, nn.Flatten(), nn.Linear(3 * 4 * 4, 4))


class NormTwice(nn.Module):
    """The same in a network that no lowering knows."""

    def __init__(self):
        super().__init__()
        self.layers = norm_twice()
        self.norm = self.layers[1]

    def forward(self, x):
        return self.layers(self.norm(x))


VECTORS = [layer_twice, block_twice, only_relu_twice, weights_twice, Tied, drop_twice]
IMAGES = [norm_twice, NormTwice]


def shared(factory, **options):
    return problem_of(lambda: factory(), (3, 4, 4) if factory in IMAGES else (5,), **options)


@pytest.mark.parametrize("factory", VECTORS + IMAGES)
def test_the_loop_is_sgd_on_the_network_as_it_is(factory):
    problem = shared(factory, weight_decay=0.1)
    c = cohort_of(problem, [6], batch=3)
    w, stats = weights(problem.model)
    got = loop.local(problem, Task(w, stats, c))
    with torch.no_grad():
        for name, p in problem.model.named_parameters():
            p.copy_(w[name])
        for name, b in problem.model.named_buffers():
            b.copy_(stats[name])
    for s in range(2):
        for module in problem.model.modules():
            if isinstance(module, SeededDropout):
                module.key = c.keys[0] + s
        loss = cross_entropy(problem.model(problem.x[c.index[0, s]]), problem.y[c.index[0, s]])
        leaves = dict(problem.model.named_parameters())
        grads = torch.autograd.grad(loss, list(leaves.values()))
        with torch.no_grad():
            for p, g in zip(leaves.values(), grads, strict=True):
                p -= c.lr * (g + 0.1 * p)
    for name, tensor in [*problem.model.named_parameters(), *problem.model.named_buffers()]:
        torch.testing.assert_close((got.w | got.stats)[name][0], tensor.detach(), rtol=1e-10, atol=1e-10)


@settings(max_examples=6)
@given(ragged, st.integers(1, 2), st.integers(1, 5), st.sampled_from([0, 0.1]), st.sampled_from([0, 0.9]))
@pytest.mark.parametrize("factory", VECTORS)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_equals_the_loop(way, factory, sizes, epochs, batch, weight_decay, momentum):
    compare(way, shared(factory, weight_decay=weight_decay, momentum=momentum), sizes, epochs, batch)


@pytest.mark.parametrize("factory", IMAGES)
@pytest.mark.parametrize("way", WAYS)
def test_batch_norm_counts_both_uses(way, factory):
    problem = shared(factory, momentum=0.5)
    slow, _ = compare(way, problem, [6, 3, 8], epochs=2, batch=4)
    name = next(name for name in slow.stats if name.endswith("num_batches_tracked"))
    uses = 2 if factory is norm_twice else 3
    assert slow.stats[name].tolist() == [uses * 2 * steps for steps in (2, 1, 2)]


@pytest.mark.parametrize("factory", [layer_twice, weights_twice, norm_twice])
@pytest.mark.parametrize("way", WAYS)
def test_a_methods_terms_meet_them_as_in_the_loop(way, factory):
    problem = shared(factory, momentum=0.5, weight_decay=0.1)
    sizes = [6, 3, 8]
    compare(way, problem, sizes, batch=4, terms=terms_of(problem, len(sizes), "pull", "shift", "logits", "contrast"))


@pytest.mark.parametrize("way", [loop.local, *WAYS])
def test_what_is_tied_stays_tied(way):
    problem = shared(Tied)
    w, stats = weights(problem.model)
    assert list(w) == ["encode.weight", "decode.bias", "out.weight", "out.bias"]
    trained = way(problem, Task(w, stats, cohort_of(problem, [5, 4])))
    assert list(trained.w) == list(w)
    one = {name: leaf[0] for name, leaf in trained.w.items()}
    y = torch.arange(4)
    before = [(name, tensor, tensor.clone()) for name, tensor in problem.model.named_parameters(remove_duplicate=False)]
    scores = evaluate(problem, Exam(one, stats, problem.x[:4], y, 4))
    after = problem.model.named_parameters(remove_duplicate=False)
    for (name, tensor, value), (its_name, its_tensor) in zip(before, after, strict=True):
        assert name == its_name
        assert tensor is its_tensor  # the network is left with its own weights
        assert torch.equal(tensor, value)
    a, b = one["encode.weight"], one["decode.bias"]
    h = torch.tanh((torch.tanh(problem.x[:4] @ a.T) @ a.T + b) * 0.5)
    logits = (h @ a.T + b + h) @ one["out.weight"].T + one["out.bias"]
    assert scores.loss == pytest.approx(float(cross_entropy(logits, y)))


def digits_network():
    class Shares(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.inner, self.out = nn.Linear(64, 16), nn.Linear(16, 16), nn.Linear(16, 10)
            self.again = self.inner

        def forward(self, x):
            return self.out(torch.relu(self.again(torch.relu(self.inner(self.first(x.flatten(1)))))))

    return Shares()


def test_runs_agree_over_rounds_with_tests_between():
    run = Run(data="digits", model=digits_network, examples=200, clients=4, rounds=3, batch=10, lr=0.1)
    slow, *others = (list(train(run, engine=engine, device="cpu")) for engine in ("loop", "stacked", "threaded"))
    assert slow[-1].test_loss < slow[0].test_loss
    for rows in others:
        assert [row.test_loss for row in rows] == pytest.approx([row.test_loss for row in slow], rel=1e-4)


def test_the_faster_forms_are_kept_where_they_hold():
    assert dense.chain(shared(only_relu_twice)) == ["0", None, "2", None, "4"]
    assert dense.chain(shared(layer_twice)) is None
    assert dense.chain(shared(weights_twice)) is None
    for factory in (layer_twice, block_twice, drop_twice, norm_twice):
        assert folded.lower(shared(factory).model) is not None
    assert folded.lower(shared(weights_twice).model) is None


def test_two_places_of_one_dropout_draw_apart():
    numbers = [m.number for m in shared(drop_twice).model if isinstance(m, SeededDropout)]
    assert numbers == [0, 1]


def test_kernels_are_not_given_a_network_that_repeats_a_layer():
    pytest.importorskip("triton")
    from fedskew.engine import blocked

    def network(again):
        conv = [nn.Conv2d(3, 3, 3, padding=1) for _ in range(2)]
        first, second = (conv[0], conv[0]) if again else conv
        stages = [first, nn.ReLU(), nn.MaxPool2d(2), second, nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*stages, nn.Flatten(), nn.Linear(3, 4))

    assert blocked.lower(network(again=False)) is not None
    assert blocked.lower(network(again=True)) is None
