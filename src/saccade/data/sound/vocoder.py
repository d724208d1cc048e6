"""Turns log-mel frames back into sound: phases are guessed until they agree with each other (Griffin & Lim 1984)."""

from __future__ import annotations

import io
import math
import wave
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.sound.mel import FLOOR, Mel, mel_filters

PEAK = 0.8  # of the sound
ROUNDS = 60
MOMENTUM = 0.99  # Perraudin 2013, section III


def synthesize(frames_SF: NDArray[np.floating], mel: Mel, *, rounds: int = ROUNDS) -> NDArray[np.float32]:
    """Return samples between -1 and 1 whose frames come near to these; their volume is lost."""
    width = round(mel.window * mel.rate)
    size = 1 << (2 * width - 1).bit_length()
    if not len(frames_SF):
        return np.zeros(0, np.float32)
    magnitude_CS = _spread(torch.from_numpy(np.asarray(frames_SF, np.float32)), mel, size).sqrt()
    options: dict[str, Any] = {
        "n_fft": size,
        "hop_length": mel.step,
        "win_length": width,
        "window": torch.hann_window(width),
    }
    generator = torch.Generator().manual_seed(0)  # the same sound every time
    phase_CS = torch.polar(
        torch.ones_like(magnitude_CS), torch.rand(magnitude_CS.shape, generator=generator) * math.tau
    )
    last_CS = torch.zeros_like(phase_CS)
    for _ in range(rounds):
        sound = torch.istft(magnitude_CS * phase_CS, **options)
        found_CS = torch.stft(sound, **options, pad_mode="constant", return_complex=True)[:, : magnitude_CS.shape[1]]
        phase_CS = found_CS - last_CS * (MOMENTUM / (1 + MOMENTUM))
        phase_CS, last_CS = phase_CS / phase_CS.abs().clamp(min=1e-12), found_CS
    samples = torch.istft(magnitude_CS * phase_CS, **options)
    return np.asarray(samples * (PEAK / float(samples.abs().max().clamp(min=1e-9))), np.float32)


def _spread(frame_SF: Tensor, mel: Mel, size: int, *, rounds: int = 100) -> Tensor:
    """Return powers [C, S] of the bins, none negative, whose mel frames these are (Lee & Seung 2001)."""
    filter_FC = mel_filters(mel, size)
    wanted_FS = frame_SF.clamp(min=FLOOR).exp().mT
    power_CS = filter_FC.mT @ (wanted_FS / filter_FC.sum(1, keepdim=True).clamp(min=1e-9))
    for _ in range(rounds):
        power_CS = power_CS * (filter_FC.mT @ wanted_FS) / (filter_FC.mT @ (filter_FC @ power_CS) + 1e-12)
    return power_CS


def encode_wav(samples: NDArray[np.float32], rate: int) -> bytes:
    """Return a WAV file of 16 bits."""
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return written.getvalue()
