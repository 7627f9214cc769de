"""Speech Commands (Warden 2017, 2018): ten keywords, the official split lists, 50 x 10 MFCCs computed once.

Training examples are the clips of neither official list. The clips of `validation_list.txt` are left out of both
parts: the papers here use no validation set, and training on it would not be the official split. A group is a
speaker, the part of a clip's name before `_nohash_`.
"""

from __future__ import annotations

import hashlib
import io
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedskew.data import verify
from fedskew.data.dataset import Dataset, Labels
from fedskew.data.sources import SPLIT_LISTS, Source
from fedskew.errors import FedskewError

RATE = 16_000
SUMS = "SHA256SUMS"  # written when the set is put in place, in the format of sha256sum
TRAIN, VALIDATION, TEST = range(3)


@dataclass(frozen=True)
class Clips:
    """Every clip of the ten words, in the order of the words and of the names."""

    paths: tuple[str, ...]  # word/name.wav
    y: NDArray[np.int64]
    split: NDArray[np.int64]  # TRAIN, VALIDATION or TEST

    def of(self, split: int) -> tuple[str, ...]:
        """The clips of one split."""
        return tuple(self.paths[i] for i in np.flatnonzero(self.split == split))

    @property
    def speakers(self) -> NDArray[np.str_]:
        """The speaker of each clip."""
        return np.array([path.partition("/")[2].partition("_nohash_")[0] for path in self.paths])


def read(folder: Path, source: Source) -> Dataset:
    """Standardised features (n, 1, 50, 10) of the training and test clips, their words and their speakers."""
    from fedskew.data import features

    found = clips(folder, source)
    x, x_test = features.load(folder / source.folder, source, found)
    labels = _labels(source, found)
    return Dataset(
        name=source.name,
        x=x,
        y=labels.y,
        x_test=x_test,
        y_test=found.y[found.split == TEST],
        classes=source.classes,
        groups=labels.groups,
        transform="none",
    )


def read_labels(folder: Path, source: Source) -> Labels:
    """The words and speakers of the training clips; no clip is opened."""
    return _labels(source, clips(folder, source))


def clips(folder: Path, source: Source) -> Clips:
    """Which clips there are and which split each is in; a set that is not whole is refused."""
    home = folder / source.folder
    paths: list[str] = []
    for word, expected in zip(source.classes, source.clips, strict=True):
        names = wav_names(home / word)
        if len(names) != expected:
            why = f"{len(names):,} of {expected:,} clips there" if names else "missing"
            raise verify.refusal(source, home / word, why)
        paths += [f"{word}/{name}" for name in names]
    listed = [split_list(home / name, source) for name in SPLIT_LISTS]
    for name, entries in zip(SPLIT_LISTS, listed, strict=True):
        if lost := sorted(entries - set(paths)):
            raise verify.refusal(source, home / lost[0], f"missing ({name} names it)")
    split = np.array([VALIDATION if p in listed[0] else TEST if p in listed[1] else TRAIN for p in paths])
    for name, which, expected in zip(SPLIT_LISTS, (VALIDATION, TEST), (source.validation, source.test), strict=True):
        if (got := int((split == which).sum())) != expected:
            raise verify.refusal(source, home / name, f"damaged: it names {got:,} of {expected:,} clips")
    return Clips(tuple(paths), np.repeat(np.arange(len(source.clips)), source.clips), split)


def wav_names(folder: Path) -> list[str]:
    """The names of the clips in a word's folder."""
    try:
        return sorted(path.name for path in folder.iterdir() if path.suffix == ".wav")
    except (FileNotFoundError, NotADirectoryError):
        return []


def split_list(path: Path, source: Source) -> set[str]:
    """The clips that an official list names, of the ten words alone."""
    try:
        lines = path.read_text(encoding="ascii").split()
    except FileNotFoundError:
        raise verify.refusal(source, path, "missing") from None
    except (OSError, UnicodeDecodeError):
        raise verify.refusal(source, path, "damaged: it is not a list of clips") from None
    return {line for line in lines if line.partition("/")[0] in source.classes}


def checksums(home: Path) -> dict[str, str]:
    """The sha256 of each clip as it was when the set was put in place; empty for a set from elsewhere."""
    try:
        lines = (home / SUMS).read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, UnicodeDecodeError):
        return {}
    return {path: digest for digest, _, path in (line.partition("  ") for line in lines)}


def decode(path: Path, expected: str | None = None) -> NDArray[np.int16]:
    """The samples of a clip: 16 kHz, one channel, 16 bits. The stdlib's reader is twice as fast as soundfile here."""
    data = path.read_bytes()
    if expected is not None and hashlib.sha256(data).hexdigest() != expected:
        raise FedskewError(f"{path}: its sha256 is not what it was when it was put in place")
    try:
        with wave.open(io.BytesIO(data)) as clip:
            form = (clip.getframerate(), clip.getnchannels(), 8 * clip.getsampwidth())
            if form != (RATE, 1, 16):
                raise FedskewError(
                    f"{path}: {form[0]:,} Hz, {form[1]} channels, {form[2]} bits; clips must be 16,000 Hz, "
                    "1 channel, 16 bits"
                )
            said, samples = clip.getnframes(), np.frombuffer(clip.readframes(clip.getnframes()), "<i2")
    except (wave.Error, EOFError, ValueError) as e:
        raise FedskewError(f"{path} is not a wav file of plain samples: {e or 'it ends too soon'}") from None
    if not len(samples) or len(samples) != said:
        raise FedskewError(f"{path} is cut short: {len(samples):,} of {said:,} samples")
    return samples.astype(np.int16, copy=False)


def _labels(source: Source, found: Clips) -> Labels:
    train = found.split == TRAIN
    groups = np.unique(found.speakers[train], return_inverse=True)[1]
    return Labels(source.name, found.y[train], source.classes, groups.astype(np.int64))
