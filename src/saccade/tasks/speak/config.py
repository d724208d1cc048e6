"""The sections of a speak config."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from saccade.config import base
from saccade.config.base import NormalizerName, Positive, RunSection, ScoreName, Section, Share
from saccade.data.sound.mel import Mel
from saccade.models.synthesizer import SpeechSizes


class SpeechData(Section):
    """The section that names lists of sounds and texts, `sound TAB text`, or with the times of words behind them."""

    train: str = Field(description="What it learns from: a .tsv file.")
    valid: str = Field(description="What is scored in training; the best model on it is kept.")
    test: str | None = Field(default=None, description="What is scored at the end; never trained on.")
    voice: str | None = Field(
        default=None,
        description="A regular expression, whose first group in the name of a sound is the voice: it goes before the "
        "text, theo: one two.",
    )
    lowercase: bool = True
    max_frames: Positive = Field(default=1000, description="Longer sounds are left out, and counted.")

    @field_validator("voice")
    @classmethod
    def _check_voice(cls, voice: str | None) -> str | None:
        if voice is not None:
            try:
                groups = re.compile(voice).groups
            except re.error as error:
                raise ValueError(f"this is no regular expression: {error}") from None
            if not groups:
                raise ValueError("it needs a group, as in _([a-z]+)_")
        return voice


class FrameSection(Section):
    """The frames of sound that it writes."""

    rate: Annotated[int, Field(ge=1000, le=48_000)] = Field(default=8000, description="Samples a second.")
    num_mels: Annotated[int, Field(ge=8, le=256)] = Field(default=40, description="Numbers in a frame.")
    window: Annotated[float, Field(gt=0, le=0.2)] = Field(default=0.032, description="Seconds of sound in a frame.")
    hop: Annotated[float, Field(gt=0, le=0.1)] = Field(default=0.0125, description="Seconds from a frame to the next.")

    @property
    def mel(self) -> Mel:
        return Mel(self.rate, self.num_mels, self.window, self.hop)


class SpeakModel(Section):
    """Settings of the synthesizer."""

    width: Annotated[int, Field(ge=2, multiple_of=2)] = Field(
        default=128, description="Of characters, encoder and decoder."
    )
    prenet_width: Positive = Field(default=64, description="Of the bottleneck through which it hears itself.")
    reach: Annotated[int, Field(ge=0)] = Field(
        default=15, description="Characters to either side that the attention's convolution of its own past sees."
    )
    frames_a_step: Positive = Field(default=2, description="Frames that are written at once.")
    score: ScoreName = "additive"
    normalizer: NormalizerName = "softmax"
    dropout: Share = Field(default=0.1, description="Of the characters.")
    prenet_dropout: Share = 0.5

    @field_validator("score")
    @classmethod
    def _check_score(cls, score: str) -> str:
        if score in ("mean", "location"):
            raise ValueError(
                "it has no keys that could hear of earlier weights; allowed: every score but mean and location"
            )
        return score

    def sizes(self) -> SpeechSizes:
        return SpeechSizes(**self.model_dump())


class SpeakTraining(base.TrainingSection):
    """The section that says how it learns."""

    frames_per_batch: Positive = Field(default=4096, description="Frames in a batch, padding included.")
    guide: Annotated[float, Field(ge=0)] = Field(
        default=1.0,
        description="Weight of the loss that keeps attention near the diagonal (Tachibana 2017, section 4.2). 0: none.",
    )
    guide_width: Annotated[float, Field(gt=0)] = 0.2
    end_weight: Annotated[float, Field(ge=0)] = Field(default=1.0, description="Weight of the loss of the end.")
    precision: Literal["float32"] = "float32"


class SpeakDecoding(Section):
    """Settings of a trained model's speech."""

    max_seconds: Annotated[float, Field(gt=0, le=60)] = Field(
        default=10.0, description="What doesn't end is cut there."
    )
    rounds: Annotated[int, Field(ge=1, le=1000)] = Field(default=60, description="Of Griffin-Lim, which finds phases.")


class SpeakConfig(RunSection):
    """A whole run, one YAML file."""

    task: Literal["speak"]
    data: SpeechData
    frames: FrameSection = FrameSection()
    model: SpeakModel = SpeakModel()
    training: SpeakTraining = SpeakTraining()
    decoding: SpeakDecoding = SpeakDecoding()
