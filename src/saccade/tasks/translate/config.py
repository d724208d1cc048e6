"""The sections of a translate config."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator
from sacrebleu import BLEU

from saccade.attention.scores import LOCATIONS
from saccade.config import base
from saccade.config.base import (
    FILES_OR_PART,
    ONE_OR_SEVERAL,
    VALUE_OR_AUTO,
    Columns,
    HeldOutPart,
    OldShare,
    OrAuto,
    Places,
    Positive,
    RunSection,
    Section,
    Share,
    TokenizerSection,
    TokenizerSide,
    one_of,
    tell_part,
)
from saccade.config.fields import refuse_unused
from saccade.data.sound.mel import Mel
from saccade.data.store import Limits, SideLimit
from saccade.data.text.corpus import PairColumns, Side
from saccade.data.text.languages import NAMES
from saccade.decoding import BeamOptions
from saccade.layers.augmentation import Augmentation, MaskLimits
from saccade.layers.subsampling import FACTOR, SUBSAMPLINGS, FrameEncoder
from saccade.tasks.translate.networks import LEFT_OPEN, AutoModel, RnnModel, TransformerModel

Count = Annotated[int, Field(ge=0)]
USUAL_LENGTH = 256
LanguageCode = Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})?$")]


class CorpusFiles(Section):
    """Two line-aligned files, or one TSV, CSV or JSONL file with both sides. Folders and globs name several."""

    source: str = Field(description="A file (plain or .gz), a folder or a glob. With both sides: .tsv, .csv or .jsonl.")
    target: str | None = Field(default=None, description="The other side, line by line; none if source has both.")


class TrainingCorpus(CorpusFiles):
    """Files to train on, and how often."""

    weight: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="Times it is read an epoch; 0.5: another half each time."
    )


def _one_or_several(given: object) -> str:
    return ONE_OR_SEVERAL[isinstance(given, list | tuple)]


class SideColumns(Columns):
    """The columns of files with both sides: names from their first line or JSON keys, or positions from 0.

    Several columns of a side, as a word and its tags, are joined by spaces.
    """

    source: Places
    target: Places


class SideLengths(Section):
    """The most tokens of a source, and of a target."""

    source: OrAuto[Positive] = Field(
        default="auto",
        description="auto: 256; where more than 1% are longer, but not their targets, what 99% of the sources need, up "
        "to 4095 and less than a batch.",
    )
    target: Positive = 256


class TooLong(Section):
    """Rules for a pair with a source, or a target, that is too long."""

    source: Literal["auto", "drop", "cut"] = "auto"
    target: Literal["drop", "cut"] = "drop"


def _for_both(given: object) -> object:
    """Read one value as that of both sides."""
    is_value = isinstance(given, int | str) and not isinstance(given, bool)
    if not is_value and not isinstance(given, dict | Section):
        raise ValueError("allowed: a value for both sides, or {source: ..., target: ...}")
    return {"source": given, "target": given} if is_value else given


class OldData(Section):
    """Data of an earlier run, to be mixed in: its data.train, data.columns, and what it held out."""

    train: Annotated[list[TrainingCorpus], Field(min_length=1)]
    columns: SideColumns | None = None
    valid: HeldOutPart | None = Field(default=None, description="The part of train that it held out: it stays out.")

    @property
    def side_columns(self) -> tuple[Side, Side] | None:
        """The columns, as reading takes them."""
        return None if self.columns is None else (self.columns.source, self.columns.target)

    @property
    def corpora(self) -> dict[str, TrainingCorpus]:
        """Its corpora, under the names that messages use."""
        return {f"data.old.train.{index}": files for index, files in enumerate(self.train)}


class TranslateData(Section):
    """The section that names the files of texts."""

    train: (
        Annotated[
            Annotated[TrainingCorpus, Tag(ONE_OR_SEVERAL[0])]
            | Annotated[list[TrainingCorpus], Field(min_length=1), Tag(ONE_OR_SEVERAL[1])],
            Discriminator(_one_or_several),
        ]
        | None
    ) = Field(
        default=None,
        description="What the model and the tokenizers learn from: one corpus, or a list of them with weights.",
    )
    valid: (
        Annotated[
            Annotated[CorpusFiles, Tag(FILES_OR_PART[0])] | Annotated[HeldOutPart, Tag(FILES_OR_PART[1])],
            Discriminator(tell_part),
        ]
        | None
    ) = Field(
        default=None,
        description="What validation decodes and scores; the best model on it is kept. Files, or a part of the pairs "
        "to train on, chosen by a hash of the source: a share (0.05) or a number of them (500).",
    )
    old_share: OldShare = 0.0
    old: OrAuto[OldData] = Field(
        default="auto",
        description="Where the old pairs come from. auto: what the run of from has learned from.",
    )
    test: CorpusFiles | None = Field(default=None, description="What is scored at the end; never trained on.")
    columns: SideColumns | None = Field(
        default=None,
        description="Which columns of files with both sides these are. None: those that are called source and target, "
        "or by the codes of the languages; else a file has two columns and no header.",
    )
    max_length: Annotated[SideLengths, BeforeValidator(_for_both, json_schema_input_type=Positive | SideLengths)] = (
        Field(
            default=SideLengths(),
            description="The most tokens of a pair, of which either side has its own number, or both the same.",
        )
    )
    too_long: Annotated[
        TooLong, BeforeValidator(_for_both, json_schema_input_type=Literal["drop", "cut"] | TooLong)
    ] = Field(
        default=TooLong(),
        description="drop: a pair with a longer side is left out; cut: that side ends at data.max_length. Both are "
        "counted. auto cuts sources, if more than 1% are too long while their targets aren't.",
    )
    terms: Share = Field(
        default=0.0,
        description="The share of the sources to train on that have translations of some words written behind them, as "
        "the words are linked in the corpora: the model learns to write the terms of a glossary. 0.3 is a good share.",
    )

    @model_validator(mode="after")
    def _check(self) -> TranslateData:
        sets = [files for files in (*self.corpora.values(), self.valid, self.test) if isinstance(files, CorpusFiles)]
        if self.columns is not None and all(files.target is not None for files in sets):
            raise ValueError("columns: given, but every source has a target file, so no file has columns")
        return self

    @property
    def limits(self) -> Limits:
        """The limits of both sides, as stores take them."""
        long = self.too_long
        return (
            SideLimit(self.source_length, is_cut=long.source == "cut"),
            SideLimit(self.max_length.target, is_cut=long.target == "cut"),
        )

    @property
    def longest(self) -> int:
        """The most tokens of either side."""
        return max(self.source_length, self.max_length.target)

    @property
    def source_length(self) -> int:
        """The most tokens of a source; the usual number as long as it isn't settled."""
        given = self.max_length.source
        return USUAL_LENGTH if given == "auto" else given

    @property
    def corpora(self) -> dict[str, TrainingCorpus]:
        """Return the corpora to train on, under the names that messages use."""
        if self.train is None:  # of an imported model
            return {}
        if isinstance(self.train, TrainingCorpus):
            return {"data.train": self.train}
        return {f"data.train.{index}": files for index, files in enumerate(self.train)}

    @property
    def num_corpora(self) -> int:
        """Count the corpora to train on, old ones included."""
        return len(self.corpora) + len(self.old_corpora)

    @property
    def old_corpora(self) -> dict[str, TrainingCorpus]:
        """Return the corpora that are mixed in, under the names that messages use."""
        return {} if self.old == "auto" else self.old.corpora


