"""Embeds ids for a block's first rows: on a CUDA device in one pass, instead of seven."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from saccade.attention.positions import Learned, Positions, Sinusoidal
from saccade.layers.residual import to_block_dtype
from saccade.ops.dropout import dropout
from saccade.ops.embedding import embedding
from saccade.ops.kernels.availability import is_fused
from saccade.ops.pass_context import draw_seed

Read = tuple[Tensor, Positions]  # ids, and where they stand


def embed_reads(
    table: nn.Embedding, reads: Sequence[Read], positions: Sinusoidal | Learned | None, share: float
) -> list[Tensor]:
    """Return dropout(√D W[id] + P[place]) [..., D] for one or two tensors of ids, in the dtype of a block's rows.

    Several inputs at once give the table one gradient instead of several to add.
    """
    if not is_fused(table.weight) or isinstance(positions, Learned):
        scale = table.embedding_dim**0.5
        return [add_positions(table(ids_BT) * scale, place, positions, share) for ids_BT, place in reads]
    ids, places = zip(*reads, strict=True)
    position_PD = None if positions is None else positions.table(max(place.end for place in places))
    return embed(ids, table.weight, places, position_PD, share)


def add_positions(x_BTD: Tensor, place: Positions, positions: Sinusoidal | Learned | None, share: float) -> Tensor:
    """Return dropout(x + P[place]), in the dtype of a block's rows."""
    if positions is not None:
        x_BTD = x_BTD + positions(place).to(x_BTD.dtype)
    return dropout(to_block_dtype(x_BTD), share)


def embed(
    ids: Sequence[Tensor], table_VD: Tensor, places: Sequence[Positions], position_PD: Tensor | None, share: float
) -> list[Tensor]:
    """Return the same by one kernel. The table gets one gradient, of all ids; `position_PD` gets none."""
    at = [] if position_PD is None else [place.at for place in places]
    seed, dtype = draw_seed(table_VD.device) if share else None, to_block_dtype(table_VD.new_empty(0)).dtype
    return embedding([*ids], table_VD, at, position_PD, seed, table_VD.shape[1] ** 0.5, share, dtype)
