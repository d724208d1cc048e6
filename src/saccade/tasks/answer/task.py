"""The answer task: from a config to a run, to a trained reader of stories, and to its part of the report."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch import Tensor
from torch.nn import functional as F

from saccade.config.base import HeldOutPart
from saccade.data.batches import ShuffledBatches
from saccade.data.held_out import hold_out
from saccade.data.stories import NO_ANSWER, EncodedStories, Story, StoryBatch, read_stories
from saccade.data.text.corpus import find_files
from saccade.data.text.tokenizer import AnyTokenizer, load_tokenizer, train_tokenizer
from saccade.errors import UserError
from saccade.inspection.draw.confusion import render_articles, shade_words
from saccade.models.memory_network import MemoryNetwork
from saccade.tasks.answer.config import AnswerConfig, StoryFiles
from saccade.tasks.answer.predictor import StoryReader
from saccade.tasks.answer.result import AnswerCounts, StoryAnswer
from saccade.tasks.answer.swaps import Swaps
from saccade.tasks.base import (
    DataCount,
    InheritedFields,
    Job,
    ReportPart,
    RequestOptions,
    Route,
    Rows,
    Task,
    match_rows,
)
from saccade.tasks.console import say
from saccade.tasks.devices import load_trained
from saccade.tasks.mixing import mix_old, settle_old
from saccade.tasks.tally import Tally
from saccade.tasks.texts import read_long_texts
from saccade.tasks.vocabulary import find_grown_rows, prepare_tokenizer

ANSWERS = "tokenizer.answers.json"
WORDS = "tokenizer.text.json"
NUM_SAMPLES = 8


def prepare(config: AnswerConfig, folder: Path, console: Console) -> Job:
    """Read all files, and build the network, its batches, its loss and its validation."""
    config = settle_old(config, StoryFiles)
    sets = _read_sets(config.data)
    new = sets["train"]
    sets["train"] = train = mix_old(config, new, lambda data: _read_sets(data)["train"], console, what="questions")
    answers = sorted({story.answer for story in train})
    if len(answers) < 2:
        raise UserError(f"data.train: all questions have the answer {answers[0]!r}; there must be two or more")
    tokenizer = _tokenizer(config, new, folder, console)
    network = _network(config, tokenizer, answers)
    reader = _reader(config, network, tokenizer, answers)
    encoded = {name: reader.encode(stories) for name, stories in sets.items()}
    _tell(config, sets, encoded, answers, console)
    return Job(
        config=config,
        network=network,
        plan=ShuffledBatches(
            len(train), size=config.training.batch_size, seed=config.seed, load=encoded["train"].batch
        ),
        loss=partial(answer_loss, network, change=_swaps(config, tokenizer, answers)),
        validate=lambda: _validate(reader, encoded["valid"]),
        data=[hashlib.blake2b(repr(train).encode(), digest_size=16).hexdigest()],
        stored={ANSWERS: json.dumps(answers, ensure_ascii=False)},
        unit="questions",
        counts=[DataCount(f"data.{name}", len(stories)) for name, stories in sets.items()],
        rows=lambda base: _rows(config, answers, folder, base),
    )


def _rows(config: AnswerConfig, answers: list[str], folder: Path, base: Path) -> dict[str, tuple[Rows, ...]]:
    """Return the rows of a grown vocabulary, and of the answers that the run it begins with has, too."""
    earlier = json.loads((base / ANSWERS).read_text("utf-8"))
    kept = {"output.weight": (match_rows(answers, earlier),)}
    return {**find_grown_rows(config, folder / WORDS, "embedding.weight"), **kept}


def answer_loss(
    network: MemoryNetwork, batch: StoryBatch, change: Callable[[StoryBatch], StoryBatch] | None = None
) -> tuple[Tensor, Tensor]:
    """Return the sum of -log p(answer) twice: to differentiate, and to show. What is read may be changed first."""
    batch = batch if change is None else change(batch)
    loss = F.cross_entropy(network(batch).logits_BV, batch.answer_B, reduction="sum", ignore_index=NO_ANSWER)
    return loss, loss.detach()


def load(config: AnswerConfig, folder: Path) -> StoryReader:
    """Load a trained run from its folder."""
    tokenizer, answers = load_tokenizer(folder / WORDS), json.loads((folder / ANSWERS).read_text("utf-8"))
    network = load_trained(_network(config, tokenizer, answers), config, folder)
    return _reader(config, network, tokenizer, answers)


@read_long_texts()
def examine(config: AnswerConfig, reader: StoryReader) -> ReportPart:
    """Score the test set, or the validation set, for the report, and show some stories with what was read."""
    name = "test" if config.data.test else "valid"
    stories = _read_sets(config.data)[name]
    pairs = list(zip(stories, reader.predict(stories), strict=True))
    counts = AnswerCounts.of(stories, [found for _, found in pairs])
    parts = [("Stories", _render(pairs[:: max(1, len(pairs) // NUM_SAMPLES)][:NUM_SAMPLES]))]
    if wrong := [pair for pair in pairs if pair[0].answer != pair[1].label]:
        wrong.sort(key=lambda pair: -pair[1].probability)
        parts.append(("Worst outputs: the mistakes it was most certain of", _render(wrong[:NUM_SAMPLES])))
    right = [[float(story.answer == found.label), 1.0] for story, found in pairs]
    scores = {"num_questions": len(stories), **counts.scores()}
    return ReportPart(name, scores, parts, Tally("accuracy", np.array(right)))


def _swaps(config: AnswerConfig, tokenizer: AnyTokenizer, answers: list[str]) -> Swaps | None:
    groups = config.training.swap
    return Swaps(groups, tokenizer, config.data.spelling, answers) if groups else None


def _read_sets(data: StoryFiles) -> dict[str, list[Story]]:
    files = {"train": data.train, "valid": data.valid, "test": data.test}
    found = {
        name: list(read_stories(find_files(f"data.{name}", pattern), data.places))
        for name, pattern in files.items()
        if isinstance(pattern, str)
    }
    if isinstance(data.valid, HeldOutPart):
        held = hold_out([[one] for one in found["train"]], lambda one: "\n".join(one.sentences), data.valid.amount)
        sides: tuple[list[Story], list[Story]] = ([], [])
        for story, is_held in zip(found["train"], held, strict=True):
            sides[is_held].append(story)
        found["train"], found["valid"] = sides
    return {name: found[name] for name in files if name in found}


def _tell(
    config: AnswerConfig,
    sets: dict[str, list[Story]],
    encoded: dict[str, EncodedStories],
    answers: list[str],
    console: Console,
) -> None:
    """Say how much there is, and what is cut."""
    if isinstance(config.data.valid, HeldOutPart):
        say(console, f"data.valid: {len(sets['valid']):,} questions of data.train, chosen by a hash of the story")
    for name, stories in sets.items():
        counts = Counter(story.answer for story in stories)
        most, count = counts.most_common(1)[0]
        length = sum(len(story.sentences) for story in stories) / len(stories)
        share = f"{len(counts):,} answers; the most frequent, {most}, is right for {100 * count / len(stories):.1f}%"
        say(console, f"data.{name}: {len(stories):,} questions, {length:.1f} sentences a story, {share}")
        if cut := encoded[name].num_cut:
            share = f"{cut:,} stories ({100 * cut / len(stories):.1f}%)"
            say(console, f"data.{name}: {share} are cut to data.max_sentences or data.max_length", style="yellow")
        if unknown := sorted(set(counts) - set(answers)):
            say(
                console, f"data.{name}: answers that data.train doesn't have: {', '.join(unknown[:10])}", style="yellow"
            )


def _tokenizer(config: AnswerConfig, stories: list[Story], folder: Path, console: Console) -> AnyTokenizer:
    """Return the run's vocabulary, or learn it from the training stories."""
    texts = (config.data.spelling(text) for story in stories for text in (*story.sentences, story.question))
    size = config.tokenizer.vocabulary_size
    learn = partial(train_tokenizer, "words", size=size, seed=config.seed)
    return prepare_tokenizer(config, folder / WORDS, texts, learn, console)


