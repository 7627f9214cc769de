"""The fingerprint of a split: what stored runs were started with must be recognised for good."""

import hashlib

import numpy as np
import pytest

from fedskew.data import datasets
from fedskew.run import Run
from fedskew.sides import split
from fedskew.store.origin import fingerprint

PARTITIONS = [
    "iid",
    "classes:2,keep=true",
    "shards:2",
    "dirichlet:0.3",
    "dirichlet-by-class:0.5",
    "quantity:1",
    "emd:1",
]


@pytest.mark.parametrize("examples", [None, 600])
@pytest.mark.parametrize("partition", PARTITIONS)
def test_it_is_the_sizes_and_then_every_clients_indices(partition, examples):
    run, data = Run(partition=partition, clients=20, examples=examples), datasets.load("digits")
    parts = [np.array(part) for part in split(run, data)]
    digest = hashlib.sha256(np.array([len(part) for part in parts], np.int64).tobytes())
    for part in parts:
        digest.update(part.tobytes())
    assert fingerprint(run, data)["partition"] == digest.hexdigest()


@pytest.mark.parametrize(
    ("fields", "digest"),
    [
        ({"partition": "iid"}, "19c3da7cb9e940034b1689d0a55816d9e56b43ed1950b66b1ce9c5238e253d8a"),
        ({"partition": "iid", "examples": 500}, "547b16784d3c98d65a9a1e528a083aacb8a2fb1dda06eba952a8c220f63da7b1"),
        ({"partition": "classes:1"}, "531ea053d08b7527c7bceb19703c42fd1c36fe2541c0bd03d936d9026cfa8e81"),
        ({"partition": "dirichlet:0.3"}, "d8100e03f4d5a8d44898e4770c4f87649e9da39d9d6b0d0b32aeb480f6a35b31"),
    ],
    ids=str,
)
def test_it_is_what_the_first_stores_hold(fields, digest):
    run = Run(data="digits", model="softmax", clients=20, seed=3, **fields)
    assert fingerprint(run, datasets.load("digits"))["partition"] == digest
