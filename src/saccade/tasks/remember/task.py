"""The remember task: from a config to a run, to a trained network, and to its part of the report."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.inspection.draw import tracks
from saccade.inspection.pages.render import render_picture, render_table
from saccade.tasks.base import InheritedFields, Job, ReportPart, RequestOptions, Route, Task
from saccade.tasks.console import say
from saccade.tasks.devices import load_trained
from saccade.tasks.remember.config import RememberConfig
from saccade.tasks.remember.predictor import Recaller, count_sizes, plain_scores
from saccade.tasks.remember.sequences import BitSequence, SequenceBatch, SequenceBatches, draw_sequences

VALID_SEED = 20_141_210
NUM_DRAWN = 3


def prepare(config: RememberConfig, folder: Path, console: Console) -> Job:
    """Build the network, and draw the validation's sequences; those to learn from are drawn on the way."""
    del folder
    data, network = config.data, make_network(config)
    spans = [f"{least} to {most}" if least < most else str(most) for least, most in (data.lengths, data.repeats)]
    say(console, f"random sequences of {spans[0]} vectors of {data.width} bits, to be written {spans[1]} times")
    say(console, f"{sum(weight.numel() for weight in network.parameters()):,} parameters")
    random = np.random.default_rng([VALID_SEED, config.seed])
    valid = draw_sequences(data.largest, data.width, data.num_valid, random)
    facts = repr((data.width, data.lengths, data.num_lengths, data.repeats, config.seed, config.training.batch_size))
    return Job(
        network=network,
        plan=_plan(config),
        loss=partial(remember_loss, network),
        validate=partial(_validate, _recaller(config, network), valid),
        data=[hashlib.blake2b(facts.encode(), digest_size=16).hexdigest()],
        is_steady=True,
        unit="bits",
    )


def _plan(config: RememberConfig) -> SequenceBatches:
    training, (lengths, repeats) = config.training.settle_steps(), config.data.choices
    assert training.max_steps != "auto"
    growing = round(training.growing * training.max_steps * training.accumulate)
    return SequenceBatches(config.data.encoder, lengths, repeats, training.batch_size, config.seed, growing)


def remember_loss(network: nn.Module, batch: SequenceBatch) -> tuple[Tensor, Tensor]:
    """Return the sum of -log p of all bits that are to be written, twice: to differentiate, and to show."""
    output_BTC = network(batch.input_BTC)[:, -batch.output_BTC.shape[1] :]
    loss = F.binary_cross_entropy_with_logits(output_BTC.float(), batch.output_BTC, reduction="sum")
    return loss, loss.detach()


def make_network(config: RememberConfig) -> nn.Module:
    """Build the network, initialised by the run's seed."""
    torch.manual_seed(config.seed)
    return config.model.network(config.data.encoder)


def load(config: RememberConfig, folder: Path) -> Recaller:
    """Load a trained run from its folder."""
    return _recaller(config, load_trained(make_network(config), config, folder))


def examine(config: RememberConfig, recaller: Recaller) -> ReportPart:
    """Score the sizes that are tested, for the report, and draw the heads over sequences of some of them."""
    del config
    given = list(recaller.draw_tests())
    counts = count_sizes(given, recaller.predict(given))
    rows = [[str(one.size), f"{one.bits_right:.2f}", f"{one.exact:.0f}"] for one in counts]
    table = render_table("percent", ["length", "bits right", "sequences right"], rows)
    first = [next(one for one in given if one.size == count.size) for count in counts][:NUM_DRAWN]
    figures = "".join(_figure(recaller, one) for one in first)
    return ReportPart(
        "test", plain_scores(counts), [("By length", table), ("What it wrote, and where its heads were", figures)]
    )


def _figure(recaller: Recaller, given: BitSequence) -> str:
    (seen,) = recaller.predict([given], **recaller.traits.evidence)
    return render_picture(tracks.to_png(seen.panels(), mark=seen.turn), seen.title)


def _recaller(config: RememberConfig, network: nn.Module) -> Recaller:
    return Recaller(network, config.data.encoder, config.data.tests, config.data.num_test)


def _validate(recaller: Recaller, valid: list[BitSequence]) -> dict[str, float]:
    """Score sequences of the greatest size."""
    size = recaller.batch_size
    output_NTC = torch.cat([recaller.run(valid[at : at + size]) for at in range(0, len(valid), size)])
    target_NTC = recaller.encoder.batch(valid).output_BTC
    loss = float(F.binary_cross_entropy_with_logits(output_NTC, target_NTC))
    right = ((output_NTC > 0) == (target_NTC > 0.5))[:, :-1, :-1]
    bits = 100 * float(right.double().mean())
    return {"score": bits, "valid_bits_right": bits, "valid_loss": loss}


ROUTE = Route("Write sequences of bits back", options=RequestOptions)
INHERITED = InheritedFields(same=("model", "data.width"), free=())
REMEMBER = Task(RememberConfig, prepare, load, examine, ROUTE, inherited=INHERITED)
