"""Text, or sound, to text: its config, and from it to a network, its batches, its loss and its validation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from rich.console import Console
from sacrebleu import BLEU
from torch import Tensor

from saccade.attention.scores import LOCATIONS
from saccade.config import aligning, corpora, features, networks, sections
from saccade.config.corpora import Data
from saccade.config.devices import device_for, trained
from saccade.config.features import Features
from saccade.config.job import Examined, Job
from saccade.config.networks import Network, RnnModel, TransformerModel
from saccade.config.sections import Positive, RunSection, Section, Share, TokenizerSection, one_of
from saccade.config.validation import Judgement, Sources, Validator
from saccade.data.batches import Batch
from saccade.data.corpus import Pair
from saccade.data.frames import Recordings, Sounds
from saccade.data.store import Store
from saccade.data.tokenizer import SentencePiece, Vocabulary
from saccade.decoding import BeamOptions
from saccade.inspection import report
from saccade.inspection.samples import Sample, articles
from saccade.layers.subsampling import FACTOR, Listener
from saccade.tasks import bleu, hearing
from saccade.tasks.translate import Translator
from saccade.training.auto_batch import largest_fitting
from saccade.training.losses import sequence_loss

NUM_SAMPLES = 6
Sides = tuple[SentencePiece | Vocabulary | Sounds, SentencePiece | Vocabulary]


class Training(sections.Training):
    """How a text-to-text model learns."""

    tokens_per_batch: Positive | Literal["auto"] = Field(
        default=4096, description="Padded size of a batch on either side; auto: the largest that fits the memory."
    )
    label_smoothing: Share = 0.1
    consistency: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=0.0,
        description="Each batch is read twice under other dropout, and so much of the answers' disagreement joins the "
        "loss (R-Drop, Wu 2021; 5 there). It makes small corpora go further, for twice the work.",
    )
    metric: Literal["bleu", "chrf", "wer", "loss"] = Field(
        default="bleu", description="What the best model is best at; wer is the word error rate."
    )
    bleu_tokenize: Annotated[str, one_of(BLEU.TOKENIZERS)] = Field(
        default="13a", description="sacreBLEU's tokenizer; none for text that is tokenised."
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


LanguageCode = Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})?$")]


class Languages(Section):
    """Which languages a run translates between, as codes (en, fr, zh-Hans): `saccade serve` tells clients."""

    source: LanguageCode
    target: LanguageCode


class Config(RunSection):
    """A whole run, one YAML file."""

    task: Literal["translate"] = "translate"
    languages: Languages | None = Field(default=None, description="What is translated into what, for a server.")
    input: Literal["text", "features"] = Field(
        default="text", description="What sources are: texts, or lists of WAV files, read as frames of sound."
    )
    data: Data
    features: Features | None = Field(default=None, description="With input: features. How sound is read.")
    tokenizer: TokenizerSection = TokenizerSection()
    model: Annotated[TransformerModel | RnnModel, Field(discriminator="kind")] = TransformerModel()
    training: Training = Training()
    decoding: Decoding = Decoding()

    @model_validator(mode="before")
    @classmethod
    def _default_kind(cls, given: object) -> object:
        """A model that doesn't say its kind is a Transformer; sound has its own defaults."""
        if not isinstance(given, dict):
            return given
        filled = dict(SOUND_DEFAULTS) if given.get("input") == "features" else {}
        if isinstance(given.get("model"), dict):
            filled["model"] = {"kind": "transformer"}
        return {**given, **{name: _over(section, given.get(name, {})) for name, section in filled.items()}}

    @model_validator(mode="after")
    def _check(self) -> Config:
        if self.model.tied == "three" and not self.tokenizer.shared:
            raise ValueError("model.tied: 'three' given; it needs one vocabulary (tokenizer.shared: true)")
        most = LOCATIONS * FACTOR if self.features else LOCATIONS
        if self.model.score == "location" and self.data.max_length >= most:
            wanted = f"the location score has a row for each of {LOCATIONS} positions, so it must be below {most}"
            raise ValueError(f"data.max_length: {self.data.max_length} given; {wanted}")
        self._check_sound()
        return self

    def _check_sound(self) -> None:
        if self.input == "text":
            if self.features is not None:
                raise ValueError("features: given, but it has no effect with input: text")
            return
        if self.tokenizer.shared:
            raise ValueError("tokenizer.shared: true given; with input: features only targets have a vocabulary")
        width = getattr(self.model, "embedding_width", self.model.width)
        if self.features is not None and self.features.subsampling == "pyramid" and width % 2:
            raise ValueError(f"features.subsampling: 'pyramid' given; it needs an even width, not {width}")
        if self.tokenizer.sampling:
            raise ValueError(f"tokenizer.sampling: {self.tokenizer.sampling} given; with input: features it must be 0")
        if self.training.tokens_per_batch == "auto":
            raise ValueError(
                "training.tokens_per_batch: 'auto' given; with input: features it must be a number of frames"
            )