class SoundFeatures(Section):
    """Settings of the way from sound to what a model reads: log-mel frames, and vectors of four frames each."""

    rate: Annotated[int, Field(ge=4000, le=48_000)] = Field(
        default=16_000, description="Samples a second; files with another rate are resampled."
    )
    num_mels: Annotated[int, Field(ge=8, le=128)] = Field(default=80, description="Numbers in a frame.")
    window: Annotated[float, Field(ge=0.01, le=0.1)] = Field(default=0.025, description="Seconds that a frame hears.")
    hop: Annotated[float, Field(ge=0.002, le=0.1)] = Field(default=0.01, description="Seconds to the next frame.")
    subsampling: Literal["convolutions", "pyramid"] = Field(
        default="convolutions",
        description="How four frames become one vector: two strided convolutions, or two bidirectional LSTMs whose "
        "steps are joined in pairs (Listen, Attend and Spell; Chan 2016).",
    )
    time_masks: Count = Field(default=2, description="Stretches of time hidden in training (SpecAugment, Park 2019).")
    time_mask_frames: Positive = Field(default=10, description="The longest of them.")
    frequency_masks: Count = Field(default=2, description="Bands of mels hidden in training.")
    frequency_mask_mels: Positive = Field(default=8, description="The widest of them.")
    tempo: Annotated[float, Field(ge=0, le=0.5)] = Field(
        default=0.0, description="In training every batch is slower or faster by up to this share."
    )

    @model_validator(mode="after")
    def _refuse_what_has_no_effect(self) -> SoundFeatures:
        counts = {"time_mask_frames": "time_masks", "frequency_mask_mels": "frequency_masks"}
        reasons = {size: None if getattr(self, count) else f"with {count}: 0" for size, count in counts.items()}
        refuse_unused(self, reasons)
        return self

    @property
    def mel(self) -> Mel:
        return Mel(self.rate, self.num_mels, self.window, self.hop)

    def frame_encoder(self, width: int, dropout: float) -> FrameEncoder:
        time = MaskLimits(self.time_masks, self.time_mask_frames)
        frequency = MaskLimits(self.frequency_masks, self.frequency_mask_mels)
        subsampling = SUBSAMPLINGS[self.subsampling](self.num_mels, width, dropout=dropout)
        return FrameEncoder(subsampling, Augmentation(time=time, frequency=frequency, tempo=self.tempo))


