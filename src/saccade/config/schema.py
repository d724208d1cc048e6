"""Everything a run can be told, with its one default. Unknown keys and impossible values are refused."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """A section of a config file."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class CorpusFiles(Section):
    """Two line-aligned files, or one TSV or JSONL file with both sides. Folders and globs name several."""

    source: str = Field(description="A file (plain or .gz), a folder or a glob. With both sides: .tsv or .jsonl.")
    target: str | None = Field(default=None, description="The other side, line by line; none if source has both.")


class TrainingCorpus(CorpusFiles):
    """Files to train on, and how often."""

    weight: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="Times it is read an epoch; 0.5: another half each time."
    )


ONE_OR_SEVERAL = ("one corpus", "several corpora")  # tags that pydantic puts among a field's names


def _one_or_several(given: object) -> str:
    return ONE_OR_SEVERAL[isinstance(given, list | tuple)]


class Data(Section):
    """Where texts come from."""

    train: Annotated[
        Annotated[TrainingCorpus, Tag(ONE_OR_SEVERAL[0])]
        | Annotated[list[TrainingCorpus], Field(min_length=1), Tag(ONE_OR_SEVERAL[1])],
        Discriminator(_one_or_several),
    ] = Field(description="What the model and the tokenizers learn from: one corpus, or a list of them with weights.")
    valid: CorpusFiles = Field(description="What validation decodes and scores; the best model on it is kept.")
    test: CorpusFiles | None = Field(default=None, description="What is scored at the end; never trained on.")
    max_length: Positive = Field(default=256, description="Pairs with more tokens on a side are left out, and counted.")

    @property
    def corpora(self) -> dict[str, TrainingCorpus]:
        """What to train on, under the name that messages use."""
        if isinstance(self.train, TrainingCorpus):
            return {"data.train": self.train}
        return {f"data.train.{index}": files for index, files in enumerate(self.train)}


class TokenizerSection(Section):
    """How texts become ids."""

    kind: Literal["unigram", "bpe", "words", "characters"] = Field(
        default="unigram", description="SentencePiece unigram or BPE with byte fallback, white-space words, characters."
    )
    vocabulary_size: Positive = Field(default=8000, description="How many tokens there are, special ones included.")
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

    beam: Positive = 4
    length_penalty: Annotated[float, Field(ge=0)] = 0.6
    max_length_factor: Annotated[float, Field(gt=0)] = 2.0
    tokens_per_batch: Positive = 4096


class Run(Section):
    """A whole run, one YAML file."""

    task: Literal["translate"] = "translate"
    seed: Annotated[int, Field(ge=0)] = 1
    data: Data
    tokenizer: TokenizerSection = TokenizerSection()
    model: Model = Model()
    training: Training = Training()
    decoding: Decoding = Decoding()
