"""MFCCs against Kaldi's own code, and the features that are kept on the disk."""

import logging

import kaldi_native_fbank as knf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_sets import write_wav

from fedskew.data import features, speech
from fedskew.data.audio import Mfcc
from fedskew.data.sources import SOURCES

# Largest difference from Kaldi's code, whose arithmetic is in float32; the coefficients themselves reach 130.
# Near silence between tones a bin's energy is the rounding error of a float32 FFT, hence the wider bound there.
TOLERANCE, TONE_TOLERANCE = 5e-4, 2e-2


def kaldi(samples):
    """(frames, 10) by kaldi-native-fbank."""
    o = knf.MfccOptions()
    o.frame_opts.samp_freq = 16_000
    o.frame_opts.frame_length_ms = 30
    o.frame_opts.frame_shift_ms = 20
    o.frame_opts.dither = 0
    o.frame_opts.snip_edges = False
    o.mel_opts.num_bins = 40
    o.mel_opts.low_freq = 20
    o.mel_opts.high_freq = 4_000
    o.num_ceps = 10
    o.use_energy = False
    m = knf.OnlineMfcc(o)
    m.accept_waveform(16_000, samples.tolist())
    m.input_finished()
    return np.stack([m.get_frame(i) for i in range(m.num_frames_ready)])


def ours(samples):
    return Mfcc()(torch.from_numpy(np.atleast_2d(samples).astype(np.float32))).numpy()


t = np.arange(16_000) / 16_000
noise = np.random.default_rng(0).normal(size=16_000)
SIGNALS = {
    "noise": 0.1 * noise,
    "quiet": 1e-4 * noise,
    "silence": 0 * t,
    "constant": 0.5 + 0 * t,
    "impulse": (t == 0.25).astype(float),
    "padded": np.where(t < 0.6, 0.1 * noise, 0),
    "voice": 0.1 * np.hanning(16_000) * sum(np.sin(2 * np.pi * 120 * k * t) / k for k in range(1, 30)),
    "tone": 0.5 * np.sin(2 * np.pi * 440 * t),
    "chirp": 0.3 * np.sin(2 * np.pi * (100 * t + 1_500 * t * t)),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_synthetic_signals_as_kaldi(name):
    samples = SIGNALS[name].astype(np.float32)
    expected = kaldi(samples)
    assert expected.shape == (50, 10)
    bound = TONE_TOLERANCE if name in ("tone", "chirp") else TOLERANCE
    assert np.abs(ours(samples)[0] - expected).max() < bound


@given(st.integers(480, 20_000), st.integers(0, 2**32 - 1))
def test_any_length_as_kaldi(length, seed):
    samples = np.random.default_rng(seed).normal(0, 0.1, length).astype(np.float32)
    expected = kaldi(samples)
    assert ours(samples)[0].shape == expected.shape
    assert np.abs(ours(samples)[0] - expected).max() < TOLERANCE


def test_many_clips_at_once_as_one_by_one():
    waves = np.stack(list(SIGNALS.values()))
    together = ours(waves)
    assert together.shape == (len(SIGNALS), 50, 10)
    assert together.dtype == np.float32
    for wave, features_ in zip(waves, together, strict=True):
        assert np.abs(ours(wave)[0] - features_).max() < 1e-4


@pytest.mark.data
def test_real_clips_as_kaldi(real):
    folder, source = real("speech-commands"), SOURCES["speech-commands"]
    found = speech.clips(folder, source)
    for i in np.random.default_rng(1).choice(len(found.paths), 100, replace=False):
        samples = speech.decode(folder / source.folder / found.paths[i])[:16_000] / np.float32(32768)
        samples = np.pad(samples, (0, 16_000 - len(samples)))
        assert np.abs(ours(samples)[0] - kaldi(samples)).max() < TONE_TOLERANCE


def test_decode(tmp_path):
    samples = np.array([0, 1, -1, 32767, -32768] * 1000, np.int16)
    write_wav(tmp_path / "a.wav", samples)
    assert (speech.decode(tmp_path / "a.wav") == samples).all()


def test_clips_are_padded_with_silence_or_cut_to_a_second(tmp_path):
    write_wav(tmp_path / "yes" / "long.wav", np.concatenate([3000 * SIGNALS["voice"], 9000 * np.ones(5000)]))
    write_wav(tmp_path / "yes" / "short.wav", 3000 * SIGNALS["voice"][:7000])
    got = features._compute(tmp_path, SOURCES["speech-commands"], ("yes/long.wav", "yes/short.wav"), {}, Mfcc())
    whole = (3000 * SIGNALS["voice"]).astype(np.int16) / 32768
    assert got.shape == (2, 1, 50, 10)
    assert np.abs(got[0, 0] - ours(whole)[0]).max() < 1e-4
    assert np.abs(got[1, 0] - ours(np.where(np.arange(16_000) < 7000, whole, 0))[0]).max() < 1e-4


# --- kept features --------------------------------------------------------------------------------------------------


@pytest.fixture
def loads(speech_set, caplog):
    """A function that loads the small set and gives its data and the notes that came with it."""
    folder, source = speech_set
    caplog.set_level(logging.WARNING, "fedskew")

    def load():
        caplog.clear()
        return speech.read(folder, source), caplog.text

    return folder / source.folder, load


def test_features_are_computed_once(loads):
    home, load = loads
    first, note = load()
    assert "computing the MFCCs of 30 clips once" in note
    second, note = load()
    assert note == ""
    assert first.fingerprint() == second.fingerprint()
    assert [p.name for p in home.glob("*features*")] == [features.CACHE]


@pytest.mark.parametrize("harm", ["flip", "truncate", "empty", "swap"])
def test_kept_features_that_are_harmed_are_made_anew(loads, harm):
    home, load = loads
    first, _ = load()
    path = home / features.CACHE
    raw = path.read_bytes()
    at = raw.index(first.x.tobytes()[:64]) + 10
    if harm == "swap":  # a whole zip with other numbers in it
        with np.load(path) as kept:
            np.savez(path, key=kept["key"], sha256=kept["sha256"], train=kept["train"] + 1, test=kept["test"])
    else:
        flipped = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        path.write_bytes({"flip": flipped, "truncate": raw[: len(raw) // 2], "empty": b""}[harm])
    again, note = load()
    assert "damaged" in note
    assert again.fingerprint() == first.fingerprint()
    assert load()[1] == ""


def test_features_that_cannot_be_kept_are_given_all_the_same(loads):
    home, load = loads
    (home / features.CACHE).mkdir()  # nothing can take this name
    first, note = load()
    assert "could not be kept" in note
    assert first.fingerprint() == load()[0].fingerprint()
    assert [p.name for p in home.glob("*features*")] == [features.CACHE]


def test_changed_clips_are_noticed(loads):
    home, load = loads
    first, _ = load()
    write_wav(home / "no" / "aa_nohash_0.wav", 8000 * SIGNALS["voice"])
    second, note = load()
    assert "other clips or parameters" in note
    assert first.fingerprint() != second.fingerprint()
    for name in ("validation_list.txt", "testing_list.txt"):
        text = (home / name).read_text()
        (home / name).write_text(text.replace("cc", "xx").replace("dd", "cc").replace("xx", "dd"))
    third, note = load()
    assert "other clips or parameters" in note
    assert (third.x_test != second.x_test).any()


def test_changed_parameters_are_noticed(loads, speech_set):
    home, load = loads
    load()
    folder, source = speech_set
    x, _ = features.load(home, source, speech.clips(folder, source), Mfcc(high=8_000.0))
    assert "other clips or parameters" in load()[1]
    assert (x != load()[0].x).any()
