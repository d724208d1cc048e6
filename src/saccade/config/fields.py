"""Fields that the configs of several tasks share: files of examples, text encoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from saccade.attention.scores import LOCATIONS
from saccade.config.base import FilesOrPart, HeldOutPart, Layers, NormalizerName, Positive, ScoreName, Section, Share
from saccade.models.text_encoder import RecurrentTextEncoder
from saccade.models.transformer import BlockSizes, Dropouts


class FileFields(Section):
    """Files of examples: to learn from, to validate on, and to test."""

    train: str = Field(description="What it learns from: a file (plain or .gz), a folder or a glob.")
    valid: FilesOrPart[str] = Field(
        default=HeldOutPart(share=0.1),
        description="What is scored in training; the best model on it is kept. A file, or a part of train, chosen by a "
        "hash of the text (a story, a dialogue): a share (0.05) or a number of examples (500).",
    )
    test: str | None = Field(default=None, description="What is scored at the end; never trained on.")


def check_location(score: str, name: str, given: int, most: int = LOCATIONS) -> None:
    """Refuse more places than the location score knows."""
    if score == "location" and given > most:
        wanted = f"the location score has a row for each of {LOCATIONS} positions, so it may be {most} at most"
        raise ValueError(f"{name}: {given} given; {wanted}")


def refuse_unused(section: Section, reasons: Mapping[str, str | None]) -> None:
    """Refuse fields that are given though they have no effect: each has a reason then."""
    for name, reason in reasons.items():
        value, default = getattr(section, name), type(section).model_fields[name].default
        if reason is not None and value != default:
            raise ValueError(f"{name}: {value!r} given; it has no effect {reason}")


class RecurrentFields(Section):
    """The fields of recurrent layers over a text."""

    cell: Literal["rnn", "gru", "lstm"] = "gru"
    direction: Literal["forward", "backward", "both"] = "both"
    width: Positive = Field(default=256, description="Width of both directions together.")
    num_layers: Layers = 1

    @model_validator(mode="after")
    def _check_width(self) -> RecurrentFields:
        if self.direction == "both" and self.width % 2:
            raise ValueError(f"width: {self.width} given; two directions need an even width")
        return self

    def layers(self, input_width: int, *, num_layers: int, dropout: float) -> RecurrentTextEncoder:
        """Build an encoder with this many layers."""
        return RecurrentTextEncoder(
            input_width,
            self.width,
            cell=self.cell,
            direction=self.direction,
            num_layers=num_layers,
            dropout=dropout,
        )


class TransformerFields(Section):
    """The fields of Transformer blocks."""

    width: Positive = 128
    num_heads: Positive = 4
    hidden_width: Positive = 256
    num_layers: Layers = 2
    attention_dropout: Share = 0.0
    activation_dropout: Share = 0.0
    activation: Literal["relu", "gelu", "silu", "swiglu"] = "relu"
    norm: Literal["pre", "post"] = "pre"
    positions: Literal["sinusoidal", "sinusoidal_halves", "learned", "rotary", "relative"] = Field(
        default="sinusoidal",
        description="In sinusoidal_halves all sines stand before all cosines, as in imported models.",
    )
    window: Positive | None = Field(default=None, description="Steps that self-attention sees to either side.")
    score: ScoreName = Field(default="scaled_dot", description="The score of the attention heads.")
    normalizer: NormalizerName = "softmax"

    @model_validator(mode="after")
    def _check_heads(self) -> TransformerFields:
        if self.width % self.num_heads:
            raise ValueError(f"num_heads: {self.num_heads} given; it must divide the width, {self.width}")
        if self.width // self.num_heads % 2 and self.positions == "rotary":
            raise ValueError("positions: 'rotary' given; it needs heads of an even width")
        return self

    def block_sizes(self, dropout: float) -> BlockSizes:
        """Return the sizes of a block."""
        return BlockSizes(
            self.width,
            self.num_heads,
            self.hidden_width,
            activation=self.activation,
            norm=self.norm,
            score=self.score,
            normalizer=self.normalizer,
            positions=self.positions,
            window=self.window,
            dropouts=Dropouts(dropout, self.attention_dropout, self.activation_dropout),
        )
