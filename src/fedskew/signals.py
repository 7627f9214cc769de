"""Ends a program the orderly way when the system asks for it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def orderly() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so a run is checkpointed; exit 128 + signal."""
    first: list[float] = []

    def stop(number: int, frame: FrameType | None) -> None:
        # `timeout` sends it twice at once; the second must not cut the checkpoint short
        if first and time.monotonic() - first[0] < 2.0:
            return
        first.append(time.monotonic())
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    # under nohup SIGHUP is ignored, and stays so
    before = {n: signal.signal(n, stop) for n in numbers if signal.getsignal(n) == signal.SIG_DFL}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
