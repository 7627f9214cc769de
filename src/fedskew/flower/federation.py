"""The nodes of a federation and an exchange with them: who is there, who has replied, who is lost."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import httpx
import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedskew.errors import FedskewError
from fedskew.flower import check
from fedskew.flower.settings import Settings
from fedskew.flower.wire import CONFIG, HELLO, LACKS_SHARED, SHARE, TRAIN, Config, Wrong, config_of, content_of, nbytes

LOOK = 3.0  # seconds between two looks at which nodes are there
AGAIN = 30.0  # seconds after which a node whose program broke is greeted again
PAUSE = 0.1  # seconds between two looks for replies; Flower's own loop takes 3

T = TypeVar("T")
log = logging.getLogger("fedskew.flower")


@dataclass
class Member:
    """A client and the node that speaks for it."""

    node: int
    n: int  # its own examples
    counts: NDArray[np.int64] | None  # (C,) if its operator lets it report them
    ready: bool = False  # has been given what the server shares


@dataclass
class Federation:
    """Everybody who has said hello. A client is known by its partition-id; the node behind it may be replaced."""

    grid: Grid
    clients: int
    classes: int
    settings: Settings
    about: dict[str, str]  # what every message tells a node of the run
    share: RecordDict | None = None  # what is sent once to every client
    members: dict[int, Member] = field(default_factory=dict)
    online: set[int] = field(default_factory=set)
    greeted: dict[str, int] = field(default_factory=dict)  # message -> node
    heard: dict[int, float] = field(default_factory=dict)  # nodes that were greeted -> when to greet them again
    refused: dict[int, str] = field(default_factory=dict)  # nodes that are not taken in
    looked: float = -LOOK

    def gather(self) -> None:
        """Wait for the clients: for all of them until the deadline, for a quorum until the limit."""
        everybody = range(self.clients)
        least = max(1, int(np.ceil(self.settings.quorum * self.clients - 1e-9)))
        Exchange[None](self, everybody, least, "at the start").run()

    def push(self, kind: str, node: int, content: RecordDict, **config: str | int | float | list[int]) -> str | None:
        """Send one message; None where Flower would not take it."""
        whole = RecordDict({**content, CONFIG: ConfigRecord({**self.about, **config})})
        message = Message(whole, node, kind, ttl=self.settings.limit + self.settings.deadline)
        # one at a time: a grid may leave refused messages out of its answer
        sent = [id for id in self.grid.push_messages([message]) if id]
        if not sent:
            self.online.discard(node)
        return sent[0] if sent else None

    def look(self) -> None:
        """See which nodes are there, and greet new ones."""
        if time.monotonic() - self.looked < LOOK:
            return
        self.looked = time.monotonic()
        self.online = set(self.grid.get_node_ids())
        # one that went and came again may hold other data
        self.heard = {node: again for node, again in self.heard.items() if node in self.online}
        for node in sorted(self.online):
            due = self.heard.get(node, 0.0) <= self.looked
            if due and (id := self.push(HELLO, node, RecordDict())) is not None:
                self.greeted[id] = node
                self.heard[node] = math.inf

    def greeting(self, node: int, reply: Message) -> None:
        """A node's answer to hello: take it in, or say why not."""
        try:
            told = check.hello(content_of(reply), self.clients, self.classes)
            other = self.members.get(told.client)
            if other is not None and other.node != node and other.node in self.online:
                raise Wrong(f"partition-id {told.client} is already taken by node {other.node}")
        except Wrong as e:
            if reply.has_error():  # Flower's own: the node's program broke, and may not the next time
                self.heard[node] = time.monotonic() + AGAIN
            self.refuse(node, e)
            return
        self.refused.pop(node, None)
        self.members[told.client] = Member(node, told.n, told.counts)
        log.info("client %d: node %d, %d examples", told.client, node, told.n)

    def refuse(self, node: int, why: Wrong) -> None:
        """Go on without a node."""
        self.refused[node] = str(why)
        log.warning("node %d is not taken in: %s", node, why)


@dataclass(frozen=True)
class Asked:
    """A message that waits for its reply."""

    kind: str
    client: int
    node: int


class NoQuorum(FedskewError):
    """Too few of a round's clients gave a reply that can be used."""


