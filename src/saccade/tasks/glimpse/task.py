"""Glimpses: the config of a Recurrent Attention Model, and from it to a network, its pictures and its loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from markupsafe import Markup
from pydantic import Field, model_validator
from rich.console import Console
from torch import Tensor

from saccade.config import base
from saccade.config.base import Positive, RunSection, Section, Share
from saccade.data.batches import ShuffledBatches
from saccade.data.pictures.canvases import Canvases
from saccade.data.pictures.images import Images, read_images
from saccade.errors import UserError
from saccade.inspection.draw import path
from saccade.inspection.pages.render import render_picture, render_table
from saccade.models.glimpse_network import GlimpseNetwork
from saccade.tasks import console as watch
from saccade.tasks.base import Job, ReportPart, Route, Task
from saccade.tasks.devices import device_for, trained
from saccade.tasks.glimpse.loss import Annealed, HybridLoss
from saccade.tasks.glimpse.predictor import FIXED_SEED, Glimpser, same_names

STORED = "pictures.json"
NUM_SAMPLES = 8
AtLeastZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
AboveZero = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class GlimpseFiles(Section):
    """Two idx files, one NPZ file, or a folder with a folder of pictures for each class."""

    images: str = Field(description="An idx file (plain or .gz), an .npz with images and labels, or a folder.")
    labels: str | None = Field(default=None, description="The idx file of the classes; none with .npz or a folder.")


class GlimpseData(Section):
    """Where pictures come from, and what is made of them."""

    train: GlimpseFiles
    valid: GlimpseFiles | None = Field(default=None, description="What the best model is chosen on; or see hold_out.")
    test: GlimpseFiles | None = Field(default=None, description="What is scored at the end; never trained on.")
    hold_out: Positive | None = Field(
        default=None, description="Without valid: so many pictures of train, drawn once, are kept for validation."
    )
    channels: Literal[1, 3] = Field(default=1, description="1: grey, 3: colours.")
    resize: Positive | None = Field(default=None, description="Pictures of a folder are made squares of this side.")
    canvas: Positive | None = Field(
        default=None, description="Pictures lie anywhere on a black square of this side; none: as they are."
    )
    clutter: Annotated[int, Field(ge=0)] = Field(default=0, description="Pieces of other pictures on each canvas.")
    piece: Positive = Field(default=8, description="The side of such a piece, in pixels.")
    jitter: Share = Field(
        default=0.0, description="Training pictures are turned, stretched, slanted and moved by up to this share."
    )

    @model_validator(mode="after")
    def _check(self) -> GlimpseData:
        if (self.valid is None) == (self.hold_out is None):
            raise ValueError("valid or hold_out: exactly one of them must say what to validate on")
        if not self.clutter and self.piece != 8:
            raise ValueError(f"piece: {self.piece} given; it has no effect without clutter")
        return self

    def canvases(self) -> Canvases:
        """As pictures are drawn for training."""
        return Canvases(self.canvas, self.clutter, self.piece, self.jitter)


class GlimpseModel(Section):
    """The parts of the Recurrent Attention Model (Mnih 2014); the defaults are the paper's for MNIST."""

    patch: Positive = Field(default=8, description="The side of a glimpse's finest patch, in pixels.")
    num_scales: Annotated[int, Field(ge=1, le=8)] = Field(default=1, description="Patches, each twice as wide.")
    num_glimpses: Positive = 6
    glimpse_network: Literal["linear", "convolution"] = "linear"
    glimpse_channels: Positive = Field(default=32, description="Of the first of three convolutions; the last has 4x.")
    glimpse_width: Positive = 256
    core: Literal["rnn", "gru", "lstm"] = Field(default="rnn", description="rnn: rectified units.")
    width: Positive = 256
    dropout: Share = Field(default=0.0, description="Of the state that the answer is read from.")
    first_location: Literal["middle", "random"] = "random"
    policy_reaches_core: bool = Field(
        default=False, description="REINFORCE trains the core and the glimpse network too, not the location's alone."
    )

    @model_validator(mode="after")
    def _check(self) -> GlimpseModel:
        if self.glimpse_network == "linear" and self.glimpse_channels != 32:
            raise ValueError(f"glimpse_channels: {self.glimpse_channels} given; a linear glimpse network has none")
        return self


