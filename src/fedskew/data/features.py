"""The MFCCs of a speech set: computed once, kept beside the clips with a checksum, made anew when either changes."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import time
import zipfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedskew.data import speech
from fedskew.data.audio import Mfcc
from fedskew.data.sources import Source
from fedskew.errors import FedskewError

log = logging.getLogger(__name__)

CACHE = "features-mfcc.npz"
_BATCH = 64  # clips at once: their frames stay in the processor's cache
_VERSION = 1  # of the arithmetic here and in audio.py; a change makes older features stale

Floats = NDArray[np.float32]


def load(home: Path, source: Source, clips: speech.Clips, mfcc: Mfcc | None = None) -> tuple[Floats, Floats]:
    """Training and test features, each coefficient standardised by its mean and deviation over the training clips."""
    mfcc = mfcc or Mfcc()
    key = _key(home, clips, mfcc)
    path = home / CACHE
    kept, why = _kept(path, key)
    if kept is not None:
        return kept
    number = len(clips.paths) - int((clips.split == speech.VALIDATION).sum())
    log.warning("%s: %s; computing the MFCCs of %s clips once", source.name, why, f"{number:,}")
    start = time.perf_counter()
    sums = speech.checksums(home)
    train, test = (_compute(home, source, clips.of(s), sums, mfcc) for s in (speech.TRAIN, speech.TEST))
    mean = train.mean(axis=(0, 1, 2), dtype=np.float64)
    deviation = train.std(axis=(0, 1, 2), dtype=np.float64)
    deviation[deviation == 0] = 1.0
    train, test = (((part - mean) / deviation).astype(np.float32) for part in (train, test))
    try:
        _keep(path, key, train, test)
    except OSError as e:
        log.warning("%s: the features could not be kept (%s); the next load computes them again", path, e)
    log.warning("%s: features ready after %.1f s", source.name, time.perf_counter() - start)
    return train, test


def _compute(home: Path, source: Source, paths: Sequence[str], sums: dict[str, str], mfcc: Mfcc) -> Floats:
    """(n, 1, frames, coefficients) of clips that are padded with silence, or cut, to one second."""
    parts = []
    for i in range(0, len(paths), _BATCH):
        batch = paths[i : i + _BATCH]
        waves = np.zeros((len(batch), mfcc.rate), np.float32)
        for row, path in zip(waves, batch, strict=True):
            try:
                samples = speech.decode(home / path, sums.get(path))[: mfcc.rate]
            except (FedskewError, OSError) as e:
                raise FedskewError(f"{e}; get it again with: fedskew data get {source.name}") from None
            row[: len(samples)] = samples
        parts.append(mfcc(torch.from_numpy(waves / 32768)).numpy())
    return np.concatenate(parts)[:, None]


def _key(home: Path, clips: speech.Clips, mfcc: Mfcc) -> str:
    """What the features depend on: the parameters, the clips with their lengths and times of change, the split."""
    digest = hashlib.sha256(json.dumps([_VERSION, asdict(mfcc)]).encode())
    for path, split in zip(clips.paths, clips.split.tolist(), strict=True):
        stat = (home / path).stat()
        digest.update(f"\n{path} {split} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()


def _checksum(key: str, *parts: Floats) -> str:
    digest = hashlib.sha256(key.encode())
    for part in parts:
        digest.update(f"{part.dtype.str}{part.shape}".encode())
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _kept(path: Path, key: str) -> tuple[tuple[Floats, Floats] | None, str]:
    """The kept features, or why there are none that can be used."""
    if not path.is_file():
        return None, "no features kept yet"
    try:
        with path.open("rb") as raw, np.lib.npyio.NpzFile(raw, allow_pickle=False) as file:
            kept, checksum = str(file["key"]), str(file["sha256"])
            train, test = (np.asarray(file[part], np.float32) for part in ("train", "test"))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as e:
        return None, f"{path.name} is damaged ({e})"
    if kept != key:
        return None, f"{path.name} was made from other clips or parameters"
    if checksum != _checksum(key, train, test):
        return None, f"{path.name} is damaged (its sha256 differs)"
    return (train, test), ""


def _keep(path: Path, key: str, train: Floats, test: Floats) -> None:
    part = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        with part.open("xb") as file:
            np.savez(file, key=key, sha256=_checksum(key, train, test), train=train, test=test)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
