"""Unpack an archive that nobody has vouched for: nothing outside the target, no links, no devices, no bombs."""

from __future__ import annotations

import gzip
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from fedskew.data.download import Progress
from fedskew.errors import FedskewError

_CHUNK = 1 << 18
_REPORT = 1 << 22  # bytes unpacked between two reports
_BROKEN = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, lzma.LZMAError, zlib.error),
    *(EOFError, ValueError, NotImplementedError, RuntimeError),
)


@dataclass(frozen=True)
class _Member:
    name: str
    size: int
    kind: str  # "file", "folder" or what else it is
    open: Callable[[], IO[bytes]]
    at: int  # how far into the archive it lies


def unpack(
    archive: Path,
    target: Path,
    wanted: Callable[[PurePosixPath], PurePosixPath | None],
    *,
    max_bytes: int,
    max_members: int,
) -> Iterator[Progress]:
    """Write the members for which `wanted` gives a place below `target`, which must exist and be empty.

    Any unsafe member, wanted or not, ends it with an error; the caller throws the target away. The caps hold for
    the whole archive, because a member that is passed over costs as much to decompress.
    """
    step, total = f"unpack {archive.name}", archive.stat().st_size
    bytes_left, members, reported = max_bytes, 0, 0
    try:
        for member in _members(archive):
            members += 1
            if members > max_members:
                raise FedskewError(f"{archive} has more than {max_members:,} members; it is not the official file")
            place = _safe(archive, member)
            bytes_left -= member.size
            if bytes_left < 0:
                raise FedskewError(
                    f"{archive} unpacks to more than {max_bytes:,} bytes, at {member.name!r}; it is not the "
                    "official file"
                )
            if member.kind == "file" and (chosen := wanted(place)) is not None:
                _write(archive, member, target / chosen)
            if max_bytes - bytes_left - reported >= _REPORT:
                reported = max_bytes - bytes_left
                yield Progress(step, min(member.at, total), total)
    except _BROKEN as e:
        raise FedskewError(f"{archive} is damaged and cannot be unpacked: {e}; get it again") from None
    except OSError as e:
        raise FedskewError(f"{archive} cannot be unpacked into {target}: {e}") from None
    yield Progress(step, total, total)


def _members(archive: Path) -> Iterator[_Member]:
    with archive.open("rb") as raw:
        if raw.read(4).startswith(b"PK"):
            with zipfile.ZipFile(raw) as box:
                for entry in box.infolist():
                    contents = partial(box.open, entry)
                    yield _Member(entry.filename, entry.file_size, _zip_kind(entry), contents, entry.header_offset)
            return
        raw.seek(0)
        with tarfile.open(fileobj=raw, mode="r:*") as tape:
            for info in tape:
                yield _Member(info.name, info.size, _tar_kind(info), partial(_contents, tape, info), raw.tell())


def _contents(tape: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    contents = tape.extractfile(info)
    assert contents is not None  # a regular file has contents
    return contents


def _tar_kind(info: tarfile.TarInfo) -> str:
    if info.issym() or info.islnk():
        return "link" if info.issym() else "hard link"
    return "file" if info.isreg() else "folder" if info.isdir() else "odd entry"


def _zip_kind(entry: zipfile.ZipInfo) -> str:
    mode = entry.external_attr >> 16
    if stat.S_ISLNK(mode):
        return "link"
    if entry.is_dir():
        return "folder"
    return "file" if not stat.S_IFMT(mode) or stat.S_ISREG(mode) else "odd entry"


def _safe(archive: Path, member: _Member) -> PurePosixPath:
    """The member's path, if it stays below the target on every platform."""
    name = member.name
    parts = name.replace("\\", "/").split("/")
    if member.kind not in ("file", "folder"):
        raise FedskewError(
            f"{archive}: {name!r} is a {member.kind}, which is never unpacked; it is not the official file"
        )
    if PurePosixPath(name).is_absolute() or PureWindowsPath(name).anchor or ".." in parts or "\0" in name:
        raise FedskewError(f"{archive}: {name!r} points outside the archive; it is not the official file")
    return PurePosixPath(*parts)


def _write(archive: Path, member: _Member, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    left = member.size
    with member.open() as source, path.open("xb") as out:
        while chunk := source.read(_CHUNK):
            left -= len(chunk)
            if left < 0:
                raise FedskewError(f"{archive}: {member.name!r} is longer than it says; it is not the official file")
            out.write(chunk)
    if left:
        raise FedskewError(f"{archive}: {member.name!r} is shorter than it says; get it again")
