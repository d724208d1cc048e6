"""The sections that the configs of all tasks are made of. Unknown keys and impossible values are refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from saccade.attention import NORMALIZERS, SCORES

ONE_OR_SEVERAL = ("one corpus", "several corpora")  # tags that pydantic puts among a field's names
Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """A section of a config file."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


def one_of(table: Iterable[str]) -> AfterValidator:
    """A name from a table of parts."""

    def check(name: str) -> str:
        if name not in table:
            raise ValueError(f"allowed: {', '.join(table)}")
        return name

    return AfterValidator(check)


ScoreName = Annotated[str, one_of(SCORES)]
NormalizerName = Annotated[str, one_of(NORMALIZERS)]


class TokenizerSection(Section):
    """How texts become ids."""

    kind: Literal["unigram", "bpe", "words", "characters"] = Field(
        default="unigram", description="SentencePiece unigram or BPE with byte fallback, white-space words, characters."
    )
    vocabulary_size: Positive = Field(default=8000, description="How many tokens there are, special ones included.")
    shared: bool = Field(default=True, description="One vocabulary for both sides, and one embedding matrix.")
    sampling: Share = Field(
        default=0.0,
        description="Training text in pieces drawn at random: for bpe the share of merges left out (0.1), for unigram "
        "the smoothing (0.2). It makes small corpora go further.",
    )

    @model_validator(mode="after")
    def _check(self) -> TokenizerSection:
        if self.sampling and self.kind not in ("unigram", "bpe"):
            raise ValueError(
                f"sampling: {self.sampling} given; words and characters have one spelling, so it must be 0"
            )
        return self


class TrainingSection(Section):
    """How any model learns; a task adds what is its own."""

    max_steps: Positive = 10_000
    accumulate: Positive = Field(default=1, description="Batches whose gradients make one step.")
    optimizer: Literal["adam", "adamw"] = Field(default="adamw", description="adamw decays weights, adam gradients.")
    learning_rate: Annotated[float, Field(gt=0)] = Field(default=1e-3, description="Its peak, after the warm-up.")
    warmup_steps: Annotated[int, Field(ge=0)] = 1000
    schedule: Literal["inverse_square_root", "cosine", "constant"] = "inverse_square_root"
    adam_betas: tuple[Share, Share] = (0.9, 0.98)
    clip_norm: Annotated[float, Field(gt=0)] = 1.0
    weight_decay: Annotated[float, Field(ge=0)] = Field(default=0.0, description="Off norms, biases and embeddings.")
    precision: Literal["auto", "float32", "bfloat16", "float8"] = Field(
        default="auto",
        description="auto: bfloat16 where a probe shows that it works and is quicker. float8: the linear layers of "
        "Transformer blocks too, on a CUDA device of compute capability 8.9 or more.",
    )
    ema: Share = Field(default=0.0, description="Decay of a moving average of the weights, which is then the model.")
    average_last: Annotated[int, Field(ge=0)] = Field(
        default=0, description="At the end, the weights of so many last validations averaged; kept if better."
    )
    validate_every: Positive = 500
    save_every: Positive = 500
    patience: Positive | None = Field(
        default=None, description="Validations without a better one before training ends."
    )
    tensorboard: bool = False


class RunSection(Section):
    """What every run has: a task, one YAML file."""

    task: str
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"
    data: Any
    model: Any
    training: TrainingSection


def with_kind(given: object, section: str, kind: str) -> object:
    """A config whose section says no kind has this one."""
    if not isinstance(given, dict) or not isinstance(given.get(section), dict):
        return given
    return {**given, section: {"kind": kind, **given[section]}}
