"""FedJAX: python -m benchmarks.peers.fedjax FOLDER"""

from __future__ import annotations

import sys
from typing import Any

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms.fed_avg import federated_averaging

from benchmarks.peers.work import Weights, load, serve


class Epoch(fedjax.ClientDataset):  # type: ignore[misc]
    """FedJAX would fill a short last batch from the epoch's start; its plain batches train the loop's round."""

    def shuffle_repeat_batch(self, hparams: Any = None, **_: Any) -> Any:
        """The order given, once."""
        return self.batch(batch_size=hparams.batch_size)


def forward(layers: list[dict[str, Any]], w: Any, x: Any) -> Any:
    """The chain on images whose channels are last, as XLA prefers them on a CPU."""
    for layer in layers:
        weight, bias = w.get(f"{layer['name']}.weight"), w.get(f"{layer['name']}.bias")
        match layer["kind"]:
            case "conv":
                edge = (layer["padding"], layer["padding"])
                order = ("NHWC", "HWIO", "NHWC")
                x = jax.lax.conv_general_dilated(x, weight, (1, 1), (edge, edge), dimension_numbers=order) + bias
            case "pool":
                edge = (layer["padding"], layer["padding"])
                size, stride = (1, layer["size"], layer["size"], 1), (1, layer["stride"], layer["stride"], 1)
                x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, size, stride, ((0, 0), edge, edge, (0, 0)))
            case "linear":
                x = x @ weight.T + bias
            case "relu":
                x = jax.nn.relu(x)
            case "flatten":  # torch's order, so that the weights are the loop's
                x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    return x


def main(folder: str) -> None:
    """Answer on stdout."""
    work = load(folder)
    jax.config.update("jax_enable_x64", work.x.dtype == np.float64)

    def loss(w: Any, batch: Any, rng: Any) -> Any:
        scores = jax.nn.log_softmax(forward(work.layers, w, batch["x"]))
        return -jnp.take_along_axis(scores, batch["y"][:, None], axis=1).mean()

    algorithm = federated_averaging(
        jax.grad(loss),
        fedjax.optimizers.sgd(work.lr),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=work.batch),
    )
    start = {name: jnp.asarray(_moved(leaf, (2, 3, 1, 0))) for name, leaf in work.w.items()}
    images = np.ascontiguousarray(np.moveaxis(work.x, 2, -1))
    keys = jax.random.split(jax.random.PRNGKey(0), len(work.y))
    clients = [(k, Epoch({"x": images[k], "y": work.y[k].astype(np.int32)}), key) for k, key in enumerate(keys)]

    def a_round() -> Weights:
        state, _ = algorithm.apply(algorithm.init(start), clients)
        return {name: _moved(np.asarray(leaf), (3, 2, 0, 1)) for name, leaf in state.params.items()}

    serve(a_round)


def _moved(leaf: Any, order: tuple[int, ...]) -> Any:
    """A convolution's weights with their axes in another order."""
    return leaf.transpose(order) if leaf.ndim == 4 else leaf


if __name__ == "__main__":
    main(sys.argv[1])
