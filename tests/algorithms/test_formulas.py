"""The methods' own parts against their papers' formulas, by hand: ragged clients, some of them a round."""

import pytest
import torch
from handmade import FEW, Federation, Quadratics, assert_same, cohort_of, doubles, ending_at, federations, states
from hypothesis import given, settings
from hypothesis import strategies as st

from fedskew import tree
from fedskew.algorithms import parse_algorithm
from fedskew.algorithms.fednova import FedNova


@FEW
@given(federations())
def test_fedprox_is_sgd_on_the_proximal_objective(given_):
    """One client's full-batch path by hand: w <- w - lr (g + mu (w - w0)), over two steps."""
    sizes, _ = given_
    mu, q = 0.7, Quadratics.random(sum(sizes))
    c = q.cohort([0], lr=0.1)
    method = parse_algorithm(f"fedprox:{mu}")
    s = method.init({"w": doubles(1, -2, 3)}, {})
    w = w0 = s["w"]["w"]
    for _ in range(int(q.steps[0])):
        w = w - 0.1 * (q.a[0] * (w - q.b[0]) + mu * (w - w0))
    got = method.step(s, c, q.train(s["w"], c, method.terms(s, c)))
    torch.testing.assert_close(got["w"]["w"], w)


# SCAFFOLD


@FEW
@given(federations())
def test_scaffold_with_zero_control_variates_is_fedavg(given_):
    sizes, schedule = given_
    federation = Federation(sizes, epochs=2)
    for clients in schedule:
        scaffold, plain = (states(federation, method, [clients])[-1] for method in ("scaffold", "fedavg"))
        assert_same(scaffold["w"], plain["w"])


@FEW
@given(federations(), st.sampled_from([1.0, 0.5]))
def test_scaffolds_control_variates_follow_option_two_by_hand(given_, server_lr):
    sizes, schedule = given_
    federation = Federation(sizes)
    method = parse_algorithm(f"scaffold:{server_lr}")
    s = method.init(federation.w, federation.stats)
    c, mine = tree.zeros_like(federation.w), {}
    for t, clients in enumerate(schedule, start=1):
        cohort = federation.cohort(method, clients, t)
        terms = method.terms(s, cohort)
        for i, k in enumerate(clients):
            assert_same(tree.one(terms.drift.shift, i), tree.sub(c, mine.get(k, tree.zeros_like(c))))
        trained = federation.train(s, cohort, terms)
        w, new = s["w"], {}
        for i, k in enumerate(clients):
            steps = -(-sizes[k] // 3)
            new[k] = {
                name: mine.get(k, tree.zeros_like(c))[name] - c[name] + (w[name] - trained.w[name][i]) / (steps * 0.3)
                for name in w
            }
        for k in clients:
            c = tree.add(c, tree.sub(new[k], mine.get(k, tree.zeros_like(c))), sizes[k] / sum(sizes))
        mine |= new
        s = method.step(s, cohort, trained)
        together = sum(sizes[k] for k in clients)
        for name in w:
            end = sum(sizes[k] / together * trained.w[name][i] for i, k in enumerate(clients))
            torch.testing.assert_close(s["w"][name], w[name] + server_lr * (end - w[name]))
        assert_same(s["c"], c)
        for k, known in mine.items():
            assert_same(s[f"client.{k}.c"], known)


@pytest.mark.parametrize("seed", range(3))
def test_scaffolds_memory_is_the_mean_gradient_of_the_clients_last_round(seed):
    """Option II is a trick: what the steps were made of, less what SCAFFOLD itself put in, leaves the gradients."""
    q, method = Quadratics.random(seed), parse_algorithm("scaffold")
    s = method.init({"w": torch.zeros(3).double()}, {})
    for clients in ([0, 1, 4], [1, 2], [0, 2, 3, 4]):
        c = q.cohort(clients, lr=0.1)
        shift = method.terms(s, c).drift.shift["w"]
        for i, k in enumerate(clients):
            w, gradients = s["w"]["w"], []
            for _ in range(int(q.steps[k])):
                gradients.append(q.gradient(k, w))
                w = w - 0.1 * (gradients[-1] + shift[i])
            after = method.step(s, c, q.train(s["w"], c, method.terms(s, c)))
            torch.testing.assert_close(after[f"client.{k}.c"]["w"], torch.stack(gradients).mean(dim=0))
        s = after
        share = q.n.double() / q.n.sum()  # the server's is the mean of all of them, absent clients' being zero
        known = {k: s[f"client.{k}.c"]["w"] for k in range(5) if f"client.{k}.c" in s}
        torch.testing.assert_close(s["c"]["w"], sum(share[k] * c_k for k, c_k in known.items()))


# FedNova


@FEW
@given(federations(smallest=4, largest=6), st.sampled_from([0.0, 0.9]))
def test_fednova_with_equal_steps_is_fedavg(given_, momentum):
    sizes, schedule = given_  # four to six examples are two batches of three
    federation = Federation(sizes, momentum=momentum)
    assert_same(states(federation, "fednova", schedule)[-1]["w"], states(federation, "fedavg", schedule)[-1]["w"])


def gradient_weights(steps, momentum):
    """How much each local gradient adds to -(w_k - w) / lr, read off torch's own SGD: gradient i is the unit vector."""
    w = torch.zeros(steps, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([w], lr=1.0, momentum=momentum)
    for i in range(steps):
        w.grad = torch.eye(steps, dtype=torch.float64)[i]
        optimiser.step()
    return -w.detach()


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 7)), min_size=1, max_size=5),
    st.sampled_from([0.0, 0.5, 0.9, 0.99]),
)
def test_fednova_divides_by_what_torchs_sgd_sums(clients, momentum):
    """Wang et al. 2020, eq. 6: of constant gradients g_k the server steps tau_eff lr sum_k p_k g_k."""
    n, steps = (list(column) for column in zip(*clients, strict=True))
    a = [gradient_weights(tau, momentum).abs().sum() for tau in steps]
    g = [doubles(1.0 + k, -2.0 * k) for k in range(len(n))]
    s = FedNova().init({"w": doubles(3, 4)}, {})
    trained = ending_at(*(s["w"]["w"] - 0.1 * a_k * g_k for a_k, g_k in zip(a, g, strict=True)))
    got = FedNova().step(s, cohort_of(n, steps, lr=0.1, momentum=momentum), trained)["w"]["w"]
    p = [n_k / sum(n) for n_k in n]
    effective = sum(p_k * a_k for p_k, a_k in zip(p, a, strict=True))
    torch.testing.assert_close(
        got, doubles(3, 4) - 0.1 * effective * sum(p_k * g_k for p_k, g_k in zip(p, g, strict=True))
    )