SOUND_DEFAULTS: dict[str, dict[str, Any]] = {
    "features": {},
    "tokenizer": {"shared": False},
    "data": {"max_length": 3000},  # frames: half a minute
}


def _over(defaults: dict[str, Any], given: Any) -> Any:
    return {**defaults, **given} if isinstance(given, dict) else given


def prepare(config: Config, folder: Path, console: Console) -> Job:
    """Everything a run needs; held-out text is read first, so that a mistake in it shows before anything is learned."""
    held_out = corpora.held_out(config.data)
    if config.features is not None:
        for held in held_out:
            features.files_of(*held)
    both, root = sides(config, folder, console), folder.parent / ".data"
    stores, recordings = _stores(config, both, root, console)
    corpora.say(config.data, stores[: len(config.data.corpora)], held_out, console)
    network = model(config, both)
    config = _with_batches_that_fit(config, network, stores, console)
    return Job(
        config=config,
        network=network,
        plan=corpora.plan(config.data, stores, int(config.training.tokens_per_batch), config.seed, recordings),
        loss=lambda batch: loss(config, network, batch),
        validate=_validator(config, translator(config, network, both), held_out[0], root, console).measure,
        data=[store.key for store in stores],
    )


def _validator(config: Config, whole: Translator, valid: corpora.HeldOut, root: Path, console: Console) -> Validator:
    training = config.training
    judgement = Judgement(training.metric, training.bleu_tokenize, config.features is not None)
    if isinstance(whole.source, Sounds):
        stored = features.recordings(valid.corpus, whole.source.mel, root, console)
        whole, sources = replace(whole, source=replace(whole.source, stored=stored)), Sources.of_sound(stored)
    else:
        sources = Sources.of_text(whole.source)
    return Validator(valid.pairs, whole, sources, judgement, max_length=config.data.max_length)


def _stores(config: Config, both: Sides, root: Path, console: Console) -> tuple[list[Store], list[Recordings]]:
    source, target = both
    if isinstance(source, Sounds):
        return features.stores(config, source.mel, target, root, console)
    return corpora.stores(config, (source, target), root, console), []


def load(config: Config, folder: Path) -> Translator:
    """A trained run, ready to predict."""
    both = sides(config, folder)
    found = translator(config, trained(model(config, both), config, folder), both)
    return replace(found, aligning=aligning.load(folder))


def sides(config: Config, folder: Path, console: Console = corpora.QUIET) -> Sides:
    """What reads the sources, and the targets' tokenizer."""
    if config.features is None:
        return corpora.tokenizers(config, folder, console)
    return Sounds(config.features.mel, FACTOR), corpora.target_tokenizer(config, folder, console)


def model(config: Config, both: Sides) -> Network:
    """The network, initialised by the run's seed."""
    torch.manual_seed(config.seed)
    tied = config.model.tied or ("three" if config.tokenizer.shared else "two")
    common = {
        "source": both[0].size if not isinstance(both[0], Sounds) else _listener(config),
        "target_vocabulary": both[1].size,
        "share_embeddings": tied == "three",
        "share_output": tied != "none",
    }
    if isinstance(config.model, RnnModel):
        return networks.rnn(config.model, common)
    return networks.transformer(config.model, common, 4 * config.data.max_length)