class GlimpseTraining(base.TrainingSection):
    """How a glimpse network learns."""

    batch_size: Positive = Field(default=128, description="Pictures in a batch.")
    copies: Positive = Field(default=1, description="Ways of looking at each picture of a batch.")
    reward: Literal["right", "probability"] = Field(
        default="right", description="1 for a right answer; or the right answer's probability, which varies less."
    )
    discount: Annotated[float, Field(ge=0, le=1)] = Field(
        default=1.0,
        description="1: only the last answer is rewarded. Below: earlier ones too, to the look before them.",
    )
    policy_weight: AtLeastZero = Field(default=1.0, description="Of REINFORCE beside the cross-entropy.")
    early_weight: AtLeastZero = Field(default=0.0, description="Of the answers after earlier glimpses than the last.")
    first_std: AboveZero | None = Field(default=None, description="std at the beginning. Default: the same as std.")
    std: AboveZero = Field(default=0.1, description="How far locations are drawn from their mean; the image is -1..1.")
    std_steps: Annotated[int, Field(ge=0)] = Field(default=0, description="Steps until first_std has become std.")
    metric: Literal["accuracy", "loss"] = Field(default="accuracy", description="What the best model is best at.")

    @model_validator(mode="after")
    def _check(self) -> GlimpseTraining:
        if (self.first_std is None) != (self.std_steps == 0):
            raise ValueError("first_std and std_steps: both are given, or none")
        return self


class GlimpseDecoding(Section):
    """How a trained network looks."""

    samples: Positive = Field(default=8, description="Paths whose probabilities are averaged; 1: the likeliest path.")
    batch_size: Positive = Field(default=500, description="Pictures that are looked at together.")


class GlimpseConfig(RunSection):
    """A whole run, one YAML file."""

    task: Literal["glimpse"]
    data: GlimpseData
    model: GlimpseModel = GlimpseModel()
    training: GlimpseTraining = GlimpseTraining()
    decoding: GlimpseDecoding = GlimpseDecoding()


def prepare(config: GlimpseConfig, folder: Path, console: Console) -> Job:
    """Everything a run needs. The pictures lie on the device; a batch is only their rows."""
    del folder
    sets, device = _sets(config), device_for(config)
    train = sets["train"]
    pixel_NCYX = torch.tensor(train.pixel_NCYX)
    config.data.canvases().check(pixel_NCYX)
    watch.say(console, ", ".join(f"{name}: {len(images):,} pictures" for name, images in sets.items()))
    watch.say(console, f"{len(train.names)} classes: {', '.join(train.names[:20])}")
    torch.manual_seed(config.seed)
    network = _network(config, len(train.names)).to(device)
    viewer = _glimpser(config, network, train.names, train.pixel_NCYX.shape[-2:])
    valid = sets["valid"]
    return Job(
        network=network,
        plan=_plan(config, len(train)),
        loss=_loss(config, network, pixel_NCYX.to(device), torch.tensor(train.label_N).to(device)),
        validate=_validator(config, viewer, viewer.fixed(valid).to(device), torch.tensor(valid.label_N).to(device)),
        data=[images.key() for name, images in sets.items() if name != "test"],
        stored={STORED: json.dumps({"names": train.names, "shape": train.pixel_NCYX.shape[-2:]}, ensure_ascii=False)},
        unit="pictures",
    )


def load(config: GlimpseConfig, folder: Path) -> Glimpser:
    """A trained run, ready to look."""
    try:
        stored = json.loads((folder / STORED).read_text("utf-8"))
        names, shape = [str(name) for name in stored["names"]], stored["shape"]
    except (OSError, ValueError, KeyError):
        raise UserError(f"{folder / STORED}: missing or damaged; it holds the classes' names") from None
    network = trained(_network(config, len(names)), config, folder)
    return _glimpser(config, network, names, (int(shape[0]), int(shape[1])))


def examine(config: GlimpseConfig, glimpser: Glimpser) -> ReportPart:
    """What the report shows of a trained run: scores, the error after each glimpse, and where it looked."""
    sets = _sets(config)
    name = "test" if "test" in sets else "valid"
    images = same_names(sets[name], glimpser.names, name)
    canvas_NCYX, label_N = glimpser.fixed(images), torch.tensor(images.label_N)
    found = glimpser.scores(canvas_NCYX, label_N)
    chosen = _telling(found.said_N.cpu(), label_N)
    results = glimpser.predict([canvas_NCYX[row].numpy() for row in chosen])
    paths = "".join(_figure(seen, glimpser.names[label]) for seen, label in zip(results, label_N[chosen], strict=True))
    errors = [f"{error:.2f}" for error in found.error_by_glimpse]
    by_glimpse = render_table("error in percent", [str(step + 1) for step in range(len(errors))], [errors])
    scores = {"error": found.error, "accuracy": found.accuracy, "loss": found.loss, "num_pictures": len(images)}
    return ReportPart(name, scores, [("After each glimpse", by_glimpse), ("Where it looked", paths)])


