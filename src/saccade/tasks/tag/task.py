"""Tags: the config of a run, and from it to a network, its batches, its loss and its validation."""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import torch
from markupsafe import Markup, escape
from pydantic import Field, model_validator
from rich.console import Console

from saccade.config import base
from saccade.config.base import Positive, RunSection, Section, with_kind
from saccade.data.batches import ShuffledBatches
from saccade.data.tags.columns import TagColumns, TaggedSentence
from saccade.data.tags.lexicon import Lexicon, normalize_word
from saccade.data.tags.spans import find_spans
from saccade.data.tags.tagged import RepairedSentences, detect_file_scheme, read_tagged, repair_files, tag_set
from saccade.data.text.corpus import find_files
from saccade.data.text.tokenizer import SPECIAL
from saccade.data.text.vectors import Vectors, read_vectors
from saccade.errors import UserError
from saccade.inspection.pages.render import render_table
from saccade.models.tagger import TagNetwork
from saccade.tasks import console as watch
from saccade.tasks.base import Job, ReportPart, RequestOptions, Route, Task
from saccade.tasks.devices import trained
from saccade.tasks.tag import networks
from saccade.tasks.tag.networks import RecurrentTagger, TransformerTagger
from saccade.tasks.tag.predictor import Tagged, Tagger, collate, evaluation, loss_of

LEXICON = "tokenizer.words.json"
NUM_MISTAKES = 30


class TagData(Section):
    """Where tagged sentences come from: CoNLL columns, a token a line, a blank line between sentences."""

    train: str = Field(description="What it learns from: a file (plain or .gz), a folder or a glob.")
    valid: str = Field(description="What validation tags and scores; the best model on it is kept.")
    test: str | None = Field(default=None, description="What is scored at the end; never trained on.")
    word_column: int = Field(default=0, description="Which column holds the word, from 0; -1 is the last.")
    tag_column: int = Field(default=-1, description="Which column holds the tag.")
    scheme: Literal["auto", "bio", "iob1", "bioes", "none"] = Field(
        default="auto", description="How the files' tags spell spans; none: they don't (parts of speech)."
    )

    @property
    def sets(self) -> dict[str, str]:
        """The files under the names that messages use."""
        given = {"data.train": self.train, "data.valid": self.valid, "data.test": self.test}
        return {name: pattern for name, pattern in given.items() if pattern is not None}


class TagTraining(base.TrainingSection):
    """How a tagger learns."""

    batch_size: Positive = Field(default=32, description="Sentences a batch; documents, if the model reads them.")
    metric: Literal["auto", "f1", "accuracy", "loss"] = Field(
        default="auto",
        description="What the best model is best at; auto: F1 of spans, or accuracy where there are none.",
    )


class TagConfig(RunSection):
    """A whole run, one YAML file."""

    task: Literal["tag"]
    data: TagData
    model: Annotated[RecurrentTagger | TransformerTagger, Field(discriminator="kind")] = RecurrentTagger()
    training: TagTraining = TagTraining()

    @model_validator(mode="before")
    @classmethod
    def _default_kind(cls, given: object) -> object:
        """A model that doesn't say its kind is recurrent."""
        return with_kind(given, "model", "recurrent")

    @model_validator(mode="after")
    def _check(self) -> TagConfig:
        section = self.model
        if section.reads_documents and section.width % section.num_heads:
            raise ValueError(f"model.num_heads: {section.num_heads} given; it must divide the width, {section.width}")
        if self.data.scheme == "none" and self.training.metric == "f1":
            raise ValueError("training.metric: 'f1' given; without spans (data.scheme: none) there is none")
        return self


