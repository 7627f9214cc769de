"""What of a data set is on the disk, and whether it is whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedskew.data import speech, verify
from fedskew.data.sources import SPLIT_LISTS, Source
from fedskew.errors import FedskewError

Verdict = Literal["ok", "missing", "damaged"]


@dataclass(frozen=True)
class State:
    """One official file, or the folder of one spoken word."""

    file: str
    state: Verdict
    detail: str
    size: int


def check(source: Source, folder: Path) -> Iterator[State]:
    """Every file the loader of a data set reads, its bytes compared with the official ones where these are known."""
    home = folder / source.folder
    for file in source.files:
        path = home / file.name
        fault = verify.fault(path, file)
        size = path.stat().st_size if path.is_file() else 0
        yield State(file.name, _verdict(fault), fault or "", size)
    if source.clips:
        yield from _speech(source, home)


def verdict(states: list[State]) -> Verdict:
    """Of a whole data set: missing when nothing of it is there."""
    if all(s.state == "ok" for s in states):
        return "ok"
    return "missing" if all(s.state == "missing" for s in states) else "damaged"


def glance(source: Source, folder: Path) -> Verdict:
    """The same from names and lengths alone, at once; damage inside a file is not seen."""
    home = folder / source.folder
    right = [(home / f.name).is_file() and (home / f.name).stat().st_size == f.size for f in source.files]
    right += [(home / name).is_file() for name in SPLIT_LISTS if source.clips]
    right += [len(speech.wav_names(home / w)) == n for w, n in zip(source.classes, source.clips, strict=False)]
    if all(right):
        return "ok"
    return "damaged" if any(right) else "missing"


def _verdict(fault: str | None) -> Verdict:
    return "ok" if fault is None else "missing" if fault == "missing" else "damaged"


def _speech(source: Source, home: Path) -> Iterator[State]:
    sums = speech.checksums(home)
    for name, expected in zip(SPLIT_LISTS, (source.validation, source.test), strict=True):
        fault = _list_fault(source, home / name, expected, sums.get(name))
        yield State(name, _verdict(fault), fault or "", _size(home / name))
    for word, number in zip(source.classes, source.clips, strict=True):
        names = speech.wav_names(home / word)
        fault = "missing" if not names else None
        if names and len(names) != number:
            fault = f"{len(names):,} of {number:,} clips"
        for name in names:
            try:
                speech.decode(home / word / name, sums.get(f"{word}/{name}"))
            except (FedskewError, OSError) as e:
                fault = str(e)
                break
        detail = fault or f"{number:,} clips" + ("" if sums else ", no checksums")
        yield State(f"{word}/", _verdict(fault), detail, sum(_size(home / word / name) for name in names))


def _list_fault(source: Source, path: Path, expected: int, digest: str | None) -> str | None:
    if not path.is_file():
        return "missing"
    try:
        got = len(speech.split_list(path, source))
    except FedskewError as e:
        return str(e)
    if digest is not None and hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        return "its sha256 is not what it was when it was put in place"
    return None if got == expected else f"it names {got:,} of {expected:,} clips"


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
