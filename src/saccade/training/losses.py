"""Label-smoothed cross-entropy of a tied output layer, without ever holding the logits of a whole batch.

With p = (1 - e) onehot + e / V (Szegedy 2016, section 7), the loss of a row is lse(z) - sum_v p_v z_v and its gradient
softmax(z) - p. Both are known as soon as a chunk of logits is, so the gradients for the vectors and the matrix are made
in the forward pass and the logits are forgotten.
"""

from __future__ import annotations

import torch
from torch import Tensor

from saccade.attention.precision import widened

CHUNK_LOGITS = 1 << 22


def smoothed_cross_entropy(
    vectors_ND: Tensor, matrix_VD: Tensor, target_N: Tensor, *, smoothing: float
) -> tuple[Tensor, Tensor]:
    """The summed loss over N tokens, and their summed negative log-likelihood (for perplexity; no gradient)."""
    loss, likelihood, _, _ = linear_cross_entropy(vectors_ND, matrix_VD, target_N, smoothing)
    return loss, likelihood


@torch.library.custom_op("saccade::linear_cross_entropy", mutates_args=())
def linear_cross_entropy(
    vectors: Tensor, matrix: Tensor, target: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Summed loss, summed negative log-likelihood, and the loss's gradients for vectors and matrix."""
    grad_vectors, grad_matrix = torch.empty_like(vectors), torch.zeros_like(matrix, dtype=widened(matrix).dtype)
    loss, likelihood = (grad_matrix.new_zeros(()) for _ in range(2))
    vocabulary, uniform = matrix.shape[0], smoothing / matrix.shape[0]
    size = max(1, CHUNK_LOGITS // vocabulary)
    buffer = matrix.new_empty(min(size, len(vectors)), vocabulary)
    for part in (slice(start, start + size) for start in range(0, len(vectors), size)):
        logits = widened(torch.mm(vectors[part], matrix.mT, out=buffer[: len(vectors[part])]))
        picked = target[part, None]
        at_target, largest, total = logits.gather(1, picked), logits.amax(1), logits.sum()
        share = torch.softmax(logits, 1, out=logits)
        log_sum = largest - share.amax(1).log()  # the largest share is at least 1 / V: its logarithm is exact
        likelihood += log_sum.sum() - at_target.sum()
        loss += log_sum.sum() - (1 - smoothing) * at_target.sum() - uniform * total
        share.sub_(uniform).scatter_add_(1, picked, share.new_full((1, 1), smoothing - 1).expand_as(picked))
        narrow = share.to(matrix.dtype)
        torch.mm(narrow, matrix, out=grad_vectors[part])
        grad_matrix += narrow.mT @ vectors[part]
    return loss, likelihood, grad_vectors, grad_matrix.to(matrix.dtype)


@linear_cross_entropy.register_fake
def _(vectors: Tensor, matrix: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    del target, smoothing
    total = matrix.new_empty((), dtype=torch.promote_types(matrix.dtype, torch.float32))
    return total, torch.empty_like(total), torch.empty_like(vectors), torch.empty_like(matrix)


def _save(
    ctx: torch.autograd.function.FunctionCtx,
    inputs: tuple[Tensor, Tensor, Tensor, float],
    output: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    del inputs
    ctx.save_for_backward(output[2], output[3])
    ctx.mark_non_differentiable(*output[1:])


def _differentiate(
    ctx: torch.autograd.function.FunctionCtx, grad: Tensor, *unused: Tensor
) -> tuple[Tensor, Tensor, None, None]:
    del unused
    vectors, matrix = ctx.saved_tensors  # type: ignore[attr-defined]
    return vectors * grad.to(vectors.dtype), matrix * grad.to(matrix.dtype), None, None


linear_cross_entropy.register_autograd(_differentiate, setup_context=_save)
