"""A user's own arrays and .npz files."""

import os
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_sets import same

from fedskew.data import datasets
from fedskew.data.arrays import split_off
from fedskew.errors import FedskewError

RNG = np.random.default_rng(0)
Y = np.arange(50) % 5


# --- arrays in Python -----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 6), min_size=4, max_size=200).filter(lambda y: max(np.bincount(y)) > 1))
def test_the_split_is_a_stratified_fifth(y):
    y = np.array(y)
    train, test = split_off("y", y)
    assert sorted([*train, *test]) == list(range(len(y)))
    counts, held = np.bincount(y, minlength=7), np.bincount(y[test], minlength=7)
    assert (np.abs(held - 0.2 * counts) < 1).all()
    assert (counts - held >= (counts > 0)).all(), "every class can be trained on"
    assert len(test) <= -(-len(y) // 5)
    if (counts[counts > 0] >= 5).all():
        assert len(test) == -(-len(y) // 5)


def test_from_arrays_with_and_without_a_test_set():
    x = RNG.normal(size=(50, 3)).astype(np.float64)
    d = datasets.from_arrays(x, Y, groups=[f"user {i % 7}" for i in range(50)])
    assert (len(d.y), len(d.y_test), d.classes, d.name) == (40, 10, tuple("01234"), "arrays")
    assert (np.bincount(d.y_test) == 2).all()
    assert (d.x.dtype, d.transform) == (np.float32, "none")
    train, test = split_off("arrays", Y)
    assert (d.x == x[train].astype(np.float32)).all()
    assert (d.x_test == x[test].astype(np.float32)).all()
    assert (d.groups == train % 7).all()
    given_test = datasets.from_arrays(x, Y, x[:4], Y[:4], groups=Y, name="mine")
    assert (len(given_test.y), len(given_test.y_test), given_test.name) == (50, 4, "mine")
    assert (given_test.groups == Y).all()


@pytest.mark.parametrize(
    ("shape", "becomes"),
    [
        ((50, 6), (6,)),
        ((50, 5, 4), (1, 5, 4)),
        ((50, 1, 5, 4), (1, 5, 4)),
        ((50, 2, 5, 4), (2, 5, 4)),
        ((50, 5, 4, 1), (1, 5, 4)),
        ((50, 5, 4, 3), (3, 5, 4)),
        ((50, 3, 4, 3), (3, 4, 3)),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float64, np.int32, bool])
def test_shapes_and_types(shape, becomes, dtype):
    x = (RNG.random(shape) * 255).astype(dtype)
    d = datasets.from_arrays(x, Y, x, Y)
    assert d.shape == becomes
    expected = (np.uint8, "scale") if dtype is np.uint8 else (np.float32, "none")
    assert (d.x.dtype, d.transform) == expected
    assert np.sort(d.x[7], axis=None).tolist() == np.sort(x[7].astype(d.x.dtype), axis=None).tolist()
    assert d.x.flags.c_contiguous


def test_channels_last_is_turned_not_reshaped():
    x = RNG.integers(0, 256, (50, 5, 4, 3), np.uint8)
    d = datasets.from_arrays(x, Y, x, Y)
    assert (d.x[3, 2, 1, 0], d.x[9, 0, 4, 3]) == (x[3, 1, 0, 2], x[9, 4, 3, 0])


def test_class_names():
    x = np.zeros((50, 2))
    words = np.array(["cat", "dog", "ant", "bee", "cow"])[Y]
    d = datasets.from_arrays(x, words)
    assert d.classes == ("ant", "bee", "cat", "cow", "dog")
    assert (np.bincount(d.y) == 8).all()
    assert datasets.from_arrays(x, words, classes=["cow", "bee", "ant", "dog", "cat"]).y[0] == 4
    assert datasets.from_arrays(x, Y, classes=["a", "b", "c", "d", "e", "never"]).classes[-1] == "never"
    assert datasets.from_arrays(x, Y.astype(float)).y.dtype == np.int64


def arrays(**changes):
    return {"x": np.zeros((50, 2)), "y": Y} | changes


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (arrays(y=Y[:-1]), r"mine, training set: 50 examples but 49 labels"),
        (arrays(y=np.where(np.arange(50) == 8, -1, Y)), r"label -1 at index 8 is not in 0\.\.4"),
        (arrays(y=np.where(np.arange(50) == 8, 5, Y), classes=list("abcde")), r"label 5 at index 8 is not in 0\.\.4"),
        (arrays(y=np.where(np.arange(50) == 8, 10**9, Y)), r"label 1000000000 is too large"),
        (arrays(y=np.where(np.arange(50) == 8, np.nan, Y)), r"y is nan at index 8"),
        (arrays(y=np.where(np.arange(50) == 8, 0.5, Y)), r"y is 0\.5 at index 8"),
        (arrays(y=np.zeros(50, int)), r"all 50 labels are class 0; at least two classes"),
        (arrays(y=np.eye(5)[Y]), r"y holds float64 of shape \(50, 5\)"),
        (arrays(y=np.array(["a", "b"] * 25), classes=["a"]), r"y is 'b' at index 1, not one of the classes"),
        (arrays(x=np.zeros((0, 2)), y=np.zeros(0, int)), r"there are no training examples"),
        (arrays(x=np.where(np.arange(100).reshape(50, 2) == 46, np.nan, 0)), r"example 23 has a NaN or infinite"),
        (arrays(x=np.where(np.arange(100).reshape(50, 2) == 46, 1e300, 0)), r"example 23 has a NaN or infinite"),
        (arrays(x=np.zeros(50)), r"x has shape \(50,\)"),
        (arrays(x=np.zeros((50, 0))), r"x has shape \(50, 0\)"),
        (arrays(x=np.full((50, 2), "a")), r"x holds <U1, not numbers"),
        (arrays(x=[[1], [1, 2]] * 25), r"x is not an array"),
        (arrays(x_test=np.zeros((5, 2))), r"x_test and y_test go together"),
        (arrays(x_test=np.zeros((5, 3)), y_test=Y[:5]), r"x_test holds float32 of shape \(3,\), x float32 of shape"),
        (arrays(x_test=np.zeros((5, 2), np.uint8), y_test=Y[:5]), r"x_test holds uint8"),
        (arrays(x_test=np.zeros((5, 2)), y_test=Y[:4]), r"mine, test set: 5 examples but 4 labels"),
        (arrays(groups=Y[:9]), r"9 groups for 50 training examples"),
        (arrays(groups=np.zeros((50, 2), int)), r"groups holds int64 of shape"),
        (arrays(groups=[0.5] * 50), r"groups holds float64"),
        (arrays(x=np.zeros((3, 2)), y=np.arange(3)), r"too few to split off a test set; give x_test"),
    ],
)
def test_arrays_that_are_refused(fields, told):
    with pytest.raises(FedskewError, match="mine.*" + told if not told.startswith("mine") else told):
        datasets.from_arrays(**fields, name="mine")


