"""Small runs whose data are shared or whose weights are warmed up."""

from __future__ import annotations

import json
from contextlib import closing

import numpy as np
import torch
from hypothesis import strategies as st

from fedskew.data import datasets
from fedskew.experiment import train
from fedskew.laboratory import Laboratory

DIGITS = datasets.load("digits")
SMALL = {"data": "digits", "model": "softmax", "rounds": 2, "lr": 0.5, "partition": "classes:1", "clients": 10}
SHARED = SMALL | {"share": "beta=0.1,alpha=0.5"}


def lab_of(run, data=DIGITS):
    return Laboratory.of(run, data, "cpu", "loop", "fp32")


def first(run, **options):
    with closing(train(run, **options)) as rows:
        return next(rows)


def plain(row):
    return {key: value for key, value in json.loads(json.dumps(row.record())).items() if key != "seconds"}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


labels = st.lists(st.integers(0, 4), min_size=5, max_size=120).map(np.array)
