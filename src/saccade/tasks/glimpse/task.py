"""The glimpse task: from a config to a run, to a trained network, and to its part of the report."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from markupsafe import Markup
from rich.console import Console
from torch import Tensor

from saccade.data.batches import ShuffledBatches
from saccade.errors import UserError
from saccade.inspection.draw import path
from saccade.inspection.pages.render import render_picture, render_table
from saccade.models.glimpse_network import GlimpseNetwork
from saccade.tasks import console as watch
from saccade.tasks.base import DataCount, InheritedFields, Job, ReportPart, Route, Rows, Task, match_rows
from saccade.tasks.devices import device_for, load_trained
from saccade.tasks.glimpse.config import (
    GlimpseConfig,
)
from saccade.tasks.glimpse.loss import AnnealedPlan, HybridLoss
from saccade.tasks.glimpse.pictures import number_classes, read_sets
from saccade.tasks.glimpse.predictor import Glimpser

STORED = "pictures.json"
NUM_SAMPLES = 8


def prepare(config: GlimpseConfig, folder: Path, console: Console) -> Job:
    """Prepare a run. The pictures lie on the device; a batch is only their rows."""
    del folder
    sets, device = read_sets(config), device_for(config)
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
        counts=[DataCount(f"data.{name}", len(images)) for name, images in sets.items()],
        rows=partial(_rows, train.names),
    )


def _rows(names: list[str], base: Path) -> dict[str, tuple[Rows, ...]]:
    """Return the rows of the classes that the run it begins with has, too."""
    rows = match_rows(names, json.loads((base / STORED).read_text("utf-8"))["names"])
    return {"action.weight": (rows,), "action.bias": (rows,)}


def load(config: GlimpseConfig, folder: Path) -> Glimpser:
    """Load a trained run, ready to look."""
    try:
        stored = json.loads((folder / STORED).read_text("utf-8"))
        names, shape = [str(name) for name in stored["names"]], stored["shape"]
    except (OSError, ValueError, KeyError):
        raise UserError(f"{folder / STORED}: missing or damaged; it holds the classes' names") from None
    network = load_trained(_network(config, len(names)), config, folder)
    return _glimpser(config, network, names, (int(shape[0]), int(shape[1])))


def examine(config: GlimpseConfig, glimpser: Glimpser) -> ReportPart:
    """Report on a trained run: scores, the error after each glimpse, and where it looked."""
    sets = read_sets(config)
    name = "test" if "test" in sets else "valid"
    images = number_classes(sets[name], glimpser.names, name)
    canvas_NCYX, label_N = glimpser.fixed(images), torch.tensor(images.label_N)
    found = glimpser.scores(canvas_NCYX, label_N)

    def draw(rows: list[int]) -> str:
        results = glimpser.predict([canvas_NCYX[row].numpy() for row in rows])
        return "".join(_figure(seen, glimpser.names[label]) for seen, label in zip(results, label_N[rows], strict=True))

    errors = [f"{error:.2f}" for error in found.error_by_glimpse]
    by_glimpse = render_table("error in percent", [str(step + 1) for step in range(len(errors))], [errors])
    scores = {"error": found.error, "accuracy": found.accuracy, "loss": found.loss, "num_pictures": len(images)}
    first = list(range(min(NUM_SAMPLES, len(images))))
    sections = [("After each glimpse", by_glimpse), ("Where it looked", draw(first))]
    if worst := _find_worst(found.said_N.cpu(), found.sure_N.cpu(), label_N)[:NUM_SAMPLES]:
        sections.append(("Worst outputs: the mistakes it was most certain of", draw(worst)))
    return ReportPart(name, scores, sections)


def _find_worst(said_N: Tensor, sure_N: Tensor, label_N: Tensor) -> list[int]:
    """Find the rows of wrong answers, those with the highest probability first."""
    wrong: list[int] = (said_N != label_N).nonzero().flatten().tolist()
    return sorted(wrong, key=lambda row: -float(sure_N[row]))


def _figure(seen: Any, label: str) -> Markup:
    """Render the path of glimpses inside the page."""
    said = f"{seen.label} ({seen.probability:.1%}), {'right' if seen.label == label else f'but it is {label}'}"
    return render_picture(path.draw_png(seen.path), said, alt=f"path of glimpses: {said}")


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


def _plan(config: GlimpseConfig, num_rows: int) -> AnnealedPlan:
    training = config.training
    rows = ShuffledBatches(num_rows, size=training.batch_size, seed=config.seed, load=torch.from_numpy)
    first = training.first_std or training.std
    return AnnealedPlan(rows, first, training.std, training.std_steps * training.accumulate)


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


INHERITED = InheritedFields(
    same=("model", "data.channels"),
    free=("model.dropout", "model.policy_reaches_core"),
    usual=("data.resize", "decoding"),
)
GLIMPSE = Task(
    GlimpseConfig, prepare, load, examine, Route("Glimpse at pictures", reads="picture"), inherited=INHERITED
)
