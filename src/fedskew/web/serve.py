"""Bind, say where, serve until the end."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn
from altair.utils.schemapi import disable_debug_mode

from fedskew.errors import FedskewError
from fedskew.store import Store
from fedskew.web import app
from fedskew.web.guard import LOOPBACK, Rules

PORT = 8765
LEAST = 12  # characters of a token


@dataclass(frozen=True)
class Place:
    """Where to listen and who may come; a place off loopback is one that was allowed by name."""

    host: str = "127.0.0.1"
    port: int | None = None  # None: the usual one, or another if that is taken
    remote: bool = False
    token: str | None = None
    control: bool = False

    def checked(self) -> Place:
        """With a token where one is needed: on every other address, and where a page can start processes."""
        loopback = self.host in LOOPBACK or _loopback(self.host)
        if not loopback and not self.remote:
            raise FedskewError(
                f"--host {self.host} can be reached by others; add --allow-remote to mean it, or leave --host out"
            )
        if self.token is not None and (len(self.token) < LEAST or not _plain(self.token)):
            raise FedskewError(f"--token takes at least {LEAST} letters, digits, - or _; leave it out and one is made")
        needed = self.control or not loopback
        made = secrets.token_urlsafe(24) if needed and self.token is None else self.token
        return Place(self.host, self.port, self.remote, made, self.control)


def listen(place: Place) -> socket.socket:
    """A bound socket; the usual port gives way to a free one, a chosen port does not."""
    tries = [PORT, 0] if place.port is None else [place.port]
    for port in tries:
        try:
            family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
            return socket.create_server((place.host, port), family=family, backlog=64)
        except (OSError, OverflowError) as e:
            if port == tries[-1]:
                why = getattr(e, "strerror", None) or e
                raise FedskewError(f"cannot listen on {place.host} port {port}: {why}; choose another --port") from e
    raise AssertionError


def run(store: Store, place: Place, *, browser: bool, say: Callable[[str], None]) -> None:
    """Serve until a signal ends it; runs that were started from the page are stopped and saved."""
    place = place.checked()
    bound = listen(place)
    host, port = bound.getsockname()[:2]
    everywhere = host in ("0.0.0.0", "::")
    names = LOOPBACK | {place.host.lower()} | ({socket.gethostname().lower()} if everywhere else set())
    rules = Rules(frozenset(names), everywhere, place.token, f"fedskew-{port}")
    shown = socket.gethostname() if everywhere else f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}/" + (f"?token={place.token}" if place.token else "")
    disable_debug_mode()  # charts are checked by tests; here the check would take longer than the chart
    made = app.make_app(store, rules, control=place.control)
    config = uvicorn.Config(
        made,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        ws="none",
    )
    server = uvicorn.Server(config)
    made.state.watcher.ending = lambda: server.should_exit
    try:
        say(address)
        threading.Thread(target=app.bundle, daemon=True).start()  # ready before the first chart asks for it
        if browser and _has_screen():
            webbrowser.open(address)
        server.run(sockets=[bound])
    except KeyboardInterrupt:
        pass  # the usual way to end it
    finally:
        bound.close()


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _plain(token: str) -> bool:
    return all(c.isascii() and (c.isalnum() or c in "-_") for c in token)


def _has_screen() -> bool:
    """A browser in the terminal itself would take it over."""
    if sys.platform.startswith("linux"):
        return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return True
