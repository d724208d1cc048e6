"""Everything a run can be told, with its one default. Unknown keys and impossible values are refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator
from sacrebleu import BLEU

from saccade.attention import NORMALIZERS, SCORES
from saccade.attention.scores import LOCATIONS
from saccade.decoding import BeamOptions

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


def _one_of(table: Iterable[str]) -> AfterValidator:
    """A name from a table of parts."""

    def check(name: str) -> str:
        if name not in table:
            raise ValueError(f"allowed: {', '.join(table)}")
        return name

    return AfterValidator(check)


ScoreName = Annotated[str, _one_of(SCORES)]
NormalizerName = Annotated[str, _one_of(NORMALIZERS)]
Size = Literal["tiny", "small", "base", "big"]
Tied = Annotated[
    Literal["three", "two", "none"] | None,
    Field(
        description="Which embeddings are one matrix: source, target and output; target and output; none. "
        "Default: three with a shared vocabulary, else two."
    ),
]
TRANSFORMER_SIZES: dict[str, dict[str, int | float]] = {
    "tiny": {"width": 128, "num_heads": 4, "hidden_width": 256, "num_layers": 2, "dropout": 0.1},
    "small": {"width": 256, "num_heads": 4, "hidden_width": 1024, "num_layers": 4, "dropout": 0.2},
    "base": {"width": 512, "num_heads": 8, "hidden_width": 2048, "num_layers": 6, "dropout": 0.1},
    "big": {"width": 1024, "num_heads": 16, "hidden_width": 4096, "num_layers": 6, "dropout": 0.3},
}
RNN_SIZES: dict[str, dict[str, int | float]] = {
    "tiny": {"width": 128, "embedding_width": 128, "num_layers": 1, "dropout": 0.1},
    "small": {"width": 256, "embedding_width": 256, "num_layers": 1, "dropout": 0.3},
    "base": {"width": 512, "embedding_width": 512, "num_layers": 2, "dropout": 0.3},
    "big": {"width": 1000, "embedding_width": 620, "num_layers": 4, "dropout": 0.3},
}


def _filled(given: object, sizes: dict[str, dict[str, int | float]]) -> object:
    """What isn't given is taken from the size."""
    if not isinstance(given, dict):
        return given
    return {**sizes.get(str(given.get("size", "small")), sizes["small"]), **given}


class TransformerModel(Section):
    """A Transformer. `size` fills in whatever isn't given (base and big: Vaswani 2017, table 3)."""

    kind: Literal["transformer"] = "transformer"
    size: Size = Field(default="small", description="Sets every width, count and dropout that isn't given.")
    width: Positive = None  # type: ignore[assignment]  # filled in by size
    num_heads: Positive = None  # type: ignore[assignment]
    hidden_width: Positive = None  # type: ignore[assignment]
    num_layers: Positive = None  # type: ignore[assignment]
    dropout: Share = None  # type: ignore[assignment]
    attention_dropout: Share = 0.0
    activation_dropout: Share = 0.0
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    norm: Literal["pre", "post"] = "pre"
    positions: Literal["sinusoidal", "learned", "rotary", "relative"] = "sinusoidal"
    window: Positive | None = Field(default=None, description="How far self-attention sees to either side.")
    score: ScoreName = "scaled_dot"
    normalizer: NormalizerName = "softmax"
    tied: Tied = None

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: object) -> object:
        return _filled(given, TRANSFORMER_SIZES)

    @model_validator(mode="after")
    def _check(self) -> TransformerModel:
        if self.width % self.num_heads:
            raise ValueError(f"num_heads: {self.num_heads} given; it must divide the width, {self.width}")
        if self.width // self.num_heads % 2 and self.positions == "rotary":
            raise ValueError("positions: 'rotary' given; it needs heads of an even width")
        return self


