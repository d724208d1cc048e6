"""Sections that the configs of all tasks share. Unknown keys and impossible values are refused."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from saccade.attention import NORMALIZERS, SCORES
from saccade.data.held_out import Amount
from saccade.data.text.tokenizer_choice import BYTES

ONE_OR_SEVERAL = ("one corpus", "several corpora")  # tags that pydantic puts among a field's names
FILES_OR_PART = ("files of its own", "a part of data.train")
VALUE_OR_AUTO = ("a value", "auto alone")
T = TypeVar("T")
OrAuto = Annotated[
    Annotated[T, Tag(VALUE_OR_AUTO[0])] | Annotated[Literal["auto"], Tag(VALUE_OR_AUTO[1])],
    Discriminator(lambda given: VALUE_OR_AUTO[given == "auto"]),
]  # "auto": a run chooses a value before it trains, and keeps it
Positive = Annotated[int, Field(ge=1, lt=2**31)]
Layers = Annotated[int, Field(ge=1, le=1000)]  # as many as the deepest Transformer had (Wang 2022)
Share = Annotated[float, Field(ge=0, lt=1)]
LearningRate = Annotated[float, Field(gt=0)]
OldShare = Annotated[
    Share,
    Field(description="The share of an epoch that is old examples, which keeps what a model knows (0.2, say)."),
]
Grow = Annotated[
    int,
    Field(
        ge=0,
        lt=2**31,
        description="With from: so many new tokens, at most, that shorten the texts to train on most. Their embeddings "
        "begin as the means of those of the old tokens that they are made of.",
    ),
]
USUAL_RATE = 1e-3
FEWEST_STEPS, MOST_STEPS = 2000, 10_000  # that a training takes by itself
Position = Annotated[int, Field(ge=0)]


def _check_place(given: object) -> object:
    if isinstance(given, bool) or not (isinstance(given, str) or (isinstance(given, int) and given >= 0)):
        raise ValueError("allowed: the name of a column, or its position from 0")
    return given


def _check_places(given: object) -> object:
    if not isinstance(given, list | tuple):
        return _check_place(given)
    if not given:
        raise ValueError("allowed: a column, or a list of at least one")
    return tuple(map(_check_place, given))


Place = Annotated[str | Position, BeforeValidator(_check_place)]
Places = Annotated[str | Position | tuple[str | Position, ...], BeforeValidator(_check_places)]  # one or several


class Section(BaseModel):
    """A section of a config file."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class HeldOutPart(Section):
    """A part of the examples to train on that is held out for validation: a share, or a number of them.

    A number alone is a share if it is below 1, else a count.
    """

    share: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="The share of the examples to train on."
    )
    count: Positive | None = Field(default=None, description="How many of them.")

    @model_validator(mode="before")
    @classmethod
    def _read_number(cls, given: object) -> object:
        if isinstance(given, dict) and "source" in given:
            raise ValueError("source: given beside a part; allowed: files or a part (0.05 alone replaces files)")
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        return {"count" if isinstance(given, int) else "share": given} if is_number else given

    @model_validator(mode="after")
    def _check(self) -> HeldOutPart:
        if (self.share is None) == (self.count is None):
            raise ValueError("allowed: a share of the examples to train on, or their count")
        return self

    @property
    def amount(self) -> Amount:
        return Amount(self.share, self.count)


def tell_part(given: object) -> str:
    """Return which kind of validation set is given: its own files, or a part of those to train on."""
    is_part = isinstance(given, HeldOutPart | int | float) or (
        isinstance(given, dict) and {"share", "count"} & {*given}
    )
    return FILES_OR_PART[bool(is_part)]


FilesOrPart = Annotated[
    Annotated[T, Tag(FILES_OR_PART[0])] | Annotated[HeldOutPart, Tag(FILES_OR_PART[1])], Discriminator(tell_part)
]


class Columns(Section):
    """The columns of a file: names from its first line or JSON keys, or positions from 0 where there are none."""

    @model_validator(mode="after")
    def _check(self) -> Columns:
        fields = [column for _, column in self if column is not None]
        given = [column for field in fields for column in (field if isinstance(field, tuple) else [field])]
        names = " and ".join(name for name, column in self if column is not None)
        if len({isinstance(column, int) for column in given}) > 1:
            raise ValueError(f"{names}: names and positions given together ({', '.join(map(str, given))})")
        if len(set(given)) < len(given):
            raise ValueError(f"{names}: a column is given twice ({', '.join(map(str, given))})")
        return self


def one_of(table: Iterable[str]) -> AfterValidator:
    """Return a validator that accepts the names of a table."""

    def check(name: str) -> str:
        if name not in table:
            raise ValueError(f"allowed: {', '.join(table)}")
        return name

    return AfterValidator(check)


