"""A number for each text, from the mean of its word vectors: a complete task (see CONTRIBUTING.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

import torch
from pydantic import Field
from rich.console import Console
from torch import Tensor, nn

from saccade.config.base import Positive, RunSection, Section, TrainingSection
from saccade.data.batches import ShuffledBatches
from saccade.data.text.corpus import read_lines
from saccade.errors import UserError
from saccade.tasks.base import Evaluation, Job, Predictor, ReportPart, Result, Task, Traits, Watch, pass_on, several
from saccade.tasks.devices import load_trained

WORDS = "words.json"  # the file in a run folder that holds the vocabulary


# 1. The config: what a YAML file may say.


class RateData(Section):
    """Files with a number, a space and a text on each line."""

    train: str = Field(description="The file to learn from.")
    valid: str = Field(description="The file that chooses the best model.")


class RateModel(Section):
    """The size of the network."""

    width: Positive = Field(default=32, description="The width of the word vectors.")


class RateTraining(TrainingSection):
    """How the network learns."""

    batch_size: Positive = Field(default=32, description="Texts in a batch.")


class RateConfig(RunSection):
    """A whole run, one YAML file."""

    task: Literal["rate"]
    data: RateData
    model: RateModel = RateModel()
    training: RateTraining = RateTraining()


# 2. The data: files, and batches of tensors.


class RatedText(NamedTuple):
    """A line of a file."""

    text: str
    number: float


def read_rated(path: str) -> list[RatedText]:
    """Read a file of rated texts; a wrong line is refused with its number."""
    found = []
    for at, line in enumerate(read_lines(Path(path)), 1):
        number, _, text = line.partition(" ")
        try:
            found.append(RatedText(text, float(number)))
        except ValueError:
            raise UserError(f"{path}, line {at}: {number!r} given; a line is a number, a space, a text") from None
    return found


class TextBatch(NamedTuple):
    """The words of B texts one after the other, where each text starts, and its number."""

    word_N: Tensor
    start_B: Tensor
    number_B: Tensor

    @property
    def num_items(self) -> int:
        return len(self.start_B)

    def to(self, device: torch.device) -> TextBatch:
        return TextBatch(*(tensor.to(device) for tensor in self))


# 3. The network, its batches and its loss.


@final
class RateNetwork(nn.Module):
    """The mean of word vectors, and a linear layer."""

    def __init__(self, words: Sequence[str], width: int) -> None:
        super().__init__()
        self.rows = {word: row for row, word in enumerate(words)}
        self.embedding = nn.EmbeddingBag(len(words), width)
        self.output = nn.Linear(width, 1)

    def collate(self, rated: Sequence[RatedText]) -> TextBatch:
        """Make a batch of some texts; words that the training text didn't have are left out."""
        texts = [[self.rows[word] for word in one.text.split() if word in self.rows] for one in rated]
        words = torch.tensor([row for text in texts for row in text], dtype=torch.long)
        lengths = torch.tensor([0, *map(len, texts)])
        return TextBatch(words, lengths.cumsum(0)[:-1], torch.tensor([one.number for one in rated]))

    def forward(self, batch: TextBatch) -> Tensor:
        mean_BD = self.embedding(batch.word_N, batch.start_B)
        number_B: Tensor = self.output(mean_BD).squeeze(-1)
        return number_B


def loss(network: RateNetwork, batch: TextBatch) -> tuple[Tensor, Tensor]:
    """Return the sum of squared errors twice: to differentiate, and to show."""
    error = (network(batch) - batch.number_B).square().sum()
    return error, error.detach()


# 4. The predictor: a trained network in use.


@dataclass(frozen=True)
class Rating(Result):
    """The number of one text."""

    number: float

    def line(self) -> str:
        return f"{self.number:.3f}"

    def plain(self) -> dict[str, Any]:
        return {"number": self.number}


@final
@dataclass(frozen=True)
class Rater(Predictor):
    """A trained network, ready to rate texts."""

    network: RateNetwork

    @property
    def traits(self) -> Traits:
        return Traits("rate")

    @torch.no_grad()
    def stream(self, inputs: Iterable[str], /) -> Iterator[Rating]:
        device = next(self.network.parameters()).device
        for text in several(inputs):
            batch = self.network.collate([RatedText(text, 0.0)])
            yield Rating(self.network(batch.to(device)).item())

    def evaluate(self, paths: Sequence[Path], /, *, watch: Watch = pass_on) -> Evaluation:
        gold = [one for path in paths for one in read_rated(str(path))]
        found = watch(self.stream(one.text for one in gold), len(gold))
        error = sum((one.number - other.number) ** 2 for one, other in zip(found, gold, strict=True)) / len(gold)
        return Evaluation({"error": error}, [f"mean squared error {error:.3f} on {len(gold):,} texts"])


# 5. The task: from a config to a run, to a trained model, and to its part of the report.


def prepare(config: RateConfig, folder: Path, console: Console) -> Job:
    """Read the files, and build the network, its batches, its loss and its validation."""
    del folder, console
    train = read_rated(config.data.train)
    words = sorted({word for one in train for word in one.text.split()})
    torch.manual_seed(config.seed)
    network = RateNetwork(words, config.model.width)

    def validate() -> dict[str, float]:
        error = Rater(network).evaluate([Path(config.data.valid)]).scores["error"]
        return {"score": -error, "valid_error": error}  # the model with the highest score is kept

    return Job(
        network=network,
        plan=ShuffledBatches(
            len(train),
            size=config.training.batch_size,
            seed=config.seed,
            load=lambda rows: network.collate([train[row] for row in rows]),
        ),
        loss=partial(loss, network),
        validate=validate,
        data=[hashlib.sha256(Path(config.data.train).read_bytes()).hexdigest()],
        stored={WORDS: json.dumps(words)},
        unit="texts",
    )


def load(config: RateConfig, folder: Path) -> Rater:
    """Load a trained run."""
    words = json.loads((folder / WORDS).read_text("utf-8"))
    return Rater(load_trained(RateNetwork(words, config.model.width), config, folder))


def examine(config: RateConfig, rater: Rater) -> ReportPart:
    """Score the model for the report."""
    return ReportPart("valid", rater.evaluate([Path(config.data.valid)]).scores)


RATE = Task(RateConfig, prepare, load, examine)