def test_fednova_is_told_the_local_momentum_and_the_ragged_steps_of_real_clients():
    federation = Federation([2, 9, 4], momentum=0.9)
    c = federation.cohort(FedNova(), [0, 1, 2], 1)
    assert c.steps.tolist() == [1, 3, 2]
    assert c.momentum == 0.9


# FedDyn


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_feddyn_by_hand(alpha, seed):
    """Acar et al. 2021, Algorithm 1, on the objectives o_k F_k with o_k = n_k N / n, over partial participation."""
    q, method = Quadratics.random(seed), parse_algorithm(f"feddyn:{alpha}")
    o = (q.n.double() * 5 / q.n.sum()).tolist()
    s = method.init({"w": doubles(1, -1, 2)}, {})
    w, h, mine = doubles(1, -1, 2), torch.zeros(3).double(), torch.zeros(5, 3).double()
    for clients in ([0, 1, 4], [1, 2], [0, 2, 3, 4]):
        c = q.cohort(clients, lr=0.1)
        s = method.step(s, c, q.train(s["w"], c, method.terms(s, c)))
        ends = {}
        for k in clients:
            v = w
            for _ in range(int(q.steps[k])):  # the gradient of o F_k - <h_k, v> + alpha / 2 |v - w|^2, at lr / o
                v = v - 0.1 / o[k] * (o[k] * q.gradient(k, v) - mine[k] + alpha * (v - w))
            ends[k] = v
        for k in clients:
            mine[k] -= alpha * (ends[k] - w)
        h = h - alpha / 5 * sum(ends[k] - w for k in clients)
        w = sum(q.n[k] * ends[k] for k in clients) / q.n[clients].sum() - h / alpha
        torch.testing.assert_close(s["w"]["w"], w)
        torch.testing.assert_close(s["h"]["w"], h)
        torch.testing.assert_close(h, mine.mean(dim=0))
        for k in clients:
            torch.testing.assert_close(s[f"client.{k}.h"]["w"], mine[k])


def test_feddyns_memory_is_the_gradient_where_the_client_ended():
    """The first-order condition of a client that solves its problem exactly: h_k = o_k grad F_k(w_k)."""
    q, method = Quadratics.random(7), parse_algorithm("feddyn:0.5")
    o = q.n.double() * 5 / q.n.sum()
    s = method.init({"w": doubles(1, -1, 2)}, {})
    for clients in ([0, 1, 4], [0, 1, 2, 3, 4]):
        c = q.cohort(clients, lr=0.1)
        drift = method.terms(s, c).drift
        ends = [
            (q.a[k] * q.b[k] + drift.pull[i] * s["w"]["w"] - drift.shift["w"][i]) / (q.a[k] + drift.pull[i])
            for i, k in enumerate(clients)
        ]
        s = method.step(s, c, ending_at(*ends))
        for k, end in zip(clients, ends, strict=True):
            torch.testing.assert_close(s[f"client.{k}.h"]["w"], o[k] * q.gradient(k, end))


# MOON


@FEW
@given(federations())
def test_moons_first_round_is_fedavg(given_):
    """The global weights stand in for the client's last ones: near and far are alike and pull nowhere."""
    sizes, schedule = given_
    federation = Federation(sizes, epochs=2)
    moon, plain = (states(federation, method, schedule[:1])[-1] for method in ("moon:5", "fedavg"))
    assert_same(moon["w"], plain["w"])


def test_moon_contrasts_with_the_clients_own_last_weights():
    federation, method = Federation([3, 8, 5]), parse_algorithm("moon:2,temperature=0.25")
    s = method.init(federation.w, federation.stats)
    first = federation.cohort(method, [0, 2], 1)
    trained = federation.train(s, first, method.terms(s, first))
    s = method.step(s, first, trained)
    contrast = method.terms(s, federation.cohort(method, [0, 1, 2], 2)).contrast
    assert_same(tree.one(contrast.previous, 0), tree.one(trained.w, 0), 0)
    assert_same(tree.one(contrast.previous, 1), s["w"], 0)
    assert_same(tree.one(contrast.previous, 2), tree.one(trained.w, 1), 0)
    assert contrast.mu.tolist() == [2, 2, 2]
    assert contrast.temperature.tolist() == [0.25] * 3
