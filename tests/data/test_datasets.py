"""Data sets by name, from arrays and from .npz files: what they hold, and what is refused."""

import gzip
import os
import pickle
import subprocess
import sys
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_sets import official, write_wav

from fedskew.data import datasets, images, speech
from fedskew.data.arrays import split_off
from fedskew.data.sources import SOURCES
from fedskew.errors import FedskewError

RNG = np.random.default_rng(0)
Y = np.arange(50) % 5


def same(a, b):
    return (a.y == b.y).all() and a.classes == b.classes and a.name == b.name


# --- digits ---------------------------------------------------------------------------------------------------------


def test_digits():
    from sklearn.datasets import load_digits

    bunch, d = load_digits(), datasets.load("digits")
    assert (d.x.shape, d.x_test.shape, d.x.dtype) == ((1437, 1, 8, 8), (360, 1, 8, 8), np.uint8)
    assert (d.transform, d.classes, d.groups) == ("scale", tuple("0123456789"), None)
    assert (np.bincount(d.y) + np.bincount(d.y_test) == np.bincount(bunch.target)).all()
    assert np.abs(np.bincount(d.y_test) - 0.2 * np.bincount(bunch.target)).max() < 1
    levels = np.rint(np.concatenate([d.x, d.x_test]).reshape(-1, 64) / 255 * 16)
    rows = {(*image, label) for image, label in zip(bunch.data.tolist(), bunch.target.tolist(), strict=True)}
    assert {(*v, c) for v, c in zip(levels.tolist(), [*d.y, *d.y_test], strict=True)} == rows
    assert d.x.max() == 255
    assert same(d.labels, datasets.load_labels("digits"))


def test_digits_come_through_scikit_learn_where_its_file_is_elsewhere(tmp_path):
    from fedskew.data.datasets import _digits_table

    through = _digits_table([str(tmp_path)])
    assert through.shape == (1797, 65)
    x = np.rint(through[:, :-1] * 255 / 16)
    train, _ = split_off("digits", through[:, -1].astype(np.int64))
    assert (x[train].reshape(-1, 1, 8, 8) == datasets.load("digits").x).all()


def test_labels_are_read_without_torch_and_without_scikit_learn():
    script = (
        "import sys; from fedskew.data import datasets; datasets.load_labels('digits');"
        "print([m for m in ('torch', 'sklearn', 'soundfile') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_same_split_in_another_process():
    script = "from fedskew.data import datasets; print(datasets.load('digits').fingerprint())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == datasets.load("digits").fingerprint()


# --- names and folders ----------------------------------------------------------------------------------------------


def test_the_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path))
    assert datasets.data_folder() == tmp_path
    monkeypatch.delenv("FEDSKEW_DATA")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert datasets.data_folder().name == "fedskew"
    if sys.platform == "linux":
        assert datasets.data_folder() == tmp_path / "xdg" / "fedskew"


@pytest.mark.parametrize("load", [datasets.load, datasets.load_labels])
def test_an_unknown_name_and_sets_that_are_not_there(load, tmp_path):
    with pytest.raises(FedskewError, match=r"data set 'minst' is not known: choose one of digits, mnist, .*\.npz"):
        load("minst")
    for name in set(SOURCES) - {"digits"}:
        with pytest.raises(FedskewError, match=f"is missing; get it with: fedskew data get {name}$"):
            load(name, tmp_path)


# --- the official image files ---------------------------------------------------------------------------------------


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return gzip.compress(head + array.tobytes(), mtime=0)


@pytest.fixture
def small_mnist(tmp_path):
    arrays = [RNG.integers(0, 256, (20, 28, 28), np.uint8), np.arange(20, dtype=np.uint8) % 10]
    arrays += [RNG.integers(0, 256, (10, 28, 28), np.uint8), np.arange(10, dtype=np.uint8)]
    (tmp_path / "mnist").mkdir()
    files = []
    for file, array in zip(SOURCES["mnist"].files, arrays, strict=True):
        (tmp_path / "mnist" / file.name).write_bytes(idx(array))
        files.append(official(file.name, idx(array)))
    return tmp_path, replace(SOURCES["mnist"], files=tuple(files)), arrays


