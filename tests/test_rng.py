import numpy as np

from fedskew import rng


def test_a_stream_is_a_function_of_seed_name_and_ids():
    draw = lambda *key: rng.stream(*key).integers(0, 2**60, 8).tolist()  # noqa: E731
    assert draw(0, "sample", 3) == draw(0, "sample", 3)
    different = [draw(0, "sample", 3), draw(1, "sample", 3), draw(0, "batches", 3), draw(0, "sample", 4)]
    different += [draw(0, "sample", 3, 1), draw(0, "sample", 31), draw(3, "sample", 0)]
    assert len({tuple(d) for d in different}) == len(different)


def test_the_streams_never_change():
    """A stored run must meet the same numbers in a later version: these were drawn when it was written."""
    assert rng.stream(0, "sample", 1).integers(0, 1000, 4).tolist() == [543, 166, 439, 771]
    assert rng.torch_seed(0, "weights") == 1206807323887527957


def test_torch_seeds_fit_a_signed_integer():
    seeds = [rng.torch_seed(s, "dropout", 1, 2) for s in range(200)]
    assert max(seeds) < 2**63
    assert len(set(seeds)) == 200
    assert np.log2(max(seeds)) > 60


def test_a_stream_is_seeded_with_its_entropy():
    """However numpy is handed the 128 bits."""
    for k in range(300):
        seeded = np.random.PCG64(rng.entropy(0, "batches", 3, k))
        assert rng.stream(0, "batches", 3, k).bit_generator.state == seeded.state
