"""Batches of a text-to-text run: their size and kind, which sentences go together; their loss and learning rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from saccade.attention.scores import SCORES, Score
from saccade.config.base import USUAL_RATE
from saccade.data import packing
from saccade.data.batches import PairBatch, bucket_pairs, check_room
from saccade.data.portions import Portions, count_portions
from saccade.data.sound.recordings import Recordings
from saccade.data.store import Store
from saccade.decoding.limits import PairLengths
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
MOST_OF_SUMMARIES = 4 * MOST_TOKENS  # a batch counts its sources' tokens, and is to have enough of its targets'
EPOCHS_OF_SUMMARIES = 15  # an RNN that copies has learned them then; later it learns them by heart


class TrainingPairs(NamedTuple):
    """The pairs to train on: the ids of each corpus, the frames of its sounds, and how long its pairs are."""

    stores: list[Store]
    recordings: list[Recordings]
    lengths: list[PairLengths]

    @classmethod
    def of(cls, stores: list[Store], recordings: Sequence[Recordings] = ()) -> TrainingPairs:
        """Measure the pairs of stores."""
        return cls(stores, [*recordings], corpora.measure_pairs(stores, recordings))


def settle(config: TranslateConfig, network: Network, material: TrainingPairs, console: Console) -> TranslateConfig:
    """Return the config with what it leaves to be found here: the batches, the steps, and the learning rate."""
    config = _settle_batches(config, network, material.lengths, console)
    found = plan(config, material)
    if isinstance(found, Portions):
        said = f"{found.num_portions:,} portions of about {config.training.shuffle_buffer:,} pairs"
        say(console, f"training: all pairs are read in {said} (training.shuffle_buffer)")
    epochs = EPOCHS_OF_SUMMARIES if _sums_up(config) else None
    return _settle_rate(settle_steps(config, found, epochs), console)


def _sums_up(config: TranslateConfig) -> bool:
    """Return True if a model writes summaries, words of whose sources it copies."""
    return config.model.copies and config.training.metric == "rouge"


def _settle_batches(
    config: TranslateConfig, network: Network, lengths: Sequence[PairLengths], console: Console
) -> TranslateConfig:
    update: dict[str, Any] = {"batches": _kind(config)}
    wanted = config.training.tokens_per_batch
    if wanted == "auto":
        size = update["tokens_per_batch"] = _choose_size(
            lengths, MOST_OF_SUMMARIES if _sums_up(config) else MOST_TOKENS
        )
        say(console, f"tokens_per_batch: {size:,} (for the amount of text)")
    elif wanted == "largest" and lengths:
        size = update["tokens_per_batch"] = _find_largest(config, network, lengths)
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


def plan(config: TranslateConfig, material: TrainingPairs) -> Plan:
    """Decide which pairs go together in each epoch, or in each portion of one."""
    stores, weights = material.stores, corpora.weigh_variants(config.data, material.stores)
    make, buffer = _plan_maker(config, material), config.training.shuffle_buffer
    if material.recordings or count_portions(stores, weights, buffer) == 1:
        return make(*stores, weights=weights)
    return Portions(stores, make, buffer=buffer, seed=config.seed, weights=weights)


def _plan_maker(config: TranslateConfig, material: TrainingPairs) -> Callable[..., Plan]:
    """Return what plans the batches of stores, or of a portion of them: in the same sizes."""
    training, lengths = config.training, material.lengths
    tokens = int(training.tokens_per_batch)
    longest = max((max(pairs.longest) for pairs in lengths), default=0)
    check_room(longest, tokens)
    if training.batches == "packed" and lengths:
        shape = packing.choose_shape(*_average(lengths), tokens)
        return partial(packing.pack_pairs, shape=shape, seed=config.seed)
    multiple = MULTIPLE if training.batches == "even" else 1
    return partial(
        bucket_pairs,
        tokens_per_batch=tokens,
        multiple=multiple,
        longest=longest or None,
        seed=config.seed,
        recordings=material.recordings,
    )


def _average(lengths: Sequence[PairLengths]) -> tuple[list[float], tuple[int, int]]:
    """Return the mean lengths of sources and targets, and the greatest."""
    num_pairs = sum(pairs.num_pairs for pairs in lengths)
    sums = [sum(side) for side in zip(*(pairs.sums() for pairs in lengths), strict=True)]
    source, target = (max(side) for side in zip(*(pairs.longest for pairs in lengths), strict=True))
    return [one / num_pairs for one in sums], (source, target)


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
    """Return True if batches come in few shapes and the loss asks the device nothing: a step may be captured."""
    training = config.training
    if not training.capture or training.recompute or not HAS_TRITON:
        return False
    return training.batches == "packed" or (training.batches == "even" and _asks_nothing(config))


def _asks_nothing(config: TranslateConfig) -> bool:
    """Return True if the loss asks the device nothing.

    RNNs with a softmax over the whole source, or without one, don't ask; nor do Transformers whose additive heads are
    one kernel, nor a pointer: its softmax is over the whole source.
    """
    model = config.model
    if config.training.consistency:
        return False
    is_soft = model.normalizer == "softmax"
    if model.kind == "rnn":
        return model.attention == "none" or (is_soft and model.scope == "global")
    return is_soft and model.score == "additive" and nvrtc.refuses(device_for(config)) is None


def _kind(config: TranslateConfig) -> str:
    """Return the kind of batches that was asked for; else, on an accelerator, the kind that makes a steady run."""
    wanted, problem = config.training.batches, _unpackable(config)
    if wanted == "packed" and problem is not None:
        raise UserError(f"training.batches: 'packed' given, but {problem}; allowed: auto, even, padded")
    if wanted == "even" and config.features is not None:
        raise UserError("training.batches: 'even' given, but sounds are padded; allowed: auto, padded")
    if wanted != "auto":
        return wanted
    if device_for(config).type != "cuda" or config.features is not None:
        return "even" if _sums_up(config) and config.model.kind == "rnn" else "padded"  # its decoder steps are dear
    if problem is None:
        return "packed"
    return "even" if _asks_nothing(config) or config.model.copies else "padded"  # kernels are made for each shape


def _unpackable(config: TranslateConfig) -> str | None:
    """Return why batches of this run can't be packed; None if they can."""
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


def _choose_size(lengths: Sequence[PairLengths], most: int = MOST_TOKENS) -> int:
    """Return a size with which an epoch has enough steps, if it isn't too small for a step, or for the longest pair."""
    widths = [np.maximum(pairs.source_P, pairs.target_P) for pairs in lengths]
    total = sum(int(width_P @ pairs.count_P) for width_P, pairs in zip(widths, lengths, strict=True))
    longest = max((int(width_P.max()) for width_P in widths), default=1)
    size = 1 << max(0, total // BATCHES_AN_EPOCH).bit_length()
    return max(min(most, max(FEWEST_TOKENS, size)), longest)


def _find_largest(config: TranslateConfig, network: Network, lengths: Sequence[PairLengths]) -> int:
    """Find the largest batch whose step fits into the memory."""
    device, loss = device_for(config), _padded_loss(config, network)
    network.to(device).train()

    def step(batch: PairBatch) -> None:
        loss(batch.to(device))[0].backward()
        network.zero_grad(set_to_none=True)

    return find_batch_size(step, longest=max(max(pairs.longest) for pairs in lengths), device=device)
