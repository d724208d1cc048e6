"""Turns sound files into log-mel frames.

A source is one line: one or several sound files, and numbers, which are seconds of silence. All are joined in order:
`seven.wav 0.12 three.wav 0.3 one.wav`.
"""

from __future__ import annotations

import functools
import io
import math
import re
import wave
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.errors import UserError

FLOOR = math.log(1e-10)  # a log-mel value of digital silence
RANGE = math.log(1e6)  # what is 60 dB below a source's loudest value is silence
MOST_SILENCE = 60.0  # seconds between two files
HIGHEST_RATE = 1_000_000  # samples a second
MOST_FRAMES = 1 << 62  # libsndfile's count of a file whose length it doesn't know is greater
LARGEST_DENOMINATOR = 50_000  # of a ratio of rates: bounds the filter's length; odd rates are off by at most 2e-5
ENDINGS = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff")
PART = re.compile(
    rf"(?P<seconds>\d+(\.\d+)?)(?=\s|$)|(?P<name>\S.*?({'|'.join(map(re.escape, ENDINGS))}))(?=\s|$)", re.IGNORECASE
)
PCM: dict[int, tuple[str, float]] = {1: ("u1", 2.0**7), 2: ("<i2", 2.0**15), 3: ("<i4", 2.0**31), 4: ("<i4", 2.0**31)}


class Mel(NamedTuple):
    """The settings of log-mel frames: the rate to resample to, and a window every `hop` seconds."""

    rate: int = 16_000
    num_mels: int = 80
    window: float = 0.025
    hop: float = 0.010

    @property
    def step(self) -> int:
        """Number of samples from one frame to the next."""
        return round(self.hop * self.rate)


def parse_source(text: str) -> list[str | float]:
    """Split the line of a source into its files and the seconds of silence between them."""
    found: list[str | float] = []
    at = 0
    for match in PART.finditer(text):
        if text[at : match.start()].strip():
            break
        found.append(match["name"] or float(match["seconds"]))
        at = match.end()
    if text[at:].strip():
        raise UserError(
            f"{text[at:].split()[0]!r} is neither a sound file ({', '.join(ENDINGS)}) nor seconds of silence (0.25)"
        )
    if any(isinstance(part, float) and part > MOST_SILENCE for part in found):
        raise UserError(f"{max(p for p in found if isinstance(p, float))} seconds of silence; allowed: 0 to 60")
    if found and not any(isinstance(part, str) for part in found):
        raise UserError("the source is only silence; it must name a sound file")
    return found


class Samples(NamedTuple):
    """Samples between -1 and 1, [S, channels], and how many there are a second."""

    value_SC: NDArray[np.float32]
    rate: int


def read_sound(source: Path | bytes) -> tuple[NDArray[np.float32], int]:
    """Read the samples of a file, or of a WAV file's bytes, between -1 and 1, its channels mixed, and their rate."""
    if isinstance(source, Path) and not source.is_file():
        raise UserError(f"there is no file at {source}")
    name = str(source) if isinstance(source, Path) else "sound"
    found = _read_pcm(source, name) if isinstance(source, bytes) or source.suffix.lower() == ".wav" else None
    value_SC, rate = found or _read_with_soundfile(source, name)
    if not len(value_SC) or not rate:
        raise UserError(f"{name}: there is no sound in it ({len(value_SC)} samples at {rate} Hz)")
    if rate > HIGHEST_RATE:
        raise UserError(f"{name}: {rate:,} samples a second; allowed: up to {HIGHEST_RATE:,}")
    if not np.isfinite(value_SC).all():
        raise UserError(f"{name}: some samples are not finite numbers")
    return value_SC.mean(1), rate


def _open(source: Path | bytes) -> Any:
    return io.BytesIO(source) if isinstance(source, bytes) else str(source)


def _read_pcm(source: Path | bytes, name: str) -> Samples | None:
    """Read a WAV file of whole numbers; None for another kind of WAV (floating point, extensible)."""
    try:
        with wave.open(_open(source), "rb") as file:
            channels, width, rate, count, *_ = file.getparams()
            raw = file.readframes(count)
    except wave.Error as error:
        if str(error).startswith("unknown format"):
            return None
        raise UserError(f"{name}: this is not a WAV file ({error})") from None
    except EOFError:
        raise UserError(f"{name}: this is not a WAV file (it ends too early)") from None
    if len(raw) < count * width * channels:
        raise UserError(f"{name}: it ends too early; {len(raw):,} of {count * width * channels:,} bytes are there")
    return Samples(_decode_samples(raw, width).reshape(-1, channels), rate)


