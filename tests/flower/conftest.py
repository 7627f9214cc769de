import pytest

from fedskew.data import datasets
from fedskew.flower import federation


@pytest.fixture(scope="session")
def digits():
    return datasets.load("digits")


@pytest.fixture(autouse=True)
def _look_often(monkeypatch):
    """Where nodes answer at once, nobody need look for them every three seconds only."""
    monkeypatch.setattr(federation, "LOOK", 0.01)
    monkeypatch.setattr(federation, "PAUSE", 0.005)