def prepare(config: TagConfig, folder: Path, console: Console) -> Job:
    """Everything a run needs; all files are read first, so that a mistake shows before anything is learned."""
    del folder
    section = config.model
    sets = _sets(config)
    _say(config, sets, console)
    train, valid = sets.checked["data.train"], sets.checked["data.valid"]
    vectors = None if section.vectors is None else _vectors(config, console)
    lexicon = Lexicon.learn(
        train.sentences,
        tag_set(train.sentences, sets.spelling),
        spelling=sets.spelling,
        min_count=section.min_count,
    )
    if vectors is not None:
        lexicon = lexicon.with_words(vectors.words)
    torch.manual_seed(config.seed)
    network = networks.network(section, lexicon)
    network.features.unknown_share_V = networks.unknown_share(section.word_dropout, lexicon, train.sentences)
    if vectors is not None:
        _put(vectors, network, lexicon)
    tagger = Tagger(network, lexicon)
    rows = list(tagger.read_together(train.sentences))
    return Job(
        network=network,
        plan=ShuffledBatches(
            len(rows),
            size=config.training.batch_size,
            seed=config.seed,
            load=lambda chosen: collate(lexicon, [rows[row] for row in chosen]),
        ),
        loss=partial(loss_of, network),
        validate=_Validator(config, tagger, valid).measure,
        data=_hashes(config),
        stored={LEXICON: lexicon.to_json()},
    )


def load(config: TagConfig, folder: Path) -> Tagger:
    """A trained run, ready to predict."""
    lexicon = Lexicon.load(folder / LEXICON)
    return Tagger(trained(networks.network(config.model, lexicon), config, folder), lexicon, _columns(config))