ScoreName = Annotated[str, one_of(SCORES)]
NormalizerName = Annotated[str, one_of(NORMALIZERS)]


TokenizerKind = Literal["auto", "unigram", "bpe", "words", "characters", "listed"]
SideName = Literal["source", "target"]
VocabularySize = OrAuto[Annotated[int, Field(gt=4, le=1_000_000)]]  # four tokens are special


class TokenizerSide(Section):
    """Settings of the tokenizer of one side, where it differs from what is said for both."""

    kind: TokenizerKind = "auto"
    vocabulary_size: VocabularySize = "auto"
    model: str | None = None


class SideTokenizer(NamedTuple):
    """The kind of a side's tokenizer, and its size or the file of a ready one."""

    kind: TokenizerKind
    vocabulary_size: int | Literal["auto"]
    model: str | None


class TokenizerSection(Section):
    """The section of a config that says how texts become ids."""

    kind: TokenizerKind = Field(
        default="auto",
        description="SentencePiece unigram or BPE with byte fallback, white-space words, characters. auto: characters "
        "for single words that are mostly new, as names are; words where there are few, as phones are; else unigram. "
        "listed: SentencePiece by the list of an imported model.",
    )
    vocabulary_size: VocabularySize = Field(
        default="auto",
        description="Number of tokens, special ones included. auto: for pieces 500 and one for each 100 words of the "
        "text, at most 8000; for words at most 8000; for characters all. Never more than the text has.",
    )
    model: str | None = Field(
        default=None,
        description="A ready one, which is copied: a SentencePiece model; for words and characters a list with one a "
        "line; or the file of another run.",
    )
    shared: OrAuto[bool] = Field(
        default="auto",
        description="Both sides have one vocabulary and one embedding matrix. auto: unless their kinds differ, or one "
        "side is described.",
    )
    source: TokenizerSide = Field(default=TokenizerSide(), description="What is different for sources.")
    target: TokenizerSide = Field(default=TokenizerSide(), description="What is different for targets.")
    grow: Grow = 0
    sampling: Share = Field(
        default=0.0,
        description="Training texts are encoded in random pieces, which helps small corpora. For bpe this is the share "
        "of merges that are left out (try 0.1), for unigram the smoothing (try 0.2).",
    )

    @model_validator(mode="before")
    @classmethod
    def _leave_out_nothing(cls, given: object) -> object:
        """Read a side of which nothing is said (null) as one that isn't there."""
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None or name not in ("source", "target")}

    @model_validator(mode="after")
    def _check(self) -> TokenizerSection:
        if self.shared is True and self.describes_sides:
            raise ValueError("shared: true given; a side with a tokenizer of its own needs shared: false")
        sides = self.of_side("source"), self.of_side("target")
        if self.sampling and all(side.kind in ("words", "characters") for side in sides):
            raise ValueError(
                f"sampling: {self.sampling} given; with words and characters it must be 0, as they have one spelling"
            )
        if self.model is not None and self.vocabulary_size != "auto":
            raise ValueError(f"vocabulary_size: {self.vocabulary_size} given; the model that is given has its own")
        if self.model is not None and all(side.model != self.model for side in sides):
            raise ValueError("model: given, but each side has a tokenizer of its own")
        for name, side in (("source", self.source), ("target", self.target)):
            if side.model is not None and side.vocabulary_size != "auto":
                raise ValueError(f"{name}.vocabulary_size: given; the model that is given has its own")
        for kind, size, _ in sides:
            if kind in ("unigram", "bpe") and size != "auto" and size <= BYTES:
                least = f"above {BYTES}: four special tokens and 256 bytes, and then the characters of the text"
                raise ValueError(f"vocabulary_size: {size} given; for pieces it must be {least}")
        return self

    @property
    def describes_sides(self) -> bool:
        """Return True if something is said of one side alone."""
        return self.source != TokenizerSide() or self.target != TokenizerSide()

    def of_side(self, name: SideName) -> SideTokenizer:
        """Return what is said for a side, or for both; a side that is learned takes no model from there."""
        side: TokenizerSide = getattr(self, name)
        learns = side.kind != "auto" or side.vocabulary_size != "auto"
        model = side.model if side.model is not None or learns else self.model
        kind = self.kind if side.kind == "auto" else side.kind
        size = self.vocabulary_size if side.vocabulary_size == "auto" else side.vocabulary_size
        return SideTokenizer(kind, size, model)

    def field_of(self, name: SideName) -> str:
        """Return where it is said, for messages."""
        return "tokenizer" if getattr(self, name) == TokenizerSide() else f"tokenizer.{name}"