# --- .npz -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", [True, False])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path, test, save):
    x, groups = RNG.integers(0, 256, (50, 6, 6), np.uint8), np.array([f"u{i % 4}" for i in range(50)])
    more = {"x_test": x[:7], "y_test": Y[:7]} if test else {}
    save(tmp_path / "own.npz", x=x, y=Y, groups=groups, classes=np.array(list("abcde")), **more)
    d = datasets.load(str(tmp_path / "own.npz"))
    e = datasets.from_arrays(x, Y, **more, groups=groups, classes=list("abcde"))
    assert d.fingerprint() == e.fingerprint()
    assert (d.name, d.shape, d.classes) == ("own.npz", (1, 6, 6), tuple("abcde"))
    labels = datasets.load_labels(str(tmp_path / "own.npz"))
    assert same(d.labels, labels)
    assert (labels.groups == d.groups).all()


class Evil:
    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def evil_npz(path, marker):
    """x is an array of objects whose unpickling makes a folder."""
    np.savez(path, x=np.array([Evil(marker)] * 2, object), y=np.arange(2))


def evil_label_npz(path, marker):
    np.savez(path, x=np.zeros((2, 2)), y=np.array([Evil(marker)] * 2, object))


def bare_pickle(path, marker):
    path.write_bytes(pickle.dumps(Evil(marker)))


def pickle_in_zip(path, marker):
    with zipfile.ZipFile(path, "w") as box:
        for name in ("x.npy", "y.npy"):
            box.writestr(name, pickle.dumps(Evil(marker)))


@pytest.mark.parametrize("make", [evil_npz, evil_label_npz, bare_pickle, pickle_in_zip])
def test_no_pickle_is_ever_run(tmp_path, make):
    marker = tmp_path / "marker"
    make(tmp_path / "evil.npz", marker)
    with pytest.raises(FedskewError, match=r"evil\.npz"):
        datasets.load(str(tmp_path / "evil.npz"))
    if make is not evil_npz:
        with pytest.raises(FedskewError, match=r"evil\.npz"):
            datasets.load_labels(str(tmp_path / "evil.npz"))
    assert not marker.exists()
    pickle.loads(pickle.dumps(Evil(marker)))
    assert marker.exists(), "the trap works when it is sprung"


def test_npz_files_that_are_refused(tmp_path):
    path = tmp_path / "own.npz"

    def refused(told):
        for load in (datasets.load, datasets.load_labels):
            with pytest.raises(FedskewError, match=told):
                load(str(path))

    refused(r"own\.npz does not exist")
    np.savez(path, X=np.zeros((4, 2)), labels=np.arange(4))
    refused(r"own\.npz has X, labels but no x and y")
    np.savez(path, x=np.zeros((4, 2)), y=np.array([0, 1, -3, 0]))
    refused(r"own\.npz, training set: label -3 at index 2")
    np.save(tmp_path / "a.npy", np.zeros(3))
    path.write_bytes((tmp_path / "a.npy").read_bytes())
    refused(r"own\.npz is not an \.npz file")
    path.write_bytes(b"")
    refused(r"own\.npz is not an \.npz file")
    np.savez(path, x=RNG.normal(size=(50, 20)), y=Y)
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    refused(r"own\.npz is damaged")
    at = raw.index(Y.tobytes()) + 9
    path.write_bytes(raw[:at] + b"\x01" + raw[at + 1 :])
    refused(r"own\.npz is damaged")
