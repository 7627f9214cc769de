"""Fetch one official file: several mirrors in turn, a partial file resumed, checked, then moved into place."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Literal

from fedskew.data import verify
from fedskew.data.sources import File
from fedskew.errors import FedskewError

_CHUNK = 1 << 18
_ASK_AGAIN = (408, 416, 429)  # the only answers of 4xx after which the same mirror may give another


@dataclass(frozen=True)
class Progress:
    """How far one step is, in bytes."""

    step: str
    done: int
    total: int


def fetch(file: File, target: Path, *, tries: int = 3, pause: float = 1.0, timeout: float = 30.0) -> Iterator[Progress]:
    """Download `file` to `target`, each mirror in turn, up to `tries` times round.

    What has come so far stays in `target.part`: the next mirror, or a later call, goes on from there.
    """
    part = target.with_name(f"{target.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    _room(file, part)
    mirrors, faults = list(file.mirrors), dict[str, str]()
    for attempt in range(tries):
        if attempt and mirrors:
            time.sleep(pause * 2 ** (attempt - 1))
        for url in mirrors[:]:
            resumed = _length(part) > 0
            try:
                yield from _receive(url, file, part, timeout)
            except (OSError, http.client.HTTPException) as e:
                faults[url] = str(e).strip("<>") or type(e).__name__
                if isinstance(e, urllib.error.HTTPError) and 400 <= e.code < 500 and e.code not in _ASK_AGAIN:
                    mirrors.remove(url)
                continue
            fault = verify.fault(part, file)
            if fault is None:
                commit(part, target)
                return
            part.unlink()
            faults[url] = fault
            if not resumed:  # a whole file from this mirror alone: it will send the same again
                mirrors.remove(url)
    told = "; ".join(f"{urllib.parse.urlsplit(url).netloc}: {why}" for url, why in faults.items())
    raise FedskewError(
        f"{file.name} could not be downloaded, and nothing was put in place: {told}; try again later, or fetch "
        f"{file.mirrors[0]} by hand and use --from DIR"
    )


def commit(part: Path, target: Path) -> None:
    """Move a finished file into place so that after a power cut the old or the new one is there, never a piece."""
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    part.replace(target)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` lasting; Windows has no such call and needs none."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _receive(url: str, file: File, part: Path, timeout: float) -> Iterator[Progress]:
    """Append to `part` until it is as long as `file`; OSError when the mirror stops before."""
    have = _length(part)
    if have > file.size:
        part.unlink()
        have = 0
    step = f"download {file.name}"
    yield Progress(step, have, file.size)
    if have == file.size:
        return
    request = urllib.request.Request(url, headers={"User-Agent": "fedskew"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        answer = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as e:
        e.close()
        if e.code == 416:  # this mirror's file is shorter than what is here already: one of the two is wrong
            part.unlink(missing_ok=True)
        raise
    with answer:
        if answer.status != 206:  # the mirror ignores Range and starts anew
            have = 0
        elif (start := _start(answer.headers.get("Content-Range", ""))) != have:
            part.unlink(missing_ok=True)
            raise OSError(f"it sent bytes from {start} instead of {have}")
        with _opened(part, "ab" if have else "wb") as out:
            while (chunk := answer.read(_CHUNK)) and have + len(chunk) <= file.size:
                _write(out, chunk, part)
                have += len(chunk)
                yield Progress(step, have, file.size)
    have += len(chunk)
    if have > file.size:
        part.unlink()
        raise OSError(f"its file is longer than the official {file.size:,} bytes")
    if have < file.size:
        raise OSError(f"it stopped after {have:,} of {file.size:,} bytes")


def _opened(part: Path, mode: Literal["ab", "wb"]) -> FileIO:
    try:
        return part.open(mode, buffering=0)
    except OSError as e:
        raise FedskewError(f"{part} cannot be written: {e.strerror}; make the folder writable") from None


def _write(out: FileIO, chunk: bytes, part: Path) -> None:
    """All of the chunk. An error here is the disk's, not the mirror's, so no other mirror is asked."""
    rest = memoryview(chunk)
    try:
        while rest:
            rest = rest[out.write(rest) :]
    except OSError as e:
        raise FedskewError(f"{part} cannot be written: {e.strerror}; make room and try again") from None


def _room(file: File, part: Path) -> None:
    need, free = file.size - _length(part), shutil.disk_usage(part.parent).free
    if need > free:
        raise FedskewError(f"{file.name} needs {need:,} bytes more and {part.parent} has {free:,} free; make room")


def _length(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _start(content_range: str) -> int | None:
    match = re.match(r"bytes (\d+)-", content_range)
    return int(match[1]) if match else None
