"""Data sets by name, from arrays and from .npz files: what they hold, and what is refused."""

import gzip
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from small_sets import official, same, write_wav

from fedskew.data import datasets, images, speech
from fedskew.data.arrays import split_off
from fedskew.data.sources import SOURCES
from fedskew.errors import FedskewError

RNG = np.random.default_rng(0)
Y = np.arange(50) % 5


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
@pytest.mark.slow
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
