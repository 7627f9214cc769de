"""The short strings of methods: there and back, one-word aliases, and what is said of nonsense."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedskew import Run
from fedskew.algorithms import KINDS, FedAvg, losses, means, parse_algorithm
from fedskew.errors import FedskewError

positive = st.floats(1e-6, 1e3)
fraction = st.floats(0, 0.999)
OWN = {
    "fedavgm": {"beta": fraction, "plain": st.booleans()},
    "fedprox": {"mu": st.floats(0, 1e3)},
    "scaffold": {"lr": positive, "keep": st.sampled_from(["device", "cpu"])},
    "feddyn": {"alpha": positive, "keep": st.sampled_from(["device", "cpu"])},
    "fedadagrad": {"lr": positive, "tau": positive},
    "fedadam": {"lr": positive, "beta1": fraction, "beta2": fraction, "tau": positive},
    "fedyogi": {"lr": positive, "beta1": fraction, "beta2": fraction, "tau": positive},
    "moon": {"mu": st.floats(0, 1e3), "temperature": positive, "keep": st.sampled_from(["device", "cpu"])},
}
EVERY = {
    "mean": st.one_of(
        st.just(means.Average()),
        st.just(means.Median()),
        st.builds(means.Trimmed, f=st.floats(0, 0.499)),
        st.builds(means.Krum, f=st.integers(0, 20)),
        st.builds(means.Clip, norm=positive),
    ),
    "loss": st.one_of(
        st.just(losses.CrossEntropy()),
        st.builds(losses.Restricted, alpha=st.floats(0, 1)),
        st.builds(losses.Adjusted, tau=st.floats(0, 10)),
    ),
    "smoothing": fraction,
    "sampling": st.sampled_from(["shuffled", "balanced"]),
    "swa": st.floats(0, 1),
}
BY_NAME = {kind.model_fields["kind"].default: kind for kind in KINDS}


@st.composite
def methods(draw):
    name = draw(st.sampled_from(sorted(BY_NAME)))
    fields = {} if name == "sgd" else EVERY | OWN.get(name, {})
    assert set(fields) == set(BY_NAME[name].model_fields) - {"kind"}  # no option is left out of this test
    return BY_NAME[name](**draw(st.fixed_dictionaries({}, optional=fields)))


@given(methods())
def test_the_short_form_goes_there_and_back(method):
    assert parse_algorithm(str(method)) == method
    assert str(parse_algorithm(str(method))) == str(method)
    run = Run(algorithm=str(method))
    assert run.algorithm == method
    assert Run(**run.spec()) == run  # as JSON, in the store


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_a_name_alone_has_the_defaults(name):
    assert parse_algorithm(name) == BY_NAME[name]()
    assert "," not in str(BY_NAME[name]())


@pytest.mark.parametrize(
    ("short", "method", "written"),
    [
        ("median", FedAvg(mean=means.Median()), "fedavg,mean=median"),
        ("trimmed:0.2", FedAvg(mean=means.Trimmed(f=0.2)), "fedavg,mean=trimmed:0.2"),
        ("krum:2", FedAvg(mean=means.Krum(f=2)), "fedavg,mean=krum:2"),
        ("krum", FedAvg(mean=means.Krum(f=1)), "fedavg,mean=krum:1"),
        ("clip:5", FedAvg(mean=means.Clip(norm=5)), "fedavg,mean=clip:5"),
        ("fedrs", FedAvg(loss=losses.Restricted(alpha=0.5)), "fedavg,loss=restricted:0.5"),
        ("fedrs:0.3", FedAvg(loss=losses.Restricted(alpha=0.3)), "fedavg,loss=restricted:0.3"),
        ("restricted:0.3", FedAvg(loss=losses.Restricted(alpha=0.3)), "fedavg,loss=restricted:0.3"),
        ("adjusted:1", FedAvg(loss=losses.Adjusted(tau=1)), "fedavg,loss=adjusted:1"),
        ("balanced", FedAvg(sampling="balanced"), "fedavg,sampling=balanced"),
        ("smoothing:0.1", FedAvg(smoothing=0.1), "fedavg,smoothing=0.1"),
        ("smoothing", FedAvg(smoothing=0.1), "fedavg,smoothing=0.1"),
        ("swa:0.25", FedAvg(swa=0.25), "fedavg,swa=0.25"),
        (" median,swa=0.25 ", FedAvg(mean=means.Median(), swa=0.25), "fedavg,mean=median,swa=0.25"),
        ("krum:2,sampling=balanced", FedAvg(mean=means.Krum(f=2), sampling="balanced"), None),
        ("fedrs,mean=clip:2", FedAvg(mean=means.Clip(norm=2), loss=losses.Restricted()), None),
    ],
)
def test_one_word_is_fedavg_with_one_option(short, method, written):
    assert parse_algorithm(short) == method
    assert written in (None, str(method))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fedsgd", "algorithm 'fedsgd' is not known: choose one of fedavg,"),
        ("", "algorithm '' is not known"),
        ("fedavg:3", "fedavg takes no value after the colon; write 'fedavg'"),
        ("fedavg,mean=mode", "mean 'mode' is not known: choose one of average, median, trimmed, krum, clip"),
        ("fedavg,loss=hinge", "loss 'hinge' is not known: choose one of cross-entropy, restricted, adjusted"),
        ("median:3", "median takes no value after the colon"),
        ("balanced:3", "sampling = 'balanced:3': it should be 'shuffled' or 'balanced'"),
        ("trimmed:0.5", "f = '0.5': it should be less than 0.5"),
        ("krum:1.5", "f = '1.5': it should be a valid integer"),
        ("clip:0", "norm = '0': it should be greater than 0"),
        ("fedrs:2", "alpha = '2': it should be less than or equal to 1"),
        ("adjusted:-1", "tau = '-1': it should be greater than or equal to 0"),
        ("smoothing:1", "smoothing = '1': it should be less than 1"),
        ("swa:1.5", "swa = '1.5': it should be less than or equal to 1"),
        ("fedprox:-1", "mu = '-1': it should be greater than or equal to 0"),
        ("fedprox:inf", "mu = 'inf': it should be a finite number"),
        ("feddyn:0", "alpha = '0': it should be greater than 0"),
        ("scaffold:nan", "lr = 'nan': it should be"),
        ("fedadam,beta1=1", "beta1 = '1': it should be less than 1"),
        ("moon,temperature=0", "temperature = '0': it should be greater than 0"),
        ("moon,keep=disk", "keep = 'disk': it should be 'device' or 'cpu'"),
        ("fedavg,keep=cpu", "unknown key 'keep'"),
        ("sgd,mean=median", "unknown key 'mean'"),
    ],
)
def test_nonsense_is_one_line(text, says):
    with pytest.raises(FedskewError) as error:
        parse_algorithm(text)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
