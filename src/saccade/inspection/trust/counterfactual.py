"""Runs a model with other attention weights than its own (Jain & Wallace 2019, section 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast, final

import torch
from torch import Generator, Tensor, nn

# From a model's own weights [..., T, S] and which keys are allowed: others that sum to the same.
Make = Callable[[Tensor, Tensor, Generator], Tensor]


def make_uniform_weights(weight_TS: Tensor, allowed_TS: Tensor, generator: Generator) -> Tensor:
    """Give every allowed key the same weight (Wiegreffe & Pinter 2019, section 3)."""
    del weight_TS, generator
    return _normalize(allowed_TS.float())


def draw_random_weights(weight_TS: Tensor, allowed_TS: Tensor, generator: Generator) -> Tensor:
    """Draw weights from a flat Dirichlet, so that any weights are as likely as any others."""
    del weight_TS
    return _normalize(-torch.log1p(-_draw_numbers(allowed_TS, generator)) * allowed_TS)


def permute_weights(weight_TS: Tensor, allowed_TS: Tensor, generator: Generator) -> Tensor:
    """Move the model's own weights to other allowed keys (Jain & Wallace 2019, section 4.2.1)."""
    chance_TS = _draw_numbers(allowed_TS, generator).masked_fill(~allowed_TS, 2.0)
    shuffled_TS = weight_TS.gather(-1, chance_TS.argsort(-1))
    places_TS = (~allowed_TS).int().argsort(dim=-1, stable=True)  # the allowed keys first, in order
    return torch.zeros_like(weight_TS).scatter(-1, places_TS, shuffled_TS)


WEIGHTS: dict[str, Make] = {"uniform": make_uniform_weights, "random": draw_random_weights, "permuted": permute_weights}


@final
class _ReplacingNormalizer(nn.Module):
    """A normaliser that replaces the weights of the model's own normaliser."""

    def __init__(self, own: nn.Module, make: Make, generator: Generator) -> None:
        super().__init__()
        self.own, self.make, self.generator = own, make, generator

    def forward(self, score_TS: Tensor, mask_TS: Tensor | None = None) -> Tensor:
        weight_TS: Tensor = self.own(score_TS, mask_TS)
        allowed_TS = torch.ones_like(weight_TS, dtype=torch.bool) if mask_TS is None else mask_TS.expand_as(weight_TS)
        return self.make(weight_TS, allowed_TS, self.generator).to(weight_TS.dtype)


@contextmanager
def replace_weights(attention: Sequence[nn.Module], make: Make, *, seed: int = 0) -> Iterator[None]:
    """Replace the weights of these modules by those of `make` inside the block, and restore the modules after it.

    A module is one with a `normalizer`: MultiHeadAttention, Aligner, AttentionPooling, StructuredSelfAttention. A
    factor of the mask (local_p) still applies.
    """
    own = [cast(nn.Module, module.normalizer) for module in attention]
    generator = Generator().manual_seed(seed)
    try:
        for module, normalizer in zip(attention, own, strict=True):
            module.normalizer = _ReplacingNormalizer(normalizer, make, generator)
        yield
    finally:
        for module, normalizer in zip(attention, own, strict=True):
            module.normalizer = normalizer


def _draw_numbers(like: Tensor, generator: Generator) -> Tensor:
    """Draw numbers from 0 to 1 that are the same on every device."""
    return torch.rand(like.shape, generator=generator).to(like.device)


def _normalize(part_TS: Tensor) -> Tensor:
    return part_TS / part_TS.sum(-1, keepdim=True).clamp(min=torch.finfo(part_TS.dtype).tiny)
