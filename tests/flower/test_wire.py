"""Trees on the wire: what was sent arrives, and nothing else is taken for it."""

import io

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedskew.data.dataset import Dataset
from fedskew.engine.terms import Contrast, Drift
from fedskew.flower import wire
from fedskew.flower.wire import Card, Wrong

LEAVES = st.sampled_from([np.float32, np.float64, np.int64, np.uint8]).flatmap(
    lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)


@given(st.dictionaries(st.text(min_size=1, max_size=8), LEAVES, min_size=1, max_size=4))
def test_a_tree_arrives_bit_for_bit(arrays):
    leaves = {name: torch.from_numpy(a) for name, a in arrays.items()}
    found = wire.unpack(wire.pack(leaves), leaves)
    assert list(found) == list(leaves)
    for name, leaf in leaves.items():
        assert found[name].dtype == leaf.dtype
        assert found[name].numpy().tobytes() == np.ascontiguousarray(leaf.numpy()).tobytes()


def test_a_transposed_leaf_keeps_its_numbers():
    w = {"w": torch.arange(6.0).reshape(2, 3)}
    turned = ArrayRecord({"w": Array(np.asfortranarray(w["w"].numpy()))})
    assert torch.equal(wire.unpack(turned, w)["w"], w["w"])


def npy(shape, descr="<f4", data=b"\0" * 24):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue() + data


LIKE = {"w": torch.zeros(2, 3)}
GOOD = npy((2, 3))


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (None, "no arrays"),
        (ArrayRecord(), "w is missing"),
        (ArrayRecord({"w": Array(np.zeros((2, 3), "f4")), "v": Array(np.zeros(1))}), "'v' is not one of"),
        (ArrayRecord({"w": Array(np.zeros((1,), "f4"))}), "shape"),
        (ArrayRecord({"w": Array(np.zeros((1, 3), "f4"))}), "shape"),
        (ArrayRecord({"w": Array(np.zeros((2, 3), "f8"))}), "holds float64, not float32"),
        (ArrayRecord({"w": Array(np.zeros((2, 3), ">f4"))}), "holds >f4"),
        (ArrayRecord({"w": Array("float32", (2, 3), "numpy.ndarray", b"")}), "not a plain array"),
        (ArrayRecord({"w": Array("float32", (2, 3), "numpy.ndarray", GOOD[:-1])}), "do not fill"),
        (ArrayRecord({"w": Array("float32", (2, 3), "numpy.ndarray", GOOD + b"x")}), "do not fill"),
        (ArrayRecord({"w": Array("float32", (2, 3), "torch", GOOD)}), "not a plain array"),
        (ArrayRecord({"w": Array("float32", (2, 3), "numpy.ndarray", npy((2**40, 2**20)))}), "shape"),
        (ArrayRecord({"w": Array("float32", (2, 3), "numpy.ndarray", npy((2, 3), "|O"))}), "holds object"),
    ],
)
def test_what_is_not_the_network_is_refused_before_room_is_made_for_it(record, says):
    with pytest.raises(Wrong, match=says):
        wire.unpack(record, LIKE)


def test_the_labels_of_an_array_do_not_count_but_its_bytes():
    liar = ArrayRecord({"w": Array("float32", (2, 3), "numpy.ndarray", npy((3, 2)))})
    with pytest.raises(Wrong, match="shape"):
        wire.unpack(liar, LIKE)


@pytest.mark.parametrize(("value", "ok"), [(1.0, True), (np.nan, False), (np.inf, False), (-np.inf, False)])
def test_finite(value, ok):
    assert wire.finite({"a": torch.tensor([0.0, value]), "steps": torch.tensor(3)}) is ok


def test_terms_arrive_with_a_client_axis_of_one():
    w = {"a": torch.zeros(2, dtype=torch.float32)}
    shift, previous = {"a": torch.tensor([[1.0, 2], [3, 4]])}, {"a": torch.tensor([[5.0, 6], [7, 8]])}
    like = torch.ones(2)
    drift = Drift(torch.tensor([0.1, 0.2], dtype=torch.float64), shift)
    records, numbers = wire.pack_terms(drift, Contrast(previous, 0.3 * like, 0.7 * like), 1)
    records[wire.CONFIG] = wire.ConfigRecord(numbers)
    d, c = wire.unpack_terms(records, w)
    assert d.pull.dtype == torch.float64
    assert d.pull.tolist() == [0.2]
    assert torch.equal(d.shift["a"], shift["a"][1:])
    assert torch.equal(c.previous["a"], previous["a"][1:])
    assert torch.equal(c.mu, (0.3 * like)[1:])
    assert torch.equal(c.temperature, (0.7 * like)[1:])
    assert wire.unpack_terms(wire.RecordDict(), w) == (None, None)


def test_a_card_is_read_as_it_was_written():
    y = np.array([0, 1])
    data = Dataset("mine", np.zeros((2, 1, 4, 4), np.uint8), y, np.zeros((0, 1, 4, 4), np.uint8), y[:0], ("a", "b"))
    card = Card.of(data, "crop-flip")
    assert Card.read(card.written()) == card
