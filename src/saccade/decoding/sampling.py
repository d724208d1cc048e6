"""Sampling: ids drawn by their probabilities, sharpened by a temperature or cut to the likeliest.

A row's random numbers depend on the seed, its source and its number among the samples, never on the rest of the batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.decoding.constraints import constrain
from saccade.decoding.greedy import write
from saccade.decoding.options import DecodingOptions, Hypothesis, check_at_least
from saccade.decoding.slices import Tick
from saccade.decoding.stepper import Stepper
from saccade.errors import UserError

BLOCK = 64  # steps whose random numbers are drawn together


@final
@dataclass(frozen=True, kw_only=True)
class SamplingOptions(DecodingOptions):
    """Settings of sampling: p^(1/temperature), the `top_k` likeliest ids (0: all), the fewest that hold `top_p`."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, top_k=0, seed=0)
        if not 0 < self.temperature < float("inf"):
            raise UserError(f"temperature: {self.temperature} given; it must be above 0 (a beam of 1 is greedy)")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p: {self.top_p} given; it must be above 0 and at most 1")


@torch.inference_mode()
def sample(
    model: Stepper,
    source: Tensor,
    source_length_B: Tensor,
    options: SamplingOptions,
    prefixes: Sequence[Sequence[int]] = (),
    tick: Tick | None = None,
) -> list[list[Hypothesis]]:
    """Draw `num_best` samples for every source, best first; their scores are the model's own, as in a beam."""
    batch, count = len(source), options.num_best
    row_N = torch.arange(batch, device=source.device).repeat_interleave(count)
    constraints = constrain(options, source, source_length_B, prefixes).rows(row_N)
    state = model.start(source, source_length_B)
    numbers = _RandomNumbers(options, source, source_length_B)

    def pick(step_NV: Tensor, number_N: Tensor, step: int) -> Tensor:
        return draw_ids(probabilities(step_NV, options), numbers.uniform(number_N, step))

    found = write(model, state.rows(row_N) if count > 1 else state, constraints, pick, tick)
    return [sorted(found[at : at + count], reverse=True) for at in range(0, batch * count, count)]


def probabilities(step_NV: Tensor, options: SamplingOptions) -> Tensor:
    """Return unnormalised probabilities: temperature, then top-k, then top-p (Holtzman 2020, section 3.1)."""
    score_NV = (step_NV - step_NV.amax(1, keepdim=True)) / options.temperature
    if 0 < options.top_k < score_NV.shape[1]:
        least_N1 = score_NV.topk(options.top_k, dim=1).values[:, -1:]
        score_NV = score_NV.masked_fill(score_NV < least_N1, -torch.inf)
    p_NV = score_NV.double().softmax(1)
    if options.top_p == 1:
        return p_NV
    sorted_NV = p_NV.sort(dim=1, descending=True).values
    before_NV = sorted_NV.cumsum(1) - sorted_NV
    least_N1 = sorted_NV.masked_fill(before_NV >= options.top_p, torch.inf).amin(1, keepdim=True)
    return p_NV.masked_fill(p_NV < least_N1, 0)


def draw_ids(p_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """Return the first id at which the cumulated probability passes u; ids keep their order, whatever the rounding."""
    total_NV = p_NV.cumsum(1)
    return (total_NV <= uniform_N[:, None] * total_NV[:, -1:]).sum(1)


@final
class _RandomNumbers:
    """A stream of numbers in [0, 1) for each row."""

    def __init__(self, options: SamplingOptions, source: Tensor, source_length_B: Tensor) -> None:
        is_padded = source.dim() < 4  # a picture is all real
        rows = zip(source.cpu().numpy(), source_length_B.tolist(), strict=True)
        keys = [_key(row[:length] if is_padded else row) for row, length in rows]
        self._streams = [
            np.random.default_rng([options.seed, number, *key]) for key in keys for number in range(options.num_best)
        ]
        self._block_NT = torch.zeros(len(self._streams), BLOCK, dtype=torch.float64, device=source.device)

    def uniform(self, number_N: Tensor, step: int) -> Tensor:
        """Return the rows' numbers for a step, in single precision: u times the total stays below the total."""
        if step % BLOCK == 0:
            block_NT = np.stack([self._streams[row].random(BLOCK, np.float32) for row in number_N.tolist()])
            self._block_NT[number_N] = torch.from_numpy(block_NT).to(self._block_NT)
        return self._block_NT[number_N, step % BLOCK]


def _key(row: NDArray[Any]) -> list[int]:
    digest = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
    return np.frombuffer(digest, np.uint32).tolist()