def _network(config: AnswerConfig, tokenizer: AnyTokenizer, answers: list[str]) -> MemoryNetwork:
    torch.manual_seed(config.seed)
    return MemoryNetwork(
        vocabulary=tokenizer.size,
        num_answers=len(answers),
        max_sentences=config.data.max_sentences,
        **config.model.model_dump(),
    )


def _reader(config: AnswerConfig, network: MemoryNetwork, tokenizer: AnyTokenizer, answers: list[str]) -> StoryReader:
    data = config.data
    return StoryReader(network, tokenizer, answers, data.spelling, data.places, data.max_sentences, data.max_length)


def _validate(reader: StoryReader, encoded: EncodedStories) -> dict[str, float]:
    right, loss = 0, 0.0
    for _, found, answer_B in reader.read_all(encoded):
        right += int((found.logits_BV.argmax(-1) == answer_B).sum())
        loss += float(F.cross_entropy(found.logits_BV, answer_B, reduction="sum", ignore_index=NO_ANSWER))
    accuracy = 100 * right / len(encoded)
    return {"score": accuracy, "valid_accuracy": accuracy, "valid_loss": loss / len(encoded)}


def _render(pairs: list[tuple[Story, StoryAnswer]]) -> str:
    return render_articles(_article(*pair) for pair in pairs)


def _article(story: Story, found: StoryAnswer) -> tuple[str, str, str, str]:
    weights = found.attention.mean(0).tolist()
    shaded = shade_words([*found.sentences, story.question], [*weights, 0.0])
    return shaded, story.answer, found.label, f"probability {found.probability:.2f}"


ROUTE = Route("Answer questions about stories", options=RequestOptions, reads_whole=False)
INHERITED = InheritedFields(
    same=("model", "tokenizer", "data.max_sentences", "data.lowercase", "data.split_punctuation"),
    free=("model.dropout", "tokenizer.grow"),
    usual=("data.max_length",),
    anew=("tokenizer.grow",),
)
ANSWER = Task(AnswerConfig, prepare, load, examine, ROUTE, inherited=INHERITED)
