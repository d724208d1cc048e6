"""The sections of a caption config, and what a request to a server may say."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from saccade.config import base
from saccade.config.base import (
    Grow,
    Layers,
    NormalizerName,
    Positive,
    RunSection,
    ScoreName,
    Section,
    Share,
    fill_kind,
)
from saccade.decoding import BeamOptions
from saccade.layers.image_encoder import ImageEncoder
from saccade.tasks.base import MOST_BEAM, RequestOptions

MOST_FRAMES = 256
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Shapes(Section):
    """Pictures of two shapes with a sentence each, which the package makes; see docs/caption.md."""

    kind: Literal["shapes"] = "shapes"
    side: Annotated[int, Field(ge=24, multiple_of=ImageEncoder.CELL)] = Field(default=48, description="In pixels.")
    train: Positive = Field(default=20_000, description="How many pictures to learn from.")
    valid: Positive = 500
    test: Positive = 2_000


class PictureFiles(Section):
    """Captions, and the folder where the pictures that they name lie."""

    captions: str = Field(description="A TSV file (plain or .gz): image TAB number TAB caption.")
    pictures: str


class ClipFiles(Section):
    """Captions, and the folder where the clips that they name lie."""

    captions: str = Field(description="A TSV file (plain or .gz): clip TAB number TAB caption.")
    clips: str = Field(description="A folder of animated GIF, PNG or WebP files, or of folders of frames.")
    spans: str | None = Field(
        default=None,
        description="A TSV file that says when words happen, to measure attention: clip TAB word TAB first frame TAB "
        "last frame, all from 1 on.",
    )


class FeatureFiles(Section):
    """Captions, and the feature maps of what they tell of, in the order of first appearance or by name."""

    captions: str = Field(description="A TSV file (plain or .gz): image TAB number TAB caption.")
    features: str = Field(description=".npz (features, and perhaps names and scale), .npy or .npy.gz.")
    pictures: str | None = Field(default=None, description="A folder with the pictures themselves, to draw on.")


class CaptionData(Section):
    """The fields that all kinds of caption data share."""

    lower_case: bool = True
    punctuation: bool = Field(default=True, description="false leaves out words without a letter or a digit.")


class PictureData(CaptionData):
    """Caption data with pictures from files."""

    kind: Literal["pictures"]
    train: PictureFiles
    valid: PictureFiles
    test: PictureFiles | None = None
    side: Annotated[int, Field(ge=8, multiple_of=ImageEncoder.CELL)] = Field(
        default=64, description="Every picture is made so many pixels high and wide."
    )


class ClipData(CaptionData):
    """Caption data with clips from files."""

    kind: Literal["clips"]
    train: ClipFiles
    valid: ClipFiles
    test: ClipFiles | None = None
    side: Annotated[int, Field(ge=8, multiple_of=ImageEncoder.CELL)] = Field(
        default=32, description="Every frame is made so many pixels high and wide."
    )
    frames: Annotated[int, Field(ge=1, le=MOST_FRAMES)] = Field(
        default=16, description="No clip has more; one that does is refused."
    )


class FeatureData(CaptionData):
    """Feature maps that another network made."""

    kind: Literal["features"]
    train: FeatureFiles
    valid: FeatureFiles
    test: FeatureFiles | None = None
    axes: Literal["NYXC", "NCYX", "NSC", "NCS", "CNS"] = Field(
        default="NYXC",
        description="What the array's axes are: N pictures, Y rows, X columns, S places of a square, C channels.",
    )
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=1.0, description="A feature is so many times what is stored (whole numbers have a step)."
    )


Data = Shapes | PictureData | ClipData | FeatureData


class CaptionTokenizer(Section):
    """The section that says how captions become ids."""

    kind: Literal["unigram", "bpe", "words", "characters"] = "words"
    vocabulary_size: Positive = Field(default=10_000, description="How many tokens there are, special ones included.")
    grow: Grow = 0


class CaptionModel(Section):
    """Show, Attend and Tell (Xu 2015)."""

    attention: Literal["soft", "hard"] = Field(
        default="soft", description="soft: the expected vector; hard: that of one place, learned by REINFORCE."
    )
    width: Annotated[int, Field(ge=4)] = Field(default=512, description="Of the LSTM, and of the vector of each place.")
    embedding_width: Positive = 512
    num_layers: Layers = 1
    cell: Literal["rnn", "gru", "lstm"] = "lstm"
    dropout: Share = 0.5
    feature_dropout: Share = Field(default=0.0, description="Of feature maps, before and after their projection.")
    forgetting: Share = Field(
        default=0.0,
        description="The share of looks that the LSTM doesn't get while training (the word does): what can't be "
        "remembered must be looked at again, so words look at what they name.",
    )
    start: Literal["mean", "zeros"] = Field(default="mean", description="The state before the first word.")
    score: ScoreName = "additive"
    normalizer: NormalizerName = "softmax"
    tied: bool = Field(default=False, description="The words read and the words written are one matrix.")

    @model_validator(mode="after")
    def _check(self) -> CaptionModel:
        if self.normalizer == "hard":
            raise ValueError("normalizer: 'hard' given; attention: hard says so")
        if self.attention == "hard" and self.normalizer != "softmax":
            raise ValueError(f"normalizer: {self.normalizer!r} given; hard attention samples from softmax")
        return self


class CaptionTraining(base.TrainingSection):
    """The section that says how a captioner learns."""

    tokens_per_batch: Positive = Field(default=2048, description="Padded size of a batch of captions, in tokens.")
    label_smoothing: Share = 0.0
    turning: Literal["none", "mirror", "square"] = Field(
        default="none",
        description="How pictures and clips may be turned in training, each at random: mirror swaps left and right, "
        "square also turns by quarters. For captions without left and right, above and below.",
    )
    coverage: Amount = Field(default=0.0, description="Of sum_i (1 - sum_t a_ti)²: the doubly stochastic penalty.")
    reinforce: Amount = Field(default=1.0, description="Hard attention: how much a lucky look counts.")
    entropy: Amount = Field(default=0.0, description="Hard attention: how much undecided looks are wanted.")
    metric: Literal["bleu4", "exact", "loss"] = Field(default="bleu4", description="What the best model is best at.")


class CaptionDecoding(Section):
    """The section that says how sentences are searched."""

    beam: Positive = Field(default=3, description="Hypotheses kept; 1 is greedy.")
    length_penalty: Amount = 0.6
    max_length: Positive = Field(default=40, description="No sentence has more tokens, </s> included.")
    no_repeat_ngram: Annotated[int, Field(ge=0)] = 0
    writes_unknown: bool = Field(default=False, description="Whether <unk> may be written.")

    def options(self) -> BeamOptions:
        return BeamOptions(width=self.beam, **self.model_dump(exclude={"beam"}))


class CaptionConfig(RunSection):
    """A whole run, one YAML file."""

    task: Literal["caption"]
    data: Annotated[Data, Field(discriminator="kind")] = Shapes()
    tokenizer: CaptionTokenizer = CaptionTokenizer()
    model: CaptionModel = CaptionModel()
    training: CaptionTraining = CaptionTraining()
    decoding: CaptionDecoding = CaptionDecoding()

    @model_validator(mode="before")
    @classmethod
    def _default_kind(cls, given: object) -> object:
        """Take shapes, if data don't say their kind."""
        return fill_kind(given, "data", "shapes")

    @model_validator(mode="after")
    def _check(self) -> CaptionConfig:
        for name in ("reinforce", "entropy"):
            value, default = getattr(self.training, name), CaptionTraining.model_fields[name].default
            if self.model.attention == "soft" and value != default:
                raise ValueError(f"training.{name}: {value} given; it has no effect with model.attention: soft")
        if self.data.kind == "shapes" and self.tokenizer.kind != "words":
            kind = self.tokenizer.kind
            raise ValueError(
                f"tokenizer.kind: {kind!r} given; where nouns look is measured in shapes, so it must be words"
            )
        if (turning := self.training.turning) != "none" and self.data.kind == "features":
            raise ValueError(f"training.turning: {turning!r} given; it has no effect with data.kind: features")
        if (share := self.model.feature_dropout) and self.data.kind != "features":
            raise ValueError(f"model.feature_dropout: {share} given; it has no effect with data.kind: {self.data.kind}")
        return self


class CaptionOptions(RequestOptions):
    """A request's options, for a server."""

    num_best: int = Field(default=1, ge=1, le=MOST_BEAM, description="How many captions, best first.")
    attention: bool = Field(default=False, description="Where each word looked.")
