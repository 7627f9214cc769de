"""One client a thread: the same to the last bit from run to run, and nothing left behind; laws: test_paths.py."""

import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import NETWORKS, cohort_of, compare, problem_of, ragged, terms_of
from torch import nn
from torch.nn import functional as F

from fedskew.engine import loop, threaded, threads
from fedskew.engine.chain import LARGE, Chain
from fedskew.engine.problem import Task, weights


@pytest.fixture
def two_threads():
    with threads.restored():
        torch.set_num_threads(2)
        yield


def wide(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(75, LARGE // 64), nn.ReLU(), nn.Linear(LARGE // 64, classes))


@settings(max_examples=12)
@given(ragged, st.integers(1, 5), st.sampled_from([0, 0.1]), st.sampled_from([0, 0.9]))
def test_steps_within_the_backward_pass_equal_the_loop(sizes, batch, weight_decay, momentum):
    problem = problem_of(wide, (3, 5, 5), weight_decay=weight_decay, momentum=momentum)
    assert list(Chain(problem.model).descents) == ["1.weight"]
    compare(threaded.local, problem, sizes, batch=batch)


def test_more_examples_than_are_made_ready_at_once(monkeypatch):
    monkeypatch.setattr(threaded, "GATHER", 7)
    compare(threaded.local, problem_of(*NETWORKS["lahoti-mnist"]), [23, 16], epochs=2)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("name", ["mnist-cnn", "lahoti-cifar", "resnet8", "foreign"])
def test_every_run_and_every_number_of_threads_gives_the_same_bits(name, half, two_threads):
    problem = problem_of(*NETWORKS[name], dtype=torch.float32, momentum=0.9, half=half)
    c = cohort_of(problem, [9, 3, 12, 6, 2], epochs=2)
    w, stats = weights(problem.model)
    results = []
    for n in (2, 1, 2, 3):
        torch.set_num_threads(n)
        results.append(threaded.local(problem, Task(w, stats, c)))
    for other in results[1:]:
        assert all(torch.equal(results[0].w[key], other.w[key]) for key in w)
        assert all(torch.equal(results[0].stats[key], other.stats[key]) for key in stats)
        assert torch.equal(results[0].loss, other.loss)


NORMED = ("lahoti-cifar", "resnet8", "resnet20")  # norms magnify what bfloat16 rounds, to 8 bits


@pytest.mark.parametrize("part", ["", "logits", "contrast"])
@pytest.mark.parametrize("name", sorted(set(NETWORKS) - {"softmax"}))  # which has no features to contrast
def test_bfloat16_moves_weights_as_single_precision_does(name, part):
    problem = problem_of(*NETWORKS[name], dtype=torch.float32, momentum=0.5)
    cohort, (w, stats) = cohort_of(problem, [16, 10, 24], batch=8, lr=0.02), weights(problem.model)
    task = Task(w, stats, cohort, terms_of(problem, 3, part))
    single, half = loop.local(problem, task), threaded.local(replace(problem, half=True), task)
    moved = sum((single.w[key] - w[key]).square().sum() for key in w).sqrt()
    apart = sum((single.w[key] - half.w[key]).square().sum() for key in w).sqrt()
    assert 0 < apart < (0.4 if name in NORMED else 0.1) * moved  # a step with other weights would be about 1
    assert {half.w[key].dtype for key in w} == {torch.float32}
    torch.testing.assert_close(half.loss, single.loss, rtol=2e-2, atol=2e-2)


class Views(nn.Module):
    """`view` on an image, which channels-last images do not allow."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.out = nn.Linear(4 * 8 * 8, 4)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.out(self.conv(x).view(len(x), -1))


class Noisy(nn.Module):
    """Draws from torch's own generator, which threads share."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(5, 4)

    def forward(self, x):
        return self.out(F.dropout(x, 0.5, self.training))


def test_a_network_that_needs_plain_images_gets_them():
    compare(threaded.local, problem_of(lambda: Views(), (3, 8, 8), weight_decay=0.1, momentum=0.5), [7, 3, 5])


def test_weights_used_twice_do_not_step_within_the_backward_pass():
    inner, tied = nn.Linear(256, 256), nn.Linear(256, 256)
    assert Chain(nn.Sequential(inner, nn.ReLU(), inner)).descents == {}
    tied.weight = inner.weight
    assert Chain(nn.Sequential(inner, tied)).descents == {}
    assert list(Chain(nn.Sequential(inner, nn.Linear(256, 256))).descents) == ["0.weight", "1.weight"]


def test_frozen_weights_stay():
    problem = problem_of(*NETWORKS["mnist-cnn"], weight_decay=0.1)
    problem.model.get_parameter("conv1.weight").requires_grad_(False)
    problem.model.get_parameter("fc1.weight").requires_grad_(False)
    compare(threaded.local, problem, [7, 3, 5])


def test_a_network_with_its_own_randomness_trains_as_in_the_loop(two_threads):
    problem = problem_of(lambda: Noisy(), (5,))
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    compare(threaded.local, problem, [7, 3, 5], epochs=2, rtol=0)
    assert torch.equal(torch.rand(2), expected)


class Fails(nn.Module):
    """Breaks when it meets a marked example."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(5, 4)

    def forward(self, x):
        if (x > 100).any():
            raise ValueError("a marked example")
        return self.out(x)


@pytest.mark.parametrize("marked", [[10], list(range(3, 60))])  # one client fails, or all but the first
def test_an_error_in_a_thread_comes_out_and_stops_the_others(marked, two_threads):
    problem = problem_of(lambda: Fails(), (5,))
    problem.x[marked] = 1000
    before = threading.active_count()
    with pytest.raises(ValueError, match="a marked example"):
        threaded.local(problem, Task(*weights(problem.model), cohort_of(problem, [3, 9, 9, 9, 9, 9, 9], epochs=5)))
    assert threading.active_count() == before
    assert torch.get_num_threads() == 2


def test_it_leaves_the_weights_the_threads_and_the_model_alone(two_threads):
    problem = problem_of(*NETWORKS["mnist-cnn"])
    w, stats = weights(problem.model)
    sent = {key: leaf.clone() for key, leaf in w.items()}
    before = threading.active_count()
    threaded.local(problem, Task(w, stats, cohort_of(problem, [5, 5, 5])))
    assert threading.active_count() == before
    assert all(torch.equal(w[key], sent[key]) for key in w)
    assert all(torch.equal(p, sent[key]) for key, p in problem.model.named_parameters())
    seen = []
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert (torch.get_num_threads(), seen) == (2, [2])


def test_a_worker_has_one_thread_of_torchs_unless_there_are_some_to_spare(two_threads, monkeypatch):
    seen = []

    class Asks(nn.Linear):
        def forward(self, x):
            if threading.current_thread() is not threading.main_thread():
                seen.append(torch.get_num_threads())
            return super().forward(x)

    problem = problem_of(lambda: Asks(5, 4), (5,))
    threaded.local(problem, Task(*weights(problem.model), cohort_of(problem, [9, 9, 9])))
    threaded.local(problem, Task(*weights(problem.model), cohort_of(problem, [9])))
    assert set(seen) == {1}
    monkeypatch.setattr(threads, "SMALL_STEP", 1)  # now any step is worth two
    seen.clear()
    threaded.local(problem, Task(*weights(problem.model), cohort_of(problem, [9])))
    assert set(seen) == {2}


INTERRUPTED = """
import fedskew, threading, torch
from oracle import NETWORKS, cohort_of, problem_of
from fedskew.engine import threaded
from fedskew.engine.problem import Task, weights
problem = problem_of(*NETWORKS["mnist-cnn"])
w, stats = weights(problem.model)
c = cohort_of(problem, [20, 20, 20], epochs=5000)
print("go", flush=True)
try:
    threaded.local(problem, Task(w, stats, c))
except KeyboardInterrupt:
    print("interrupted", threading.active_count(), flush=True)
"""


def test_an_interrupt_ends_training_within_a_step():
    here = Path(__file__).parent
    child = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True, cwd=here)
    assert child.stdout.readline() == "go\n"
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=20)
    assert (out, child.returncode) == ("interrupted 1\n", 0)
