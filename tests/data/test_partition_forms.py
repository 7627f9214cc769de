"""Partitions as text: the short form, JSON, and mistakes told in one line."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from partition_samples import SAMPLES
from pydantic import TypeAdapter

from fedskew.data.partition import (
    KINDS,
    Dirichlet,
    File,
    Groups,
    Iid,
    Partition,
    parse_partition,
)
from fedskew.errors import FedskewError
from fedskew.rng import stream

# --- the short form -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [*SAMPLES, File(clients=20, path="a,b=c:d.csv")], ids=str)
def test_short_form_and_json_round_trip(spec):
    assert parse_partition(str(spec), clients=20) == spec
    field = TypeAdapter(Partition)
    assert field.validate_python(json.loads(json.dumps(spec.model_dump(mode="json"), allow_nan=False))) == spec
    assert field.validate_json(spec.model_dump_json()) == spec
    assert set(spec.slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")


@given(alpha=st.floats(0, allow_nan=False), prior=st.none() | st.lists(st.floats(1e-9, 1e9), min_size=1).map(tuple))
def test_numbers_survive_the_short_form(alpha, prior):
    spec = Dirichlet(alpha=alpha, prior=prior)
    assert parse_partition(str(spec)) == spec


def test_clients_left_out_are_ten_or_the_datas_own():
    assert parse_partition("iid").clients == 10
    assert parse_partition("groups").clients is None
    assert parse_partition("iid,clients=7").clients == 7
    assert [k.model_fields["kind"].default for k in KINDS] == [
        "iid",
        "classes",
        "shards",
        "dirichlet",
        "dirichlet-by-class",
        "quantity",
        "groups",
        "emd",
        "file",
        "nodes",
    ]


# --- mistakes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("dirichlet:-1", "alpha = '-1': it should be greater than or equal to 0"),
        ("dirichlet:nan", "alpha = 'nan'"),
        ("dirichlet", "alpha is missing"),
        ("dirichlet:1,prior=0.5/x", "prior = '0.5/x': it should be uniform or one weight a class"),
        ("dirichlet:1,prior=1/-1", "prior = .*not negative"),
        ("dirichlet:1,prior=0/0", "prior = .*not all zero"),
        ("dirichlet:1,prior=nan/1", "prior = .*finite"),
        ("dirichlet-by-class:nan", "alpha = 'nan'"),
        ("quantity:-0.5", "alpha = '-0.5'"),
        ("quantity:1,min_size=-1", "min_size = '-1'"),
        ("classes:0", "n = '0'"),
        ("classes:1.5", "n = '1.5'"),
        ("shards:0", "n = '0'"),
        ("emd:-0.1", "value = '-0.1'"),
        ("emd:nan", "value = 'nan'"),
        ("iid:3", "takes no value"),
        ("iid,speed=3", "unknown key 'speed'"),
        ("iid,clients=0", "clients = '0'"),
        ("file:", "path = ''"),
        ("nope:1", "partition 'nope:1' is not known: choose one of iid, classes"),
    ],
)
def test_a_bad_short_form_names_field_value_and_rule(text, says):
    with pytest.raises(FedskewError, match=says):
        parse_partition(text)


@pytest.mark.parametrize(
    ("text", "clients", "sizes", "says"),
    [
        ("iid", 31, [10, 20], "iid: clients = 31: there are only 30 examples; use at most 30"),
        ("dirichlet:0.1", 31, [10, 20], "clients = 31: there are only 30"),
        ("dirichlet:0.1,prior=1/0", 11, [10, 20], "clients = 11: there are only 10"),
        ("dirichlet:0.1,prior=1", 2, [10, 20], "prior has 1 weights and the data has 2 classes"),
        ("dirichlet-by-class:1", 31, [10, 20], "clients = 31"),
        ("dirichlet-by-class:0", 20, [10, 20], "min_size = 1: none of .* draws .*raise alpha, lower min_size"),
        ("quantity:1", 31, [10, 20], "clients = 31"),
        ("quantity:1,min_size=4", 10, [10, 20], "min_size = 4: 10 clients need 40 .* use at most 3"),
        ("classes:3", 4, [10, 20], "n = 3: the data has 2 classes"),
        ("classes:1", 30, [10, 20], "clients = 30: class 0 would be cut into 15 pieces and has 10"),
        ("shards:4", 10, [10, 20], "n = 4: 10 clients need 40 .* use at most 3"),
        ("groups", 3, [10, 20], "the data set names no groups"),
        ("emd:1.95", 10, [10] * 10, r"emd:1.95 cannot be reached with 10 classes: the largest is 1.8; lower it"),
        ("emd:inf", 10, [10] * 10, "cannot be reached"),
        ("emd:1", 15, [40] * 10, "clients = 15: .* multiple of 10; use 10 or 20"),
        ("emd:1", 3, [40] * 10, "clients = 3: .* use 10$"),
        ("emd:1", 20, [40, 19], "clients = 20: .* class 1 has 19; use at most 18 clients"),
        ("iid", 1, [], "there are only 0 examples"),
        ("emd:0", 1, [], "there are no examples"),
    ],
)
def test_a_partition_that_cannot_be_made(text, clients, sizes, says):
    y = np.repeat(np.arange(len(sizes)), sizes)
    with pytest.raises(FedskewError, match=says):
        parse_partition(text, clients=clients)(y, stream(0, "p"))


def test_groups_that_do_not_fit():
    y = np.zeros(6, np.int64)
    with pytest.raises(FedskewError, match="clients = 4: the data has 3 groups"):
        Groups(clients=4)(y, stream(0, "p"), ["a", "a", "b", "b", "c", "c"])
    with pytest.raises(FedskewError, match="2 groups for 6 labels"):
        Groups()(y, stream(0, "p"), [1, 2])


@pytest.mark.parametrize(
    ("y", "says"),
    [([0, -1], "label -1 at index 1 is negative"), ([0.0, 1.0], "whole numbers"), ([[0, 1]], "a vector of")],
)
def test_labels_that_are_none(y, says):
    with pytest.raises(FedskewError, match=says):
        Iid(clients=1)(np.array(y), stream(0, "p"))