class TranslateTraining(base.TrainingSection):
    """Settings of a text-to-text model's training."""

    learning_rate: OrAuto[base.LearningRate] = Field(  # type: ignore[assignment]  # a number once training begins
        default="auto",
        description="The peak, after the warm-up. auto: 1 / sqrt(model.width * warm-up steps), at most 0.003 (Vaswani "
        "2017); 0.001 for a Transformer with norm: post, and for summaries that are read as words. With from a third "
        "of it, with lora three times it.",
    )
    tokens_per_batch: Annotated[
        Annotated[Positive, Tag(VALUE_OR_AUTO[0])] | Annotated[Literal["auto", "largest"], Tag(VALUE_OR_AUTO[1])],
        Discriminator(lambda given: VALUE_OR_AUTO[given in ("auto", "largest")]),
    ] = Field(
        default="auto",
        description="Padded size of a batch on either side. auto: 1024 to 4096, a power of two that makes about 100 "
        "batches of an epoch, where summaries are copied up to 16384; largest: what fits the memory.",
    )
    batches: Literal["auto", "padded", "even", "packed"] = Field(
        default="auto",
        description="padded: sentences of like lengths, to the longest; even: to one of few sizes; packed: any, one "
        "behind the other in rows of one size. auto: on an accelerator packed where the model allows it, or even; "
        "elsewhere padded, but even for RNNs that copy summaries.",
    )
    shuffle_buffer: Positive = Field(
        default=2_000_000,
        description="Texts of more pairs than this are read in portions of so many, drawn from everywhere in them and "
        "shuffled: memory grows with a portion (300 bytes a pair of ten tokens, 600 of thirty), not with the texts.",
    )
    capture: bool = Field(
        default=True, description="On an accelerator, forward and backward of a batch run as one recorded graph."
    )
    recompute: bool = Field(
        default=False,
        description="A block's activations are made again in the backward pass: less memory, a third more work.",
    )
    shard: bool = Field(
        default=False,
        description="Under torchrun, each process keeps a part of the weights and of what the optimizer remembers, "
        "for a Transformer that doesn't fit otherwise (FSDP2).",
    )
    label_smoothing: Share = 0.1
    consistency: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=0.0,
        description="Each batch is read twice under other dropout, and so much of the answers' disagreement joins the "
        "loss (R-Drop, Wu 2021; 5 there). It makes small corpora go further, for twice the work.",
    )
    coverage: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=0.0,
        description="With model.copies: so much of the weight on places that were pointed at before joins the loss, "
        "which makes outputs repeat themselves less (1 in See 2017, equation 12).",
    )
    metric: Literal["auto", "bleu", "chrf", "exact", "wer", "rouge", "loss"] = Field(
        default="auto",
        description="What the best model is best at; of equal ones the loss decides. exact: the share of outputs equal "
        "to their references; wer: word errors; rouge: ROUGE-L. auto: exact for answers of few words, wer where all "
        "are written with few different words, rouge for summaries, chrf for scripts without spaces, else bleu.",
    )
    bleu_tokenize: Annotated[str, one_of(BLEU.TOKENIZERS)] = Field(
        default="13a", description="sacreBLEU's tokenizer; none for text that is tokenised."
    )


