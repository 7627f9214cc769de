"""Whether a file is the official one: present, of the right length, with the right bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedskew.data.sources import File, Source
from fedskew.errors import FedskewError

_CHUNK = 1 << 20


def hexdigest(path: Path, algorithm: str = "sha256") -> str:
    """The digest of a file's bytes; md5 only tells damage here, it guards nothing."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def fault(path: Path, file: File) -> str | None:
    """What is wrong with `path` as a copy of `file`, or None."""
    if not path.is_file():
        return "missing"
    if (size := path.stat().st_size) != file.size:
        return f"{size:,} bytes instead of {file.size:,}"
    algorithm, _, expected = file.digest.partition(":")
    got = hexdigest(path, algorithm)
    return None if got == expected else f"wrong checksum, expected {algorithm} {expected}, got {got}"


def read(folder: Path, file: File, source: Source) -> bytes:
    """The bytes of an official file, checked; anything else is refused before it is used."""
    path = folder / source.folder / file.name
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise refusal(source, path, "missing") from None
    except OSError as e:
        raise refusal(source, path, f"unreadable: {e.strerror}") from None
    algorithm, _, expected = file.digest.partition(":")
    if len(data) != file.size:
        raise refusal(source, path, f"damaged: {len(data):,} bytes instead of {file.size:,}")
    if (got := hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()) != expected:
        raise refusal(source, path, f"damaged: expected {algorithm} {expected}, got {got}")
    return data


def refusal(source: Source, path: Path, why: str) -> FedskewError:
    """The error that names the file and the remedy."""
    return FedskewError(f"{path} is {why}; get it with: fedskew data get {source.name}")
