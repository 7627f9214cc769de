import os
from pathlib import Path

import pytest
from small_sets import serving, small_speech

from fedskew.data.sources import SOURCES


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def mirror():
    with serving() as m:
        yield m


@pytest.fixture
def second():
    with serving() as m:
        yield m


@pytest.fixture
def speech_set(tmp_path):
    """(the data folder, its source)."""
    folder = tmp_path / "data"
    return folder, small_speech(folder / "speech_commands_v0.01")


@pytest.fixture
def real():
    """A function that gives FEDSKEW_DATA when the named official set is there, else skips the test."""

    def folder_with(name: str) -> Path:
        folder = Path(os.environ.get("FEDSKEW_DATA", ""))
        if not os.environ.get("FEDSKEW_DATA") or not (folder / SOURCES[name].folder).is_dir():
            pytest.skip(f"FEDSKEW_DATA has no {name}")
        return folder

    return folder_with
