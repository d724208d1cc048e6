"""The networks of text to text: their sections, and from these to modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from saccade.config.base import Layers, NormalizerName, Positive, ScoreName, Section, Share
from saccade.config.fields import TransformerFields, refuse_unused
from saccade.data.text.tokenizer import Vocabulary
from saccade.decoding.limits import PairLengths
from saccade.models.pointing.copying import CopyingModel
from saccade.models.seq2seq import RecurrentSizes, Seq2Seq
from saccade.models.seq2seq_attention import AttentionOptions
from saccade.models.transformer import Transformer

Size = Literal["tiny", "small", "base", "big"]
Tied = Annotated[
    Literal["three", "two", "none"] | None,
    Field(
        description="Which embeddings are one matrix: source, target and output; target and output; none. "
        "Default: three with a shared vocabulary, else two."
    ),
]
Copies = Annotated[
    bool,
    Field(
        description="A last attention points at words of the source, and may write them instead of a word of the "
        "vocabulary, unknown ones too (pointer-generator, See 2017)."
    ),
]
Coverage = Annotated[
    bool, Field(description="With copies: where that attention has been counts in its score (See 2017, section 2.3).")
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


def _fill_sizes(given: object, sizes: dict[str, dict[str, int | float]]) -> object:
    """Take from the size what isn't given."""
    if not isinstance(given, dict):
        return given
    return {**sizes.get(str(given.get("size", "small")), sizes["small"]), **given}


class TransformerModel(TransformerFields):
    """A Transformer. `size` fills in whatever isn't given (base and big: Vaswani 2017, table 3)."""

    kind: Literal["transformer"] = "transformer"
    size: Size = Field(default="small", description="Sets every width, count and dropout that isn't given.")
    width: Positive = None  # type: ignore[assignment]  # filled in by size
    num_heads: Positive = None  # type: ignore[assignment]
    hidden_width: Positive = None  # type: ignore[assignment]
    num_layers: Layers = None  # type: ignore[assignment]
    dropout: Share = None  # type: ignore[assignment]
    tied: Tied = None
    num_decoder_layers: Layers | None = Field(default=None, description="Where they are not as many as num_layers.")
    output_bias: bool = Field(default=False, description="Each token has a number that is added to its logit.")
    copies: Copies = False
    coverage: Coverage = False

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: object) -> object:
        return _fill_sizes(given, TRANSFORMER_SIZES)

    @model_validator(mode="after")
    def _check_copying(self) -> TransformerModel:
        refuse_coverage(self.copies, self.coverage)
        return self


class RnnModel(Section):
    """An RNN encoder-decoder: without attention (Sutskever 2014), Bahdanau's (2015) or Luong's (2015)."""

    kind: Literal["rnn"]
    size: Size = Field(default="small", description="Sets every width, count and dropout that isn't given.")
    width: Positive = None  # type: ignore[assignment]  # filled in by size
    embedding_width: Positive = None  # type: ignore[assignment]
    num_layers: Layers = None  # type: ignore[assignment]
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
    copies: Copies = False
    coverage: Coverage = False

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: object) -> object:
        return _fill_sizes(given, RNN_SIZES)

    @model_validator(mode="after")
    def _check(self) -> RnnModel:
        if self.direction == "both" and self.width % 2:
            raise ValueError(f"width: {self.width} given; two directions need an even width")
        self._refuse_what_has_no_effect()
        refuse_coverage(self.copies, self.coverage)
        return self

    def _refuse_what_has_no_effect(self) -> None:
        attends = self.attention != "none"
        used = {
            "score": attends,
            "normalizer": attends,
            "scope": attends,
            "feeds_input": self.attention == "luong",
            "radius": attends,
        }
        reason = f"with attention: {self.attention}"
        reasons = {name: None if has_effect else reason for name, has_effect in used.items()}
        if attends and self.scope == "global":
            reasons["radius"] = "with scope: global"
        refuse_unused(self, reasons)


def refuse_coverage(copies: bool, coverage: bool) -> None:
    """Refuse what has no effect."""
    if coverage and not copies:
        raise ValueError("coverage: true given; it has no effect with copies: false")


class AutoModel(TransformerModel):
    """A model of a kind that its texts decide. Until then it is checked as a Transformer."""

    kind: Literal["auto"] = "auto"  # type: ignore[assignment]
    dropout: Share | None = None  # type: ignore[assignment]  # what the kind has

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, given: object) -> object:
        filled = _fill_sizes(given, TRANSFORMER_SIZES)
        return {**filled, "dropout": None, **given} if isinstance(given, dict) and isinstance(filled, dict) else filled

    def of_kind(self, kind: str) -> TransformerModel | RnnModel:
        """Return the model of this kind, with the size and the dropout that are given."""
        given = {name: value for name in LEFT_OPEN if (value := getattr(self, name)) is not None} | {"kind": kind}
        return RnnModel.model_validate(given) if kind == "rnn" else TransformerModel.model_validate(given)


LEFT_OPEN = frozenset(
    ("size", "dropout", "copies", "coverage")
)  # fields that each kind has: with no others, the kind may be left open
MOST_TOKENS, MOST_PAIRS = 40, 100_000  # of a side on average, and in all, up to which an RNN learns faster


def choose_kind(
    both: tuple[object, object], lengths: Sequence[PairLengths], *, is_assembled: bool = False
) -> tuple[str, str]:
    """Choose the kind of a model for text that these tokenizers read, in pairs of these lengths; say why.

    Targets are assembled if they are made of few different words and words of their sources.
    """
    why = "few short texts of characters or words"
    if not all(isinstance(tokenizer, Vocabulary) for tokenizer in both):
        if not is_assembled:
            return "transformer", "texts of many words"
        why = "few short texts; targets are put together from few different words and words of their sources"
    num_pairs = sum(corpus.num_pairs for corpus in lengths)
    if num_pairs > MOST_PAIRS:
        return "transformer", f"more than {MOST_PAIRS:,} pairs"
    if any(sum(side) > MOST_TOKENS * num_pairs for side in zip(*(corpus.sums() for corpus in lengths), strict=True)):
        return "transformer", f"more than {MOST_TOKENS} tokens on a side"
    return "rnn", why


Network = Transformer | Seq2Seq | CopyingModel


def copying(section: TransformerModel | RnnModel, below: Transformer | Seq2Seq) -> CopyingModel:
    """Put a pointer on top of a network."""
    width = section.width if isinstance(section, TransformerModel) else section.embedding_width
    return CopyingModel(below, width=width, source_width=section.width, score=section.score, covers=section.coverage)


def transformer(section: TransformerModel, common: dict[str, Any], max_length: int) -> Transformer:
    """Make a Transformer from its section; `common` are vocabularies and what they share."""
    sizes, layers = section.block_sizes(section.dropout), section.num_layers
    return Transformer(
        sizes=sizes,
        num_encoder_layers=layers,
        num_decoder_layers=section.num_decoder_layers or layers,
        output_bias=section.output_bias,
        max_length=max_length,
        **common,
    )


def rnn(section: RnnModel, common: dict[str, Any]) -> Seq2Seq:
    """Make an RNN from its section; `common` are vocabularies and what they share."""
    return Seq2Seq(
        sizes=RecurrentSizes(
            section.width, section.embedding_width, section.num_layers, cell=section.cell, dropout=section.dropout
        ),
        attention=section.attention,
        attention_options=AttentionOptions(section.score, section.normalizer, section.scope, section.radius),
        direction=section.direction,
        feeds_input=section.feeds_input,
        **common,
    )