class RnnModel(Section):
    """An RNN encoder-decoder: without attention (Sutskever 2014), Bahdanau's (2015) or Luong's (2015)."""

    kind: Literal["rnn"]
    size: Size = Field(default="small", description="Sets every width, count and dropout that isn't given.")
    width: Positive = None  # type: ignore[assignment]  # filled in by size
    embedding_width: Positive = None  # type: ignore[assignment]
    num_layers: Positive = None  # type: ignore[assignment]
    dropout: Share = None  # type: ignore[assignment]
    cell: Literal["rnn", "gru", "lstm"] = "gru"
    direction: Literal["forward", "backward", "both"] = Field(
        default="both", description="How the encoder reads; backward is Sutskever's reversed source."
    )
    attention: Literal["none", "bahdanau", "luong"] = "bahdanau"
    feeds_input: bool = Field(default=True, description="Luong's input feeding; without it all steps run at once.")
    score: ScoreName = "additive"
    normalizer: NormalizerName = "softmax"
    scope: Literal["global", "local_m", "local_p"] = "global"
    radius: Positive = Field(default=10, description="How far the local scopes see to either side.")
    tied: Tied = None

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: object) -> object:
        return _filled(given, RNN_SIZES)

    @model_validator(mode="after")
    def _check(self) -> RnnModel:
        if self.direction == "both" and self.width % 2:
            raise ValueError(f"width: {self.width} given; two directions need an even one")
        self._refuse_what_has_no_effect()
        return self

    def _refuse_what_has_no_effect(self) -> None:
        attends = self.attention != "none"
        used = {
            "score": attends,
            "normalizer": attends,
            "scope": attends,
            "feeds_input": self.attention == "luong",
            "radius": attends and self.scope != "global",
        }
        for name, has_effect in used.items():
            value, default = getattr(self, name), type(self).model_fields[name].default
            if not has_effect and value != default:
                why = "scope: global" if name == "radius" and attends else f"attention: {self.attention}"
                raise ValueError(f"{name}: {value!r} given; it has no effect with {why}")


class Training(Section):
    """How the model learns."""

    max_steps: Positive = 10_000
    tokens_per_batch: Positive | Literal["auto"] = Field(
        default=4096, description="Padded size of a batch on either side; auto: the largest that fits the memory."
    )
    accumulate: Positive = Field(default=1, description="Batches whose gradients make one step.")
    optimizer: Literal["adam", "adamw"] = Field(default="adamw", description="adamw decays weights, adam gradients.")
    learning_rate: Annotated[float, Field(gt=0)] = Field(default=1e-3, description="Its peak, after the warm-up.")
    warmup_steps: Annotated[int, Field(ge=0)] = 1000
    schedule: Literal["inverse_square_root", "cosine", "constant"] = "inverse_square_root"
    adam_betas: tuple[Share, Share] = (0.9, 0.98)
    label_smoothing: Share = 0.1
    clip_norm: Annotated[float, Field(gt=0)] = 1.0
    weight_decay: Annotated[float, Field(ge=0)] = Field(default=0.0, description="Off norms, biases and embeddings.")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto", description="auto: bfloat16 where a probe shows that it works and is quicker."
    )
    ema: Share = Field(default=0.0, description="Decay of a moving average of the weights, which is then the model.")
    average_last: Annotated[int, Field(ge=0)] = Field(
        default=0, description="At the end, the weights of so many last validations averaged; kept if better."
    )
    validate_every: Positive = 500
    save_every: Positive = 500
    metric: Literal["bleu", "chrf", "loss"] = Field(default="bleu", description="What the best model is best at.")
    bleu_tokenize: Annotated[str, _one_of(BLEU.TOKENIZERS)] = Field(
        default="13a", description="sacreBLEU's tokenizer; none for text that is tokenised."
    )
    patience: Positive | None = Field(
        default=None, description="Validations without a better one before training ends."
    )
    tensorboard: bool = False


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
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"
    data: Data
    tokenizer: TokenizerSection = TokenizerSection()
    model: Annotated[TransformerModel | RnnModel, Field(discriminator="kind")] = TransformerModel()
    training: Training = Training()
    decoding: Decoding = Decoding()

    @model_validator(mode="before")
    @classmethod
    def _default_kind(cls, given: object) -> object:
        """A model that doesn't say its kind is a Transformer."""
        if not isinstance(given, dict) or not isinstance(given.get("model"), dict):
            return given
        return {**given, "model": {"kind": "transformer", **given["model"]}}

    @model_validator(mode="after")
    def _check(self) -> Run:
        if self.model.tied == "three" and not self.tokenizer.shared:
            raise ValueError("model.tied: 'three' given; it needs one vocabulary (tokenizer.shared: true)")
        if self.model.score == "location" and self.data.max_length >= LOCATIONS:
            wanted = f"the location score has a row for each of {LOCATIONS} positions, so it must be below that"
            raise ValueError(f"data.max_length: {self.data.max_length} given; {wanted}")
        if self.model.kind == "rnn" and self.training.precision == "bfloat16":
            raise ValueError("training.precision: 'bfloat16' given; RNNs train in float32 (or auto)")
        return self
