"""Archives that mean harm: nothing is written outside the target, whatever they hold."""

import io
import stat
import tarfile
import zipfile

import numpy as np
import pytest

from fedskew.data.unpack import unpack
from fedskew.errors import FedskewError


def make_tar(path, members, mode="w:gz"):
    """members: (name, bytes) or a TarInfo."""
    with tarfile.open(path, mode) as tape:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tape.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tape.addfile(info, io.BytesIO(member[1]))
    return path


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as box:
        for name, body in members:
            box.writestr(name, body)
    return path


def special(name, kind, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.fixture
def place(tmp_path):
    (tmp_path / "inside").mkdir()
    return tmp_path


def run(archive, target, wanted=lambda path: path, max_bytes=1_000_000, max_members=100):
    return list(unpack(archive, target, wanted, max_bytes=max_bytes, max_members=max_members))


def everything(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() or p.is_symlink())


@pytest.mark.parametrize("make", [make_tar, make_zip])
def test_what_is_wanted_is_written_and_nothing_else(place, make):
    archive = make(place / "a", [("./top/a.txt", b"A" * 500_000), ("top/b.txt", b"B"), ("c.txt", b"C")])
    steps = run(archive, place / "inside", lambda p: p if p.name != "b.txt" else None)
    assert everything(place / "inside") == ["c.txt", "top/a.txt"]
    assert (place / "inside/top/a.txt").read_bytes() == b"A" * 500_000
    assert steps[-1].done == steps[-1].total == archive.stat().st_size


@pytest.mark.parametrize("make", [make_tar, make_zip])
@pytest.mark.parametrize(
    "name",
    ["../evil", "good/../../evil", "/evil", "..\\evil", "C:\\evil", "C:evil", "\\\\host\\share\\evil", "good/.."],
)
@pytest.mark.parametrize("wanted", [True, False])
def test_a_path_that_leaves_the_archive(place, make, name, wanted):
    archive = make(place / "a", [("good.txt", b"good"), (name, b"evil")])
    before = everything(place)
    with pytest.raises(FedskewError, match="points outside the archive"):
        run(archive, place / "inside", lambda p: p if wanted or p.name == "good.txt" else None)
    assert set(everything(place)) - set(before) == {"inside/good.txt"}


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (tarfile.SYMTYPE, "link"),
        (tarfile.LNKTYPE, "hard link"),
        (tarfile.FIFOTYPE, "odd entry"),
        (tarfile.CHRTYPE, "odd entry"),
        (tarfile.BLKTYPE, "odd entry"),
    ],
)
def test_a_link_or_a_device_in_a_tar(place, kind, what):
    (place / "secret").write_text("secret")
    archive = make_tar(place / "a", [special("way", kind, "../secret"), ("way", b"overwritten")])
    with pytest.raises(FedskewError, match=f"'way' is a {what}, which is never unpacked"):
        run(archive, place / "inside")
    assert everything(place / "inside") == []
    assert (place / "secret").read_text() == "secret"


def test_a_link_in_a_zip(place):
    with zipfile.ZipFile(place / "a", "w") as box:
        entry = zipfile.ZipInfo("way")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        box.writestr(entry, "../secret")
    with pytest.raises(FedskewError, match="'way' is a link"):
        run(place / "a", place / "inside")
    assert everything(place / "inside") == []


@pytest.mark.parametrize("make", [make_tar, make_zip])
@pytest.mark.parametrize("wanted", [True, False])
def test_a_bomb_of_bytes(place, make, wanted):
    archive = make(place / "a", [(f"{i}.bin", bytes(300_000)) for i in range(10)])
    assert archive.stat().st_size < 20_000
    with pytest.raises(FedskewError, match="unpacks to more than 1,000,000 bytes"):
        run(archive, place / "inside", lambda p: p if wanted else None)
    assert sum(p.stat().st_size for p in (place / "inside").rglob("*")) <= 1_000_000


@pytest.mark.parametrize("make", [make_tar, make_zip])
def test_a_bomb_of_members(place, make):
    archive = make(place / "a", [(f"{i}", b"") for i in range(101)])
    with pytest.raises(FedskewError, match="more than 100 members"):
        run(archive, place / "inside")


def test_a_zip_that_lies_about_a_length(place):
    """A member that says one byte and holds many writes no more than it says."""
    archive = make_zip(place / "a", [("x", bytes(900_000))])
    raw = bytearray(archive.read_bytes())
    true = (900_000).to_bytes(4, "little")
    assert raw.count(true) == 2
    archive.write_bytes(raw.replace(true, (1).to_bytes(4, "little")))
    with pytest.raises(FedskewError):
        run(archive, place / "inside", max_bytes=100)
    assert sum(p.stat().st_size for p in (place / "inside").rglob("*")) <= 1


@pytest.mark.parametrize("make", [make_tar, make_zip])
def test_a_member_is_never_overwritten(place, make):
    members = [("x", b"first"), ("x", b"second")]
    if make is make_zip:
        with pytest.warns(UserWarning, match="Duplicate"):
            archive = make(place / "a", members)
    else:
        archive = make(place / "a", members)
    with pytest.raises(FedskewError, match="cannot be unpacked"):
        run(archive, place / "inside")
    assert (place / "inside/x").read_bytes() == b"first"


@pytest.mark.parametrize("make", [make_tar, make_zip])
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9])
def test_a_truncated_archive(place, make, keep):
    body = np.random.default_rng(0).bytes(300_000)
    raw = make(place / "a", [("x", body), ("y", body)]).read_bytes()
    (place / "a").write_bytes(raw[: int(len(raw) * keep)])
    with pytest.raises(FedskewError, match=r"damaged|shorter than it says"):
        run(place / "a", place / "inside")
