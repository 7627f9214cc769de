"""`fedskew deploy`: a run in a federation on Flower."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedskew.cli import console, options
from fedskew.cli.config import read
from fedskew.cli.described import describing_a_run
from fedskew.cli.prepared import told
from fedskew.errors import FedskewError
from fedskew.signals import orderly

if TYPE_CHECKING:
    from fedskew.run import Run

app = typer.Typer(
    name="deploy",
    help="Run in a federation of machines, on Flower (the extra `flower`).",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the app.")]
File = Annotated[Path | None, typer.Argument(metavar="[RUN]", help="A TOML file as --config takes; flags win over it.")]
Nodes = Annotated[
    int | None, typer.Option(help="Machines: a node is one client. \\[the run's clients]", min=1, show_default=False)
]
Host = Annotated[
    list[str] | None,
    typer.Option(help="A name or address of the server, for its certificate; several times for several."),
]


@app.command()
@describing_a_run
def init(folder: Folder, run: dict[str, Any], file: File = None, nodes: Nodes = None, host: Host = None) -> None:
    """Write a Flower app around a run: its modules, certificates, a key a node, and a README with the commands.

    With --partition nodes every machine holds data of its own; any other partition deals out a data set, for trials.

    Example: fedskew deploy init fed --partition nodes --nodes 3 --host fed.example.org --data public.npz --rounds 20
    """
    from fedskew.flower import installed

    installed()
    from fedskew.flower import project
    from fedskew.flower.remote import federable
    from fedskew.flower.trial import clients_of

    made = _run(_read(file) | run, nodes)
    federable(made)
    project.write(folder, made, nodes=clients_of(made), hosts=host or ["localhost", "127.0.0.1"])
    console.note(f"wrote {folder}: what to do next is in {folder / 'README.md'}")


@app.command()
@describing_a_run
def local(
    run: dict[str, Any],
    file: File = None,
    nodes: Nodes = None,
    tls: Annotated[bool, typer.Option("--tls", help="With certificates and node keys, as a real one.")] = False,
    resume: Annotated[str | None, typer.Option(help="Go on with this run of the store.", show_default=False)] = None,
    deadline: Annotated[float, typer.Option(help="Seconds after which a round ends without those missing.")] = 120.0,
    quorum: Annotated[float, typer.Option(help="The part of a round's clients that must reply.")] = 0.5,
    engine: options.Engine = None,
    logs: Annotated[Path | None, typer.Option(help="Keep Flower's logs in this folder.", show_default=False)] = None,
    as_json: console.Json = False,
) -> None:
    """Try a run in a federation on this machine: a SuperLink and a SuperNode a client, ended when it is done.

    Example: fedskew deploy local run.toml --tls, or fedskew deploy local --nodes 3 --partition classes:1 --rounds 5
    """
    from fedskew.flower import installed

    installed()
    from fedskew.flower import trial
    from fedskew.flower.server import told as shown
    from fedskew.flower.settings import Settings
    from fedskew.run import Run
    from fedskew.store import Store

    run = _read(file) | run
    store, settings = Store(), Settings(deadline=deadline, quorum=quorum, limit=2 * deadline, engine=engine or "auto")
    if resume and run:
        raise FedskewError(f"--resume {resume} goes on with a stored run; drop --{next(iter(run)).replace('_', '-')}")
    if resume:
        entry = store.find(resume)
        made, id = Run(**entry.spec), entry.id
    else:
        made = _run(run, nodes)
        trial.triable(made)
        id = store.create(made)
    console.note(f"run {id}, {trial.clients_of(made)} nodes")
    try:
        with orderly(), closing(trial.local(made, store, id, tls=tls, settings=settings, keep=logs)) as rows:
            for row in rows:
                for line in told(row["prepared"] or {}):
                    console.note(line)
                if not as_json:
                    console.out.print(shown(row, made.rounds), markup=False, highlight=False, soft_wrap=True)
    except (KeyboardInterrupt, SystemExit):
        console.note(f"stopped after round {store.find(id).round}; go on with: fedskew deploy local --resume {id}")
        raise
    if as_json:
        console.print_json(store.document(id))
    if store.find(id).status == "diverged":
        raise typer.Exit(1)


def _read(file: Path | None) -> dict[str, Any]:
    return {} if file is None else read(file)


def _run(fields: dict[str, Any], nodes: int | None) -> Run:
    """The run, with as many clients as there are nodes."""
    from fedskew.flower.trial import clients_of
    from fedskew.run import Run

    if nodes is not None and "clients" not in fields and isinstance(fields.get("partition", ""), str):
        fields = {"partition": "iid", **fields, "clients": nodes}
    made = Run(**fields)
    if nodes is not None and clients_of(made) != nodes:
        raise FedskewError(
            f"--nodes {nodes}, but the run has {clients_of(made)} clients, and a node is one client; make them alike"
        )
    return made
