"""Flower's programs on this machine: a SuperLink and its SuperNodes, started together and ended together."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from fedskew.errors import FedskewError

GRACE = 5.0  # seconds to end in an orderly way
START = 60.0  # seconds that a SuperLink may take to answer
POLL = "0.1"  # seconds between a SuperExec's looks for work; Flower's default is 1
TAIL = 12  # lines of a log that are shown when its program has failed
# Reads which groups of processes there are until its input ends, which it does however its parent ends, and ends them.
GUARD = """
import os, signal, sys, time
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for number in (signal.SIGTERM, signal.SIGKILL) if groups else ():
    for group in groups:
        try:
            os.killpg(group, number)
        except OSError:
            pass
    time.sleep(float(sys.argv[1]) if number == signal.SIGTERM else 0)
"""


def program(name: str) -> str:
    """The path of one of Flower's programs, which lies beside this Python."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise FedskewError(f"{name} is not there: pip install 'fedskew[flower]'")
    return found


def free_port() -> int:
    """A port of loopback that nobody listens on at this moment."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@dataclass(frozen=True)
class Link:
    """A SuperLink on loopback; with `keys` (see keys.py) it speaks TLS and knows its nodes by their keys."""

    folder: Path  # its home, its state and its log
    port: int
    keys: Path | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def command(self, *more: str) -> list[str]:
        """What starts it."""
        secure = ["--insecure"]
        if self.keys is not None:
            secure = ["--ssl-ca-certfile", str(self.keys / "ca.crt"), "--ssl-certfile", str(self.keys / "server.pem")]
            secure += ["--ssl-keyfile", str(self.keys / "server.key"), "--enable-supernode-auth"]
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--database", str(self.folder / "state.db")]
        return [program("flower-superlink"), *secure, *where, "--disable-runtime-dependency-installation", *more]

    def node(self, config: str, key: str = "") -> list[str]:
        """What starts a SuperNode of it."""
        secure = ["--insecure"]
        if self.keys is not None:
            secure = ["--root-certificates", str(self.keys / "ca.crt")]
            secure += ["--auth-supernode-private-key", str(self.keys / key)] if key else []
        where = ["--superlink", self.address, "--port", str(free_port())]
        return [program("flower-supernode"), *secure, *where, "--node-config", config]

    def configure(self) -> None:
        """Tell the `flwr` command of this home where it is, under the name `here`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        trust = "insecure = true"
        if self.keys is not None:
            trust = f"root-certificates = {json.dumps(str(self.keys.resolve() / 'ca.crt'))}"
        text = f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{self.address}"\n{trust}\n'
        (self.folder / "config.toml").write_text(text, encoding="utf-8")

    def answers(self) -> bool:
        """Whether it is up."""
        context = None
        if self.keys is not None:
            context = ssl.create_default_context(cafile=self.keys / "ca.crt")
        url = f"http{'s' if context else ''}://{self.address}/health"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2, context=context) as answer:
            return bool(answer.status == 200)
        return False


@dataclass
class Processes:
    """Programs with a home and a log each; leaving the block ends them and all they started."""

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)  # added to their environment
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    guard: subprocess.Popen[bytes] | None = None  # ends what is left if this process cannot

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(*self.started)
        if self.guard is not None and self.guard.stdin is not None:
            self.guard.stdin.close()
            self.guard.wait()

    def log(self, name: str) -> Path:
        """What a program said."""
        return self.folder / f"{name}.log"

    def start(self, name: str, command: Sequence[str], home: str = "") -> subprocess.Popen[bytes]:
        """Start a program in a session of its own, so that all it starts can be ended with it."""
        place = self.folder / (home or name)
        place.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("ab") as out:
            self.started[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self.environment(place),
                start_new_session=True,
            )
        self._tell("+", self.started[name].pid)
        return self.started[name]

    def _tell(self, sign: str, group: int) -> None:
        """Let the guard know of a group that was started, or has ended."""
        if self.guard is None:
            command = [sys.executable, "-I", "-S", "-c", GUARD, str(GRACE)]
            self.guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        assert self.guard.stdin is not None
        self.guard.stdin.write(f"{sign}{group}\n".encode())
        self.guard.stdin.flush()

    def environment(self, home: Path) -> dict[str, str]:
        """Of a program with this home: quiet, with our Python's programs first."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        modules = os.pathsep.join(p for p in (os.environ.get("PYTHONPATH", ""), str(Path.cwd())) if p)
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        own = {"FLWR_HOME": str(home), "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": POLL, "PATH": path, "PYTHONPATH": modules}
        return {**os.environ, **quiet, **own, **self.variables}

    def wait_for(self, link: Link, name: str = "superlink") -> None:
        """Until the SuperLink answers."""
        until = time.monotonic() + START
        while not link.answers():
            if self.started[name].poll() is not None or time.monotonic() > until:
                raise FedskewError(f"the SuperLink did not start: {self.tail(name)}")
            time.sleep(0.1)

    def tail(self, name: str) -> str:
        """The last lines of a program's log, as one."""
        text = self.log(name).read_text(encoding="utf-8", errors="replace")
        return " | ".join(line.strip() for line in text.splitlines()[-TAIL:] if line.strip())

    def stop(self, *names: str) -> None:
        """End programs, the last started first: SIGTERM, and SIGKILL to whatever is left after a while."""
        chosen = [self.started.pop(name) for name in reversed(names) if name in self.started]
        for process in chosen:
            _signal(process.pid, signal.SIGTERM)
        until = time.monotonic() + GRACE
        for process in chosen:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        for process in chosen:
            _signal(process.pid, signal.SIGKILL)  # its children, too, are in its group
            process.wait()
            self._tell("-", process.pid)


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
