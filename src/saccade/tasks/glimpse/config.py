"""The sections of a glimpse config: a Recurrent Attention Model (Mnih 2014)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from saccade.config import base
from saccade.config.base import Positive, RunSection, Section, Share
from saccade.config.fields import refuse_unused
from saccade.data.pictures.canvases import Canvases

AtLeastZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
AboveZero = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class GlimpseFiles(Section):
    """Two idx files, one NPZ file, or a folder with a folder of pictures for each class."""

    images: str = Field(description="An idx file (plain or .gz), an .npz with images and labels, or a folder.")
    labels: str | None = Field(default=None, description="The idx file of the classes; none with .npz or a folder.")


class GlimpseData(Section):
    """The section that says where pictures come from, and what is made of them."""

    train: GlimpseFiles
    valid: GlimpseFiles | None = Field(default=None, description="What the best model is chosen on; or see hold_out.")
    test: GlimpseFiles | None = Field(default=None, description="What is scored at the end; never trained on.")
    hold_out: Positive | None = Field(
        default=None, description="Without valid: so many pictures of train, drawn once, are kept for validation."
    )
    channels: Literal[1, 3] = Field(default=1, description="1: grey, 3: colours.")
    resize: Positive | None = Field(default=None, description="Pictures of a folder are made squares of this side.")
    canvas: Positive | None = Field(
        default=None, description="Pictures lie anywhere on a black square of this side; none: as they are."
    )
    clutter: Annotated[int, Field(ge=0)] = Field(default=0, description="Pieces of other pictures on each canvas.")
    piece: Positive = Field(default=8, description="The side of such a piece, in pixels.")
    jitter: Share = Field(
        default=0.0, description="Training pictures are turned, stretched, slanted and moved by up to this share."
    )

    @model_validator(mode="after")
    def _check(self) -> GlimpseData:
        if (self.valid is None) == (self.hold_out is None):
            raise ValueError("valid or hold_out: exactly one of them must say what to validate on")
        refuse_unused(self, {"piece": None if self.clutter else "without clutter"})
        return self

    def canvases(self) -> Canvases:
        """Return how pictures are drawn for training."""
        return Canvases(self.canvas, self.clutter, self.piece, self.jitter)


class GlimpseModel(Section):
    """The parts of the Recurrent Attention Model (Mnih 2014); the defaults are the paper's for MNIST."""

    patch: Positive = Field(default=8, description="The side of a glimpse's finest patch, in pixels.")
    num_scales: Annotated[int, Field(ge=1, le=8)] = Field(default=1, description="Patches, each twice as wide.")
    num_glimpses: Positive = 6
    glimpse_network: Literal["linear", "convolution"] = "linear"
    glimpse_channels: Positive = Field(default=32, description="Of the first of three convolutions; the last has 4x.")
    glimpse_width: Positive = 256
    core: Literal["rnn", "gru", "lstm"] = Field(default="rnn", description="rnn: rectified units.")
    width: Positive = 256
    dropout: Share = Field(default=0.0, description="Of the state that the answer is read from.")
    first_location: Literal["middle", "random"] = "random"
    policy_reaches_core: bool = Field(
        default=False, description="REINFORCE trains the core and the glimpse network too, not the location's alone."
    )

    @model_validator(mode="after")
    def _check(self) -> GlimpseModel:
        if self.glimpse_network == "linear" and self.glimpse_channels != 32:
            raise ValueError(f"glimpse_channels: {self.glimpse_channels} given; a linear glimpse network has none")
        return self


class GlimpseTraining(base.TrainingSection):
    """Settings of a glimpse network's training."""

    batch_size: Positive = Field(default=128, description="Pictures in a batch.")
    copies: Positive = Field(default=1, description="Ways of looking at each picture of a batch.")
    reward: Literal["right", "probability"] = Field(
        default="right", description="1 for a right answer; or the right answer's probability, which varies less."
    )
    discount: Annotated[float, Field(ge=0, le=1)] = Field(
        default=1.0,
        description="1: only the last answer is rewarded. Below: earlier ones too, to the look before them.",
    )
    policy_weight: AtLeastZero = Field(default=1.0, description="Of REINFORCE beside the cross-entropy.")
    early_weight: AtLeastZero = Field(default=0.0, description="Of the answers after earlier glimpses than the last.")
    first_std: AboveZero | None = Field(default=None, description="std at the beginning. Default: the same as std.")
    std: AboveZero = Field(default=0.1, description="How far locations are drawn from their mean; the image is -1..1.")
    std_steps: Annotated[int, Field(ge=0)] = Field(default=0, description="Steps until first_std has become std.")
    metric: Literal["accuracy", "loss"] = Field(default="accuracy", description="What the best model is best at.")

    @model_validator(mode="after")
    def _check(self) -> GlimpseTraining:
        if (self.first_std is None) != (self.std_steps == 0):
            raise ValueError("first_std and std_steps: both are given, or none")
        return self


class GlimpseDecoding(Section):
    """Settings of a trained network's looks at a picture."""

    samples: Positive = Field(default=8, description="Paths whose probabilities are averaged; 1: the likeliest path.")
    batch_size: Positive = Field(default=500, description="Pictures that are looked at together.")


class GlimpseConfig(RunSection):
    """A whole run, one YAML file."""

    task: Literal["glimpse"]
    data: GlimpseData
    model: GlimpseModel = GlimpseModel()
    training: GlimpseTraining = GlimpseTraining()
    decoding: GlimpseDecoding = GlimpseDecoding()
