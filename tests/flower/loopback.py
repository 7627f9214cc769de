"""A grid in this process for laws about messages: real Messages, the real ClientApp, no network.

What the network does is tested on one (test_network.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import uuid4

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedskew.flower.client import client_app

Tamper = Callable[[Message, Message], list[Message]]


class Loopback(Grid):
    """Nodes 100, 101, ... with these configs; `tamper(message, reply)` may change, drop (None) or repeat replies."""

    def __init__(self, configs: list[dict], tamper: Tamper | None = None, app: ClientApp | None = None):
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # which Flower sets in a ServerApp
        self.contexts = {
            100 + i: Context(run_id=1, node_id=100 + i, node_config=c, state=RecordDict(), run_config={})
            for i, c in enumerate(configs)
        }
        self.app = app or client_app()
        self.tamper = tamper or (lambda message, reply: [reply])
        self.away: set[int] = set()
        self.replies: dict[str, list[Message]] = {}
        self.sent: list[Message] = []

    def set_run(self, run): ...

    @property
    def run(self): ...

    def create_message(self, *args, **kwargs): ...

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in self.contexts if node not in self.away]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = id = str(uuid4())
            self.sent.append(message)
            ids.append(id)
            context = self.contexts[message.metadata.dst_node_id]
            self.replies[id] = self.tamper(message, self.app(message, context))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        replies = [reply for id in message_ids for reply in self.replies.pop(id, [])]
        for reply in replies:
            if isinstance(reply, Exception):  # as Flower's own grid does with bytes that are no message
                raise reply
        return replies
