"""The sections of a remember config."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator
from torch import nn

from saccade.config import base
from saccade.config.base import (
    Layers,
    NormalizerName,
    OrAuto,
    Positive,
    RunSection,
    ScoreName,
    Section,
    Share,
    fill_kind,
)
from saccade.config.fields import check_location
from saccade.layers.recurrent.turing_machine import PlainRecurrent, TuringMachine
from saccade.tasks.remember.sequences import MOST_STEPS, Encoder, NumberRange, Size

Span = tuple[Positive, Positive]


class SequenceData(Section):
    """The sequences, which are drawn while one trains: vectors of random bits, and how often they are wanted back."""

    width: Annotated[int, Field(ge=1, le=64)] = Field(default=8, description="Bits of a vector.")
    lengths: Span = Field(default=(1, 20), description="Vectors of a sequence in training, fewest and most.")
    repeats: Span = Field(default=(1, 1), description="How often it is wanted back in training, fewest and most.")
    num_lengths: OrAuto[Annotated[int, Field(ge=2)]] = Field(
        default="auto",
        description="How many different lengths are trained, ever further apart. auto: all of them. An accelerator "
        "prepares every size, which takes as long as many steps.",
    )
    test_lengths: tuple[Positive, ...] = Field(
        default=(20, 40, 80, 120), description="Lengths that are tested, with the most repeats of the training."
    )
    test_repeats: tuple[Positive, ...] = Field(
        default=(), description="Repeats that are tested, with the greatest length of the training."
    )
    num_valid: Positive = Field(default=100, description="Sequences of the greatest size that score a validation.")
    num_test: Positive = Field(default=100, description="Sequences of each size that is tested.")

    @field_validator("lengths", "repeats")
    @classmethod
    def _check_span(cls, span: tuple[int, int]) -> tuple[int, int]:
        if span[0] > span[1]:
            raise ValueError("the first must not be above the second")
        return span

    @model_validator(mode="after")
    def _check_sizes(self) -> SequenceData:
        for size in (self.largest, *self.tests):
            if size.num_steps > MOST_STEPS:
                raise ValueError(f"length {size} takes {size.num_steps:,} steps; at most {MOST_STEPS:,}")
        return self

    @property
    def choices(self) -> tuple[NumberRange, NumberRange]:
        """The lengths and the repeats that are trained."""
        count = None if self.num_lengths == "auto" else self.num_lengths
        return NumberRange.of(self.lengths, count), NumberRange.of(self.repeats)

    @property
    def largest(self) -> Size:
        return Size(self.lengths[1], self.repeats[1])

    @property
    def tests(self) -> list[Size]:
        lengths = [Size(length, self.repeats[1]) for length in self.test_lengths]
        found = lengths + [Size(self.lengths[1], repeats) for repeats in self.test_repeats]
        return list(dict.fromkeys(found)) or [self.largest]

    @property
    def encoder(self) -> Encoder:
        return Encoder(self.width, self.repeats)


class MachineModel(Section):
    """A neural Turing machine (Graves 2014)."""

    kind: Literal["machine"] = "machine"
    controller: Literal["lstm", "feed_forward"] = "lstm"
    width: Positive = Field(default=100, description="Of the controller's state.")
    reading_heads: Positive = 1
    writing_heads: Positive = 1
    places: Annotated[int, Field(ge=3)] = Field(default=128, description="Places of the memory.")
    cells: Positive = Field(default=20, description="Numbers in a place.")
    score: ScoreName = Field(default="cosine", description="How a head looks for what is in a place.")
    normalizer: NormalizerName = "softmax"

    @model_validator(mode="after")
    def _check(self) -> MachineModel:
        if self.normalizer == "hard":
            raise ValueError(
                "normalizer: 'hard' given; it gives heads no gradient; allowed: softmax, sparsemax, entmax15"
            )
        check_location(self.score, "places", self.places)
        return self

    def network(self, encoder: Encoder) -> nn.Module:
        return TuringMachine(
            encoder.input_width,
            encoder.output_width,
            width=self.width,
            controller=self.controller,
            num_reading=self.reading_heads,
            num_writing=self.writing_heads,
            places=self.places,
            cells=self.cells,
            score=self.score,
            normalizer=self.normalizer,
        )


class PlainModel(Section):
    """An RNN without a memory beside its state, to compare with."""

    kind: Literal["rnn", "gru", "lstm"]
    width: Positive = 256
    num_layers: Layers = 1

    def network(self, encoder: Encoder) -> nn.Module:
        sizes = {"width": self.width, "num_layers": self.num_layers}
        return PlainRecurrent(encoder.input_width, encoder.output_width, cell=self.kind, **sizes)


class RememberTraining(base.TrainingSection):
    """The section that says how it learns."""

    batch_size: Positive = Field(default=16, description="Sequences in a batch, which are of one size.")
    max_steps: OrAuto[Positive] = 5000
    growing: Share = Field(
        default=0.0,
        description="The share of the training in which the repeats grow from the fewest to the most.",
    )
    precision: Literal["float32"] = Field(default="float32", description="Heads that are to stay sharp need it.")
    clip_norm: Annotated[float, Field(gt=0)] = 10.0


class RememberConfig(RunSection):
    """A whole run, one YAML file."""

    task: Literal["remember"]
    data: SequenceData = SequenceData()
    model: Annotated[MachineModel | PlainModel, Field(discriminator="kind")] = MachineModel()
    training: RememberTraining = RememberTraining()

    @model_validator(mode="before")
    @classmethod
    def _default_kind(cls, given: object) -> object:
        """Take a machine, if the model doesn't say its kind."""
        return fill_kind(given, "model", "machine")
