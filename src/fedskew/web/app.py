"""The dashboard's answers: one page, its files, a stream of changes, and the numbers and charts of each view."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.staticfiles import StaticFiles

from fedskew import __version__
from fedskew.errors import FedskewError
from fedskew.store import Store
from fedskew.store.entry import checked_id
from fedskew.web import papers, views, whatif
from fedskew.web.control import Control, Wanted
from fedskew.web.guard import Guard, Rules
from fedskew.web.rows import Reader
from fedskew.web.watch import BROKEN, Watcher

STATIC = Path(__file__).parent / "static"
MOST_STREAMS = 64

log = logging.getLogger("fedskew.web")

Runs = Annotated[str, Query(pattern=r"^([0-9a-f]{8}(,[0-9a-f]{8})*)?$", max_length=20_000)]
Fraction = Annotated[float, Query(ge=0, le=1)]


def make_app(store: Store, rules: Rules, *, control: bool = False) -> FastAPI:
    """The application; without `control` there is no address that changes anything."""
    desk = Control(store) if control else None
    watcher = Watcher(store, desk)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await watcher.close()
        if desk is not None:
            desk.close()

    app = FastAPI(
        title="fedskew",
        docs_url=None,  # these two pages load their scripts from elsewhere
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
        middleware=[Middleware(Guard, rules=rules)],
    )
    app.state.watcher = watcher
    app.add_exception_handler(Exception, _said)
    for kind in (FedskewError, RequestValidationError, HTTPException, *BROKEN):
        app.add_exception_handler(kind, _said)
    _files(app)
    _reading(app, store, watcher, control)
    if desk is not None:
        _controlling(app, desk)
    return app


def _files(app: FastAPI) -> None:
    @app.get("/")
    def index() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    @app.get("/vega.js")
    def vega() -> Response:
        return Response(bundle(), media_type="text/javascript", headers={"cache-control": "private, max-age=86400"})

    app.mount("/static", StaticFiles(directory=STATIC))


def _reading(app: FastAPI, store: Store, watcher: Watcher, control: bool) -> None:
    reader = Reader(store)

    @app.get("/api/about")
    def about() -> Any:
        return {"version": __version__, "folder": str(store.folder), "control": control}

    @app.get("/api/events")
    async def events() -> StreamingResponse:
        if watcher.pages >= MOST_STREAMS:
            raise HTTPException(503, f"{MOST_STREAMS} pages are open already; close one")
        return StreamingResponse(watcher.events(), media_type="text/event-stream")

    @app.get("/api/compare")
    def compare(
        runs: Runs = "", target: Fraction | None = None, loss: Literal["test_loss", "loss"] = "test_loss"
    ) -> Any:
        return views.compare(reader, _listed(runs), target, loss)

    @app.get("/api/clients")
    def clients(run: str) -> Any:
        return views.clients(reader, checked_id(run))

    @app.get("/api/drift")
    def drift(runs: Runs = "") -> Any:
        return views.drift(reader, _listed(runs))

    @app.get("/api/whatif/choices")
    def choices() -> Any:
        return whatif.choices(sorted({entry.data for entry in store.runs()}))

    @app.get("/api/whatif")
    def split(
        data: Annotated[str, Query(max_length=1000)] = "digits",
        partition: Annotated[str, Query(max_length=200)] = "iid",
        clients: Annotated[int, Query(ge=1, le=whatif.MOST_CLIENTS)] = 10,
        beta: Fraction = 0.0,
        alpha: Fraction = 1.0,
        seed: Annotated[int, Query(ge=0)] = 0,
    ) -> Any:
        if data not in whatif.choices([entry.data for entry in store.runs()])["data"]:
            raise FedskewError(f"data set {data!r} is not here; get it with: fedskew data get")
        return views.whatif(whatif.split(data, partition, clients, beta, alpha, seed))

    @app.get("/api/papers")
    def listed() -> Any:
        return papers.listed()

    @app.get("/api/papers/{paper}")
    def exhibit(paper: str, name: str, scale: str = "") -> Any:
        return papers.exhibit(store, paper, name, scale)


def _controlling(app: FastAPI, desk: Control) -> None:
    @app.post("/api/runs")
    def start(wanted: Wanted) -> Any:
        return {"run": desk.start(wanted)}

    @app.post("/api/runs/{id}/resume")
    def resume(id: str) -> Any:
        return {"run": desk.resume(checked_id(id))}

    @app.post("/api/runs/{id}/stop")
    def stop(id: str) -> Any:
        return {"run": desk.stop(id)}


def _listed(runs: str) -> list[str]:
    return list(dict.fromkeys(runs.split(","))) if runs else []


async def _said(request: Request, error: Exception) -> JSONResponse:
    """Every error as one line of JSON."""
    match error:
        case FedskewError():
            status, text = 400, str(error)
        case RequestValidationError():
            first = error.errors()[0]
            status, text = 400, f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}"
        case HTTPException():
            status, text = error.status_code, str(error.detail)
        case _ if isinstance(error, BROKEN):
            log.warning("the dashboard could not answer %s", request.url.path, exc_info=error)
            status, text = 503, f"the store cannot be read ({error})"
        case _:
            log.exception("the dashboard could not answer %s", request.url.path, exc_info=error)
            status, text = 500, "the dashboard could not answer; its terminal says why"
    return JSONResponse({"error": " ".join(text.split())}, status)


def bundle() -> bytes:
    """Vega, Vega-Lite and Vega-Embed as one script, made once.

    In a process of its own: it takes a second or two, in which vl-convert would let no other thread answer.
    """
    with _making:
        return _bundle()


@cache
def _bundle() -> bytes:
    made = subprocess.run(
        [sys.executable, "-c", _MAKE],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        start_new_session=True,  # Ctrl-C is not for it
    )
    return made.stdout


_making = threading.Lock()
_MAKE = "import sys; from fedskew.report import vega; sys.stdout.buffer.write(vega.script().encode())"
