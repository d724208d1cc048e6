"""One query a row against a cache of fixed capacity: a decoder's attention at every step, beams included.

    out = attend_step(query_RHK, key_RCGK, value_RCGK, length_R, scale=..., ancestor=ancestor_RC, new=(k_RGK, v_RGK))
    out = attend_step(query_RHK, key_BSGK, value_BSGK, length_R, scale=..., ancestor=sentence_R)

A cache is [rows, C, G, K]: a projection's row [G * K] is written and read in one piece, and a source's keys are a cache
as they leave their projection. A beam is reordered by `ancestor_RC`, the row that holds step s of hypothesis r, and
nothing is copied; `ancestor_R` names one row for all steps, as the sentence a hypothesis translates.

R: rows, a hypothesis of a sentence each. C: capacity. G: key/value heads, M queries each.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from saccade.attention.normalizers import Softmax
from saccade.ops.kernels.availability import runs_on
from saccade.ops.operator import operator


class StepInputs(NamedTuple):
    """The arguments of a decoder's step: see `attend_step`."""

    query_RHK: Tensor
    key_RCGK: Tensor
    value_RCGK: Tensor
    length_R: Tensor
    ancestor: Tensor | None
    new_key_RGK: Tensor | None
    new_value_RGK: Tensor | None
    scale: float


def attend_step(
    query_RHK: Tensor,
    key_RCGK: Tensor,
    value_RCGK: Tensor,
    length_R: Tensor,
    *,
    scale: float,
    ancestor: Tensor | None = None,
    new: tuple[Tensor, Tensor] | None = None,
    backend: str = "auto",
) -> Tensor:
    """Compute softmax(scale q·k) v over each row's first `length` steps, [R, H, K]; a row without any gives zeros.

    With `new`, a key and a value [R, G, K] for each row, these are written to its own row of the cache at step `length`
    and attended to; a row whose cache is full is not written to. The caller counts the lengths up. `ancestor` need not
    know the new step. backend: "auto" (Triton on CUDA), "triton" or "plain". For inference: there is no gradient.
    """
    if backend not in ("auto", "triton", "plain"):
        raise ValueError(f"backend: {backend!r} given; allowed: auto, triton, plain")
    device = query_RHK.device
    if backend == "triton" and not runs_on(device):
        raise ValueError(f"backend: Triton can't run on {device.type} here")
    fused = backend == "triton" or (backend == "auto" and device.type == "cuda" and runs_on(device))
    new_key, new_value = (None, None) if new is None else new
    given = StepInputs(query_RHK, key_RCGK, value_RCGK, length_R, ancestor, new_key, new_value, scale)
    return step_attention(*given) if fused else plain(given)


def _output_shape(given: StepInputs) -> Tensor:
    return given.query_RHK.new_empty(given.query_RHK.shape)


@operator("saccade::step_attention", shapes=_output_shape, mutates=("key_RCGK", "value_RCGK"))
def step_attention(given: StepInputs) -> Tensor:
    """Compute the step in one kernel."""
    from saccade.attention.kernels.decode import step_triton

    return step_triton.step(given)


def plain(given: StepInputs) -> Tensor:
    """Compute the step by gathering the keys and values of each row."""
    query_RHK, key_RCGK, value_RCGK, length_R, ancestor, new_key_RGK, new_value_RGK, scale = given
    (num_rows, num_heads, width), (_, capacity, groups, _) = query_RHK.shape, key_RCGK.shape
    own_R1, step_C = (torch.arange(n, device=query_RHK.device) for n in (num_rows, capacity))
    own_R1 = own_R1[:, None]
    row_RC = own_R1 if ancestor is None else ancestor.view(num_rows, -1).long()
    allowed_RC = step_C < length_R[:, None]
    if new_key_RGK is not None and new_value_RGK is not None:
        write(key_RCGK, new_key_RGK, length_R)
        write(value_RCGK, new_value_RGK, length_R)
        is_new_RC = step_C == length_R[:, None]
        allowed_RC, row_RC = allowed_RC | is_new_RC, torch.where(is_new_RC, own_R1, row_RC)
    row_RC = row_RC.expand(num_rows, capacity).masked_fill(~allowed_RC, 0)
    key, value = (cache[row_RC, step_C].float() for cache in (key_RCGK, value_RCGK))
    query_RGMK = query_RHK.float().view(num_rows, groups, num_heads // groups, width)
    score = torch.einsum("rgmk,rcgk->rgmc", query_RGMK, key) * scale
    weight = Softmax()(score, allowed_RC[:, None, None])
    value = value.masked_fill(~allowed_RC[:, :, None, None], 0.0)  # what was never written may be anything
    return torch.einsum("rgmc,rcgk->rgmk", weight, value).reshape(query_RHK.shape).to(query_RHK.dtype)


def write(cache_RCGK: Tensor, step_RGK: Tensor, length_R: Tensor) -> None:
    """Write a row's new step into its place; a full row keeps what it has."""
    row, at = torch.arange(len(step_RGK), device=step_RGK.device), length_R.long().clamp(max=cache_RCGK.shape[1] - 1)
    is_full = length_R >= cache_RCGK.shape[1]
    cache_RCGK[row, at] = torch.where(is_full[:, None, None], cache_RCGK[row, at], step_RGK)
