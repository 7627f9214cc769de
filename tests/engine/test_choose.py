import pytest
import torch

from fedskew.engine.choose import HALF, check
from fedskew.errors import FedskewError
from fedskew.experiment import train
from fedskew.run import Run

CPU = torch.device("cpu")


@pytest.fixture
def processor(monkeypatch):
    def has(*names):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(names, True))

    return has


def test_bfloat16_is_refused_where_it_would_be_emulated(processor):
    processor("avx512_f", "avx2")
    with pytest.raises(FedskewError, match="this one lacks; use tf32"):
        check("auto", "bf16", CPU)
    check("auto", "tf32", CPU)
    for name in HALF:
        processor("avx2", name)
        check("auto", "bf16", CPU)
        check("threaded", "bf16", CPU)
        for engine in ("stacked", "loop"):
            with pytest.raises(FedskewError, match=f"needs the engine threaded, not {engine}"):
                check(engine, "bf16", CPU)


def test_a_run_in_bfloat16_learns_what_it_learns_in_single_precision(processor):
    processor(*HALF)
    run = Run(data="digits", model="mlp", clients=5, rounds=6, lr=0.1, eval_every=6)
    single, half = ([*train(run, device="cpu", precision=p)][-1] for p in ("tf32", "bf16"))
    assert half.loss != single.loss
    assert half.loss == pytest.approx(single.loss, rel=0.02)
    assert half.accuracy == pytest.approx(single.accuracy, abs=0.02)
    assert single.accuracy > 0.5
