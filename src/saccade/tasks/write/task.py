"""The write task: from a config to a run, to a trained language model, and to its part of the report."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console

from saccade.config.base import HeldOutPart
from saccade.data.stream import FollowingWindows, ShuffledWindows, Stream, make_stream
from saccade.data.text.corpus import find_files
from saccade.data.text.documents import read_documents, split_end
from saccade.data.text.tokenizer import (
    MOST_CHARACTERS,
    AnyTokenizer,
    load_tokenizer,
    sample_texts,
    tokenizer_file_name,
    train_tokenizer,
)
from saccade.data.text.tokenizer_choice import choose_size
from saccade.errors import UserError
from saccade.inspection.pages.samples import PageSample, render_samples
from saccade.models.recurrent_writer import RecurrentWriter
from saccade.tasks.base import DataCount, InheritedFields, Job, ReportPart, Route, Rows, Task
from saccade.tasks.console import busy, say
from saccade.tasks.devices import load_trained
from saccade.tasks.mixing import mix_old, settle_old
from saccade.tasks.vocabulary import find_grown_rows, prepare_tokenizer
from saccade.tasks.write.config import Network, WriteConfig, WriteFiles, WriteOptions
from saccade.tasks.write.measure import Penalties, score_stream, write_loss
from saccade.tasks.write.measure import Rows as ScoredRows
from saccade.tasks.write.predictor import Writer
from saccade.training.options import Loss, Plan

NUM_SAMPLES = 4
PROMPT, SHOWN = 12, 40  # tokens of a sample in the report, and of what is written
Documents = dict[str, list[str]]


def prepare(config: WriteConfig, folder: Path, console: Console) -> Job:
    """Prepare a run; all files are read first, so that a mistake shows before anything is learned."""
    _refuse_several_processes(config)
    config = settle_old(config, WriteFiles)
    documents = _read_sets(config.data)
    config, tokenizer = _settle_tokenizer(config, documents["train"], folder, console)
    documents["train"] = _mix_old(config, documents["train"], console)
    with busy(console, "encoding the texts"):
        streams = {name: make_stream(texts, tokenizer.encode, f"data.{name}") for name, texts in documents.items()}
    _say(config, tokenizer, streams, console)
    network = make_network(config, tokenizer.size)
    return Job(
        config=config,
        network=network,
        plan=make_plan(config, streams["train"]),
        loss=_loss(config, network),
        validate=partial(_validate, config, network, streams["valid"]),
        is_steady=True,
        data=[streams["train"].key],
        counts=[DataCount(f"data.{name}", stream.num_documents) for name, stream in streams.items()],
        rows=lambda base: _choose_rows(config, network, folder, base),
    )


def _loss(config: WriteConfig, network: Network) -> Loss:
    training = config.training
    penalties = Penalties(training.size_penalty, training.change_penalty)
    return partial(write_loss, network, smoothing=training.label_smoothing, penalties=penalties)


def _mix_old(config: WriteConfig, documents: list[str], console: Console) -> list[str]:
    return mix_old(config, documents, lambda data: _read_sets(data)["train"], console, what="documents", size=len)


def _choose_rows(config: WriteConfig, network: Network, folder: Path, base: Path) -> dict[str, tuple[Rows, ...] | None]:
    """Return the rows of a grown vocabulary; what an RNN carries from window to window begins anew."""
    del base
    tables = ["embedding.weight"] + ([] if config.model.tied else ["output.weight"])
    if isinstance(network, RecurrentWriter):
        tables.append("output_bias")
    state = (name for name, _ in network.named_buffers() if name.startswith("carried."))
    return {**find_grown_rows(config, _tokenizer_path(config, folder), *tables), **dict.fromkeys(state)}


def load(config: WriteConfig, folder: Path) -> Writer:
    """Load a trained run, ready to write."""
    tokenizer = load_tokenizer(_tokenizer_path(config, folder))
    network = load_trained(make_network(config, tokenizer.size), config, folder)
    return Writer(
        (network,),
        tokenizer,
        config.decoding.options(),
        _rows(config),
        config.data.documents,
        config.metric,
    )


def examine(config: WriteConfig, writer: Writer) -> ReportPart:
    """Report on a trained run, on its test set or, where there is none, the validation set."""
    name = "test" if config.data.test else "valid"
    stream = make_stream(_read_sets(config.data)[name], writer.tokenizer.encode, f"data.{name}")
    found = score_stream(writer.network, stream, writer.rows)
    scores: dict[str, float] = {config.metric: found.plain()[config.metric]}  # it is shown first
    scores |= {**found.plain(), "num_tokens": found.num_tokens}
    samples = [_sample(writer, stream, place) for place in _spread(stream, min(PROMPT, writer.most_looked_at // 2))]
    return ReportPart(name, scores, [("Samples", render_samples(samples))])


class _Place(NamedTuple):
    """A place in a stream, where a document goes on."""

    first: int
    last: int


def _spread(stream: Stream, size: int) -> list[_Place]:
    """Choose a few places with so many tokens before them, all over a stream."""
    length = len(stream.ids)
    size = min(size, length // 2)
    step = max(1, (length - size) // NUM_SAMPLES)
    return [_Place(at, at + size) for at in range(0, length - size, step)][:NUM_SAMPLES]


def _sample(writer: Writer, stream: Stream, place: _Place) -> PageSample:
    """Write on from a few tokens of a set, beside what stands there."""
    tokenizer = writer.tokenizer
    prompt = tokenizer.decode([index for index in stream.ids[place.first : place.last].tolist() if index > 2])
    reference = tokenizer.decode([index for index in stream.ids[place.last : place.last + SHOWN].tolist() if index > 2])
    is_short = writer.most_looked_at >= PROMPT + SHOWN
    (found,) = writer.predict([prompt], max_length=SHOWN, **(writer.traits.evidence if is_short else {}))
    weights = None if found.attention is None else found.attention.tolist()
    return PageSample(prompt, found.text, reference, found.score, found.read or (), found.pieces, weights)


def _refuse_several_processes(config: WriteConfig) -> None:
    """Refuse several processes: an RNN's readers go on from window to window, so one must have all of them."""
    is_team = torch.distributed.is_available() and torch.distributed.is_initialized()
    if config.model.kind == "recurrent" and is_team and torch.distributed.get_world_size() > 1:
        count = torch.distributed.get_world_size()
        raise UserError(f"model.kind: 'recurrent' given for {count} processes; its state is carried on in one")