@pytest.fixture
def small_cifar(tmp_path):
    (tmp_path / "cifar-10-batches-bin").mkdir()
    batches, files = [], []
    for i, file in enumerate(SOURCES["cifar10"].files):
        rows = RNG.integers(0, 256, (4, 3073), np.uint8)
        rows[:, 0] = (np.arange(4) + i) % 10
        (tmp_path / "cifar-10-batches-bin" / file.name).write_bytes(rows.tobytes())
        batches.append(rows)
        files.append(official(file.name, rows.tobytes()))
    return tmp_path, replace(SOURCES["cifar10"], files=tuple(files)), batches


def test_mnist_files(small_mnist):
    folder, source, (x, y, x_test, y_test) = small_mnist
    d = images.mnist(folder, source)
    assert (d.x[:, 0] == x).all()
    assert (d.y == y).all()
    assert (d.x_test[:, 0] == x_test).all()
    assert (d.y_test == y_test).all()
    assert (d.x.dtype, d.y.dtype, d.transform) == (np.uint8, np.int64, "scale")
    assert (images.mnist_labels(folder, source) == y).all()


def test_cifar_files(small_cifar):
    folder, source, batches = small_cifar
    d = images.cifar10(folder, source)
    assert (d.x.shape, d.x_test.shape, d.transform) == ((20, 3, 32, 32), (4, 3, 32, 32), "crop-flip")
    assert (d.x[5, 1, 2, 3], d.y[5]) == (batches[1][1, 1 + 1024 + 2 * 32 + 3], batches[1][1, 0])
    assert (d.x_test.reshape(4, -1) == batches[-1][:, 1:]).all()
    assert (images.cifar10_labels(folder, source) == d.y).all()


@pytest.mark.parametrize("harm", ["truncate", "flip", "empty", "remove", "part"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_harmed_file_is_refused_and_named(small_cifar, harm, which):
    folder, source, _ = small_cifar
    path = folder / source.folder / source.files[which].name
    raw = path.read_bytes()
    if harm == "remove":
        path.unlink()
    elif harm == "part":
        path.rename(path.with_name(path.name + ".part"))
    else:
        path.write_bytes({"truncate": raw[:-1], "flip": bytes([raw[0] ^ 1]) + raw[1:], "empty": b""}[harm])
    why = {"truncate": "damaged: 12,291 bytes instead of 12,292", "flip": "damaged: expected sha256 .*, got .*"}
    why |= {"empty": "damaged: 0 bytes instead of 12,292", "remove": "missing", "part": "missing"}
    for read in (images.cifar10, images.cifar10_labels):
        with pytest.raises(FedskewError, match=rf"{path.name} is {why[harm]}; get it with: fedskew data get cifar10$"):
            read(folder, source)


# --- speech ---------------------------------------------------------------------------------------------------------


def test_speech_clips_and_labels(speech_set):
    folder, source = speech_set
    labels = speech.read_labels(folder, source)
    assert (labels.y == np.repeat(np.arange(10), 2)).all()
    assert labels.classes == ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
    assert (labels.groups == np.tile([0, 1], 10)).all()
    found = speech.clips(folder, source)
    assert found.of(speech.TEST) == tuple(f"{w}/dd_nohash_0.wav" for w in source.classes)
    assert set(found.speakers) == {"aa", "bb", "cc", "dd"}


def test_speech_features(speech_set):
    folder, source = speech_set
    d = speech.read(folder, source)
    assert (d.x.shape, d.x_test.shape, d.x.dtype, d.transform) == ((20, 1, 50, 10), (10, 1, 50, 10), np.float32, "none")
    assert np.abs(d.x.mean(axis=(0, 1, 2))).max() < 1e-3
    assert np.abs(d.x.std(axis=(0, 1, 2)) - 1).max() < 1e-3
    assert same(d.labels, speech.read_labels(folder, source))
    assert (d.y_test == np.arange(10)).all()


def test_speech_with_something_missing(speech_set):
    folder, source = speech_set
    home = folder / source.folder
    remedy = "get it with: fedskew data get speech-commands$"

    def refused(what):
        for read in (speech.read, speech.read_labels):
            with pytest.raises(FedskewError, match=what + ".*" + remedy):
                read(folder, source)

    listed = (home / "testing_list.txt").read_text()
    (home / "testing_list.txt").write_text(listed.replace("go/", "stop/"))
    refused(r"testing_list\.txt is damaged: it names 9 of 10 clips")
    (home / "testing_list.txt").write_text(listed + "go/zz_nohash_0.wav\n")
    refused(r"zz_nohash_0\.wav is missing \(testing_list\.txt names it\)")
    (home / "testing_list.txt").write_bytes(b"\xff\xfe")
    refused(r"testing_list\.txt is damaged")
    (home / "testing_list.txt").unlink()
    refused(r"testing_list\.txt is missing")
    (home / "testing_list.txt").write_text(listed)
    (home / "left" / "aa_nohash_0.wav").unlink()
    refused("left is 3 of 4 clips there")


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda p: p.write_bytes(p.read_bytes()[:-7000]), "is cut short"),
        (lambda p: p.write_bytes(b""), "is not a wav file of plain samples"),
        (lambda p: p.write_bytes(b"fLaC" + bytes(100)), "is not a wav file of plain samples"),
        (lambda p: write_wav(p, []), "is cut short: 0 of 0 samples"),
        (lambda p: write_wav(p, np.zeros(8000), rate=8_000), "8,000 Hz, 1 channels, 16 bits; clips must be 16,000 Hz"),
        (lambda p: write_wav(p, np.zeros(32000), channels=2), "16,000 Hz, 2 channels, 16 bits"),
        (lambda p: write_wav(p, np.zeros(16000), width=1), "16,000 Hz, 1 channels, 8 bits"),
    ],
)
def test_a_harmed_clip_is_refused_and_named(speech_set, harm, told):
    folder, source = speech_set
    harm(folder / source.folder / "stop" / "aa_nohash_0.wav")
    with pytest.raises(FedskewError, match=rf"stop.aa_nohash_0\.wav.*{told}.*fedskew data get speech-commands$"):
        speech.read(folder, source)


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


