"""What `fedskew deploy init` writes: a small Flower app around a run, and how to start it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

from fedskew.data.partition import Nodes
from fedskew.errors import FedskewError
from fedskew.flower import keys
from fedskew.flower.settings import Settings
from fedskew.run import Run

TEXTS = Path(__file__).parent / "texts"
PACKAGE = "federation"


def write(
    folder: Path,
    run: Run,
    *,
    nodes: int,
    hosts: Sequence[str] = ("localhost", "127.0.0.1"),
    tls: bool = True,
    settings: Settings | None = None,
) -> None:
    """The app in an empty folder: its modules, the run, a README, and certificates and keys."""
    if folder.exists() and any(folder.iterdir()):
        raise FedskewError(f"{folder} is not empty; give a new folder")
    package = folder / PACKAGE
    package.mkdir(parents=True, exist_ok=True)
    for name in ("__init__.py", "server.py", "client.py"):
        (package / name).write_text((TEXTS / f"{name}.txt").read_text(encoding="utf-8"), encoding="utf-8")
    (package / "run.toml").write_text(as_toml(run), encoding="utf-8")
    config = (settings or Settings()).model_dump()
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in config.items())
    _fill(folder, "pyproject.toml", config=lines)
    _fill(folder, ".gitignore")
    own = isinstance(run.partition, Nodes)
    mine = ' data=\\"/path/of/mine.npz\\"' if own else ""
    _fill(folder, "README.md", nodes=str(nodes), last=str(nodes - 1), host=hosts[0], data=mine, names=" ".join(hosts))
    home = folder / ".flwr"
    home.mkdir()
    authority = json.dumps(str((folder / "keys" / "ca.crt").resolve()))  # Flower wants it absolute
    trust = f"root-certificates = {authority}" if tls else "insecure = true"
    _fill(home, "config.toml", trust=trust)
    if tls:
        keys.write(folder / "keys", nodes, hosts)


def _fill(folder: Path, name: str, **values: str) -> None:
    text = Template((TEXTS / f"{name.lstrip('.')}.txt").read_text(encoding="utf-8")).substitute(values)
    (folder / name).write_text(text, encoding="utf-8")


def as_toml(run: Run) -> str:
    """The run with the keys and short strings of `fedskew train --config`; `Run.from_toml` reads it back."""
    fields: dict[str, Any] = run.spec()
    default = Run().spec()
    fields |= {"batch": fields["batch"] or "full", "partition": str(run.partition), "algorithm": str(run.algorithm)}
    for key, spec in (("share", run.share), ("warm_up", run.warm_up)):
        fields[key] = None if spec is None else str(spec)
    given = {key: value for key, value in fields.items() if value is not None and value != default[key]}
    given["clients"] = run.partition.clients
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in given.items() if value is not None)
    if Run.from_toml(text) != run:
        raise FedskewError(f"this run has no short form: {text.strip()}; write its run.toml by hand")
    return text
