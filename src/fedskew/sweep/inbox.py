"""What workers say, in its order, each message until it has been dealt with."""

from __future__ import annotations

import queue
from typing import Any

BUFFERED = 16  # messages, any of which may be a checkpoint, that wait to be written; then workers wait


class Inbox(queue.Queue[tuple[Any, bytes | str]]):
    """A queue that forgets a message when the next one is asked for.

    A signal may strike between taking a row and writing it down. The row is then still here, while its worker, which
    has told it, would go on to tell later ones: the store would have a hole before its last checkpoint.
    """

    def __init__(self) -> None:
        super().__init__(BUFFERED)
        self.taken = False

    def get(self, block: bool = True, timeout: float | None = None) -> tuple[Any, bytes | str]:
        """The next message."""
        with self.mutex:
            if self.taken:
                self.taken = False  # before it goes: given twice is harmless, never is not
                self.queue.popleft()
                self.not_full.notify()
        return super().get(block, timeout)

    def again(self) -> None:
        """Give the last message once more."""
        self.taken = False

    def _get(self) -> tuple[Any, bytes | str]:
        self.taken = True
        message: tuple[Any, bytes | str] = self.queue[0]
        return message
