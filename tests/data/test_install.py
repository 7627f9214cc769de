"""From a mirror or a folder into the data folder: checked first, then there as a whole."""

import io
import tarfile
from dataclasses import replace

import numpy as np
import pytest
from small_sets import official, small_speech

from fedskew.data import check, install, speech
from fedskew.data.sources import Source
from fedskew.errors import FedskewError

pytestmark = pytest.mark.network
BODIES = {f"{name}.bin": np.random.default_rng(i).bytes(50_000) for i, name in enumerate(("one", "two"))}


def loose(*mirrors):
    files = tuple(official(n, b, *(m.url(n) for m in mirrors)) for n, b in BODIES.items())
    return Source("small", "small-set", 2, 1, ("a", "b"), (1,), "none", "none", files)


def packed(archive, *mirrors):
    return replace(
        loose(),
        archive=official("small.tar.gz", archive, *(m.url("small.tar.gz") for m in mirrors)),
        max_bytes=200_000,
        max_members=10,
    )


def tarball(members):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tape:
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tape.addfile(info, io.BytesIO(body))
    return raw.getvalue()


GOOD = tarball({f"small-set/{name}": body for name, body in BODIES.items()} | {"small-set/readme.html": b"?"})


def get(source, folder, origin=None):
    return list(install.get(source, folder, origin, pause=0.01))


