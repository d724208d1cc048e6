"""Sounds from requests: WAV, in memory; their length is checked before they are resampled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from saccade.data.sound.mel import Mel, log_mel, read_sound, resample
from saccade.errors import UserError
from saccade.serving.http.responses import refuse
from saccade.serving.settings import MAX_SECONDS


def decode(content: bytes, mel: Mel) -> NDArray[np.float16]:
    """Decode a WAV file into log-mel frames [S, F]."""
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        refuse("sound is not a WAV file")
    try:
        samples, rate = read_sound(content)
    except UserError as mistake:
        refuse(str(mistake))
    if len(samples) > MAX_SECONDS * rate:
        refuse(f"sound has {len(samples) / rate:,.0f} seconds; allowed: {MAX_SECONDS}")
    return log_mel(resample(samples, rate, mel.rate), mel)