def _read_with_soundfile(source: Path | bytes, name: str) -> Samples:
    """Read whatever libsndfile knows: FLAC, Ogg, MP3, and WAV in floating point or with a longer header."""
    try:
        import soundfile
    except ImportError:
        needed = "soundfile reads this kind of sound, and it is missing"
        raise UserError(f"{name}: {needed}; pip install 'saccade[sound]'") from None
    try:
        with soundfile.SoundFile(_open(source)) as file:
            value_SC = file.read(dtype="float32", always_2d=True)
            if len(value_SC) < file.frames < MOST_FRAMES:
                raise UserError(f"{name}: it ends too early; {len(value_SC):,} of {file.frames:,} samples are there")
            return Samples(value_SC, file.samplerate)
    except soundfile.SoundFileError as error:
        raise UserError(f"{name}: this is not a complete sound file ({' '.join(str(error).split())})") from None


def _decode_samples(raw: bytes, width: int) -> NDArray[np.float32]:
    kind, full = PCM[width]
    if width == 3:  # shift the three bytes by one, so that they fill four
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        raw = wide.tobytes()
    values = np.frombuffer(raw, kind).astype(np.float32)
    return np.asarray((values - 128.0 if width == 1 else values) / full, np.float32)


def resample(samples: NDArray[np.float32], rate: int, wanted: int) -> NDArray[np.float32]:
    """Return the samples at another rate, without frequencies that the lower of both can't hold."""
    if rate == wanted:
        return samples
    from scipy.signal import resample_poly  # it takes a second to import

    ratio = Fraction(wanted, rate).limit_denominator(LARGEST_DENOMINATOR)
    return np.asarray(resample_poly(samples, ratio.numerator, ratio.denominator), np.float32)


def log_mel(samples: NDArray[np.float32], mel: Mel) -> NDArray[np.float16]:
    """Return frames [S, F] log(M |STFT(x)|^2): triangles M of equal width in mel (Davis & Mermelstein 1980)."""
    width = round(mel.window * mel.rate)
    size = 1 << (2 * width - 1).bit_length()  # finer bins than the narrowest triangle
    power_CS = torch.stft(
        torch.from_numpy(samples - samples.mean()),  # a constant is no sound, but its ends would click
        size,
        hop_length=mel.step,
        win_length=width,
        window=torch.hann_window(width),
        pad_mode="constant",
        return_complex=True,
    )
    mel_FS = mel_filters(mel, size) @ power_CS.abs().square()
    return np.asarray((mel_FS + math.exp(FLOOR)).log().mT.numpy(), np.float16)


@functools.cache
def mel_filters(mel: Mel, size: int) -> Tensor:
    """Return triangles [F, C] over the bins of a transform of `size`; each rises where the one before it falls."""
    hertz_C = torch.linspace(0, mel.rate / 2, size // 2 + 1)
    edges = torch.linspace(0, _to_mel(mel.rate / 2), mel.num_mels + 2)
    edge_F = 700 * (torch.pow(10.0, edges / 2595) - 1)
    rising_FC = (hertz_C - edge_F[:-2, None]) / (edge_F[1:-1] - edge_F[:-2])[:, None]
    falling_FC = (edge_F[2:, None] - hertz_C) / (edge_F[2:] - edge_F[1:-1])[:, None]
    return torch.minimum(rising_FC, falling_FC).clamp(min=0)


def _to_mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)


def read_frames(path: Path, mel: Mel) -> NDArray[np.float16]:
    """Read the log-mel frames [S, F] of a sound file."""
    samples, rate = read_sound(path)
    return log_mel(resample(samples, rate, mel.rate), mel)


def join_frames(pieces: list[NDArray[np.float16] | int], num_mels: int) -> NDArray[np.float32]:
    """Join frames in order and normalise them; a number n stands for n frames of silence."""
    rows = [np.full((piece, num_mels), FLOOR, np.float16) if isinstance(piece, int) else piece for piece in pieces]
    return normalize_frames(np.concatenate(rows).astype(np.float32))


def normalize_frames(frames_SF: NDArray[np.float32]) -> NDArray[np.float32]:
    """Give a whole source mean 0 and deviation 1, cut 60 dB below its loudest value: its volume doesn't matter.

    Mel by mel, a source of one short word would lose the difference between a loud mel and a faint one.
    """
    x_SF = np.maximum(frames_SF, frames_SF.max() - np.float32(RANGE))
    x_SF -= x_SF.mean()
    deviation = math.sqrt(np.vdot(x_SF, x_SF) / x_SF.size)
    return x_SF / np.float32(max(deviation, 1e-3))
