"""CSV files of a user's own: splits and counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedskew.data.datasets import read_counts, read_split
from fedskew.errors import FedskewError


@pytest.fixture
def csv(tmp_path):
    def write(text):
        path = tmp_path / "table.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.mark.parametrize("header", ["", "user_id,image_id,class\n", "\ufeffuser,index,class\r\n"])
def test_a_split_with_classes(csv, header):
    users, index, classes = read_split(csv(header + "0,11,3\n\n1,5,4\nanna b., 7 ,0\n"))
    assert users.tolist() == ["0", "1", "anna b."]
    assert index.tolist() == [11, 5, 7]
    assert classes.tolist() == [3, 4, 0]
    assert (index.dtype, classes.dtype) == (np.int64, np.int64)


@pytest.mark.parametrize("mark", ["", "\ufeff"])  # some spreadsheets begin a file with this mark
def test_a_split_without_classes(csv, mark):
    users, index, classes = read_split(str(csv(mark + 'x,2\n"Smith, J.",1\n')))
    assert (users.tolist(), index.tolist(), classes) == (["x", "Smith, J."], [2, 1], None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has no lines of user,index"),
        ("user,index\n", "has no lines of user,index"),
        ("user,index\na,b\n", r"line 2: index 'b' is not a whole number"),
        ("a,1\nb,-2\n", r"line 2: index '-2' is not a whole number of 0 or more"),
        ("a,1\nb,2.5\n", r"line 2: index '2\.5'"),
        ("a,1\nb,99999999999999999999\n", r"line 2: index '9+'"),
        ("a,1,0\nb,2,cat\n", r"line 2: class 'cat'"),
        ("a,1\n\nb,2,3\n", r"line 3: 3 fields instead of 2"),
        ("a\n", r"line 1: 1 fields instead of user,index"),
        ("a,1,2,3\n", r"line 1: 4 fields"),
        ("a,1\n,2\n", r"line 2: the user is empty"),
        (b"\xff\xfe\x00", "cannot be read as a CSV"),
        ('a,1\n"b,2\n', "cannot be read as a CSV"),
    ],
)
def test_splits_that_are_refused(csv, text, told):
    with pytest.raises(FedskewError, match=r"table\.csv.*" + told):
        read_split(csv(text))


def test_a_file_that_is_not_there(tmp_path):
    for read in (read_split, read_counts):
        with pytest.raises(FedskewError, match=r"nowhere\.csv does not exist"):
            read(tmp_path / "nowhere.csv")
        with pytest.raises(FedskewError, match="cannot be read"):
            read(tmp_path)


@pytest.mark.parametrize(
    ("text", "clients", "classes"),
    [
        ("5,0,1\n0,7,2\n", ("0", "1"), ("0", "1", "2")),
        ("cat,dog,cow\n5,0,1\n0,7,2\n", ("0", "1"), ("cat", "dog", "cow")),
        ("ann,5,0,1\nbob,0,7,2\n", ("ann", "bob"), ("0", "1", "2")),
        ("client,cat,dog,cow\nann,5,0,1\nbob,0,7,2\n", ("ann", "bob"), ("cat", "dog", "cow")),
        ("user_id,0,1,2\n17,5,0,1\n18,0,7,2\n", ("17", "18"), ("0", "1", "2")),
        (",0,1,2\n17,5,0,1\n18,0,7,2\n", ("17", "18"), ("0", "1", "2")),
        ("name;cat;dog;cow\nann;5;0;1\nbob;0;7.0;2e0\n", ("ann", "bob"), ("cat", "dog", "cow")),
        ("cat\tdog\tcow\r\n5\t0\t1\r\n0\t7\t2\r\n", ("0", "1"), ("cat", "dog", "cow")),
    ],
)
def test_counts_with_and_without_names(csv, text, clients, classes):
    counts, got_clients, got_classes = read_counts(csv(text))
    assert counts.tolist() == [[5, 0, 1], [0, 7, 2]]
    assert counts.dtype == np.int64
    assert (got_clients, got_classes) == (clients, classes)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("client,a,b\n", "has no counts"),
        ("client\nann\n", "has no counts"),
        ("1,2\n3,-4\n", r"line 2: count '-4' is not a whole number of 0 or more"),
        ("1,2\n3,nan\n", r"line 2: count 'nan'"),
        ("1,2\n3,inf\n", r"line 2: count 'inf'"),
        ("ann,nan,2\n", r"line 1: count 'nan'"),
        ("1,2\n3,0.5\n", r"line 2: count '0\.5'"),
        ("1,2\n3,\n", r"line 2: count ''"),
        ("ann,,2\nbob,1,2\n", r"line 1: count ''"),
        ("1,2\n3,x\n", r"line 2: count 'x'"),
        ("1,2\n3,1e30\n", r"line 2: count '1e30'"),
        ("1,2\n\n3\n", r"line 3: 1 fields, but line 1 has 2"),
        ("0,0\n0,0\n", "every count is 0"),
        (b"\x80\x81", "cannot be read as a CSV"),
    ],
)
def test_counts_that_are_refused(csv, text, told):
    with pytest.raises(FedskewError, match=r"table\.csv.*" + told):
        read_counts(csv(text))


@given(
    st.integers(1, 6).flatmap(
        lambda c: st.lists(st.lists(st.integers(0, 2**53 - 1), min_size=c, max_size=c), min_size=1, max_size=8)
    ),
    st.booleans(),
    st.booleans(),
)
def test_counts_come_back_as_they_were_written(tmp_path_factory, table, header, names):
    path = tmp_path_factory.mktemp("counts") / "c.csv"
    lines = [",".join([*([f"client {i}"] if names else []), *map(str, row)]) for i, row in enumerate(table)]
    head = [",".join([*(["client"] if names else []), *(f"class {j}" for j in range(len(table[0])))])]
    path.write_text("\n".join((head if header else []) + lines))
    if sum(map(sum, table)) == 0:
        with pytest.raises(FedskewError, match="every count is 0"):
            read_counts(path)
        return
    counts, clients, classes = read_counts(path)
    assert counts.tolist() == table
    assert clients == tuple(f"client {i}" if names else str(i) for i in range(len(table)))
    assert classes == tuple(f"class {j}" if header else str(j) for j in range(len(table[0])))
