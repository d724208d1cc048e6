"""The parts that laws are checked over: every score, normaliser and mask, and random tensors for them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from saccade import NORMALIZERS, SCORES, masks
from saccade.attention import Mask, Score

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def packed(num_queries: int, num_keys: int) -> Mask:
    """Two sentences, an empty one between them, an unused slot, and padding behind where there is room."""
    starts = [
        torch.tensor([0, n // 2, n // 2, n - n // 3, n - n // 3], dtype=torch.int32) for n in (num_queries, num_keys)
    ]
    return masks.packed(*starts, num_queries=num_queries, num_keys=num_keys, longest=max(num_queries, num_keys))


# Each takes (B, T, S); some rows of some of them allow no key at all.
MASKS: dict[str, Callable[[int, int, int], Mask]] = {
    "full": lambda b, t, s: masks.full(),
    "causal": lambda b, t, s: masks.causal(),
    "padding": lambda b, t, s: masks.padding(torch.arange(b) * s // b),
    "window": lambda b, t, s: masks.window(1),
    "window_beyond": lambda b, t, s: masks.window(1, offset=2),
    "document": lambda b, t, s: masks.document(
        (torch.arange(t) // 2).expand(b, t), (torch.arange(s) // 3).expand(b, s)
    ),
    "packed": lambda b, t, s: packed(t, s),
    "packed_and_causal": lambda b, t, s: packed(t, s) & masks.causal(),
    "dense": lambda b, t, s: masks.dense((torch.arange(b * t * s) % 3 > 0).view(b, t, s)),
    "where": lambda b, t, s: masks.where(lambda i, j: (i + j) % 2 == 0),
    "causal_and_padding": lambda b, t, s: masks.causal() & masks.padding(torch.arange(b) + 1),
    "window_or_first": lambda b, t, s: masks.window(1) | masks.where(lambda i, j: j == 0),
}


def build_score(name: str, width: int, dtype: torch.dtype = torch.float64, **options: object) -> Score:
    """A score by name with random parameters, biases included."""
    score = SCORES[name](width, width, **options)  # type: ignore[arg-type]
    for parameter in score.parameters():
        torch.nn.init.normal_(parameter, std=width**-0.5)
    return score.to(dtype)


def random_inputs(
    *leading: int, num_queries: int, num_keys: int, width: int, value_width: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value."""
    query = torch.randn(*leading, num_queries, width, dtype=torch.float64)
    key = torch.randn(*leading, num_keys, width, dtype=torch.float64)
    value = torch.randn(*leading, num_keys, value_width, dtype=torch.float64)
    return query.to(dtype), key.to(dtype), value.to(dtype)


SCORE_NAMES, NORMALIZER_NAMES, MASK_NAMES = list(SCORES), list(NORMALIZERS), list(MASKS)
