"""`fedskew ui`: the live dashboard of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedskew.cli import console
from fedskew.errors import FedskewError

REACH = "Who can reach it, and what they may do"


def ui(
    store: Annotated[
        Path | None, typer.Option(help="The store's folder. [FEDSKEW_STORE, else ./runs]", show_default=False)
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="The port. [8765, or a free one]", min=0, max=65535, show_default=False)
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address and open nothing.")] = False,
    allow_control: Annotated[
        bool,
        typer.Option(
            "--allow-control",
            help="Let the page start, stop and resume runs; its address then holds a token.",
            rich_help_panel=REACH,
        ),
    ] = False,
    host: Annotated[
        str, typer.Option(help="Listen on another address; needs --allow-remote.", rich_help_panel=REACH)
    ] = "127.0.0.1",
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Yes, other machines may ask.", rich_help_panel=REACH)
    ] = False,
    token: Annotated[
        str | None,
        typer.Option(
            help="What the address must hold. [made and printed where one is needed]",
            envvar="FEDSKEW_TOKEN",
            show_default=False,
            rich_help_panel=REACH,
        ),
    ] = None,
) -> None:
    """Watch runs in the browser: live curves, clients, drift, what if, the papers' tables. Read-only, on this machine.

    Example: fedskew ui --store runs --port 8765
    """
    try:
        from fedskew.web.serve import Place, run
    except ModuleNotFoundError as e:
        if e.name not in ("fastapi", "uvicorn", "starlette"):
            raise
        raise FedskewError(f"fedskew ui needs {e.name}: pip install 'fedskew[web]'") from None
    from fedskew.store import Store

    folder = store.parent if store is not None and store.name == "fedskew.db" else store
    opened, place = Store(folder), Place(host, port, allow_remote, token, allow_control)
    console.note(f"the dashboard of {opened.folder}; Ctrl-C ends it")
    run(opened, place, browser=not no_browser, say=lambda address: typer.echo(address))
