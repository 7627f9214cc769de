"""Runs in one file, to be moved to another machine: specs, rows and, of runs that are not over, their checkpoint.

Where only small files can be moved it is cut: FILE.1, FILE.2, ... are FILE, one after another.
"""

from __future__ import annotations

import io
import itertools
import json
import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedskew.errors import FedskewError
from fedskew.store import database
from fedskew.store.entry import Entry, checked_id, checkpoint_name

if TYPE_CHECKING:
    from fedskew.store.store import Store

FORMAT = 1
LIST = "runs.json"
_COLUMNS = (
    *("id", "name", "created", "data", "partition", "algorithm", "rounds"),
    *("spec", "fingerprint", "environment", "status", "message", "finished"),
)


def pack(
    store: Store, ids: Sequence[str], path: Path, *, weights: bool = False, checkpoints: Collection[str] | None = None
) -> list[str]:
    """Write the runs to a .zip; with `weights`, the last checkpoint of finished runs too. Gives their whole ids.

    Or else only those of the runs named in `checkpoints`: who trains another one further begins it again.
    """
    entries = [store.find(id) for id in dict.fromkeys(ids)]
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            listed = []
            for entry in entries:
                wanted = weights or not entry.over if checkpoints is None else entry.id in checkpoints
                kept = store.checkpoints(entry.id)[:1] if wanted else []
                for checkpoint in kept:
                    archive.write(store.folder / checkpoint["file"], checkpoint["file"], zipfile.ZIP_STORED)
                run = {key: getattr(entry, key) for key in _COLUMNS}
                listed.append(run | {"rows": store.records(entry.id), "checkpoints": kept})
            archive.writestr(LIST, json.dumps({"format": FORMAT, "runs": listed}))
    except OSError as e:
        raise FedskewError(f"{path}: {e.strerror}; give a file that can be written") from e
    return [entry.id for entry in entries]


def cut(path: Path, size: int) -> list[Path]:
    """Cut a file into pieces of at most so many bytes; what `unpack` is given is still its name."""
    data = path.read_bytes()
    if len(data) <= size:
        return [path]
    starts = range(0, len(data), size)
    pieces = [path.with_name(f"{path.name}.{i}") for i in range(1, len(starts) + 1)]
    for piece, start in zip(pieces, starts, strict=True):
        piece.write_bytes(data[start : start + size])
    path.unlink()
    return pieces


def _whole(path: Path) -> Path | io.BytesIO:
    """The file, or its pieces put together."""
    named = (path.with_name(f"{path.name}.{i}") for i in itertools.count(1))
    pieces = [] if path.exists() else list(itertools.takewhile(Path.exists, named))
    return io.BytesIO(b"".join(piece.read_bytes() for piece in pieces)) if pieces else path


def unpack(store: Store, path: Path) -> list[str]:
    """Add the runs of a .zip; one that the store has got further with stays as it is. Gives the ids that were added."""
    try:
        with zipfile.ZipFile(_whole(path)) as archive:
            document = json.loads(archive.read(LIST))
            if document["format"] != FORMAT:
                raise FedskewError(f"{path} has format {document['format']}, this fedskew reads {FORMAT}; update it")
            return [run["id"] for run in document["runs"] if _add(store, archive, run)]
    except FileNotFoundError:
        raise FedskewError(f"{path}: there is no such file; make one with: fedskew runs pack") from None
    except (OSError, zipfile.BadZipFile, KeyError, TypeError, ValueError) as e:
        raise FedskewError(f"{path} is not a whole archive of runs ({e}); make one with: fedskew runs pack") from e


def _add(store: Store, archive: zipfile.ZipFile, run: dict[str, Any]) -> bool:
    from fedskew.run import Run

    id = checked_id(run["id"])
    Run(**run["spec"])  # which refuses what is not a run
    found: list[Entry] = [e for e in store.runs() if e.id == id]
    round = max((row["round"] for row in run["rows"]), default=0)
    if found and (found[0].over or found[0].round >= round):
        return False
    status = "interrupted" if run["status"] == "running" else run["status"]
    with store.alone(id) as home, database.writing(store.path) as db:
        for checkpoint in run["checkpoints"]:
            name = checkpoint_name(int(checkpoint["round"]))
            (home / name).write_bytes(archive.read(f"{id}/{name}"))
        with database.transaction(db, durable=True):
            db.execute("DELETE FROM runs WHERE id = ?", (id,))
            values = [json.dumps(v) if isinstance(v := run[key], dict) else v for key in _COLUMNS]
            values[_COLUMNS.index("status")] = status
            db.execute(f"INSERT INTO runs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})", values)
            db.executemany(
                "INSERT INTO rows (run, round, accuracy, record) VALUES (?, ?, ?, ?)",
                [(id, row["round"], row["accuracy"], json.dumps(row)) for row in run["rows"]],
            )
            db.executemany(
                "INSERT INTO checkpoints (run, round, sha256, bytes) VALUES (?, ?, ?, ?)",
                [(id, c["round"], c["sha256"], c["bytes"]) for c in run["checkpoints"]],
            )
    return True
