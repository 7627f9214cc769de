"""The options of `fedskew train` that describe a run, for other commands that take a whole run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from fedskew.cli.config import read
from fedskew.cli.train import NOT_THE_RUNS, train

OPTIONS = {
    p.name: p
    for p in inspect.signature(train, eval_str=True).parameters.values()
    if p.name == "config" or p.name not in NOT_THE_RUNS
}


def describing_a_run(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command those options; it gets what they say as its argument `run`, a dict of a run's fields."""

    @wraps(command)
    def called(**values: Any) -> None:
        given = {key: value for key in OPTIONS if (value := values.pop(key)) is not None}
        path = given.pop("config", None)
        command(run=(read(path) if path else {}) | given, **values)

    own = inspect.signature(command, eval_str=True)
    kept = [p for p in own.parameters.values() if p.name != "run"]
    taken = [p.replace(kind=p.KEYWORD_ONLY) for p in (*kept, *OPTIONS.values())]
    called.__signature__ = own.replace(parameters=taken)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in taken}
    return called