def _listener(config: Config) -> Listener:
    assert config.features is not None
    width = config.model.embedding_width if isinstance(config.model, RnnModel) else config.model.width
    return config.features.listener(width, config.model.dropout)


def translator(config: Config, network: Network, both: Sides) -> Translator:
    """A network as it is used."""
    options, longest = config.decoding.options(), config.decoding.max_source_length
    if getattr(config.model, "positions", None) == "learned":  # there is none after the last
        options = replace(options, max_length=min(options.max_length, 4 * config.data.max_length))
        longest = min(longest, 4 * config.data.max_length - 1)
    if config.model.score == "location":
        options = replace(options, max_length=min(options.max_length, LOCATIONS))
        longest = LOCATIONS * (FACTOR if config.features else 1) - 1
    return Translator(network.eval(), *both, options, config.decoding.tokens_per_batch, longest)


def loss(config: Config, network: Network, batch: Batch) -> tuple[Tensor, Tensor]:
    """As a run trains it."""
    training = config.training
    return sequence_loss(network, batch, smoothing=training.label_smoothing, consistency=training.consistency)


def _with_batches_that_fit(config: Config, network: Network, stores: list[Store], console: Console) -> Config:
    """The config with the size of a batch, where it is to be found here."""
    sides = [side.lengths for store in stores for side in (store.source, store.target) if len(side)]
    if config.training.tokens_per_batch != "auto" or not sides:
        return config
    device = device_for(config)
    network.to(device).train()

    def step(batch: Batch) -> None:
        loss(config, network, batch.to(device))[0].backward()
        network.zero_grad(set_to_none=True)

    longest = max(int(lengths.max()) for lengths in sides) + 1
    tokens = largest_fitting(step, longest=longest, device=device)
    console.print(f"tokens_per_batch: {tokens:,} fit into the memory here")
    training = config.training.model_copy(update={"tokens_per_batch": tokens})
    return config.model_copy(update={"training": training})


class Outputs(NamedTuple):
    """A model's outputs for a set, scored."""

    name: str
    pairs: list[Pair]
    texts: list[str]
    scores: bleu.Scores
    by_length: list[bleu.LengthScores]


def outputs(config: Config, translator: Translator) -> Outputs:
    """The scores of a model on its test set, or on the validation set where there is none."""
    name = "test" if config.data.test else "valid"
    pairs = [pair for pair in translator.pairs(corpora.corpus(config.data.test or config.data.valid)) if all(pair)]
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    written = [found.text for found in translator.predict(sources)]
    tokenize = config.training.bleu_tokenize
    scores = bleu.scored(written, references, tokenize=tokenize)
    return Outputs(name, pairs, written, scores, bleu.by_length(sources, written, references, tokenize=tokenize))


def examine(config: Config, translator: Translator) -> Examined:
    """What the report shows of a trained run."""
    found = outputs(config, translator)
    scores = {**found.scores._asdict(), "num_pairs": len(found.pairs)}
    if config.features is not None:
        heard = hearing.examined(translator, found.pairs, found.texts)
        return Examined(found.name, {**scores, **heard.scores}, heard.sections)
    has_attention = getattr(config.model, "attention", "") != "none"
    lengths = [(part.label, part.num_pairs, part.bleu) for part in found.by_length]
    samples = articles([_sample(translator, pair, has_attention=has_attention) for pair in _spread(found.pairs)])
    return Examined(found.name, scores, [("By length", report.by_length(lengths)), ("Samples", samples)])


def _spread(pairs: list[Pair]) -> list[Pair]:
    """A few pairs of different lengths, from short to long."""
    ranked = sorted(pairs, key=lambda pair: len(pair.source.split()))
    count = min(NUM_SAMPLES, len(ranked))
    return [ranked[(2 * rank + 1) * len(ranked) // (2 * count)] for rank in range(count)]


def _sample(translator: Translator, pair: Pair, *, has_attention: bool) -> Sample:
    (found,) = translator.predict([pair.source], attention=has_attention)
    weights = None if found.attention is None else found.attention.tolist()
    return Sample(pair.source, found.text, pair.target, found.score, found.source_pieces or (), found.pieces, weights)
