"""The papers' networks, each a factory `(shape, classes) -> nn.Module`, and the way to a user's own.

Weights are counted exactly in the tests. PyTorch's default initialisation is part of the recipe: He-normal weights
lose seven points on CIFAR-10 and stay at chance on two-class clients.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedskew import rng
from fedskew.errors import FedskewError

Shape = tuple[int, ...]
Factory = Callable[..., nn.Module]


def softmax(shape: Shape, classes: int) -> nn.Module:
    """Softmax regression: one linear layer."""
    return _chain(flatten=nn.Flatten(), fc=nn.Linear(math.prod(shape), classes))


def mlp(shape: Shape, classes: int) -> nn.Module:
    """McMahan et al. 2017, "2NN": two hidden layers of 200; 199,210 weights on MNIST."""
    return _chain(
        flatten=nn.Flatten(),
        fc1=nn.Linear(math.prod(shape), 200),
        relu1=nn.ReLU(),
        fc2=nn.Linear(200, 200),
        relu2=nn.ReLU(),
        fc3=nn.Linear(200, classes),
    )


def mnist_cnn(shape: Shape, classes: int) -> nn.Module:
    """McMahan et al. 2017, MNIST CNN, as used by Zhao et al.: 1,663,370 weights."""
    channels, height, width = _image("mnist-cnn", shape, at_least=4)
    return _chain(
        conv1=nn.Conv2d(channels, 32, 5, padding=2),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(32, 64, 5, padding=2),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        fc1=nn.Linear(64 * (height // 4) * (width // 4), 512),
        relu3=nn.ReLU(),
        fc2=nn.Linear(512, classes),
    )


def cifar_cnn(shape: Shape, classes: int) -> nn.Module:
    """McMahan et al. 2017, CIFAR CNN (the TensorFlow tutorial's) on 24x24 crops, as in Zhao and Hsu: 1,068,298."""
    channels, height, width = _image("cifar-cnn", shape, at_least=4)
    return _chain(
        conv1=nn.Conv2d(channels, 64, 5, padding=2),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(3, stride=2, padding=1),
        conv2=nn.Conv2d(64, 64, 5, padding=2),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(3, stride=2, padding=1),
        flatten=nn.Flatten(),
        fc1=nn.Linear(64 * math.ceil(height / 4) * math.ceil(width / 4), 384),
        relu3=nn.ReLU(),
        fc2=nn.Linear(384, 192),
        relu4=nn.ReLU(),
        fc3=nn.Linear(192, classes),
    )


def kws_cnn(shape: Shape, classes: int) -> nn.Module:
    """Zhang et al. 2017 (Hello Edge), small CNN on 50 x 10 MFCCs: 68,980 weights for ten words.

    C(28, 10x4, stride 1x1), C(30, 10x4, stride 2x1), linear 16 without activation, dense 128; no padding.
    """
    channels, height, width = _image("kws-cnn", shape, at_least=20, width=7)
    return _chain(
        conv1=nn.Conv2d(channels, 28, (10, 4)),
        relu1=nn.ReLU(),
        conv2=nn.Conv2d(28, 30, (10, 4), stride=(2, 1)),
        relu2=nn.ReLU(),
        flatten=nn.Flatten(),
        linear=nn.Linear(30 * ((height - 9 - 10) // 2 + 1) * (width - 6), 16),
        fc1=nn.Linear(16, 128),
        relu3=nn.ReLU(),
        fc2=nn.Linear(128, classes),
    )


def lahoti_mnist(shape: Shape, classes: int) -> nn.Module:
    """Lahoti et al., section 3: two convolutions, each with max-pooling and ReLU.

    The paper gives no widths; these are the common 10 and 20 channels of 5x5 and a dense layer of 50: 21,840.
    """
    channels, height, width = _image("lahoti-mnist", shape, at_least=16)
    return _chain(
        conv1=nn.Conv2d(channels, 10, 5),
        pool1=nn.MaxPool2d(2),
        relu1=nn.ReLU(),
        conv2=nn.Conv2d(10, 20, 5),
        pool2=nn.MaxPool2d(2),
        relu2=nn.ReLU(),
        flatten=nn.Flatten(),
        fc1=nn.Linear(20 * (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2), 50),
        relu3=nn.ReLU(),
        fc2=nn.Linear(50, classes),
    )


def lahoti_cifar(shape: Shape, classes: int) -> nn.Module:
    """Lahoti et al., section 3: four convolutions with batch norm and ReLU, max-pooling, two dense, dropout.

    The paper gives no widths; here 32, 32, 64, 64 channels of 3x3, pooling after each pair, 512 dense, dropout 0.5.
    """
    channels, height, width = _image("lahoti-cifar", shape, at_least=4)
    widths = [channels, 32, 32, 64, 64]
    layers: dict[str, nn.Module] = {}
    for i in range(1, 5):
        layers[f"conv{i}"] = nn.Conv2d(widths[i - 1], widths[i], 3, padding=1)
        layers[f"norm{i}"] = nn.BatchNorm2d(widths[i])
        layers[f"relu{i}"] = nn.ReLU()
        if i % 2 == 0:
            layers[f"pool{i // 2}"] = nn.MaxPool2d(2)
    return _chain(
        **layers,
        flatten=nn.Flatten(),
        fc1=nn.Linear(64 * (height // 4) * (width // 4), 512),
        relu5=nn.ReLU(),
        dropout=nn.Dropout(0.5),
        fc2=nn.Linear(512, classes),
    )


class Residual(nn.Module):
    """Two 3x3 convolutions with group norm and a shortcut without weights (He et al. 2016, option A)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.norm1 = _group_norm(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = _group_norm(after)
        self.stride, self.new_channels = stride, after - before

    def forward(self, x: Tensor) -> Tensor:
        """ReLU(F(x) + x), where x is subsampled and padded with zero channels when the shape changes."""
        y = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        x = x[:, :, :: self.stride, :: self.stride]
        x = nn.functional.pad(x, (0, 0, 0, 0, 0, self.new_channels))
        return torch.relu(x + y)


def resnet8(shape: Shape, classes: int) -> nn.Module:
    """A ResNet of one block a stage with group norm: small, and free of client statistics."""
    return _resnet(shape, classes, blocks=1)


def resnet20(shape: Shape, classes: int) -> nn.Module:
    """He et al. 2016, section 4.2, with group norm for batch norm (Hsieh et al. 2020): 269,722."""
    return _resnet(shape, classes, blocks=3)


MODELS: dict[str, Factory] = {
    "softmax": softmax,
    "mlp": mlp,
    "mnist-cnn": mnist_cnn,
    "cifar-cnn": cifar_cnn,
    "kws-cnn": kws_cnn,
    "lahoti-mnist": lahoti_mnist,
    "lahoti-cifar": lahoti_cifar,
    "resnet8": resnet8,
    "resnet20": resnet20,
}
USUAL = {
    "mnist": "mnist-cnn",
    "fashion-mnist": "mnist-cnn",
    "cifar10": "cifar-cnn",
    "speech-commands": "kws-cnn",
    "speech-commands-v2": "kws-cnn",
}


def find(name: str, data: str = "") -> Factory:
    """The factory called `name`; `auto` is the papers' choice for the data set; `package.module:factory` a user's."""
    if name == "auto":
        name = USUAL.get(data, "mlp")
    if name in MODELS:
        return MODELS[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise FedskewError(
            f"model {name!r} is not known: choose one of {', '.join(MODELS)} or name your own as package.module:factory"
        )
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as e:
        raise FedskewError(f"model {name!r} cannot be imported ({e}); is its folder on PYTHONPATH?") from e
    if not callable(factory):
        raise FedskewError(f"model {name!r} is not callable; it should return an nn.Module")
    return factory  # type: ignore[no-any-return]


def build(factory: Factory, shape: Shape, classes: int, seed: int) -> nn.Module:
    """A network with the initial weights of `seed`: the same on every device, since they are drawn on the CPU."""
    known = {"shape": shape, "classes": classes}
    wanted = {k: v for k, v in known.items() if k in inspect.signature(factory).parameters}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.torch_seed(seed, "weights"))
        model = factory(**wanted)
    if not isinstance(model, nn.Module):
        raise FedskewError(f"the model factory returned {type(model).__name__}; it should return an nn.Module")
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            got = tuple(model.eval()(torch.zeros(2, *shape)).shape)
        except RuntimeError as e:
            raise FedskewError(f"the model does not take examples of shape {shape}: {_first_line(e)}") from e
    if got != (2, classes):
        raise FedskewError(f"the model's output for 2 examples has shape {got}; it should be (2, {classes} classes)")
    return model


def _resnet(shape: Shape, classes: int, blocks: int) -> nn.Module:
    channels, _, _ = _image("resnet", shape, at_least=4)
    layers: dict[str, nn.Module] = {
        "conv": nn.Conv2d(channels, 16, 3, padding=1, bias=False),
        "norm": _group_norm(16),
        "relu": nn.ReLU(),
    }
    before = 16
    for stage, after in enumerate((16, 32, 64), start=1):
        for block in range(1, blocks + 1):
            stride = 2 if stage > 1 and block == 1 else 1
            layers[f"block{stage}_{block}"] = Residual(before, after, stride)
            before = after
    return _chain(**layers, pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), fc=nn.Linear(64, classes))


def _group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(8, channels)


def _chain(**layers: nn.Module) -> nn.Module:
    """Named layers in a row, so that divergence can be read layer by layer."""
    return nn.Sequential(OrderedDict(layers))


def _image(model: str, shape: Shape, at_least: int, width: int | None = None) -> tuple[int, int, int]:
    if len(shape) != 3 or shape[1] < at_least or shape[2] < (width or at_least):
        raise FedskewError(
            f"{model} takes examples of shape (channels, height >= {at_least}, width >= {width or at_least}), "
            f"not {shape}; choose another model"
        )
    return shape[0], shape[1], shape[2]


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
