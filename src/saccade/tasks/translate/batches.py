"""Batches of a text-to-text run: their size and kind, which sentences go together; their loss and learning rate."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from rich.console import Console

from saccade.attention.scores import SCORES, Score
from saccade.config.base import USUAL_RATE
from saccade.data import packing
from saccade.data.batches import PairBatch, bucket_pairs
from saccade.data.sound.recordings import Recordings
from saccade.data.store import Store
from saccade.errors import UserError
from saccade.ops.kernels import nvrtc
from saccade.ops.kernels.availability import HAS_TRITON
from saccade.tasks.console import say
from saccade.tasks.devices import device_for
from saccade.tasks.steps import settle_steps
from saccade.tasks.translate import corpora
from saccade.tasks.translate.config import TranslateConfig
from saccade.tasks.translate.copying.loss import copy_loss
from saccade.tasks.translate.networks import Network
from saccade.tasks.translate.validation import BatchLoss
from saccade.training.batch_size import find_batch_size
from saccade.training.losses import packed_loss, sequence_loss
from saccade.training.options import Loss, Plan
from saccade.training.schedules import transformer_rate

MULTIPLE = 8  # of the widths of even batches
TAKEN_OVER = 1 / 3  # of the usual learning rate: weights that were taken over should not be forgotten
ADAPTERS = 3  # times it: adapters begin at zero, and a product of two small matrices moves slowly
BATCHES_AN_EPOCH = 100  # about so many, where the amount of text decides; of these sizes:
FEWEST_TOKENS, MOST_TOKENS = 1024, 4096


def settle(
    config: TranslateConfig, network: Network, stores: list[Store], recordings: list[Recordings], console: Console
) -> TranslateConfig:
    """Return the config with what it leaves to be found here: the batches, the steps, and the learning rate."""
    config = _settle_batches(config, network, stores, console)
    return _settle_rate(settle_steps(config, plan(config, stores, recordings)), console)


def _settle_batches(
    config: TranslateConfig, network: Network, stores: list[Store], console: Console
) -> TranslateConfig:
    update: dict[str, Any] = {"batches": _kind(config)}
    wanted = config.training.tokens_per_batch
    if wanted == "auto":
        size = update["tokens_per_batch"] = _suiting(stores)
        say(console, f"tokens_per_batch: {size:,} (for the amount of text)")
    elif wanted == "largest" and any(len(store) for store in stores):
        size = update["tokens_per_batch"] = _fitting(config, network, stores)
        say(console, f"tokens_per_batch: {size:,} fit into the memory here")
    training = config.training.model_copy(update=update)
    return config.model_copy(update={"training": training})


def _settle_rate(config: TranslateConfig, console: Console) -> TranslateConfig:
    model, training = config.model, config.training
    if training.learning_rate != "auto":
        return config
    rate, why = USUAL_RATE, "the usual one"
    if model.kind == "rnn" or model.norm == "pre":
        rate = transformer_rate(model.width, int(training.warmup_steps))
        why = f"for width {model.width:,} and {training.warmup_steps:,} steps of warm-up"
    if training.lora:
        rate, why = float(f"{rate * ADAPTERS:.2g}"), f"{why}; three times it, as only adapters train"
    elif config.base is not None:
        rate, why = float(f"{rate * TAKEN_OVER:.2g}"), f"{why}; a third of it, as it begins with trained weights"
    say(console, f"learning rate: {rate:g} ({why})")
    return config.model_copy(update={"training": config.training.model_copy(update={"learning_rate": rate})})


def plan(config: TranslateConfig, stores: list[Store], recordings: list[Recordings]) -> Plan:
    """Which pairs go together in each epoch."""
    options: dict[str, Any] = {"tokens_per_batch": int(config.training.tokens_per_batch), "seed": config.seed}
    options["weights"] = corpora.shares(config.data, stores)
    if config.training.batches == "packed":
        return packing.pack_pairs(*stores, **options)
    multiple = MULTIPLE if config.training.batches == "even" else 1
    return bucket_pairs(*stores, recordings=recordings, multiple=multiple, **options)


def choose_loss(config: TranslateConfig, network: Network) -> Loss:
    """Choose the loss of this run's batches."""
    if config.training.batches == "packed":
        return partial(packed_loss, network, smoothing=config.training.label_smoothing)
    return _padded_loss(config, network)


