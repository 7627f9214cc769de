"""`fedskew deploy local`: a whole federation on this machine, for a trial."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedskew.data import datasets
from fedskew.data.partition import Nodes
from fedskew.errors import FedskewError
from fedskew.flower import keys, project
from fedskew.flower.processes import Link, Processes, free_port, program
from fedskew.flower.remote import federable
from fedskew.flower.settings import Settings
from fedskew.run import Run
from fedskew.sides import split
from fedskew.store import Store

PAUSE = 0.3  # seconds between two looks for rows


def clients_of(run: Run) -> int:
    """How many nodes a run needs: a node is one client."""
    return run.partition.clients or len(split(run, datasets.load(run.data)))


def triable(run: Run) -> None:
    """Refuse what one machine cannot try."""
    federable(run)
    if isinstance(run.partition, Nodes):
        raise FedskewError("partition nodes: a trial deals out a data set; choose another partition, such as iid")


def local(
    run: Run, store: Store, id: str, *, tls: bool, settings: Settings, keep: Path | None = None
) -> Generator[dict[str, Any], None, None]:
    """Start a SuperLink and a SuperNode a client on loopback, train the stored run there, and give its rows.

    Everything that was started is ended, whatever happens. Logs stay in `keep`, if given.
    """
    nodes = clients_of(run)
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedskew-")))
        folder.mkdir(parents=True, exist_ok=True)
        app, secrets = folder / "app", folder / "keys" if tls else None
        shutil.rmtree(app, ignore_errors=True)
        chosen = settings.model_copy(update={"resume": id, "store": str(store.folder)})
        project.write(app, run, nodes=nodes, tls=False, settings=chosen)
        link = Link(folder / "superlink", free_port(), secrets)
        link.configure()
        programs = stack.enter_context(Processes(folder))
        if secrets is not None:
            keys.write(secrets, nodes, ["localhost", "127.0.0.1"])
        programs.start("superlink", link.command())
        programs.wait_for(link)
        start_nodes(programs, link, nodes)
        programs.start("run", [program("flwr"), "run", str(app), "here", "--stream"], home="superlink")
        yield from _rows(programs, store, id)


def start_nodes(programs: Processes, link: Link, nodes: int, config: str = "report-label-counts=true") -> None:
    """A SuperNode for every client, known to the SuperLink by its key where there are keys."""
    if link.keys is not None:
        register(programs, link, *(f"node{i}" for i in range(nodes)))
    for i in range(nodes):
        programs.start(f"node{i}", link.node(f"partition-id={i} num-partitions={nodes} {config}", f"node{i}"))


def register(programs: Processes, link: Link, *names: str) -> None:
    """Make nodes known to the SuperLink by their public keys."""
    assert link.keys is not None
    asked = {}
    for name in names:
        command = [program("flwr"), "supernode", "register", str(link.keys / f"{name}.pub"), "here"]
        asked[name] = programs.start(f"register-{name}", command, home="superlink")
    for name, process in asked.items():
        if process.wait() != 0:
            raise FedskewError(f"{name} could not be registered: {programs.tail(f'register-{name}')}")
        programs.stop(f"register-{name}")


def _rows(programs: Processes, store: Store, id: str) -> Iterator[dict[str, Any]]:
    """A run's new rows as they come, until its ServerApp has ended."""
    seen = max((row["round"] for row in store.records(id)), default=-1)
    over = False
    while not over:
        time.sleep(PAUSE)
        over = programs.started["run"].poll() is not None  # before the last look, so that no row is missed
        for row in store.records(id, after=seen):
            seen = row["round"]
            yield row
    entry = store.find(id)
    if entry.status == "failed":
        raise FedskewError(f"run {id}: {entry.message}; go on with: fedskew deploy local --resume {id}")
    if not entry.over:
        raise FedskewError(f"run {id} stopped after round {entry.round}: {programs.tail('run')}")
