"""A reproduction that moves: stopped, killed or failed on one machine, packed, and gone on with on another."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from fedskew import Store
from fedskew.cli import main
from fedskew.papers import zhao2018
from fedskew.reproduce import cells, moved
from fedskew.store import archive

TINY = replace(zhao2018.SCALES["smoke"], rounds=0.004)


def quiet(rows, rounds, label):
    return rows


def test_a_reproduction_that_was_killed_goes_on_on_another_machine(tmp_path):
    """kill -9, pack, unpack into another store, go on: the rows are those of a run that was never stopped."""
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    wanted = zhao2018.table2("mnist", replace(TINY, rounds=0.4))[:1]
    script = (
        "from dataclasses import replace\nfrom fedskew import Store\nfrom fedskew.papers import zhao2018\n"
        "from fedskew.reproduce import cells\n"
        "scale = replace(zhao2018.SCALES['smoke'], rounds=0.4)\n"
        f"store, wanted = Store({str(here.folder)!r}), zhao2018.table2('mnist', scale)[:1]\n"
        "cells.train(store, wanted, lambda rows, rounds, label: rows, checkpoint_seconds=0)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 120
    while not any(entry.round >= 3 for entry in here.runs()) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    ids = [entry.id for entry in here.runs()]
    stopped = {entry.id: entry.round for entry in here.runs()}
    assert all(0 < round < 200 for round in stopped.values())
    packed = tmp_path / "moved.zip"
    assert archive.pack(here, ids, packed) == ids
    assert sorted(archive.unpack(there, packed)) == sorted(ids)
    assert archive.unpack(there, packed) == []
    began = {entry.id: there.state(entry.id)[0] for entry in there.runs()}
    assert all(began[id] >= stopped[id] - 1 for id in ids)
    cells.train(there, wanted, quiet)
    whole = Store(tmp_path / "whole")
    cells.train(whole, wanted, quiet)
    (moved,), (straight,) = cells.outcomes(there, wanted), cells.outcomes(whole, wanted)
    assert moved.accuracies == straight.accuracies
    for a, b in zip(moved.records, straight.records, strict=True):
        assert [r["loss"] for r in a] == [r["loss"] for r in b]
        assert [r["accuracy"] for r in a] == [r["accuracy"] for r in b]


def only_trains(tmp_path, store, *more):
    """`python -m fedskew.reproduce` from a copy of the source, where rich, typer and charts are missing."""
    banned = "import sys\nfor name in ('altair', 'typer', 'rich', 'vl_convert'): sys.modules[name] = None\n"
    banned += "from importlib import metadata\nfound = metadata.Distribution.from_name\n"
    banned += "metadata.Distribution.from_name = lambda name: found('not ' * (name == 'fedskew') + name)\n"
    start = "import runpy\nrunpy.run_module('fedskew.reproduce', run_name='__main__')"
    ask = ["zhao2018", "table3", "--data", "mnist", "--scale", "smoke", "--at-once", "2"]
    return subprocess.Popen(
        [sys.executable, "-c", banned + start, *ask, "--pack", str(tmp_path / "part.zip"), *more],
        env=os.environ | {"FEDSKEW_STORE": str(tmp_path / store)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_a_machine_that_only_trains(tmp_path):
    """Stopped in time, packed, and gone on with from the archive in another store."""
    first = only_trains(tmp_path, "first", "--seconds", "0.5")
    assert "out of time" in first.communicate()[0]
    assert first.returncode == 0
    second = only_trains(tmp_path, "second", "--unpack", str(tmp_path / "part.zip"))
    said = second.communicate()[0]
    assert "unpacked" in said
    assert said.count(", round 30: ") == 10


LONG = ("--seeds", "2", "--at-once", "60")  # all runs in one group, which takes some seconds: it is stopped half-way


def test_a_machine_that_is_gone_has_left_what_it_packed(tmp_path):
    """Killed in the middle: rows and checkpoints up to a moment ago are in the archive."""
    lost = only_trains(tmp_path, "lost", *LONG, "--pack-every", "0.3", "--piece-mb", "1")
    assert any("part.zip.2:" in line for line in lost.stdout)  # more than rows
    time.sleep(1)
    lost.kill()
    lost.communicate()
    home = Store(tmp_path / "home")
    assert archive.unpack(home, tmp_path / "part.zip")
    kept = [home.state(entry.id)[0] for entry in home.runs() if not entry.over]
    assert max(kept) > 0


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_machine_that_is_asked_to_stop_saves_first(tmp_path):
    """SIGTERM: every run's last round is its checkpoint's, and all of it is packed."""
    store, home = Store(tmp_path / "asked"), Store(tmp_path / "home")
    asked = only_trains(tmp_path, "asked", *LONG)
    deadline = time.monotonic() + 120
    while not any(entry.round >= 2 for entry in store.runs()) and time.monotonic() < deadline:
        time.sleep(0.05)
    asked.terminate()
    assert "packed" in asked.communicate()[0]
    assert asked.returncode == 128 + signal.SIGTERM
    assert archive.unpack(home, tmp_path / "part.zip")
    begun = [entry for entry in home.runs() if entry.round]
    assert len(begun) > 1
    assert all(not entry.over and home.state(entry.id)[0] == entry.round for entry in begun)


def test_an_error_does_not_keep_it_from_packing(tmp_path):
    failed = only_trains(tmp_path, "failed", "--precision", "fp64")
    assert "packed" in failed.communicate()[0]
    assert failed.returncode == 1


def test_weights_that_another_run_begins_with_go_along_while_they_are_wanted(tmp_path):
    here, there, home = (Store(tmp_path / name) for name in ("here", "there", "home"))
    both = next(cell for cell in zhao2018.table3("mnist", TINY) if cell.after)
    cells.train(here, [replace(both, after=())], quiet)
    moved.pack(here, [both], tmp_path / "half.zip")
    assert archive.unpack(there, tmp_path / "half.zip") != []
    cells.train(there, [both], quiet)
    moved.pack(there, [both], tmp_path / "whole.zip")
    archive.unpack(home, tmp_path / "whole.zip")
    (outcome,) = cells.outcomes(home, [both])
    assert len(outcome.accuracies) == 1
    assert not any(home.checkpoints(entry.id) for entry in home.runs())


def test_an_archive_is_checked(tmp_path):
    with pytest.raises(SystemExit):
        main(["runs", "unpack", str(tmp_path / "none.zip")])
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(Exception, match="not a whole archive"):
        archive.unpack(Store(), broken)