class TranslateDecoding(Section):
    """The section that says how outputs are searched."""

    beam: Positive = Field(default=4, description="Hypotheses kept; 1 is greedy.")
    length_penalty: Annotated[float, Field(ge=0)] = 0.6
    length_offset: Count = Field(
        default=5,
        description="k of what log p is divided by, ((k + length) / (k + 1))^length_penalty; 0 is Hugging Face's.",
    )
    patience: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=0,
        description="The search stops when beam times so many outputs have ended, and may miss a better one; 1 is "
        "CTranslate2's. 0: it goes on while a better output may come.",
    )
    min_length: Annotated[int, Field(ge=0)] = 0
    max_length: Positive = Field(default=4096, description="No output has more tokens, </s> included.")
    max_length_factor: OrAuto[Annotated[float, Field(gt=0)]] = Field(
        default="auto",
        description="No output has more tokens for each token of its source, and max_length_extra more. auto: half as "
        "many again as nearly all pairs to train on have, both together.",
    )
    max_length_extra: OrAuto[Count] = Field(
        default="auto", description="See max_length_factor. auto beside a factor that is given: ten."
    )
    no_repeat_ngram: Annotated[int, Field(ge=0)] = Field(
        default=0, description="So many tokens in a row are never written twice; 0 allows it."
    )
    max_rounds: OrAuto[Count] = Field(
        default="auto",
        description="An output that goes round the same few tokens more often is cut; 0 never does. auto: 8, or half "
        "as many again as targets to train on go round.",
    )
    max_source_length: Positive = Field(
        default=8192, description="Longer sources are cut to so many tokens, with a warning."
    )
    tokens_per_batch: OrAuto[Positive] = Field(
        default="auto",
        description="Padded size of sources that are searched together. auto: 4096, on an accelerator 32768.",
    )
    placeholders: Literal["auto", "keep", "ignore"] = Field(
        default="auto",
        description='keep: {0}, %s, <x id="1"/>, e-mail addresses and URLs come out as they went in, each once; '
        "ignore: they are words like others. auto: keep, where languages are known.",
    )

    @model_validator(mode="after")
    def _check(self) -> TranslateDecoding:
        self.options()
        return self

    def options(self) -> BeamOptions:
        """Make decoding's options, and check what concerns several fields. What is not settled yet has usual values."""
        given = self.model_dump(exclude={"beam", "tokens_per_batch", "max_source_length", "placeholders"})
        return BeamOptions(width=self.beam, **{name: value for name, value in given.items() if value != "auto"})


class LanguageCodes(Section):
    """The languages that a run translates between, as codes (en, fr, zh-Hans): `saccade serve` tells clients."""

    source: LanguageCode
    target: LanguageCode


