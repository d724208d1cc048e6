"""Embeds ids for a block's first rows in one pass on a CUDA device, instead of seven."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from saccade.attention.positions import Positions
from saccade.layers.residual import to_block_dtype
from saccade.ops.embedding import embedding
from saccade.ops.pass_context import draw_seed


def embed(
    ids: Sequence[Tensor], table_VD: Tensor, places: Sequence[Positions], position_PD: Tensor | None, share: float
) -> list[Tensor]:
    """Return dropout(√D W[id] + P[place]) [..., D] for one or two tensors of ids, in the dtype of a block's rows.

    The table gets one gradient, of all ids; `position_PD` gets none.
    """
    at = [] if position_PD is None else [place.at for place in places]
    seed, dtype = draw_seed(table_VD.device) if share else None, to_block_dtype(table_VD.new_empty(0)).dtype
    return embedding([*ids], table_VD, at, position_PD, seed, table_VD.shape[1] ** 0.5, share, dtype)
