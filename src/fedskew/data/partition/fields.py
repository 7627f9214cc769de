"""What every partition's fields and arguments share, and the rules they are checked by."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, PlainSerializer

from fedskew.errors import FedskewError

Floats = NDArray[np.float64]

Clients = Annotated[int, Field(ge=1)]

# the concentration of a Dirichlet; JSON has no infinity, and the string "inf" is read back as one
Alpha = Annotated[
    float,
    Field(ge=0),
    PlainSerializer(lambda a: a if math.isfinite(a) else "inf", when_used="json"),
]


def as_labels(labels: ArrayLike) -> NDArray[Any]:
    """The labels as a vector of whole numbers from 0 up, or an error that says what is wrong."""
    y = np.asarray(labels)
    if y.ndim != 1 or (y.size and y.dtype.kind not in "iu"):
        raise FedskewError(
            f"labels are {y.dtype} of shape {y.shape}: a vector of whole numbers is needed; give class numbers"
        )
    if y.size and y.min() < 0:
        i = int(np.argmax(y < 0))
        raise FedskewError(f"label {y[i]} at index {i} is negative: classes are 0, 1, 2, ...; mend or drop it")
    return y


def enough(kind: str, clients: int, examples: int) -> None:
    """Every client needs an example."""
    if clients > examples:
        raise FedskewError(
            f"{kind}: clients = {clients}: there are only {examples} examples; use at most {examples} clients"
        )