class TranslateConfig(RunSection):
    """A whole run, one YAML file."""

    task: Literal["translate"] = "translate"
    origin: str | None = Field(
        default=None,
        description="Where an imported model comes from. Only such a run has no data.train and data.valid.",
    )
    languages: LanguageCodes | None = Field(default=None, description="What is translated into what, for a server.")
    texts: Literal["auto", "sentences", "documents", "anything"] = Field(
        default="auto",
        description="What sources are, for a server. sentences: a text is split into sentences, which are answered one "
        "by one; documents: it is answered whole, and split only where it is too long; anything: it is answered whole. "
        "auto: documents where most sources to train on have several sentences; sentences where languages are known, "
        "or most end like a sentence and at most 5% have several; else anything.",
    )
    input: Literal["text", "features"] = Field(
        default="text", description="What sources are: texts, or lists of WAV files, read as frames of sound."
    )
    data: TranslateData
    features: SoundFeatures | None = Field(default=None, description="With input: features. How sound is read.")
    tokenizer: TokenizerSection = TokenizerSection()
    model: Annotated[TransformerModel | RnnModel | AutoModel, Field(discriminator="kind")] = AutoModel()
    training: TranslateTraining = TranslateTraining()
    decoding: TranslateDecoding = TranslateDecoding()

    @model_validator(mode="before")
    @classmethod
    def _default_kind(cls, given: object) -> object:
        """Take a Transformer, if a model says more than its size but not its kind; sound has its own defaults."""
        if not isinstance(given, dict):
            return given
        filled = dict(SOUND_DEFAULTS) if given.get("input") == "features" else {}
        if isinstance(given.get("model"), dict):
            filled["model"] = {"kind": "auto" if LEFT_OPEN.issuperset(given["model"]) else "transformer"}
        return {**given, **{name: _over(section, given.get(name, {})) for name, section in filled.items()}}

    @model_validator(mode="after")
    def _check(self) -> TranslateConfig:
        for name in ("train", "valid") if self.origin is None else ():
            if getattr(self.data, name) is None:
                raise ValueError(f"data.{name}: missing")
        if self.model.tied == "three" and self.tokenizer.shared is False:
            raise ValueError("model.tied: 'three' given; it needs one vocabulary (tokenizer.shared: true)")
        most = LOCATIONS * FACTOR if self.features else LOCATIONS
        if self.model.score == "location" and self.data.longest >= most:
            wanted = f"the location score has a row for each of {LOCATIONS} positions, so it must be below {most}"
            raise ValueError(f"data.max_length: {self.data.longest} given; {wanted}")
        self._check_sound()
        self._check_copying()
        if self.model.kind == "rnn" and self.training.recompute:
            raise ValueError("training.recompute: true given; only a Transformer's blocks are made again")
        if self.model.kind == "rnn" and self.training.shard:
            raise ValueError("training.shard: true given; only Transformers are cut")
        return self

    def _check_copying(self) -> None:
        if not self.model.copies:
            if self.training.coverage:
                raise ValueError(
                    f"training.coverage: {self.training.coverage} given; it has no effect with model.copies: false"
                )
            return
        refused = {
            "input: features": (self.features is not None, "sounds have no words to copy"),
            "tokenizer.shared: false": (self.tokenizer.shared is False, "both sides need one vocabulary"),
            "training.consistency": (self.training.consistency > 0, "its loss knows no copies"),
            "training.shard": (self.training.shard, "only plain Transformers are cut"),
            "tokenizer.kind: listed": (self.tokenizer.kind == "listed", "imported models don't copy"),
        }
        for name, (is_given, why) in refused.items():
            if is_given:
                raise ValueError(f"model.copies: true given, but {name} too; {why}")

    @property
    def pair_columns(self) -> PairColumns:
        """The columns of files with both sides, as reading takes them."""
        given = self.data.columns
        return PairColumns(None if given is None else (given.source, given.target), self.find_languages())

    def find_languages(self) -> tuple[str, str] | None:
        """Return what is translated into what: as it is said here, or by the endings of files that are known codes."""
        if self.languages is not None:
            return self.languages.source, self.languages.target
        files = next(iter(self.data.corpora.values()), None)
        if files is None:
            return None
        source, target = _ending(files.source), _ending(files.target or "")
        return (source, target) if source != target and source in NAMES and target in NAMES else None

    @property
    def keeps_placeholders(self) -> bool:
        given = self.decoding.placeholders
        return given == "keep" or (given == "auto" and self.input == "text" and self.find_languages() is not None)

    def _check_sound(self) -> None:
        if self.input == "text":
            if self.features is not None:
                raise ValueError("features: given, but it has no effect with input: text")
            return
        if self.decoding.placeholders == "keep":
            raise ValueError("decoding.placeholders: 'keep' given; with input: features sounds have none")
        if self.data.too_long.source == "cut":
            raise ValueError("data.too_long.source: 'cut' given; with input: features sounds are not cut, only dropped")
        if self.tokenizer.shared is True:
            raise ValueError("tokenizer.shared: true given; with input: features only targets have a vocabulary")
        if self.tokenizer.source != TokenizerSide():
            raise ValueError("tokenizer.source: given; with input: features sources have no vocabulary")
        if isinstance(self.data.valid, HeldOutPart) and len(self.data.corpora) > 1:
            raise ValueError("data.valid: a part of data.train given; with input: features data.train must be one list")
        if self.data.terms:
            raise ValueError(f"data.terms: {self.data.terms} given; with input: features sources have no words")
        if self.data.old_share:
            wanted = "with input: features give data.train a list with weights instead"
            raise ValueError(f"data.old_share: {self.data.old_share} given; {wanted}")
        if self.texts != "auto":
            raise ValueError(f"texts: {self.texts!r} given; with input: features sources are no texts")
        width = getattr(self.model, "embedding_width", self.model.width)
        if self.features is not None and self.features.subsampling == "pyramid" and width % 2:
            raise ValueError(f"features.subsampling: 'pyramid' given; it needs an even width, not {width}")
        if self.tokenizer.sampling:
            raise ValueError(f"tokenizer.sampling: {self.tokenizer.sampling} given; with input: features it must be 0")
        if isinstance(size := self.training.tokens_per_batch, str):
            raise ValueError(
                f"training.tokens_per_batch: {size!r} given; with input: features it must be a number of frames"
            )


SOUND_DEFAULTS: dict[str, dict[str, Any]] = {
    "features": {},
    "tokenizer": {"shared": False},
    "data": {"max_length": 3000},  # frames: half a minute
    "training": {"tokens_per_batch": 4096},  # frames
}


def _over(defaults: dict[str, Any], given: Any) -> Any:
    return {**defaults, **given} if isinstance(given, dict) else given


def _ending(name: str) -> str:
    path = Path(name)
    while path.suffix in (".gz", ".txt"):
        path = path.with_suffix("")
    return path.suffix.removeprefix(".")