def _padded_loss(config: TranslateConfig, network: Network) -> Loss:
    training = config.training
    if config.model.copies:
        return partial(copy_loss, network, smoothing=training.label_smoothing, coverage=training.coverage)
    return partial(sequence_loss, network, smoothing=training.label_smoothing, consistency=training.consistency)


def choose_plain_loss(config: TranslateConfig) -> BatchLoss:
    """Choose the loss whose second sum, the negative log-likelihood, validation shows."""
    return copy_loss if config.model.copies else sequence_loss


def is_steady(config: TranslateConfig) -> bool:
    """Whether batches come in few shapes and the loss asks the device nothing, so that a step may be captured."""
    training = config.training
    if not training.capture or training.recompute or not HAS_TRITON:
        return False
    return training.batches == "packed" or (training.batches == "even" and _asks_nothing(config))


def _asks_nothing(config: TranslateConfig) -> bool:
    """RNNs with a softmax over the whole source, or without; Transformers whose additive heads are one kernel."""
    model = config.model
    if config.training.consistency or model.copies:
        return False
    is_soft = model.normalizer == "softmax"
    if model.kind == "rnn":
        return model.attention == "none" or (is_soft and model.scope == "global")
    return is_soft and model.score == "additive" and nvrtc.refuses(device_for(config)) is None


def _kind(config: TranslateConfig) -> str:
    """What was asked for; else on an accelerator those that make a steady run."""
    wanted, problem = config.training.batches, _unpackable(config)
    if wanted == "packed" and problem is not None:
        raise UserError(f"training.batches: 'packed' given, but {problem}; allowed: auto, even, padded")
    if wanted == "even" and config.features is not None:
        raise UserError("training.batches: 'even' given, but sounds are padded; allowed: auto, padded")
    if wanted != "auto":
        return wanted
    if device_for(config).type != "cuda" or config.features is not None:
        return "padded"
    if problem is None:
        return "packed"
    return "even" if _asks_nothing(config) or config.model.copies else "padded"  # kernels are made for each shape


def _unpackable(config: TranslateConfig) -> str | None:
    """Why batches of this run can't be packed."""
    model = config.model
    if model.kind != "transformer":
        return "RNNs read padded ones"
    if model.copies:
        return "a model that copies points at the rows of padded ones"
    if config.features is not None:
        return "sounds are padded"
    if model.positions == "relative":
        return "relative positions need padded ones"
    if config.training.consistency:
        return "training.consistency reads every row twice"
    if model.normalizer != "softmax" or SCORES[model.score].as_dot is Score.as_dot:
        return f"its kernel knows dot products under a softmax, not {model.score} under {model.normalizer}"
    return None


def _suiting(stores: list[Store]) -> int:
    """Return a size with which an epoch has enough steps, if it isn't too small for a step, or for the longest pair."""
    widths = [np.maximum(store.source.lengths, store.target.lengths) + 1 for store in stores if len(store)]
    total, longest = (
        sum(int(width_N.sum()) for width_N in widths),
        max((int(width.max()) for width in widths), default=1),
    )
    size = 1 << max(0, total // BATCHES_AN_EPOCH).bit_length()
    return max(min(MOST_TOKENS, max(FEWEST_TOKENS, size)), longest)


def _fitting(config: TranslateConfig, network: Network, stores: list[Store]) -> int:
    """The largest batch whose step fits into the memory."""
    sides = [side.lengths for store in stores for side in (store.source, store.target) if len(side)]
    device, loss = device_for(config), _padded_loss(config, network)
    network.to(device).train()

    def step(batch: PairBatch) -> None:
        loss(batch.to(device))[0].backward()
        network.zero_grad(set_to_none=True)

    return find_batch_size(step, longest=max(int(lengths.max()) for lengths in sides) + 1, device=device)
