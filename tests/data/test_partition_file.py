"""Partitions read from a file of users."""

import numpy as np
import pytest

from fedskew.data.partition import Dirichlet, File, parse_partition
from fedskew.errors import FedskewError
from fedskew.rng import stream

Y = np.array([0, 1, 2, 0, 1, 2])


def written(path, text):
    path.write_text(text)
    return File(path=str(path))


def test_users_are_clients_in_the_order_of_their_numbers(tmp_path):
    spec = written(tmp_path / "s.csv", "user_id,image_id,class\n10,5,2\n2,0,0\n10,1,1\n2,4,1\n")
    assert [p.tolist() for p in spec(Y, stream(0, "p"))] == [[0, 4], [5, 1]]
    spec = written(tmp_path / "s.csv", "b,3\na,0\nb,1\n")
    assert [p.tolist() for p in spec(Y, stream(0, "p"))] == [[0], [3, 1]]


def test_a_partition_written_down_is_read_back(tmp_path):
    y = np.repeat(np.arange(10), 40)
    parts = Dirichlet(clients=25, alpha=0.3)(y, stream(0, "p"))
    lines = [f"{k},{i},{y[i]}\n" for k, part in enumerate(parts) for i in part]
    path = tmp_path / "alpha=0.3,seed=0.csv"
    path.write_text("user,index,class\n" + "".join(lines))
    again = parse_partition(f"file:{path}", clients=25)(y, stream(1, "p"))
    assert all(map(np.array_equal, parts, again))


@pytest.mark.parametrize(
    ("text", "clients", "says"),
    [
        ("0,6\n", None, "index 6 is not in 0..5"),
        ("0,1\n1,1\n", None, "index 1 is there twice"),
        ("0,0,0\n0,1,2\n", None, "example 1 has class 2 there and class 1 in the data"),
        ("0,0\n1,1\n", 3, "clients = 3: the file has 2 users"),
        (None, None, "does not exist"),
    ],
)
def test_a_split_of_other_data_is_refused(tmp_path, text, clients, says):
    path = tmp_path / "s.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(FedskewError, match=says):
        File(path=str(path), clients=clients)(Y, stream(0, "p"))
