"""WAV files: every sample width, channels, rates; frames by hand; every message once."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from saccade.data.sound.mel import (
    FLOOR,
    RANGE,
    Mel,
    join_frames,
    log_mel,
    mel_filters,
    parse_source,
    read_frames,
    read_sound,
    resample,
)
from saccade.errors import UserError
from sounds import tone, write_wav

SMALL = Mel(rate=8000, num_mels=40)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_every_sample_width_reads_the_same_sound(width: int, tmp_path: Path) -> None:
    samples = tone(440.0, 0.05)
    found, rate = read_sound(write_wav(tmp_path / "a.wav", samples, width=width))
    assert rate == 8000
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, samples, atol=0.51 / 2 ** (8 * width - 1) + 1e-6 + 2.0 ** (1 - 8 * width))


@pytest.mark.parametrize(
    ("ending", "kind", "tolerance"),
    [
        ("wav", "FLOAT", 1e-6),
        ("wav", "DOUBLE", 1e-6),
        ("wav", "PCM_24", 1e-6),
        ("flac", "PCM_16", 1e-4),
        ("flac", "PCM_24", 1e-6),
        ("ogg", "VORBIS", 0.05),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_other_kinds_of_sound_are_read_with_soundfile(
    ending: str, kind: str, tolerance: float, channels: int, tmp_path: Path
) -> None:
    each_SC = np.stack([tone(300.0 * (1 + channel), 0.1) for channel in range(channels)], 1)
    file_format = "WAVEX" if (ending, channels) == ("wav", 3) else None  # the header that tools write for many channels
    soundfile.write(tmp_path / f"a.{ending}", each_SC, 8000, kind, format=file_format)
    found, rate = read_sound(tmp_path / f"a.{ending}")
    assert rate == 8000
    np.testing.assert_allclose(found, each_SC.mean(1), atol=tolerance)


def test_without_soundfile_plain_wav_is_read_and_the_rest_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soundfile.write(tmp_path / "a.flac", tone(440.0, 0.05), 8000)
    soundfile.write(tmp_path / "float.wav", tone(440.0, 0.05), 8000, "FLOAT")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    assert len(read_sound(write_wav(tmp_path / "a.wav", tone(440.0, 0.05)))[0]) == 400
    for name in ("a.flac", "float.wav"):
        with pytest.raises(UserError, match=rf"{name}: .*pip install 'saccade\[sound\]'"):
            read_sound(tmp_path / name)


def test_a_broken_sound_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.flac").write_bytes(b"no sound at all")
    with pytest.raises(UserError, match=r"a\.flac: this is not a complete sound file"):
        read_sound(tmp_path / "a.flac")
    soundfile.write(tmp_path / "nan.wav", np.array([0.0, np.nan], np.float32), 8000, "FLOAT")
    with pytest.raises(UserError, match=r"nan\.wav: some samples are not finite"):
        read_sound(tmp_path / "nan.wav")


def test_channels_are_mixed(tmp_path: Path) -> None:
    left, right = tone(440.0, 0.02), tone(1000.0, 0.02)
    path = write_wav(tmp_path / "a.wav", np.stack([left, right], 1).reshape(-1), channels=2)
    np.testing.assert_allclose(read_sound(path)[0], (left + right) / 2, atol=1e-4)


@pytest.mark.parametrize(("rate", "wanted"), [(44_100, 8000), (8000, 16_000), (11_025, 8000), (22_051, 7919)])
def test_a_resampled_tone_is_the_tone_at_the_other_rate(rate: int, wanted: int) -> None:
    found = resample(tone(700.0, 0.3, rate=rate), rate, wanted)
    expected = tone(700.0, 0.3, rate=wanted)
    assert abs(len(found) - len(expected)) <= 1
    middle = slice(len(expected) // 4, len(expected) // 2)
    np.testing.assert_allclose(found[middle], expected[middle], atol=2e-3)


def test_what_a_lower_rate_cannot_hold_is_filtered_out() -> None:
    found = resample(tone(6000.0, 0.3, rate=16_000), 16_000, 8000)
    assert np.abs(found[200:-200]).max() < 1e-2  # it would fold to 2000 Hz


def test_a_sound_that_begins_later_is_the_same_sound_resampled() -> None:
    samples = tone(700.0, 0.1)
    whole = resample(samples, 8000, 11_025)
    late = resample(np.concatenate([np.zeros(320, np.float32), samples]), 8000, 11_025)
    np.testing.assert_allclose(late[441:], whole, atol=1e-6)  # 320 samples at 8000 Hz, 0.04 seconds


@pytest.mark.parametrize("rate", [1, 150_001, 999_983])
def test_odd_rates_take_no_longer_filter(rate: int) -> None:
    assert len(resample(np.ones(1000, np.float32), rate, 8000)) == pytest.approx(8_000_000 / rate, abs=1)


def test_filters_are_triangles_by_hand() -> None:
    # Three of them up to 4000 Hz: edges at 0, 1/4, 2/4, 3/4 and all of 2146.06 mel.
    edges = [700 * (10 ** (2146.0645 * share / 4 / 2595) - 1) for share in range(5)]
    found = mel_filters(Mel(rate=8000, num_mels=3), 8000)  # a bin is one Hertz
    assert found.shape == (3, 4001)
    for row in range(3):
        assert found[row].argmax() == round(edges[row + 1])
        assert found[row, : math.floor(edges[row])].eq(0).all()
        halfway = round((edges[row] + edges[row + 1]) / 2)
        assert float(found[row, halfway]) == pytest.approx(0.5, abs=0.01)
    between = found[:, round(edges[1]) + 1 : math.floor(edges[3])]
    torch.testing.assert_close(between.sum(0), torch.ones(between.shape[1]))
    for mel in (SMALL, Mel(), Mel(rate=8000, num_mels=128)):
        assert mel_filters(mel, 1 << (2 * round(mel.window * mel.rate) - 1).bit_length()).sum(1).gt(0).all()


def test_a_tone_lights_its_mel_and_frames_are_a_hop_apart() -> None:
    frames_SF = log_mel(tone(1000.0, 1.0), SMALL)
    assert frames_SF.shape == (101, 40)
    bands = mel_filters(SMALL, 512) @ (torch.linspace(0, 4000, 257) - 1000).abs().lt(8).float()
    assert frames_SF[50].argmax() == bands.argmax()
    window = tone(1000.0, 1.0)[50 * 80 - 100 : 50 * 80 + 100] * np.sin(np.pi * np.arange(200) / 200) ** 2
    power = np.abs(np.fft.rfft(window, 512)) ** 2
    assert power.max() == pytest.approx((0.5 / 2 * 100) ** 2, rel=0.01)  # half an amplitude, half a window
    np.testing.assert_allclose(frames_SF[50], np.log(mel_filters(SMALL, 512).numpy() @ power + 1e-10), atol=0.01)
    assert log_mel(np.zeros(80, np.float32), SMALL) == pytest.approx(FLOOR, abs=0.02)
    np.testing.assert_allclose(log_mel(tone(1000.0, 1.0) + np.float32(0.3), SMALL), frames_SF, atol=0.1)  # no click
    assert len(log_mel(tone(1000.0, 0.001), SMALL)) == 1  # shorter than a window


def test_sources_are_normalised_and_loudness_is_gone() -> None:
    random = np.random.default_rng(1)
    samples = np.asarray(random.normal(0, 0.1, 4001), np.float32)
    loud, quiet = (join_frames([log_mel(samples * volume, SMALL)], 40) for volume in (1.0, 0.2))
    assert abs(loud.mean()) < 1e-5
    assert loud.std() == pytest.approx(1, abs=1e-4)
    np.testing.assert_allclose(loud, quiet, atol=0.05)
    silent = join_frames([log_mel(np.zeros(800, np.float32), SMALL)], 40)
    assert np.abs(silent).max() == 0


def test_joined_frames_are_nearly_those_of_joined_sound() -> None:
    pieces = [tone(300.0, 0.2), np.zeros(800, np.float32), tone(2000.0, 0.3)]
    whole = log_mel(np.concatenate(pieces), SMALL).astype(np.float32)
    whole = np.maximum(whole, whole.max() - RANGE)
    apart = [log_mel(pieces[0], SMALL)[:20], np.full((10, 40), FLOOR, np.float16), log_mel(pieces[2], SMALL)]
    by_frames = np.maximum(np.concatenate(apart), whole.max() - RANGE)
    assert whole.shape == by_frames.shape == (61, 40)
    for inside in (slice(3, 17), slice(22, 28), slice(33, 58)):  # away from the seams
        np.testing.assert_allclose(whole[inside], by_frames[inside], atol=0.1)


def test_a_line_names_files_and_silences() -> None:
    assert parse_source("a.wav 0.25 my files/b c.WAV 3 d.wav") == ["a.wav", 0.25, "my files/b c.WAV", 3.0, "d.wav"]
    assert parse_source("/x/7.wav.d/8.wav") == ["/x/7.wav.d/8.wav"]
    assert parse_source("") == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a.wav b.mid", r"'b\.mid' is neither a sound file \(\.wav, .*\) nor seconds of silence \(0\.25\)"),
        ("a.wav -1 b.wav c", "'c' is neither a sound file"),
        ("a.wav 61 b.wav", r"61\.0 seconds of silence; allowed: 0 to 60"),
        ("0.5", "the source is only silence; it must name a sound file"),
    ],
)
def test_a_line_that_names_something_else(line: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_source(line)


def test_files_that_hold_no_sound(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no file at .*none\.wav"):
        read_frames(tmp_path / "none.wav", SMALL)
    with pytest.raises(UserError, match=rf"there is no file at {tmp_path}"):
        read_frames(tmp_path, SMALL)
    path = tmp_path / "bad.wav"
    for content, message in ((b"", "it ends too early"), (b"RIFX" + bytes(60), "RIFF"), (b"RIFF1234AVI ", "WAVE")):
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"bad\.wav: this is not a WAV file \(.*{message}"):
            read_frames(path, SMALL)
    write_wav(path, np.zeros(0, np.float32))
    with pytest.raises(UserError, match=r"bad\.wav: there is no sound in it \(0 samples at 8000 Hz\)"):
        read_frames(path, SMALL)
    write_wav(path, tone(440.0, 0.1), rate=1_000_001)
    with pytest.raises(UserError, match=r"bad\.wav: 1,000,001 samples a second; allowed: up to 1,000,000"):
        read_frames(path, SMALL)
    write_wav(path, tone(440.0, 0.1))
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(UserError, match=r"bad\.wav: it ends too early; 1,100 of 1,600 bytes are there"):
        read_frames(path, SMALL)