class TrainingSection(Section):
    """Settings of training; each task adds fields of its own."""

    usual_epochs: ClassVar[int] = 60
    max_steps: OrAuto[Positive] = Field(
        default="auto",
        description="Steps of the whole training. auto: those of a number of epochs that suits the task, at least 2000 "
        "and at most 10,000.",
    )
    accumulate: Positive = Field(default=1, description="Number of batches whose gradients make one step.")
    optimizer: Literal["adam", "adamw"] = Field(default="adamw", description="adamw decays weights, adam gradients.")
    learning_rate: LearningRate = Field(default=USUAL_RATE, description="The peak, after the warm-up.")
    warmup_steps: OrAuto[Annotated[int, Field(ge=0)]] = Field(
        default="auto", description="Steps until the learning rate is reached. auto: a tenth of all, at most 1000."
    )
    schedule: Literal["inverse_square_root", "cosine", "constant"] = Field(
        default="cosine",
        description="How the learning rate falls after the warm-up: cosine ends at 0 with max_steps, and the others "
        "don't know how long a training lasts.",
    )
    adam_betas: tuple[Share, Share] = (0.9, 0.98)
    clip_norm: Annotated[float, Field(gt=0)] = 1.0
    weight_decay: Annotated[float, Field(ge=0)] = Field(default=0.0, description="Not for norms, biases, embeddings.")
    precision: Literal["auto", "float32", "bfloat16", "bfloat16_output", "float8"] = Field(
        default="auto",
        description="auto takes bfloat16 where the device has it and matrices are wide. bfloat16_output is float32 "
        "with the products of the output layer in bfloat16; auto takes it on a CPU with 4,096 outputs or more. "
        "float8 is bfloat16, with the linear layers of Transformer blocks in float8, on a CUDA device of compute "
        "capability 8.9 or more.",
    )
    ema: Share = Field(default=0.0, description="Decay of a moving average of the weights, which becomes the model.")
    average_last: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Number of last validations whose weights are averaged at the end; kept if better."
    )
    validate_every: OrAuto[Positive] = Field(
        default="auto", description="Steps from one validation to the next. auto: a tenth of all, at most 500."
    )
    save_every: Positive = 500
    freeze: tuple[str, ...] = Field(
        default=(),
        description="Parts of the model that stay as they are: encoder, decoder, embeddings, or a module's path "
        "(decoder.0.cross).",
    )
    lora: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="The rank of adapters on the projections of attention and feed-forward layers. Only they train, "
        "and what is new (LoRA, Hu 2021); the saved model has them in its weights. 0: none.",
    )
    patience: Positive | None = Field(
        default=None,
        description="Number of validations without a better score, or an equal one at a lower loss, that end training.",
    )
    tensorboard: bool = False

    def settle_steps(self, epoch: int | None = None, epochs: int | None = None) -> Self:
        """Return the section with its numbers of steps: `epoch` of them read all data once, if that is known.

        Without `epochs` they are the task's usual ones.
        """
        update: dict[str, Any] = {}
        if self.max_steps == "auto":
            wanted = MOST_STEPS if epoch is None else (epochs or self.usual_epochs) * epoch
            update["max_steps"] = min(MOST_STEPS, max(FEWEST_STEPS, wanted))
        tenth = update.get("max_steps", self.max_steps) // 10
        if self.warmup_steps == "auto":
            update["warmup_steps"] = min(1000, tenth)
        if self.validate_every == "auto":
            update["validate_every"] = max(1, min(500, tenth))
        return self.model_copy(update=update)


def _read_path(given: object) -> object:
    return os.fspath(given) if isinstance(given, os.PathLike) else given


class RunSection(Section):
    """The fields of every run: a task, a seed, a device, and the sections."""

    model_config = ConfigDict(serialize_by_alias=True)

    task: str
    base: Annotated[str, BeforeValidator(_read_path), Field(min_length=1)] | None = Field(
        default=None,
        alias="from",
        description="The folder of a run of the same task to begin with, an imported one too. Its model and vocabulary "
        "are kept, and need not be said again.",
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"
    data: Any
    model: Any
    training: TrainingSection

    @model_validator(mode="after")
    def _check_beginning(self) -> Self:
        """Refuse what needs a run to begin with, where there is none."""
        share, old = getattr(self.data, "old_share", 0.0), getattr(self.data, "old", "auto")
        grow = getattr(getattr(self, "tokenizer", None), "grow", 0)
        if old != "auto" and not share:
            raise ValueError("data.old: given; it has no effect with old_share: 0")
        if self.base is None and share and old == "auto":
            raise ValueError(f"data.old_share: {share} given; without from: RUN, say with data.old what is mixed in")
        if self.base is None and grow:
            raise ValueError(f"tokenizer.grow: {grow} given; only the vocabulary of from: RUN can grow")
        return self


def fill_kind(given: object, section: str, kind: str) -> object:
    """Fill in the default `kind` of a section."""
    if not isinstance(given, dict) or not isinstance(given.get(section), dict):
        return given
    return {**given, section: {"kind": kind, **given[section]}}
