"""The sections of a point config."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from saccade.attention.scores import LOCATIONS
from saccade.config import base
from saccade.config.base import OrAuto, Positive, RunSection, ScoreName, Section
from saccade.config.fields import check_location
from saccade.decoding import BeamOptions
from saccade.models.pointing.pointer_network import PointerSizes
from saccade.tasks.point.problems import MOST_ELEMENTS, PROBLEMS


class PointData(Section):
    """The problems, which are drawn while one trains."""

    problem: Literal["sort", "hull"] = Field(
        default="sort", description="sort: numbers from the least to the greatest; hull: the corners of a convex hull."
    )
    sizes: tuple[Positive, Positive] = Field(default=(5, 10), description="Elements in training, fewest and most.")
    test_sizes: tuple[Positive, ...] = Field(default=(5, 10, 15), description="Numbers of elements that are tested.")
    num_valid: Positive = Field(default=500, description="Problems of the greatest size that score a validation.")
    num_test: Positive = Field(default=1000, description="Problems of each size that is tested.")

    @field_validator("sizes")
    @classmethod
    def _check_sizes(cls, sizes: tuple[int, int]) -> tuple[int, int]:
        if sizes[0] > sizes[1]:
            raise ValueError("the first must not be above the second")
        return sizes

    @model_validator(mode="after")
    def _check(self) -> PointData:
        fewest, every = PROBLEMS[self.problem].fewest, (*self.sizes, *self.test_sizes)
        for size in every:
            if not fewest <= size <= MOST_ELEMENTS:
                wanted = f"with problem: {self.problem} from {fewest} to {MOST_ELEMENTS}"
                raise ValueError(f"sizes and test_sizes: {size} given; allowed: {wanted}")
        return self


class PointModel(Section):
    """A pointer network (Vinyals 2015)."""

    width: Positive = 128
    encoder: Literal["transformer", "rnn"] = Field(
        default="transformer", description="transformer: self-attention without positions; rnn: as in the paper."
    )
    num_layers: Positive = 2
    num_heads: Positive = 4
    cell: Literal["rnn", "gru", "lstm"] = "gru"
    score: ScoreName = "additive"
    once: bool = Field(default=True, description="No element is pointed at twice.")

    @model_validator(mode="after")
    def _check(self) -> PointModel:
        if self.encoder == "transformer" and self.width % self.num_heads:
            raise ValueError(f"num_heads: {self.num_heads} given; it must divide the width, {self.width}")
        if self.encoder == "rnn" and self.width % 2:
            raise ValueError(f"width: {self.width} given; two directions need an even width")
        if self.score == "mean":
            raise ValueError("score: 'mean' given; it points nowhere")
        return self

    def sizes(self) -> PointerSizes:
        return PointerSizes(**self.model_dump())


class PointTraining(base.TrainingSection):
    """The section that says how it learns."""

    batch_size: Positive = Field(default=128, description="Problems in a batch, which are of one size.")
    max_steps: OrAuto[Positive] = 4000


class PointDecoding(Section):
    """The section that says how places are searched."""

    beam: Positive = Field(default=1, description="Hypotheses kept; 1 is greedy.")

    def options(self) -> BeamOptions:
        return BeamOptions(width=self.beam, length_penalty=0.0)


class PointConfig(RunSection):
    """A whole run, one YAML file."""

    task: Literal["point"]
    data: PointData = PointData()
    model: PointModel = PointModel()
    training: PointTraining = PointTraining()
    decoding: PointDecoding = PointDecoding()

    @model_validator(mode="after")
    def _check(self) -> PointConfig:
        most = max(*self.data.sizes, *self.data.test_sizes)
        check_location(self.model.score, "data.sizes", most, LOCATIONS - 1)  # a place behind the last is the end
        return self
