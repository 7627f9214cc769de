"""Downloads against real servers on loopback: dead, cut off, lying or forgetful ones."""

import resource
import socket

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_sets import official, serving

from fedskew.data.download import fetch
from fedskew.errors import FedskewError

pytestmark = pytest.mark.network
BODY = np.random.default_rng(0).bytes(1_500_000)  # several chunks


def get(file, target, **options):
    return list(fetch(file, target, pause=0.01, timeout=5, **options))


def dead_url(name):
    """A port on which nobody listens."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{s.getsockname()[1]}/{name}"


def left_in(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_a_whole_file_with_progress(mirror, tmp_path, algorithm):
    mirror.files["f"] = BODY
    steps = get(official("f", BODY, mirror.url("f"), algorithm=algorithm), tmp_path / "deep" / "f")
    assert (tmp_path / "deep" / "f").read_bytes() == BODY
    done = [s.done for s in steps]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, len(BODY))
    assert len(done) > 3
    assert {s.total for s in steps} == {len(BODY)}
    assert left_in(tmp_path / "deep") == ["f"]


def test_a_dead_first_mirror(mirror, tmp_path):
    mirror.files["f"] = BODY
    get(official("f", BODY, dead_url("f"), mirror.url("f")), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY


def test_all_mirrors_dead(mirror, tmp_path):
    with pytest.raises(FedskewError, match=r"f could not be downloaded.*refused.*404.*--from DIR"):
        get(official("f", BODY, dead_url("f"), mirror.url("f")), tmp_path / "f")
    assert left_in(tmp_path) == []
    assert len(mirror.asked) == 1, "a 404 is not asked again"


def test_a_server_in_trouble_is_asked_again(mirror, tmp_path):
    mirror.status = 503
    with pytest.raises(FedskewError, match="503"):
        get(official("f", BODY, mirror.url("f")), tmp_path / "f", tries=3)
    assert len(mirror.asked) == 3


def test_resume_asks_only_for_the_rest(mirror, tmp_path):
    mirror.files["f"] = BODY
    (tmp_path / "f.part").write_bytes(BODY[:1_000_000])
    steps = get(official("f", BODY, mirror.url("f")), tmp_path / "f")
    assert mirror.asked == [("f", "bytes=1000000-")]
    assert steps[0].done == 1_000_000
    assert (tmp_path / "f").read_bytes() == BODY


def test_resume_after_the_reader_went_away(mirror, tmp_path):
    mirror.files["f"] = BODY
    file = official("f", BODY, mirror.url("f"))
    reader = fetch(file, tmp_path / "f")
    for step in reader:
        if step.done > 0:
            break
    reader.close()
    assert left_in(tmp_path) == ["f.part"]
    get(file, tmp_path / "f")
    assert mirror.asked[1] == ("f", f"bytes={step.done}-")
    assert (tmp_path / "f").read_bytes() == BODY


def test_a_server_that_ignores_range(mirror, tmp_path):
    mirror.files["f"], mirror.ranges = BODY, False
    (tmp_path / "f.part").write_bytes(BODY[:1_000_000])
    get(official("f", BODY, mirror.url("f")), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY


def test_a_server_that_sends_another_range(mirror, tmp_path):
    mirror.files["f"], mirror.shift = BODY, 5
    (tmp_path / "f.part").write_bytes(BODY[:1_000_000])
    get(official("f", BODY, mirror.url("f")), tmp_path / "f")
    assert [asked for _, asked in mirror.asked] == ["bytes=1000000-", None]
    assert (tmp_path / "f").read_bytes() == BODY


def test_a_connection_that_breaks_is_taken_up_where_it_broke(mirror, second, tmp_path):
    mirror.files["f"] = second.files["f"] = BODY
    mirror.cut = [600_000]
    get(official("f", BODY, mirror.url("f"), second.url("f")), tmp_path / "f")
    assert second.asked == [("f", "bytes=600000-")]
    assert (tmp_path / "f").read_bytes() == BODY


def test_a_truncated_file_is_refused(mirror, tmp_path):
    mirror.files["f"] = BODY[:-1]
    with pytest.raises(FedskewError, match=r"f could not be downloaded.*1,499,999 of 1,500,000 bytes"):
        get(official("f", BODY, mirror.url("f")), tmp_path / "f")
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("more", [1, 3_000_000])
def test_a_longer_file_is_refused_and_never_written_out(mirror, tmp_path, more):
    mirror.files["f"] = BODY + bytes(more)
    done = []
    with pytest.raises(FedskewError, match="longer than the official 1,500,000 bytes"):  # noqa: PT012
        for step in fetch(official("f", BODY, mirror.url("f")), tmp_path / "f", tries=1):
            done.append(step.done)
    assert max(done) <= len(BODY)
    assert left_in(tmp_path) == []


def test_a_wrong_checksum_names_file_expected_and_got(mirror, tmp_path):
    other = b"\0" + BODY[1:]
    mirror.files["f"] = other
    file, got = official("f", BODY, mirror.url("f")), official("f", other)
    with pytest.raises(FedskewError) as e:
        get(file, tmp_path / "f")
    assert "f could not be downloaded" in str(e.value)
    assert f"expected sha256 {file.digest[7:]}, got {got.digest[7:]}" in str(e.value)
    assert left_in(tmp_path) == []
    assert len(mirror.asked) == 1, "the same mirror would send the same bytes again"


def test_a_wrong_checksum_at_one_mirror_is_made_good_by_the_next(mirror, second, tmp_path):
    mirror.files["f"], second.files["f"] = b"\0" + BODY[1:], BODY
    get(official("f", BODY, mirror.url("f"), second.url("f")), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY


@pytest.mark.parametrize("part", [bytes(1000), bytes(len(BODY)), bytes(len(BODY) + 9)])
def test_a_partial_file_of_other_bytes_is_thrown_away(mirror, tmp_path, part):
    mirror.files["f"] = BODY
    (tmp_path / "f.part").write_bytes(part)
    get(official("f", BODY, mirror.url("f")), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY
    assert left_in(tmp_path) == ["f"]


def test_a_full_disk_is_told_as_such(mirror, tmp_path):
    mirror.files["f"] = BODY
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
    try:
        with pytest.raises(FedskewError, match=r"f\.part cannot be written"):
            get(official("f", BODY, mirror.url("f")), tmp_path / "f")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(mirror.asked) == 1, "another mirror cannot help"
    get(official("f", BODY, mirror.url("f")), tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == BODY


def test_more_than_the_disk_can_hold_is_refused_before_it_starts(mirror, tmp_path):
    file = official("f", BODY, mirror.url("f"))
    with pytest.raises(FedskewError, match="make room"):
        get(type(file)("f", 10**18, file.digest, file.mirrors), tmp_path / "f")
    assert mirror.asked == []


@given(
    size=st.integers(0, 700_000),
    have=st.integers(0, 700_000),
    cuts=st.lists(st.integers(0, 700_000), max_size=2),
    ranges=st.booleans(),
)
def test_however_it_is_cut_the_bytes_are_the_official_ones(tmp_path_factory, size, have, cuts, ranges):
    body, target = BODY[:size], tmp_path_factory.mktemp("cut") / "f"
    target.with_name("f.part").write_bytes(body[:have])
    with serving() as mirror:
        mirror.files["f"], mirror.cut, mirror.ranges = body, cuts, ranges
        get(official("f", body, mirror.url("f")), target)
    assert target.read_bytes() == body
    assert left_in(target.parent) == ["f"]