# --- the real thing -------------------------------------------------------------------------------------------------


@pytest.mark.data
def test_real_mnist(real):
    d = datasets.load("mnist", real("mnist"))
    assert (d.x.shape, d.x_test.shape) == ((60_000, 1, 28, 28), (10_000, 1, 28, 28))
    assert np.bincount(d.y).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert abs(d.x.mean() / 255 - 0.1307) < 1e-4
    assert same(d.labels, datasets.load_labels("mnist", real("mnist")))


@pytest.mark.data
def test_real_cifar10(real):
    d = datasets.load("cifar10", real("cifar10"))
    assert (d.x.shape, d.x_test.shape) == ((50_000, 3, 32, 32), (10_000, 3, 32, 32))
    assert np.bincount(d.y).tolist() == [5000] * 10
    assert np.bincount(d.y_test).tolist() == [1000] * 10
    assert np.allclose(d.x.mean(axis=(0, 2, 3)) / 255, [0.4914, 0.4822, 0.4465], atol=1e-4)
    assert same(d.labels, datasets.load_labels("cifar10", real("cifar10")))


@pytest.mark.data
def test_real_speech_commands(real):
    folder, source = real("speech-commands"), SOURCES["speech-commands"]
    found = speech.clips(folder, source)
    assert np.bincount(found.split).tolist() == [18_538, 2_577, 2_567]
    assert len(set(found.speakers.tolist())) == 1_841
    d = datasets.load("speech-commands", folder)
    assert (d.x.shape, d.x_test.shape) == ((18_538, 1, 50, 10), (2_567, 1, 50, 10))
    assert np.abs(d.x.std(axis=(0, 1, 2)) - 1).max() < 1e-2
    assert len(np.unique(d.groups)) == len(set(found.speakers[found.split == speech.TRAIN].tolist()))
    assert same(d.labels, datasets.load_labels("speech-commands", folder))
