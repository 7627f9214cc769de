"""Dashboards for tests: real processes, or real servers on loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from fedskew.store import Store
from fedskew.web.app import make_app
from fedskew.web.guard import LOOPBACK, Rules

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@contextmanager
def dashboard(store: Path, *options: str) -> Iterator[str]:
    """`fedskew ui` as a user starts it; its address. Ended by Ctrl-C."""
    command = [sys.executable, "-m", "fedskew", "ui", "--store", str(store), "--port", "0", "--no-browser", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert "Traceback" not in said


def trained(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    """`fedskew train` into a store, in a process of its own."""
    command = [sys.executable, "-m", "fedskew", "train", "--model", "softmax", "--device", "cpu", *options]
    return subprocess.Popen(
        command,
        env=os.environ | {"FEDSKEW_STORE": str(folder), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@dataclass
class Site:
    """A server in this process, and how to ask it."""

    address: str
    store: Store
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, path: str, *, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON (or text) of an answer."""
        sent = self.headers | {key.replace("_", "-"): value for key, value in headers.items()}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            sent["content-type"] = "application/json"
        request = urllib.request.Request(self.address + path, data=data, headers=sent)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read().decode()
                return answer.status, json.loads(text) if "json" in answer.headers["content-type"] else text
        except urllib.error.HTTPError as e:
            return e.code, json.loads(e.read())


@contextmanager
def served(folder: Path, *, token: str | None = None, control: bool = False) -> Iterator[Site]:
    """The application on a free port of loopback."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
        store = Store(folder)
        app = make_app(store, Rules(LOOPBACK, token=token, cookie=f"fedskew-{port}"), control=control)
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1, ws="none")
        server = uvicorn.Server(config)
        app.state.watcher.ending = lambda: server.should_exit
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            yield Site(f"http://127.0.0.1:{port}", store, headers)
        finally:
            server.should_exit = True
            thread.join()


def events(address: str, *, headers: dict[str, str] | None = None) -> Iterator[tuple[str, Any]]:
    """(name, data) of the stream as they come."""
    request = urllib.request.Request(f"{address}/api/events", headers=headers or {})
    with urllib.request.urlopen(request, timeout=40) as stream:
        name = ""
        for line in stream:
            key, _, value = line.decode().strip().partition(": ")
            if key == "event":
                name = value
            elif key == "data":
                yield name, json.loads(value)