@dataclass
class Exchange(Generic[T]):
    """One exchange with some clients: each is brought to hold what is shared, and then asked.

    It ends when all have replied, at the deadline if there is a quorum, and gives up at the limit.
    """

    federation: Federation
    wanted: Sequence[int]
    least: int
    when: str
    ask: Callable[[int], tuple[RecordDict, Config]] | None = None
    accept: Callable[[int, RecordDict], T] | None = None
    done: dict[int, T | None] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    waiting: dict[str, Asked] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0

    def run(self) -> None:
        """Until `done` holds enough; `lost` then says why the others are not there."""
        began, settings = time.monotonic(), self.federation.settings
        while True:
            self.federation.look()
            for client in self._open():
                self._move(client)
            self._collect()
            passed, left = time.monotonic() - began, self._open()
            if len(self.done) >= self.least:
                # at the start nodes are still coming; later nobody waits for one that is not there
                here = self.ask is None or any(self._is_there(k) for k in left)
                if not left or passed >= settings.deadline or not here:
                    break
            elif not left or passed >= settings.limit:
                raise NoQuorum(self._told(passed))
            time.sleep(PAUSE)
        for client in left:
            late = f"no reply within {settings.deadline:g} s"
            self.lost[client] = late if self._is_there(client) else "its node is not there"
        for client, why in sorted(self.lost.items()):
            log.warning("%s: client %d is lost: %s", self.when, client, why)

    def _open(self) -> list[int]:
        return [k for k in self.wanted if k not in self.done and k not in self.lost]

    def _is_there(self, client: int) -> bool:
        member = self.federation.members.get(client)
        return member is not None and member.node in self.federation.online

    def _move(self, client: int) -> None:
        """Send a client what it needs next, if it is there and waits for nothing."""
        if not self._is_there(client) or any(a.client == client for a in self.waiting.values()):
            return
        member, config = self.federation.members[client], Config()
        if self.federation.share is not None and not member.ready:
            kind, content = SHARE, self.federation.share
        elif self.ask is not None:
            kind, (content, config) = TRAIN, self.ask(client)
        else:
            self.done[client] = None
            return
        if (id := self.federation.push(kind, member.node, content, **config)) is not None:
            self.waiting[id] = Asked(kind, client, member.node)
            self.bytes_down += nbytes(content)

    def _collect(self) -> None:
        """Take in what has come, one by one; a reply to a message that nobody waits for is dropped."""
        for id in [*self.waiting, *self.federation.greeted]:
            try:
                replies = [r for r in self.federation.grid.pull_messages([id]) if r.metadata.reply_to_message_id == id]
            except httpx.HTTPError:  # the SuperLink's fault
                raise
            except Exception as e:  # whatever a node can put into a message: one that cannot be read ends no run
                self._drop(id, Wrong(f"its reply cannot be read ({type(e).__name__}: {e})"))
                continue
            for reply in replies:
                if (node := self.federation.greeted.pop(id, None)) is not None:
                    self.federation.greeting(node, reply)
                elif (asked := self.waiting.pop(id, None)) is not None:
                    self._take(asked, reply)

    def _drop(self, id: str, why: Wrong) -> None:
        if (node := self.federation.greeted.pop(id, None)) is not None:
            self.federation.refuse(node, why)
        else:
            self.lost[self.waiting.pop(id).client] = str(why)

    def _take(self, asked: Asked, reply: Message) -> None:
        member = self.federation.members[asked.client]
        if reply.has_error() and reply.error.code == ErrorCode.NODE_UNAVAILABLE:
            self.federation.online.discard(asked.node)
            return
        try:
            if reply.has_content() and LACKS_SHARED in config_of(reply.content):
                member.ready = False  # its SuperNode was started anew
                return
            content = content_of(reply)
            if reply.metadata.src_node_id != asked.node:
                raise Wrong(f"it came from node {reply.metadata.src_node_id}")
            self.bytes_up += nbytes(content)
            if asked.kind == SHARE:
                member.ready = True
            elif self.accept is not None:
                self.done[asked.client] = self.accept(asked.client, content)
        except Wrong as e:
            self.lost[asked.client] = str(e)

    def _told(self, passed: float) -> str:
        reasons = [f"client {k}: {why}" for k, why in sorted(self.lost.items())]
        reasons += [f"client {k}: not there" for k in self._open() if k not in self.federation.members]
        reasons += [f"client {k}: no reply" for k in self._open() if k in self.federation.members]
        reasons += [f"node {node}: {why}" for node, why in self.federation.refused.items()]
        return (
            f"{self.when}, {len(self.done)} of {len(self.wanted)} clients gave a reply that can be used, and "
            f"{self.least} are needed ({'; '.join(reasons[:5])}); given up after {passed:.0f} s"
        )
