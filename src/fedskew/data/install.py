"""Put a data set into the data folder, from its mirrors or from files that are there already."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from fedskew.data import check, speech, verify
from fedskew.data.download import Progress, commit, fetch, sync_folder
from fedskew.data.sources import SPLIT_LISTS, File, Source
from fedskew.data.unpack import unpack
from fedskew.errors import FedskewError

_CHUNK = 1 << 20


def get(source: Source, folder: Path, origin: Path | None = None, *, pause: float = 1.0) -> Iterator[Progress]:
    """Fetch what is missing or damaged; `origin` is a folder with the archives or with the official layout.

    Nothing appears under its final name before its bytes were checked.
    """
    if origin is not None and not origin.is_dir():
        raise FedskewError(f"--from {origin} is not a folder; give the one that holds the files of {source.name}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(source, folder):
            if check.verdict(list(check.check(source, folder))) != "ok":
                yield from (_packed if source.archive else _loose)(source, folder, origin, pause)
    except PermissionError as e:
        raise FedskewError(f"{e.filename} cannot be written; make it writable or set FEDSKEW_DATA") from None


def _loose(source: Source, folder: Path, origin: Path | None, pause: float) -> Iterator[Progress]:
    home = folder / source.folder
    for file in source.files:
        if verify.fault(home / file.name, file) is None:
            continue
        if origin is None:
            yield from fetch(file, home / file.name, pause=pause)
        else:
            yield from _take(_find(source, origin, file.name), file, home / file.name)


def _packed(source: Source, folder: Path, origin: Path | None, pause: float) -> Iterator[Progress]:
    assert source.archive is not None
    for stray in folder.glob(f".{source.folder}-*.tmp"):
        shutil.rmtree(stray)  # left by a run that was killed; no other runs now
    with tempfile.TemporaryDirectory(prefix=f".{source.folder}-", suffix=".tmp", dir=folder) as made:
        new = Path(made) / source.folder
        new.mkdir()
        if origin is None:
            archive = folder / source.archive.name
            if verify.fault(archive, source.archive) is not None:
                yield from fetch(source.archive, archive, pause=pause)
            yield from _unpacked(source, archive, new)
        elif (origin / source.archive.name).is_file():
            archive = origin / source.archive.name
            yield Progress(f"check {archive.name}", 0, source.archive.size)
            if fault := verify.fault(archive, source.archive):
                raise FedskewError(f"{archive} is not the official file: {fault}")
            yield from _unpacked(source, archive, new)
        else:
            yield from _copied(source, origin, new)
        _require_whole(source, Path(made), origin)
        if source.clips:
            _write_checksums(new)
        if hasattr(os, "sync"):
            os.sync()  # tens of thousands of small files: one call for all of them
        _move_in(new, folder / source.folder)
    if origin is None:
        archive.unlink()


def _unpacked(source: Source, archive: Path, new: Path) -> Iterator[Progress]:
    names = {file.name for file in source.files}

    def wanted(path: PurePosixPath) -> PurePosixPath | None:
        parts = path.parts[1:] if path.parts[:1] == (source.folder,) else path.parts
        inside = PurePosixPath(*parts)
        spoken = len(parts) == 2 and parts[0] in source.classes and inside.suffix == ".wav"
        listed = str(inside) in SPLIT_LISTS
        return inside if str(inside) in names or (source.clips and (spoken or listed)) else None

    yield from unpack(archive, new, wanted, max_bytes=source.max_bytes, max_members=source.max_members)


def _copied(source: Source, origin: Path, new: Path) -> Iterator[Progress]:
    """The official layout from another folder: `origin` itself or the folder of that name in it."""
    assert source.archive is not None
    first = source.files[0].name if source.files else SPLIT_LISTS[0]
    home = origin / source.folder if (origin / source.folder / first).is_file() else origin
    if not (home / first).is_file():
        raise FedskewError(
            f"--from {origin} holds neither {source.archive.name} nor {source.folder}/{first}; "
            f"give the folder with the files of {source.name}"
        )
    names = [file.name for file in source.files] + list((*SPLIT_LISTS, speech.SUMS) if source.clips else ())
    names += [f"{w}/{name}" for w in source.classes if source.clips for name in speech.wav_names(home / w)]
    found = [name for name in names if (home / name).is_file()]  # what is missing is told by the check of the whole
    total, done, step = sum((home / name).stat().st_size for name in found), 0, f"copy {source.folder}"
    for name in found:
        (new / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(home / name, new / name)
        done += (new / name).stat().st_size
        yield Progress(step, done, total)


def _take(path: Path, file: File, target: Path) -> Iterator[Progress]:
    """Copy a file that is there already, with the same check and the same last step as a download."""
    part = target.with_name(f"{target.name}.part")
    part.parent.mkdir(exist_ok=True)
    try:
        with path.open("rb") as source, part.open("wb") as out:
            while chunk := source.read(_CHUNK):
                out.write(chunk)
                yield Progress(f"copy {file.name}", out.tell(), file.size)
        if fault := verify.fault(part, file):
            raise FedskewError(f"{path} is not the official file: {fault}")
        commit(part, target)
    finally:
        part.unlink(missing_ok=True)


def _find(source: Source, origin: Path, name: str) -> Path:
    for path in (origin / source.folder / name, origin / name):
        if path.is_file():
            return path
    raise FedskewError(f"--from {origin} has no {name}; give the folder with the files of {source.name}")


def _require_whole(source: Source, made: Path, origin: Path | None) -> None:
    for state in check.check(source, made):
        if state.state != "ok":
            where = f"--from {origin}" if origin else source.name
            detail = state.detail.replace(f"{made / source.folder}{os.sep}", "")
            raise FedskewError(f"{where}: {state.file} is not as the official one: {detail}; nothing was put in place")


def _write_checksums(new: Path) -> None:
    lines = [
        f"{verify.hexdigest(path)}  {path.relative_to(new).as_posix()}\n"
        for path in sorted(new.rglob("*"))
        if path.is_file() and path.name != speech.SUMS
    ]
    (new / speech.SUMS).write_text("".join(lines), encoding="ascii")


def _move_in(new: Path, home: Path) -> None:
    """Each entry replaces its older self; whatever else a user keeps in that folder stays."""
    home.mkdir(exist_ok=True)
    for entry in sorted(new.iterdir()):
        old = home / entry.name
        if old.is_dir() and not old.is_symlink():
            old.rename(new.parent / f"old-{entry.name}")
        entry.replace(old)
    sync_folder(home)
    sync_folder(home.parent)


@contextmanager
def _alone(source: Source, folder: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    try:
        with FileLock(folder / f".{source.name}.lock", timeout=0):
            yield
    except Timeout:
        raise FedskewError(f"another process is getting {source.name} into {folder}; wait for it to end") from None
