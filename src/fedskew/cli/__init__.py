"""The command line: parses arguments, calls one function, prints. Heavy imports wait inside the commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import click
import typer

from fedskew import __version__
from fedskew.cli import (
    bench,
    compare,
    console,
    data,
    demo,
    deploy,
    partition,
    report,
    reproduce,
    runs,
    sweep,
    train,
    ui,
)
from fedskew.errors import FedskewError

app = typer.Typer(
    name="fedskew",
    help="Measure, explain and repair non-IID federated learning. Start with: fedskew demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"fedskew {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (works after a command, too).")
    ] = False,
) -> None: ...


app.command()(demo.demo)
app.command()(partition.partition)
app.command()(partition.skew)
app.add_typer(data.app)
app.add_typer(runs.app)
app.add_typer(deploy.app)
app.command()(train.train)
app.command()(compare.compare)
app.command()(sweep.sweep)
app.command()(reproduce.reproduce)
app.command()(runs.resume)
app.command()(report.report)
app.command()(bench.bench)
app.command()(ui.ui)


def main(argv: list[str] | None = None) -> None:
    """Run the command line; the one place where an error becomes a line and an exit status."""
    args = sys.argv[1:] if argv is None else argv
    sys.path.append(str(Path.cwd()))  # for a user's `--model module:factory` in this folder
    debug = "--debug" in args
    try:
        code = app([a for a in args if a != "--debug"], prog_name="fedskew", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as e:
        typer.echo(e.ctx.get_help() if e.ctx else e.format_message())
        code = 0
    except (FedskewError, click.ClickException) as e:
        if debug:
            raise
        text = e.format_message() if isinstance(e, click.ClickException) else str(e)
        console.err.print(f"fedskew: {' '.join(text.split())}", markup=False, highlight=False, soft_wrap=True)
        code = 2
    except (KeyboardInterrupt, click.Abort):
        console.err.print("fedskew: interrupted", markup=False)
        code = 130
    except BrokenPipeError:
        code = 1
    sys.exit(code or 0)
