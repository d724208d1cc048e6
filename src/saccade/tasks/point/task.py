"""The point task: from a config to a run, to a trained network, and to its part of the report."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

from saccade.inspection.draw import plane
from saccade.inspection.pages.render import render_picture, render_table
from saccade.models.pointing.pointer_network import LEAST, PointerNetwork
from saccade.tasks.base import InheritedFields, Job, ReportPart, RequestOptions, Route, Task
from saccade.tasks.console import say
from saccade.tasks.devices import load_trained
from saccade.tasks.point.config import PointConfig
from saccade.tasks.point.predictor import Pointer, count_sizes, plain_scores
from saccade.tasks.point.problems import PROBLEMS, Example, PointBatch, ProblemBatches, collate, draw_examples
from saccade.tasks.point.result import Pointing

VALID_SEED = 20_150_609
NUM_DRAWN = 4


def prepare(config: PointConfig, folder: Path, console: Console) -> Job:
    """Build the network, and draw the validation's problems; those to learn from are drawn on the way."""
    del folder
    data, network = config.data, make_network(config)
    spans = f"{data.sizes[0]} to {data.sizes[1]}" if data.sizes[0] < data.sizes[1] else str(data.sizes[0])
    say(console, f"problem: {data.problem}, with {spans} elements that are drawn at random")
    say(console, f"{sum(weight.numel() for weight in network.parameters()):,} parameters")
    random = np.random.default_rng([VALID_SEED, config.seed])
    valid = draw_examples(data.problem, data.sizes[1], data.num_valid, random)
    facts = repr((data.problem, data.sizes, config.seed, config.training.batch_size))
    return Job(
        network=network,
        plan=ProblemBatches(data.problem, data.sizes, config.training.batch_size, config.seed),
        loss=partial(point_loss, network),
        validate=partial(_validate, make_pointer(config, network), valid),
        data=[hashlib.blake2b(facts.encode(), digest_size=16).hexdigest()],
        unit="steps",
    )


def point_loss(network: nn.Module, batch: PointBatch) -> tuple[Tensor, Tensor]:
    """Return the sum of -log a of the places to point at, twice: to differentiate, and to show."""
    weight_BTS = network(batch.source_BSC, batch.source_length_B, batch.read_BT)
    real_BT = torch.arange(batch.read_BT.shape[1], device=weight_BTS.device) < batch.target_length_B[:, None]
    at_target_BT = weight_BTS.gather(-1, batch.place_BT.unsqueeze(-1)).squeeze(-1)
    loss = -(at_target_BT.clamp_min(LEAST).log() * real_BT).sum()
    return loss, loss.detach()


def make_network(config: PointConfig) -> PointerNetwork:
    """Build the network, initialised by the run's seed."""
    torch.manual_seed(config.seed)
    return PointerNetwork(PROBLEMS[config.data.problem].width, config.model.sizes())


def make_pointer(config: PointConfig, network: PointerNetwork) -> Pointer:
    """Make a predictor of a network."""
    data = config.data
    return Pointer(network, data.problem, config.decoding.options(), data.test_sizes or (data.sizes[1],), data.num_test)


def load(config: PointConfig, folder: Path) -> Pointer:
    """Load a trained run from its folder."""
    return make_pointer(config, load_trained(make_network(config), config, folder))


def examine(config: PointConfig, pointer: Pointer) -> ReportPart:
    """Score the sizes that are tested, for the report, and draw some answers."""
    del config
    found = pointer.predict(list(pointer.draw_tests()))
    counts = count_sizes(found)
    rows = [[str(one.size), f"{one.exact:.1f}", f"{one.steps:.2f}"] for one in counts]
    table = render_table("percent", ["elements", "exactly right", "steps right"], rows)
    chosen = [next(one for one in found if len(one.given.value_SC) == count.size) for count in counts]
    chosen += [one for one in found if not one.is_right]
    return ReportPart(
        "test",
        plain_scores(counts),
        [("By number of elements", table), ("What it pointed at", "".join(map(_show, chosen[:NUM_DRAWN])))],
    )


def _show(one: Pointing) -> str:
    """Draw points, or list numbers."""
    if one.given.value_SC.shape[1] == plane.WIDTH:
        return render_picture(plane.to_png(one.way), one.title)
    rows = [["given", " ".join(one.given.words)], ["pointed at", one.text]]
    return render_table(one.title, ["", "elements"], rows, template="named_rows.html")


def _validate(pointer: Pointer, valid: list[Example]) -> dict[str, float]:
    """Score problems of the greatest size."""
    found = pointer.predict(valid, width=1)
    loss, steps = _loss(pointer, valid)
    exact = 100 * sum(one.is_right for one in found) / len(found)
    return {"score": exact, "valid_exact": exact, "valid_loss": loss / steps}


@torch.no_grad()
def _loss(pointer: Pointer, valid: list[Example]) -> tuple[float, int]:
    network, size = pointer.network, pointer.batch_size
    device = next(network.parameters()).device
    batches = [collate(valid[at : at + size]) for at in range(0, len(valid), size)]
    return sum(float(point_loss(network, one.to(device))[1]) for one in batches), sum(one.num_items for one in batches)


ROUTE = Route("Point at elements in order", options=RequestOptions)
INHERITED = InheritedFields(same=("model", "data.problem"), free=(), usual=("decoding",))
POINT = Task(PointConfig, prepare, load, examine, ROUTE, inherited=INHERITED)