def examine(config: TagConfig, tagger: Tagger) -> ReportPart:
    """What the report shows of a trained run, on its test set or, where there is none, the validation set."""
    name = "test" if config.data.test else "valid"
    files = read_tagged(f"data.{name}", config.data.test or config.data.valid, _columns(config))
    gold = [sentence for file in files for sentence in file.sentences]
    found, has_spans = tagger.predict(gold), tagger.lexicon.spelling is not None
    scores = evaluation([one.tags for one in gold], [one.tags for one in found], has_spans=has_spans).scores
    mark = _spans_marked if has_spans else _tags_marked
    marked = [(mark(one), mark(other)) for one, other in zip(gold, found, strict=True)]
    wrong = [pair for pair in marked if pair[0] != pair[1]]
    some = wrong[:: max(1, len(wrong) // NUM_MISTAKES)][:NUM_MISTAKES]
    caption = f"Some of the {len(wrong):,} sentences of {len(gold):,} that it gets wrong"
    return ReportPart(name, scores, [("Mistakes", render_table(caption, ["It should be", "It found"], some))])


class _Sets(NamedTuple):
    """What was read, by the name of its field; how the files and how the model spell spans."""

    checked: dict[str, RepairedSentences]
    scheme: str | None
    spelling: str | None


def _sets(config: TagConfig) -> _Sets:
    files = {name: read_tagged(name, pattern, _columns(config)) for name, pattern in config.data.sets.items()}
    given = config.data.scheme
    scheme = detect_file_scheme(files["data.train"]) if given == "auto" else None if given == "none" else given
    spelling = None if scheme is None else config.model.spelling
    sets = _Sets(
        {name: repair_files(part, scheme, config.model.spelling) for name, part in files.items()}, scheme, spelling
    )
    train = sets.checked["data.train"].sentences
    if config.model.reads_documents and len({one.document for one in train}) == len(train):
        raise UserError(
            "model.reads_documents: true given, but no document of data.train has two sentences (-DOCSTART-)"
        )
    if scheme is None and config.training.metric == "f1":
        raise UserError(
            "training.metric: 'f1' given, but the tags of data.train spell no spans; allowed: accuracy, loss"
        )
    return sets


def _say(config: TagConfig, sets: _Sets, console: Console) -> None:
    """How much there is, and what had to be repaired."""
    for name, part in sets.checked.items():
        tokens = sum(len(one.words) for one in part.sentences)
        line = f"{name}: {len(part.sentences):,} sentences"
        if config.model.reads_documents:
            line += f" in {len({one.document for one in part.sentences}):,} documents"
        line += f", {tokens:,} tokens"
        if sets.scheme is not None:
            kinds = Counter(span.kind for one in part.sentences for span in find_spans(one.tags))
            counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
            line += f", {kinds.total():,} spans ({counts}), {sets.scheme}"
        watch.say(console, line)
        if part.num_repaired:
            what = (
                f"tags that break the scheme were repaired: {part.num_repaired:,}, the first at {part.first_repaired}"
            )
            watch.say(console, f"{name}: {what}", style="yellow")


def _vectors(config: TagConfig, console: Console) -> Vectors:
    path, *more = find_files("model.vectors", str(config.model.vectors))
    if more:
        raise UserError(f"model.vectors: {config.model.vectors} stands for {1 + len(more)} files; there must be one")
    with watch.busy(console, f"reading {path}"):
        found = read_vectors(path, most=config.model.max_vectors)
    width = found.table_VD.shape[1]
    if width != config.model.word_width:
        raise UserError(
            f"model.word_width: {config.model.word_width} given; the vectors in {path} have {width} numbers"
        )
    repeated = f" ({found.num_repeated:,} more are of words that came before)" if found.num_repeated else ""
    watch.say(console, f"{path}: {len(found.words):,} vectors of {width} numbers{repeated}")
    return found


@torch.no_grad()
def _put(vectors: Vectors, network: TagNetwork, lexicon: Lexicon) -> None:
    """Vectors into their words' rows; where several fold into one word, its own spelling's, or the first."""
    rows = {symbol: row for row, symbol in enumerate(lexicon.words.symbols) if row >= len(SPECIAL)}
    chosen: dict[int, int] = {}
    for at, word in enumerate(vectors.words):
        row = rows.get(normalize_word(word))
        if row is not None and (row not in chosen or normalize_word(word) == word):
            chosen[row] = at
    table_VD = torch.from_numpy(vectors.table_VD)
    network.features.word.weight[list(chosen)] = table_VD[list(chosen.values())]


def _hashes(config: TagConfig) -> list[str]:
    """Of the files it learns from."""
    fields = {"data.train": config.data.train, "model.vectors": config.model.vectors}
    paths = [path for field, pattern in fields.items() if pattern is not None for path in find_files(field, pattern)]
    return [hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest() for path in paths]


class _Validator:
    """Validation by tagging, and the loss of the tags that the model knows."""

    def __init__(self, config: TagConfig, tagger: Tagger, valid: RepairedSentences) -> None:
        self.tagger, self.sentences, self.metric = tagger, valid.sentences, config.training.metric
        known = set(tagger.lexicon.tags)
        usable = [one for one in valid.sentences if known.issuperset(one.tags)]
        if not usable:
            raise UserError("data.valid: every sentence has a tag that is not in data.train")
        groups = list(tagger.read_together(usable))
        size = config.training.batch_size
        self.batches = [collate(tagger.lexicon, groups[start : start + size]) for start in range(0, len(groups), size)]

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """F1, precision and recall of spans, accuracy, and the loss; "score" is the chosen one, higher is better."""
        network, has_spans = self.tagger.network, self.tagger.lexicon.spelling is not None
        device = next(network.parameters()).device
        loss = sum(float(loss_of(network, batch.to(device))[1]) for batch in self.batches)
        mean = loss / sum(batch.num_items for batch in self.batches)
        found = [one.tags for one in self.tagger.stream(self.sentences)]
        scores = evaluation([one.tags for one in self.sentences], found, has_spans=has_spans).scores
        names = ("f1", "precision", "recall", "accuracy") if has_spans else ("accuracy",)
        metric = names[0] if self.metric == "auto" else self.metric
        score = -mean if metric == "loss" else scores[metric]
        return {"score": score, **{f"valid_{name}": scores[name] for name in names}, "valid_loss": mean}


def _columns(config: TagConfig) -> TagColumns:
    return TagColumns(config.data.word_column, config.data.tag_column)


def _spans_marked(one: TaggedSentence | Tagged) -> Markup:
    """The sentence with its spans in brackets."""
    words = [escape(word) for word in one.words]
    for kind, first, last in find_spans(one.tags):
        words[first] = Markup("<b>[{}").format(words[first])
        words[last] += Markup("]</b><small>{}</small>").format(kind)
    return Markup(" ").join(words)


def _tags_marked(one: TaggedSentence | Tagged) -> Markup:
    """Each word with its tag."""
    marked = Markup("{}<small>/{}</small>")
    return Markup(" ").join(marked.format(word, tag) for word, tag in zip(one.words, one.tags, strict=True))


class TagOptions(RequestOptions):
    """What a request to a server may ask for; words stand between white space."""

    probabilities: bool = Field(default=False, description="The probabilities of every tag.")


TAG = Task(TagConfig, prepare, load, examine, Route("Tag words", options=TagOptions))