def _telling(said_N: Tensor, label_N: Tensor) -> list[int]:
    """Rows of pictures to show: half of them right, half wrong, where there are some."""
    wrong = (said_N != label_N).nonzero().flatten().tolist()[: NUM_SAMPLES // 2]
    right = (said_N == label_N).nonzero().flatten().tolist()[: NUM_SAMPLES - len(wrong)]
    return [*right, *wrong]


def _figure(seen: Any, label: str) -> Markup:
    """The path of glimpses inside the page."""
    said = f"{seen.label} ({seen.probability:.1%}), {'right' if seen.label == label else f'but it is {label}'}"
    return render_picture(path.png(seen.path), said, alt=f"path of glimpses: {said}")


def _sets(config: GlimpseConfig) -> dict[str, Images]:
    """Every set of the run, with the classes of the training set."""
    data = config.data
    files = {"train": data.train, "valid": data.valid, "test": data.test}
    sets = {name: _read(f"data.{name}", given, data) for name, given in files.items() if given is not None}
    train = sets["train"]
    sets |= {name: same_names(images, train.names, f"data.{name}") for name, images in sets.items()}
    if data.hold_out is not None:
        if data.hold_out >= len(train):
            raise UserError(f"data.hold_out: {data.hold_out} given; there are only {len(train):,} training pictures")
        rows = np.random.default_rng(FIXED_SEED).permutation(len(train))
        kept = {"train": np.sort(rows[data.hold_out :]), "valid": np.sort(rows[: data.hold_out])}
        sets |= {name: train.rows(chosen) for name, chosen in kept.items()}
    shape = train.pixel_NCYX.shape[1:]
    for name, images in sets.items():
        if images.pixel_NCYX.shape[1:] != shape and data.canvas is None:
            size = " x ".join(map(str, images.pixel_NCYX.shape[2:]))
            raise UserError(f"data.{name}: pictures of {size} pixels; those of training have {shape[1]} x {shape[2]}")
    return sets


def _read(field: str, files: GlimpseFiles, data: GlimpseData) -> Images:
    return read_images(files.images, files.labels, field=f"{field}.images", channels=data.channels, resize=data.resize)


def _network(config: GlimpseConfig, num_classes: int) -> GlimpseNetwork:
    model = config.model
    return GlimpseNetwork(
        num_classes,
        channels=config.data.channels,
        size=model.patch,
        num_scales=model.num_scales,
        num_glimpses=model.num_glimpses,
        glimpse=model.glimpse_network,
        glimpse_channels=model.glimpse_channels,
        glimpse_width=model.glimpse_width,
        cell=model.core,
        width=model.width,
        dropout=model.dropout,
        policy_reaches_core=model.policy_reaches_core,
    )


def _glimpser(config: GlimpseConfig, network: GlimpseNetwork, names: list[str], shape: tuple[int, ...]) -> Glimpser:
    data, side = config.data, config.data.canvas
    return Glimpser(
        network,
        names,
        data.canvases(),
        shape=(shape[0], shape[1]) if side is None else (side, side),
        std=config.training.std,
        samples=config.decoding.samples,
        channels=data.channels,
        resize=data.resize,
        is_first_random=config.model.first_location == "random",
        batch_size=config.decoding.batch_size,
    )


def _plan(config: GlimpseConfig, num_rows: int) -> Annealed:
    training = config.training
    rows = ShuffledBatches(num_rows, size=training.batch_size, seed=config.seed, load=torch.from_numpy)
    first = training.first_std or training.std
    return Annealed(rows, first, training.std, training.std_steps * training.accumulate)


def _loss(config: GlimpseConfig, network: GlimpseNetwork, pixel_NCYX: Tensor, label_N: Tensor) -> HybridLoss:
    training = config.training
    return HybridLoss(
        network,
        pixel_NCYX,
        label_N,
        config.data.canvases(),
        copies=training.copies,
        reward=training.reward,
        discount=training.discount,
        policy_weight=training.policy_weight,
        early_weight=training.early_weight,
        is_first_random=config.model.first_location == "random",
    )


def _validator(config: GlimpseConfig, glimpser: Glimpser, canvas_NCYX: Tensor, label_N: Tensor) -> Any:
    def validate() -> dict[str, float]:
        found = glimpser.scores(canvas_NCYX, label_N)
        score = found.accuracy if config.training.metric == "accuracy" else -found.loss
        return {"score": score, "valid_accuracy": found.accuracy, "valid_loss": found.loss}

    return validate


GLIMPSE = Task(GlimpseConfig, prepare, load, examine, Route("Glimpse at pictures", reads="picture"))
