"""Small tables that a user brings as CSV: who holds which example, or how many of which class."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedskew.errors import FedskewError

Ints = NDArray[np.int64]
_LARGEST = 2**53  # beyond it a count written as a decimal number is no longer exact
_NAME_COLUMN = ("", "client", "clients", "client_id", "user", "users", "user_id", "id", "name")


def read_split(path: str | Path) -> tuple[NDArray[np.str_], Ints, Ints | None]:
    """Users, example indices and, if there, classes of a CSV `user,index[,class]` (the splits of Hsu et al. 2019).

    A first line whose second field is no number is a header, for example `user_id,image_id,class`.
    """
    users: list[str] = []
    numbers: list[tuple[int, ...]] = []
    width = 0
    for at, row in _rows(path):
        if len(row) not in (2, 3) or (width and len(row) != width):
            rule = f"{width} as in the lines above" if width else "user,index or user,index,class"
            raise FedskewError(f"{path}, line {at}: {len(row)} fields instead of {rule}; mend that line")
        if not width and not _is_whole(row[1]):
            width = len(row)
            continue
        width = len(row)
        for what, field in zip(("index", "class"), row[1:], strict=False):
            if not _is_whole(field) or not 0 <= int(field) < _LARGEST:
                raise FedskewError(
                    f"{path}, line {at}: {what} {field!r} is not a whole number of 0 or more; mend that line"
                )
        if not row[0]:
            raise FedskewError(f"{path}, line {at}: the user is empty; give every example a user")
        users.append(row[0])
        numbers.append(tuple(int(field) for field in row[1:]))
    if not numbers:
        raise FedskewError(f"{path} has no lines of user,index[,class]; at least one is needed")
    table = np.array(numbers, np.int64)
    return np.array(users), table[:, 0], table[:, 1] if width == 3 else None


def read_counts(path: str | Path) -> tuple[Ints, tuple[str, ...], tuple[str, ...]]:
    """Counts (clients, classes), client names and class names of a CSV with a line a client and a column a class.

    The header line and a first column of client names are optional. The first line is a header when a field after
    the first is no number, or the first field is empty or a word such as `client` or `user_id`; the first column
    holds names when the header says so in that way, or when one of its fields is no number.
    """
    rows = list(_rows(path))
    if not rows:
        raise FedskewError(f"{path} is empty; write a line a client and a column a class")
    width = len(rows[0][1])
    for at, row in rows:
        if len(row) != width:
            raise FedskewError(
                f"{path}, line {at}: {len(row)} fields, but line {rows[0][0]} has {width}; give every client "
                "a count for every class"
            )
    first = rows[0][1]
    says_names = first[0].lower() in _NAME_COLUMN
    header = says_names or any(field and not _is_number(field) for field in first[1:])
    if not header and width == 1 and not _is_number(first[0]):
        header = True
    body = rows[1:] if header else rows
    named = says_names or any(row[0] and not _is_number(row[0]) for _, row in body)
    if not body or width == named:
        raise FedskewError(f"{path} has no counts; write a line a client and a column a class")
    counts = np.array([[_count(path, at, f) for f in row[named:]] for at, row in body], np.int64)
    if not counts.any():
        raise FedskewError(f"{path}: every count is 0; at least one client must hold an example")
    clients = tuple(row[0] if named else str(i) for i, (_, row) in enumerate(body))
    classes = tuple(first[named:]) if header else tuple(map(str, range(counts.shape[1])))
    return counts, clients, classes


def _rows(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """The lines that are not empty, with their numbers; fields are cut by the sign the first line has most of."""
    try:
        with Path(path).expanduser().open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=first.count), strict=True)
            for row in reader:
                fields = [field.strip() for field in row]
                if any(fields):
                    yield reader.line_num, fields
    except FileNotFoundError:
        raise FedskewError(f"{path} does not exist; give the path of a CSV file") from None
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise FedskewError(f"{path} cannot be read as a CSV file of text: {e}") from None


def _is_whole(field: str) -> bool:
    return field.removeprefix("-").isascii() and field.removeprefix("-").isdecimal()


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _count(path: str | Path, at: int, field: str) -> int:
    value = float(field) if _is_number(field) else math.nan
    if not 0 <= value < _LARGEST or value != int(value):
        raise FedskewError(f"{path}, line {at}: count {field!r} is not a whole number of 0 or more; mend or fill it in")
    return int(value)