def _read_sets(data: WriteFiles) -> Documents:
    """Read the documents of every set."""
    files: dict[str, object] = {"train": data.train, "valid": data.valid, "test": data.test}
    found = {
        name: list(read_documents(find_files(f"data.{name}", pattern), data.documents))
        for name, pattern in files.items()
        if isinstance(pattern, str)
    }
    for name, texts in found.items():
        if not texts:
            raise UserError(f"data.{name}: {files[name]} has no text; every line is blank")
    if isinstance(data.valid, HeldOutPart):
        found["train"], found["valid"] = split_end(found["train"], share=data.valid.share, count=data.valid.count)
    return {name: found[name] for name in files if name in found}


def _settle_tokenizer(
    config: WriteConfig, texts: list[str], folder: Path, console: Console
) -> tuple[WriteConfig, AnyTokenizer]:
    """Return the run's tokenizer, or learn it from the training text and store it; and the config with its size."""
    section = config.tokenizer

    def learn(lines: Iterable[str]) -> AnyTokenizer:
        chosen = sample_texts(lines, most=MOST_CHARACTERS, seed=config.seed)
        size = section.vocabulary_size
        if size == "auto":
            size = choose_size(section.kind, chosen.texts, chosen.num_seen)
        with busy(console, f"learning a vocabulary of {size:,} ({section.kind})"):
            return train_tokenizer(section.kind, chosen.texts, size, seed=config.seed)

    lines = (line for text in texts for line in text.splitlines(keepends=section.kind == "characters"))
    tokenizer = prepare_tokenizer(config, _tokenizer_path(config, folder), lines, learn, console)
    if section.vocabulary_size != "auto":
        return config, tokenizer
    settled = section.model_copy(update={"vocabulary_size": tokenizer.size})
    return config.model_copy(update={"tokenizer": settled}), tokenizer


def _tokenizer_path(config: WriteConfig, folder: Path) -> Path:
    return folder / tokenizer_file_name(config.tokenizer.kind, "tokenizer.text")


def make_network(config: WriteConfig, vocabulary: int) -> Network:
    """Make the network, initialised by the run's seed."""
    torch.manual_seed(config.seed)
    network = config.model.network(vocabulary, config.data.context)
    if isinstance(network, RecurrentWriter):
        network.carry(config.training.batch_size)
    return network


def make_plan(config: WriteConfig, stream: Stream) -> Plan:
    """Draw rows at random; of an RNN rows that follow each other."""
    kind: type[FollowingWindows | ShuffledWindows] = ShuffledWindows
    if config.model.kind == "recurrent":
        kind = FollowingWindows
    return kind(stream.ids, steps=config.data.context, batch_size=config.training.batch_size, seed=config.seed)


def _rows(config: WriteConfig) -> ScoredRows:
    return ScoredRows(config.data.context, config.data.overlap)


def _validate(config: WriteConfig, network: Network, stream: Stream) -> dict[str, float]:
    """Score the validation set; "score" is the chosen figure, higher is better."""
    found = score_stream(network, stream, _rows(config)).plain()
    figures = {f"valid_{name}": found[name] for name in dict.fromkeys([config.metric, "perplexity", "loss"])}
    return {"score": -found[config.metric], **figures}


def _say(config: WriteConfig, tokenizer: AnyTokenizer, streams: dict[str, Stream], console: Console) -> None:
    """Print how much there is, and what to know about it."""
    say(console, f"The vocabulary has {tokenizer.size:,} tokens.")
    if isinstance(config.data.valid, HeldOutPart):
        say(console, f"data.valid: the end of data.train ({config.data.valid.amount})")
    for name, stream in streams.items():
        counts = f"{len(stream.ids):,} tokens, {stream.num_words:,} words, {stream.num_characters:,} characters"
        say(console, f"data.{name}: {stream.num_documents:,} documents ({config.data.documents}): {counts}")
        if stream.num_unknown:
            share = 100 * stream.num_unknown / len(stream.ids)
            say(console, f"data.{name}: {stream.num_unknown:,} tokens ({share:.1f}%) are <unk>", style="yellow")


ROUTE = Route("Write on", options=WriteOptions, reads_whole=False, streams=True)
INHERITED = InheritedFields(
    same=("model", "tokenizer"),
    free=(
        *("model.dropout", "model.attention_dropout", "model.activation_dropout"),
        *("model.hidden_dropout", "model.vocabulary_dropout"),
        "tokenizer.grow",
    ),
    usual=("data.documents", "data.context", "decoding"),
    anew=("tokenizer.grow",),
)
WRITE = Task(WriteConfig, prepare, load, examine, ROUTE, inherited=INHERITED)