def visible(folder):
    """Every file that is not a lock."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.suffix != ".lock")


def whole(folder):
    return {f"small-set/{name}" for name in BODIES} <= set(visible(folder)) and all(
        (folder / "small-set" / name).read_bytes() == body for name, body in BODIES.items()
    )


def test_loose_files_from_a_mirror(mirror, tmp_path):
    mirror.files |= BODIES
    get(loose(mirror), tmp_path)
    assert whole(tmp_path)
    assert visible(tmp_path) == ["small-set/one.bin", "small-set/two.bin"]
    assert get(loose(mirror), tmp_path) == [], "what is whole is left alone"
    assert len(mirror.asked) == 2


def test_a_damaged_file_is_fetched_again_and_the_others_are_not(mirror, tmp_path):
    mirror.files |= BODIES
    get(loose(mirror), tmp_path)
    (tmp_path / "small-set/two.bin").write_bytes(b"\0" + BODIES["two.bin"][1:])
    get(loose(mirror), tmp_path)
    assert whole(tmp_path)
    assert [name for name, _ in mirror.asked] == ["one.bin", "two.bin", "two.bin"]


def test_an_archive_from_a_mirror(mirror, tmp_path):
    mirror.files["small.tar.gz"] = GOOD
    steps = get(packed(GOOD, mirror), tmp_path)
    assert whole(tmp_path)
    assert visible(tmp_path) == ["small-set/one.bin", "small-set/two.bin"], "neither the archive nor the readme stays"
    assert {s.step for s in steps} == {"download small.tar.gz", "unpack small.tar.gz"}
    assert get(packed(GOOD, mirror), tmp_path) == []


@pytest.mark.parametrize("bad", ["../evil.bin", "/evil.bin"])
def test_an_archive_with_the_right_checksum_and_evil_members(mirror, tmp_path, bad):
    evil = tarball({"small-set/one.bin": BODIES["one.bin"], bad: b"evil"})
    mirror.files["small.tar.gz"] = evil
    with pytest.raises(FedskewError, match="points outside"):
        get(packed(evil, mirror), tmp_path / "data")
    assert visible(tmp_path) == ["data/small.tar.gz"]


def test_an_archive_without_all_the_files(mirror, tmp_path):
    poor = tarball({"small-set/one.bin": BODIES["one.bin"]})
    mirror.files["small.tar.gz"] = poor
    with pytest.raises(FedskewError, match=r"two\.bin is not as the official one: missing; nothing was put in place"):
        get(packed(poor, mirror), tmp_path)
    assert not (tmp_path / "small-set").exists()


def test_from_a_folder_with_the_archive(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own/small.tar.gz").write_bytes(GOOD)
    get(packed(GOOD), tmp_path / "data", tmp_path / "own")
    assert whole(tmp_path / "data")
    assert (tmp_path / "own/small.tar.gz").read_bytes() == GOOD, "the user's file stays"


def test_from_a_folder_with_a_damaged_archive(tmp_path):
    (tmp_path / "small.tar.gz").write_bytes(GOOD[:1000] + bytes([GOOD[1000] ^ 1]) + GOOD[1001:])
    with pytest.raises(FedskewError, match=r"small\.tar\.gz is not the official file: .*expected sha256"):
        get(packed(GOOD), tmp_path / "data", tmp_path)
    assert visible(tmp_path / "data") == []
    assert (tmp_path / "small.tar.gz").exists()


@pytest.mark.parametrize("make", [loose, lambda: packed(GOOD)])
@pytest.mark.parametrize("inner", ["small-set", "."])
def test_from_a_folder_with_the_official_layout(tmp_path, make, inner):
    (tmp_path / "own" / inner).mkdir(parents=True)
    for name, body in BODIES.items():
        (tmp_path / "own" / inner / name).write_bytes(body)
    steps = get(make(), tmp_path / "data", tmp_path / "own")
    assert whole(tmp_path / "data")
    assert steps[-1].done == steps[-1].total
    assert len(visible(tmp_path / "own")) == 2


@pytest.mark.parametrize("make", [loose, lambda: packed(GOOD)])
def test_from_a_folder_with_a_damaged_file(tmp_path, make):
    for name, body in BODIES.items():
        (tmp_path / name).write_bytes(body)
    (tmp_path / "two.bin").write_bytes(bytes(50_000))
    with pytest.raises(FedskewError, match=r"two\.bin is not .*expected sha256"):
        get(make(), tmp_path / "data", tmp_path)
    assert not (tmp_path / "data/small-set/two.bin").exists()
    assert (tmp_path / "two.bin").exists()


@pytest.mark.parametrize("make", [loose, lambda: packed(GOOD)])
def test_from_a_folder_without_the_files(tmp_path, make):
    with pytest.raises(FedskewError, match=r"--from .* give the folder with the files of small"):
        get(make(), tmp_path / "data", tmp_path)
    with pytest.raises(FedskewError, match="is not a folder"):
        get(make(), tmp_path / "data", tmp_path / "nowhere")


def test_what_else_lies_in_the_folder_stays(mirror, tmp_path):
    mirror.files["small.tar.gz"] = GOOD
    (tmp_path / "small-set").mkdir()
    (tmp_path / "small-set/notes.txt").write_text("mine")
    (tmp_path / "small-set/one.bin").write_bytes(b"damaged")
    get(packed(GOOD, mirror), tmp_path)
    assert whole(tmp_path)
    assert (tmp_path / "small-set/notes.txt").read_text() == "mine"


def test_what_a_killed_run_left_is_cleared(mirror, tmp_path):
    mirror.files["small.tar.gz"] = GOOD
    (tmp_path / ".small-set-abc.tmp/small-set").mkdir(parents=True)
    (tmp_path / ".small-set-abc.tmp/small-set/one.bin").write_bytes(b"half")
    get(packed(GOOD, mirror), tmp_path)
    assert visible(tmp_path) == ["small-set/one.bin", "small-set/two.bin"]


def test_two_at_once_the_second_is_refused(mirror, tmp_path):
    mirror.files |= BODIES
    first = install.get(loose(mirror), tmp_path)
    next(first)
    with pytest.raises(FedskewError, match="another process is getting small"):
        get(loose(mirror), tmp_path)
    list(first)
    assert whole(tmp_path)


def test_speech_keeps_the_ten_words_and_the_lists_alone(mirror, tmp_path):
    source = small_speech(tmp_path / "made" / "speech_commands_v0.01")
    home = tmp_path / "made" / "speech_commands_v0.01"
    members = {f"./{p.relative_to(home).as_posix()}": p.read_bytes() for p in sorted(home.rglob("*")) if p.is_file()}
    extra = {"./bed/aa_nohash_0.wav": b"x", "./_background_noise_/hum.wav": b"x", "./yes/notes.txt": b"x"}
    archive = tarball(members | extra | {"./README.md": b"x"})
    mirror.files["speech.tar.gz"] = archive
    source = replace(source, archive=official("speech.tar.gz", archive, mirror.url("speech.tar.gz")))
    get(source, tmp_path / "data")
    got = visible(tmp_path / "data")
    assert got == sorted([f"{home.name}/{name[2:]}" for name in members] + [f"{home.name}/{speech.SUMS}"])
    assert {s.state for s in check.check(source, tmp_path / "data")} == {"ok"}

    clip = tmp_path / "data" / home.name / "up" / "bb_nohash_0.wav"
    raw = bytearray(clip.read_bytes())
    raw[1000] ^= 1
    clip.write_bytes(raw)
    bad = [s for s in check.check(source, tmp_path / "data") if s.state != "ok"]
    assert [s.file for s in bad] == ["up/"]
    assert "bb_nohash_0.wav" in bad[0].detail
    with pytest.raises(FedskewError, match=r"bb_nohash_0\.wav.*sha256.*fedskew data get speech-commands"):
        speech.read(tmp_path / "data", source)
    with pytest.raises(FedskewError, match="up/ is not as the official one"):
        get(source, tmp_path / "elsewhere", tmp_path / "data")


def test_speech_from_a_folder_with_the_official_layout(speech_set, tmp_path):
    folder, source = speech_set
    source = replace(source, archive=official("speech.tar.gz", b"never fetched"))
    get(source, tmp_path / "other", folder)
    assert {s.state for s in check.check(source, tmp_path / "other")} == {"ok"}
    (folder / source.folder / "go" / "aa_nohash_0.wav").unlink()
    with pytest.raises(FedskewError, match=r"go/ is not as the official one: 3 of 4 clips"):
        get(source, tmp_path / "third", folder)
    assert visible(tmp_path / "third") == []
