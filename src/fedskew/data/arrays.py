"""A user's own data set: arrays in Python or an .npz file. Nothing in it is ever unpickled."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedskew import rng
from fedskew.data.dataset import Array, Dataset, Labels
from fedskew.errors import FedskewError

Ints = NDArray[np.int64]
_MOST_CLASSES = 100_000  # a label beyond it is an id or a slip, and would make a table of that width


def from_arrays(
    x: ArrayLike,
    y: ArrayLike,
    x_test: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    classes: Sequence[str] | None = None,
    name: str = "arrays",
) -> Dataset:
    """A data set of the user's own; without a test set a stratified fifth is split off, the same one every time.

    `x` is (n, features), (n, height, width) or (n, channels, height, width); channels may be last when there are 1
    or 3 of them and the second axis is neither. uint8 stays, every other number becomes float32. `y` holds class
    numbers from 0 or names; `groups` (speaker, user, ...) goes with the training examples.
    """
    if (x_test is None) != (y_test is None):
        raise FedskewError(f"{name}: x_test and y_test go together; give both or neither")
    y, y_test, classes = _labels(name, y, y_test, classes)
    x = _examples(name, "x", x)
    # Checked before the split, so that an error names the index in the user's own array.
    whole = Dataset(
        name=name,
        x=x,
        y=y,
        x_test=x[: len(y)] if x_test is None else _examples(name, "x_test", x_test),
        y_test=y if y_test is None else y_test,
        classes=classes,
        groups=_groups(name, groups),
        transform="scale" if x.dtype == np.uint8 else "none",
    )
    if whole.x_test.shape[1:] != x.shape[1:] or whole.x_test.dtype != x.dtype:
        raise FedskewError(
            f"{name}: x_test holds {whole.x_test.dtype} of shape {whole.x_test.shape[1:]}, x {x.dtype} of shape "
            f"{x.shape[1:]}; make them alike"
        )
    return whole if y_test is not None else _held_out(whole)


def read_npz(path: Path) -> Dataset:
    """The data set of an .npz file with x, y and optionally x_test, y_test, groups, classes."""
    with _opened(path) as file:
        fields = {key: file[key] for key in ("x", "y", "x_test", "y_test", "groups", "classes") if key in file}
    return from_arrays(**fields, name=path.name)


def read_own(path: Path, classes: tuple[str, ...]) -> tuple[Array, Ints]:
    """A client's own x and y from an .npz file, or from all those of a folder in the order of their names.

    Nothing is split off for a test, and one class is enough: the classes are the federation's.
    """
    files = sorted(path.glob("*.npz")) if path.is_dir() else [path]
    if not files:
        raise FedskewError(f"{path} holds no .npz file; write some there with numpy.savez(file, x=..., y=...)")
    parts = [_own(file, classes) for file in files]
    first = parts[0][0]
    for file, (x, _) in zip(files, parts, strict=True):
        if x.shape[1:] != first.shape[1:] or x.dtype != first.dtype:
            raise FedskewError(
                f"{file} holds {x.dtype} of shape {x.shape[1:]}, {files[0].name} {first.dtype} of shape "
                f"{first.shape[1:]}; make them alike"
            )
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def _own(path: Path, classes: tuple[str, ...]) -> tuple[Array, Ints]:
    with _opened(path) as file:
        x, y = _examples(path.name, "x", file["x"]), _array(path.name, "y", file["y"])
    if y.ndim != 1 or y.dtype.kind not in "biufUS":
        raise FedskewError(f"{path.name}: y holds {y.dtype} of shape {y.shape}; give one class an example")
    named = y.dtype.kind in "US"
    y = _numbered(path.name, "y", y.astype(str), classes) if named else _whole(path.name, "y", y)
    Dataset(path.name, x, y, x[:0], y[:0], classes)  # which refuses what cannot be trained on
    return x, y


def read_npz_labels(path: Path) -> Labels:
    """The labels of `read_npz(path)`; x is not read."""
    with _opened(path) as file:
        fields = {key: file[key] for key in ("y", "y_test", "groups", "classes") if key in file}
    y, y_test, classes = _labels(path.name, fields["y"], fields.get("y_test"), fields.get("classes"))
    groups = _groups(path.name, fields.get("groups"))
    if y_test is None:
        whole = Dataset(path.name, y, y, y, y, classes, groups)
        return _held_out(whole).labels
    return Dataset(path.name, y, y, y_test, y_test, classes, groups).labels


def split_off(name: str, y: Ints) -> tuple[Ints, Ints]:
    """Training and test indices: a fifth of the examples (rounded up), of each class its share, always the same."""
    counts = np.bincount(y)
    share = 0.2 * counts
    take = np.minimum(np.floor(share).astype(np.int64), np.maximum(counts - 1, 0))
    room = counts - 1 - take > 0
    rest = -(-len(y) // 5) - int(take.sum())
    order = np.argsort(-(share - take) * room, kind="stable")[: min(rest, int(room.sum()))]
    take[order] += 1
    if take.sum() == 0:
        raise FedskewError(
            f"{name}: {len(y)} examples with no class twice are too few to split off a test set; give x_test and y_test"
        )
    stream = rng.stream(0, "test-split")
    held = np.zeros(len(y), bool)
    for c in np.flatnonzero(counts):
        held[stream.permutation(np.flatnonzero(y == c))[: take[c]]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def _held_out(whole: Dataset) -> Dataset:
    train, test = split_off(whole.name, whole.y)
    return replace(
        whole,
        x=whole.x[train],
        y=whole.y[train],
        x_test=whole.x[test],
        y_test=whole.y[test],
        groups=None if whole.groups is None else whole.groups[train],
    )


def _examples(name: str, what: str, given: ArrayLike) -> Array:
    x = _array(name, what, given)
    if x.dtype.kind not in "biuf":
        raise FedskewError(f"{name}: {what} holds {x.dtype}, not numbers; convert it")
    if x.ndim not in (2, 3, 4) or 0 in x.shape[1:]:
        raise FedskewError(
            f"{name}: {what} has shape {x.shape}; give (n, features), (n, height, width) or "
            "(n, channels, height, width)"
        )
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[3] in (1, 3) and x.shape[1] not in (1, 3):
        x = x.transpose(0, 3, 1, 2)
    if x.dtype != np.uint8:
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which is refused with its index
            x = x.astype(np.float32)
    return np.ascontiguousarray(x)


def _labels(
    name: str, y: ArrayLike, y_test: ArrayLike | None, classes: Sequence[str] | None
) -> tuple[Ints, Ints | None, tuple[str, ...]]:
    parts = {"y": _array(name, "y", y)}
    if y_test is not None:
        parts["y_test"] = _array(name, "y_test", y_test)
    for what, part in parts.items():
        if part.ndim != 1 or part.dtype.kind not in "biufUS":
            raise FedskewError(
                f"{name}: {what} holds {part.dtype} of shape {part.shape}; give one class number or name an example"
            )
    named = None if classes is None else tuple(map(str, np.asarray(classes).tolist()))
    if any(part.dtype.kind in "US" for part in parts.values()):
        words = {what: part.astype(str) for what, part in parts.items()}
        names = named or tuple(np.unique(np.concatenate(list(words.values()))).tolist())
        numbers = {what: _numbered(name, what, part, names) for what, part in words.items()}
    else:
        numbers = {what: _whole(name, what, part) for what, part in parts.items()}
        most = max(int(part.max(initial=0)) for part in numbers.values())
        if named is None and most >= _MOST_CLASSES:
            raise FedskewError(f"{name}: label {most} is too large for a class number; number the classes from 0")
        names = named or tuple(map(str, range(most + 1)))
    if len(numbers["y"]) and (numbers["y"] == numbers["y"][0]).all():
        raise FedskewError(
            f"{name}: all {len(numbers['y'])} labels are class {numbers['y'][0]}; at least two classes are needed"
        )
    return numbers["y"], numbers.get("y_test"), names


def _whole(name: str, what: str, y: Array) -> Ints:
    if y.dtype.kind == "f":
        wrong = np.flatnonzero(~(np.isfinite(y) & (np.floor(y) == y) & (np.abs(y) < 2**53)))
        if wrong.size:
            i = int(wrong[0])
            raise FedskewError(f"{name}: {what} is {y[i]} at index {i}, not a class number; mend or drop it")
    return y.astype(np.int64)


def _numbered(name: str, what: str, y: Array, names: tuple[str, ...]) -> Ints:
    number = {label: i for i, label in enumerate(names)}
    found = np.array([number.get(label, -1) for label in y.tolist()], np.int64)
    if (found < 0).any():
        i = int(np.argmax(found < 0))
        raise FedskewError(f"{name}: {what} is {str(y[i])!r} at index {i}, not one of the classes; mend or drop it")
    return found


def _groups(name: str, groups: ArrayLike | None) -> Ints | None:
    if groups is None:
        return None
    given = _array(name, "groups", groups)
    if given.ndim != 1 or given.dtype.kind not in "biuUS":
        raise FedskewError(
            f"{name}: groups holds {given.dtype} of shape {given.shape}; give one number or name an example"
        )
    return np.unique(given, return_inverse=True)[1].astype(np.int64)


def _array(name: str, what: str, given: ArrayLike) -> Array:
    try:
        return np.asarray(given)
    except ValueError as e:
        raise FedskewError(f"{name}: {what} is not an array: {e}") from None


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The open .npz file, with everything that can be wrong with it said in one line."""
    try:
        with path.open("rb") as raw:
            if raw.read(4) != b"PK\x03\x04":  # np.load would try other formats; only a zip of arrays is wanted
                raise FedskewError(f"{path} is not an .npz file; write it with numpy.savez")
            raw.seek(0)
            with np.load(raw, allow_pickle=False) as file:
                if missing := {"x", "y"} - set(file.files):
                    raise FedskewError(
                        f"{path} has {', '.join(file.files) or 'no arrays'} but no {' and '.join(sorted(missing))}; "
                        "save x and y"
                    )
                yield file
    except FileNotFoundError:
        raise FedskewError(f"{path} does not exist; give the path of an .npz file with x and y") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError, RuntimeError) as e:
        if isinstance(e, ValueError) and "allow_pickle" in str(e):
            raise FedskewError(f"{path} holds Python objects, which are never loaded; save plain arrays") from None
        raise FedskewError(f"{path} is damaged or not an .npz file of plain arrays: {e}") from None
