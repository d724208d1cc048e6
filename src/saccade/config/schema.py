"""Everything a run can be told, with its one default. Unknown keys and impossible values are refused."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from saccade.decoding import BeamOptions

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """A section of a config file."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class CorpusFiles(Section):
    """Two line-aligned files, or one TSV or JSONL file with both sides. Folders and globs name several."""

    source: str
    target: str | None = None


class Data(Section):
    """Where texts come from."""

    train: CorpusFiles
    valid: CorpusFiles
    max_length: Positive = Field(default=256, description="Pairs with more tokens on a side are left out, and counted.")


class TokenizerSection(Section):
    """How texts become ids."""

    kind: Literal["unigram", "bpe", "words", "characters"] = "unigram"
    vocabulary_size: Positive = 8000
    shared: bool = Field(default=True, description="One vocabulary for both sides, and one embedding matrix.")


Size = Literal["tiny", "small", "base", "big"]
SIZES: dict[str, dict[str, int | float]] = {
    "tiny": {"width": 128, "num_heads": 4, "hidden_width": 256, "num_layers": 2, "dropout": 0.1},
    "small": {"width": 256, "num_heads": 4, "hidden_width": 1024, "num_layers": 4, "dropout": 0.2},
    "base": {"width": 512, "num_heads": 8, "hidden_width": 2048, "num_layers": 6, "dropout": 0.1},
    "big": {"width": 1024, "num_heads": 16, "hidden_width": 4096, "num_layers": 6, "dropout": 0.3},
}


class Model(Section):
    """A Transformer. `size` fills in whatever isn't given (base and big: Vaswani 2017, table 3)."""

    kind: Literal["transformer"] = "transformer"
    size: Size = "small"
    width: Positive = None  # type: ignore[assignment]  # filled in by size
    num_heads: Positive = None  # type: ignore[assignment]
    hidden_width: Positive = None  # type: ignore[assignment]
    num_layers: Positive = None  # type: ignore[assignment]
    dropout: Share = None  # type: ignore[assignment]
    attention_dropout: Share = 0.0
    activation_dropout: Share = 0.0
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    norm: Literal["pre", "post"] = "pre"
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    score: str = "scaled_dot"

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        return {**SIZES.get(str(given.get("size", "small")), SIZES["small"]), **given}

    @model_validator(mode="after")
    def _check(self) -> Model:
        if self.width % self.num_heads:
            raise ValueError(f"num_heads: {self.num_heads} given; it must divide the width, {self.width}")
        return self


class Training(Section):
    """How the model learns."""

    max_steps: Positive = 10_000
    tokens_per_batch: Positive = 4096
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    warmup_steps: Annotated[int, Field(ge=0)] = 1000
    schedule: Literal["inverse_square_root", "cosine", "constant"] = "inverse_square_root"
    label_smoothing: Share = 0.1
    clip_norm: Annotated[float, Field(gt=0)] = 1.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    validate_every: Positive = 500
    save_every: Positive = 500
    patience: Positive | None = Field(
        default=None, description="Validations without a better one before training ends."
    )


class Decoding(Section):
    """How outputs are searched."""

    beam: Positive = Field(default=4, description="Hypotheses kept; 1 is greedy.")
    length_penalty: Annotated[float, Field(ge=0)] = 0.6
    min_length: Annotated[int, Field(ge=0)] = 0
    max_length: Positive = Field(default=4096, description="No output has more tokens, </s> included.")
    max_length_factor: Annotated[float, Field(gt=0)] = Field(
        default=2.0, description="No output has more tokens per source token, plus ten."
    )
    no_repeat_ngram: Annotated[int, Field(ge=0)] = Field(
        default=0, description="So many tokens in a row are never written twice; 0 allows it."
    )
    max_rounds: Annotated[int, Field(ge=0)] = Field(
        default=8, description="An output that goes round the same few tokens more often is cut; 0 never does."
    )
    max_source_length: Positive = Field(
        default=8192, description="Longer sources are cut to so many tokens, with a warning."
    )
    tokens_per_batch: Positive = 4096

    @model_validator(mode="after")
    def _check(self) -> Decoding:
        self.options()
        return self

    def options(self) -> BeamOptions:
        """As decoding takes them; it checks what concerns several fields."""
        given = self.model_dump(exclude={"beam", "tokens_per_batch", "max_source_length"})
        return BeamOptions(width=self.beam, **given)


class Run(Section):
    """A whole run, one YAML file."""

    task: Literal["translate"] = "translate"
    seed: Annotated[int, Field(ge=0)] = 1
    data: Data
    tokenizer: TokenizerSection = TokenizerSection()
    model: Model = Model()
    training: Training = Training()
    decoding: Decoding = Decoding()
