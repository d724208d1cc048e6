"""A model run with other attention weights than its own (Jain & Wallace 2019, section 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast, final

import torch
from torch import Generator, Tensor, nn

# From a model's own weights [..., T, S] and which keys are allowed: others that sum to the same.
Make = Callable[[Tensor, Tensor, Generator], Tensor]


def uniform(weight_TS: Tensor, allowed_TS: Tensor, generator: Generator) -> Tensor:
    """Every allowed key weighs the same (Wiegreffe & Pinter 2019, section 3)."""
    del weight_TS, generator
    return _shares(allowed_TS.float())


def random(weight_TS: Tensor, allowed_TS: Tensor, generator: Generator) -> Tensor:
    """Any weights are as likely as any others: a flat Dirichlet."""
    del weight_TS
    return _shares(-torch.log1p(-_drawn(allowed_TS, generator)) * allowed_TS)


def permuted(weight_TS: Tensor, allowed_TS: Tensor, generator: Generator) -> Tensor:
    """The model's own weights, on other keys (Jain & Wallace 2019, section 4.2.1)."""
    chance_TS = _drawn(allowed_TS, generator).masked_fill(~allowed_TS, 2.0)
    shuffled_TS = weight_TS.gather(-1, chance_TS.argsort(-1))
    places_TS = (~allowed_TS).int().argsort(dim=-1, stable=True)  # the allowed keys first, in order
    return torch.zeros_like(weight_TS).scatter(-1, places_TS, shuffled_TS)


WEIGHTS: dict[str, Make] = {"uniform": uniform, "random": random, "permuted": permuted}


@final
class _Replaced(nn.Module):
    """A normaliser that gives other weights than the one it stands for."""

    def __init__(self, own: nn.Module, make: Make, generator: Generator) -> None:
        super().__init__()
        self.own, self.make, self.generator = own, make, generator

    def forward(self, score_TS: Tensor, mask_TS: Tensor | None = None) -> Tensor:
        weight_TS: Tensor = self.own(score_TS, mask_TS)
        allowed_TS = torch.ones_like(weight_TS, dtype=torch.bool) if mask_TS is None else mask_TS.expand_as(weight_TS)
        return self.make(weight_TS, allowed_TS, self.generator).to(weight_TS.dtype)


@contextmanager
def replaced(attention: Sequence[nn.Module], make: Make, *, seed: int = 0) -> Iterator[None]:
    """Inside the block these modules weigh by `make`; behind it they are what they were, whatever happened.

    A module is one with a `normalizer`: MultiHeadAttention, Aligner, AttentionPooling, StructuredSelfAttention. What a
    mask multiplies weights with (local_p) stays.
    """
    own = [cast(nn.Module, module.normalizer) for module in attention]
    generator = Generator().manual_seed(seed)
    try:
        for module, normalizer in zip(attention, own, strict=True):
            module.normalizer = _Replaced(normalizer, make, generator)
        yield
    finally:
        for module, normalizer in zip(attention, own, strict=True):
            module.normalizer = normalizer


def _drawn(like: Tensor, generator: Generator) -> Tensor:
    """Numbers from 0 to 1, the same on every device."""
    return torch.rand(like.shape, generator=generator).to(like.device)


def _shares(part_TS: Tensor) -> Tensor:
    return part_TS / part_TS.sum(-1, keepdim=True).clamp(min=torch.finfo(part_TS.dtype).tiny)
