"""The ClientApp: says hello, takes what is shared, trains. Nothing is kept between messages but the shared data."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod

from fedskew.errors import FedskewError
from fedskew.flower import wire
from fedskew.flower.node import Arrays, Node

KEPT = "fedskew.shared"  # in the context's state: this client's part of G

Handler = Callable[[Message, Context], RecordDict]


def client_app(mods: list[Mod] | None = None) -> ClientApp:
    """A client of any fedskew run; what it holds is in its node config, what it is to do in the messages.

    `mods` are Flower's, around every message.
    """
    app = ClientApp(mods=mods)
    for kind, handler in ((wire.HELLO, hello), (wire.SHARE, share), (wire.TRAIN, train)):
        category, _, action = kind.partition(".")
        register = getattr(app, category)
        register(*([action] if action else []))(_answered(handler))
    return app


def hello(message: Message, context: Context) -> RecordDict:
    """Which client this is and how much it holds; how many of each class only if its operator allows it."""
    node = Node.of(message.content, context.node_config)
    _, y = node.own()
    told: dict[str, int | float | list[int] | list[float]] = {"partition-id": node.client, "num-examples": len(y)}
    if (counts := node.label_counts(y)) is not None:
        told["label-counts"] = counts
    return RecordDict({wire.METRICS: MetricRecord(told)})


def share(message: Message, context: Context) -> RecordDict:
    """Draw this client's own alpha of G and keep it for the rest of the run."""
    x, y = Node.of(message.content, context.node_config).draw(message.content)
    context.state[KEPT] = wire.pack_arrays({"x": x, "y": y})
    context.state[KEPT + ".session"] = ConfigRecord({"session": _session(message)})
    return RecordDict({wire.METRICS: MetricRecord({"num-examples": len(y)})})


def train(message: Message, context: Context) -> RecordDict:
    """One round of local training."""
    node = Node.of(message.content, context.node_config)
    given: Arrays | None = None
    if node.run.share is not None:
        kept = cast("ConfigRecord", context.state.get(KEPT + ".session", ConfigRecord()))
        if kept.get("session") != _session(message):
            return RecordDict({wire.CONFIG: ConfigRecord({wire.LACKS_SHARED: True})})
        found = cast("ArrayRecord", context.state[KEPT])
        given = found["x"].numpy(), found["y"].numpy()
    arrays, told = node.train(message.content, given)
    return RecordDict({wire.ARRAYS: wire.pack(arrays), wire.METRICS: MetricRecord(dict(told))})


def _answered(handler: Handler) -> Callable[[Message, Context], Message]:
    """A reply in any case: what a user can mend is said to the server in one line."""

    def answer(message: Message, context: Context) -> Message:
        try:
            content = handler(message, context)
        except (FedskewError, wire.Wrong) as e:
            content = RecordDict({wire.CONFIG: ConfigRecord({wire.REFUSED: str(e)})})
        return Message(content, reply_to=message)

    return answer


def _session(message: Message) -> str:
    return str(wire.config_of(message.content).get("session"))
