"""Checkpoint files: whole, checked, in order, and never unpickled."""

import hashlib
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedskew.errors import FedskewError
from fedskew.store import checkpoints
from fedskew.store.entry import checkpoint_name

KINDS = st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_])
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
LEAVES = st.dictionaries(st.text(max_size=8), KINDS.flatmap(lambda kind: hnp.arrays(kind, SHAPES)), max_size=4)
STATES = st.dictionaries(st.text(max_size=8).filter(lambda name: "/" not in name), LEAVES, max_size=4)


def state(round, size=4):
    return {"w": {"b": torch.full((size,), float(round)), "a": torch.arange(3)}, "stats": {}}


def bits(state):
    """Names in their order, types, shapes and bytes: NaN equals NaN here, and 0.0 is not -0.0."""
    return [
        (tree, [(leaf, x.dtype, tuple(x.shape), x.numpy().tobytes()) for leaf, x in leaves.items()])
        for tree, leaves in state.items()
    ]


@given(STATES)
def test_a_state_comes_back_bit_for_bit_and_in_order(arrays):
    given = {t: {k: torch.from_numpy(a.copy()) for k, a in leaves.items()} for t, leaves in arrays.items()}
    packed = checkpoints.pack(given)
    assert bits(checkpoints.unpack(packed)) == bits(given)
    assert checkpoints.pack(given) == packed


def test_views_and_shared_memory_are_packed():
    w = torch.arange(6.0).reshape(2, 3)
    given = {"w": {"x": w, "t": w.T, "row": w[1], "wide": torch.ones(1).expand(4)}, "sgd.w": {"x": w}}
    found = checkpoints.unpack(checkpoints.pack(given))
    assert torch.equal(found["w"]["t"], w.T)
    assert torch.equal(found["w"]["row"], w[1])
    assert torch.equal(found["w"]["wide"], torch.ones(4))
    assert torch.equal(found["sgd.w"]["x"], w)


def test_a_slash_would_be_ambiguous():
    with pytest.raises(ValueError, match="no slash"):
        checkpoints.pack({"a/b": {}})
    found = checkpoints.unpack(checkpoints.pack({"a": {"b/c": torch.ones(1)}, "b": {"c": torch.zeros(1)}}))
    assert list(found["a"]) == ["b/c"]


def test_the_file_is_plain_safetensors_and_nothing_else_is_left(tmp_path):
    sha256, size = checkpoints.write(tmp_path, 3, state(3))
    (path,) = tmp_path.iterdir()
    assert path.name == checkpoint_name(3)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256
    assert path.stat().st_size == size
    assert torch.equal(safetensors.torch.load_file(path)["w/b"], torch.full((4,), 3.0))
    assert bits(checkpoints.read(tmp_path, 3, sha256)) == bits(state(3))


def flip(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda p: flip(p, 8 * p.stat().st_size - 3), "checksum"),
        (lambda p: flip(p, 8 * 20), "checksum"),
        (lambda p: os.truncate(p, p.stat().st_size - 1), "checksum"),
        (lambda p: os.truncate(p, 0), "empty"),
        (lambda p: p.unlink(), "missing"),
        (lambda p: p.symlink_to(p.rename(p.with_name("elsewhere"))), "link"),
    ],
    ids=["a bit of the weights", "a bit of the header", "truncated", "empty", "missing", "a link"],
)
def test_damage_is_seen(tmp_path, damage, reason):
    sha256, _ = checkpoints.write(tmp_path, 1, state(1))
    damage(tmp_path / checkpoint_name(1))
    with pytest.raises(checkpoints.Unusable, match=reason):
        checkpoints.read(tmp_path, 1, sha256)


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("with_its_checksum", [False, True])
def test_a_pickle_is_never_unpickled(tmp_path, with_its_checksum):
    marker = tmp_path / "marker"
    data = pickle.dumps(Bomb(marker))
    (tmp_path / checkpoint_name(1)).write_bytes(data)
    sha256 = hashlib.sha256(data).hexdigest() if with_its_checksum else "0" * 64
    with pytest.raises(checkpoints.Unusable):
        checkpoints.read(tmp_path, 1, sha256)
    assert not marker.exists()
    pickle.loads(data)
    assert marker.exists()  # it would have gone off


def test_keep_removes_the_rest_and_what_killed_writers_left(tmp_path):
    for round in (1, 2, 3):
        checkpoints.write(tmp_path, round, state(round))
    (tmp_path / checkpoint_name(4)).with_suffix(".tmp").write_bytes(b"half")
    (tmp_path / "lock").touch()
    checkpoints.keep(tmp_path, {2, 3})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lock", checkpoint_name(2), checkpoint_name(3)]


def test_a_full_disk_keeps_what_was_there(disk):
    sha256, _ = checkpoints.write(disk, 1, state(1, 100_000))
    with pytest.raises(FedskewError, match=r"No space left on device.*fedskew resume"):
        checkpoints.write(disk, 2, state(2, 200_000))
    assert [p.name for p in disk.iterdir()] == [checkpoint_name(1)]
    assert bits(checkpoints.read(disk, 1, sha256)) == bits(state(1, 100_000))
