"""What travels between a sweep and its workers: JSON and safetensors in frames, nothing that could run as code."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import IO, Any

from fedskew.rounds import Beginning, Row
from fedskew.run import Run
from fedskew.store.checkpoints import pack, unpack
from fedskew.store.hold import Hold
from fedskew.store.origin import How

_LENGTH = struct.Struct("<Q")


def frame(header: dict[str, Any], *blobs: bytes) -> bytes:
    """A header and some bytes as one piece."""
    head = json.dumps(header | {"sizes": [len(blob) for blob in blobs]}).encode()
    return b"".join((_LENGTH.pack(len(head)), head, *blobs))


def parse(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """What `frame` was given."""
    at = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    header = json.loads(data[_LENGTH.size : at])
    blobs = []
    for size in header.pop("sizes"):
        blobs.append(data[at : at + size])
        at += size
    return header, blobs


def send(pipe: IO[bytes], data: bytes) -> None:
    """One frame into a pipe."""
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes | None:
    """The next frame of a pipe; None where it ended, be it in the middle of one."""
    length = pipe.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        return None
    (size,) = _LENGTH.unpack(length)
    data = pipe.read(size)
    return data if len(data) == size else None


@dataclass(frozen=True)
class Job:
    """Runs of one shape to be trained together, each from its beginning, and how."""

    ids: list[str]
    runs: list[Run]
    prints: list[dict[str, str]]  # of the data and the split that each was started with
    beginnings: list[Beginning]
    how: How
    checkpoint_seconds: float
    threads: int | None = None  # of a CPU; None: as many as torch takes

    @classmethod
    def of(cls, held: Hold, how: How, checkpoint_seconds: float, threads: int | None) -> Job:
        """The job that goes on with runs of the store."""
        prints = [entry.fingerprint for entry in held.entries]
        return cls(held.ids, held.runs, prints, held.beginnings, how, checkpoint_seconds, threads)

    def packed(self) -> bytes:
        """The job as a frame."""
        header = {
            "ids": self.ids,
            "runs": [run.spec() for run in self.runs],
            "prints": self.prints,
            "rounds": [at.first_round for at in self.beginnings],
            "how": vars(self.how),
            "checkpoint_seconds": self.checkpoint_seconds,
            "threads": self.threads,
        }
        blobs: list[bytes] = []
        for at in self.beginnings:
            blobs.append(b"" if at.state is None else pack(at.state))
            blobs.append(b"" if at.initial is None else pack({"initial": at.initial}))
        return frame(header, *blobs)

    @classmethod
    def unpacked(cls, data: bytes) -> Job:
        """The job of a frame."""
        header, blobs = parse(data)
        beginnings = []
        for first_round, state, initial in zip(header.pop("rounds"), blobs[::2], blobs[1::2], strict=True):
            given = unpack(initial)["initial"] if initial else None
            beginnings.append(Beginning(given, unpack(state) if state else None, first_round))
        runs = [Run(**spec) for spec in header.pop("runs")]
        return cls(runs=runs, beginnings=beginnings, how=How(**header.pop("how")), **header)


def row_frame(run: int, row: Row, *, state: bool) -> bytes:
    """A row, with the state after it where a checkpoint is due."""
    return frame({"run": run, "row": row.record()}, pack(row.state) if state else b"")
