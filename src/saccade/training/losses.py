"""Label-smoothed cross-entropy of a tied output layer, without ever holding the logits of a whole batch.

With p = (1 - e) onehot + e / V (Szegedy 2016, section 7), the loss of a row is lse(z) - sum_v p_v z_v and its gradient
softmax(z) - p. Both are known as soon as a chunk of logits is, so the gradients for the vectors and the matrix are made
in the forward pass and the logits are forgotten. On a CUDA device with Triton, a chunk's logits become its gradients
where they lie (`kernels/cross_entropy.py`); chunks are large there, so that the matrix products fill the device.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from saccade.data.batches import PairBatch
from saccade.data.packing import IGNORED, PackedBatch, PackedRow
from saccade.ops.half_weights import current_copies
from saccade.ops.kernels.availability import is_fused, num_multiprocessors
from saccade.ops.known_gradients import is_one
from saccade.ops.precision import output_dtype, widen

CHUNK_LOGITS = 1 << 22
CHUNK_BYTES = 640 << 20  # of logits on a CUDA device
WIDE_BYTES = 4  # of a logit in float32
ALIGNED = 8  # numbers that a row grows by, so that rows stay aligned
ROWS_OF_MULTIPROCESSOR = 64  # in a product: a width of 512 or 1024 then gives each as many tiles of 256 x 128


class PackedModel(Protocol):
    """A model that reads sentences which are packed into one row."""

    def forward_packed(self, source: PackedRow, target: PackedRow) -> Tensor:
        """Return a vector for each target id, [1, T, D]."""


def sequence_loss(
    network: nn.Module, batch: PairBatch, *, smoothing: float = 0.0, consistency: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the summed loss and negative log-likelihood of the target tokens; padding counts for nothing.

    With `consistency`, every sentence is read twice under other dropout, and `consistency` times the
    disagreement of the two outputs is added to the mean of their losses.
    """
    if consistency:
        batch = batch.repeat_rows()
    vectors_BTD = network(batch.source_BS, batch.source_length_B, batch.read_BT)
    real_BT = torch.arange(batch.write_BT.shape[1], device=vectors_BTD.device) < batch.target_length_B[:, None]
    vectors_BTD, matrix_VD = read_output(network, vectors_BTD)
    if is_fused(vectors_BTD) and not consistency:  # to leave padding out, the device would have to be asked where it is
        target_BT = batch.write_BT.masked_fill(~real_BT, IGNORED)
        return smoothed_cross_entropy(vectors_BTD.flatten(0, 1), matrix_VD, target_BT.flatten(), smoothing=smoothing)
    vectors_ND = vectors_BTD[real_BT]
    loss, likelihood = smoothed_cross_entropy(vectors_ND, matrix_VD, batch.write_BT[real_BT], smoothing=smoothing)
    if not consistency:
        return loss, likelihood
    apart = disagreement(vectors_ND.unflatten(0, (2, -1)), matrix_VD.to(vectors_ND.dtype))
    return (loss + consistency * apart) / 2, likelihood / 2


def packed_loss(network: nn.Module, batch: PackedBatch, *, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return the same for a packed batch; the host never waits for the device."""
    vectors_1TD = cast(PackedModel, network).forward_packed(batch.source, batch.target)
    vectors_1TD, matrix_VD = read_output(network, vectors_1TD)
    return smoothed_cross_entropy(vectors_1TD[0], matrix_VD, batch.write_T, smoothing=smoothing)


def read_output(network: nn.Module, vectors_BTD: Tensor) -> tuple[Tensor, Tensor]:
    """Return the vectors and the matrix whose products are the logits: with a bias, x W + b = (x, 1) (W, b)."""
    matrix_VD, bias_V = network.get_parameter("output.weight"), getattr(network, "output_bias", None)
    if bias_V is None:
        return vectors_BTD, matrix_VD
    one_E = F.pad(vectors_BTD.new_ones(1), (0, ALIGNED - 1))
    column_VE = F.pad(bias_V[:, None], (0, ALIGNED - 1)).to(matrix_VD.dtype)
    return torch.cat([vectors_BTD, one_E.expand(*vectors_BTD.shape[:-1], -1)], -1), torch.cat([matrix_VD, column_VE], 1)


def smoothed_cross_entropy(
    vectors_ND: Tensor, matrix_VD: Tensor, target_N: Tensor, *, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Return the summed loss over N tokens, and their summed negative log-likelihood (for perplexity; no gradient).

    The products are made in the vectors' dtype, or on a CPU in that of outputs (`outputs_in`, autocast); the matrix's
    gradient is summed in float32 and has the matrix's dtype.
    """
    vectors_ND = vectors_ND.to(output_dtype(vectors_ND))
    narrow = current_copies([matrix_VD], [], vectors_ND.dtype) if is_fused(vectors_ND) else []
    loss, likelihood, _, _ = linear_cross_entropy(vectors_ND, matrix_VD, target_N, smoothing, narrow)
    return loss, likelihood


def disagreement(vectors_2ND: Tensor, matrix_VD: Tensor) -> Tensor:
    """Sum (KL(p, q) + KL(q, p)) / 2 over N tokens, p and q the outputs of two passes (R-Drop; Wu 2021, equation 2).

    It is sum_v (p_v - q_v) (log p_v - log q_v) / 2. Chunks of logits are made again in the backward pass.
    """
    size = max(1, CHUNK_LOGITS // len(matrix_VD))
    parts = [checkpoint(_disagreement, part, matrix_VD, use_reentrant=False) for part in vectors_2ND.split(size, 1)]
    return torch.stack(parts).sum()


def _disagreement(vectors_2ND: Tensor, matrix_VD: Tensor) -> Tensor:
    first_NV, second_NV = torch.log_softmax(widen(vectors_2ND @ matrix_VD.mT), -1)
    return ((first_NV.exp() - second_NV.exp()) * (first_NV - second_NV)).sum() / 2


def log_probabilities(vectors_ND: Tensor, matrix_VD: Tensor, target_N: Tensor) -> tuple[Tensor, Tensor]:
    """Return log p of each row's target, [N], and the mean of log p over the vocabulary, [N].

    Where the logits are more than a chunk, they are made again in the backward pass, chunk by chunk.
    """
    num_logits = CHUNK_BYTES // WIDE_BYTES if vectors_ND.is_cuda else CHUNK_LOGITS
    size = max(1, num_logits // len(matrix_VD))
    if len(vectors_ND) <= size:
        return _log_probabilities(vectors_ND, matrix_VD, target_N)
    parts = zip(vectors_ND.split(size), target_N.split(size), strict=True)
    again = functools.partial(checkpoint, use_reentrant=False, preserve_rng_state=False)  # nothing is drawn
    found = [again(_log_probabilities, part, matrix_VD, own) for part, own in parts]
    at_target, means = zip(*found, strict=True)
    return torch.cat(at_target), torch.cat(means)


def _log_probabilities(vectors_ND: Tensor, matrix_VD: Tensor, target_N: Tensor) -> tuple[Tensor, Tensor]:
    logits_NV = widen(vectors_ND @ matrix_VD.to(vectors_ND.dtype).mT)
    log_sum_N = logits_NV.logsumexp(1)
    return logits_NV.gather(1, target_N[:, None]).squeeze(1) - log_sum_N, logits_NV.mean(1) - log_sum_N


@torch.library.custom_op("saccade::linear_cross_entropy", mutates_args=())
def linear_cross_entropy(
    vectors: Tensor, matrix: Tensor, target: Tensor, smoothing: float, narrow: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return summed loss, summed negative log-likelihood, and the loss's gradients for vectors and matrix.

    `narrow`: the matrix in the vectors' dtype, where it is at hand.
    """
    loss, likelihood, grad_vectors, grad_matrix = (_fused if is_fused(vectors) else _plain)(
        vectors, (*narrow, matrix)[0], target, smoothing
    )
    return loss, likelihood, grad_vectors, grad_matrix.to(matrix.dtype)


def _plain(vectors: Tensor, matrix: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    matrix, real = matrix.to(vectors.dtype), target != IGNORED
    if not real.all():
        loss, likelihood, grad, grad_matrix = _plain(vectors[real], matrix, target[real], smoothing)
        return loss, likelihood, torch.zeros_like(vectors).masked_scatter_(real[:, None], grad), grad_matrix
    grad_vectors, grad_matrix = torch.empty_like(vectors), torch.zeros_like(matrix, dtype=widen(matrix).dtype)
    loss, likelihood = (grad_matrix.new_zeros(()) for _ in range(2))
    vocabulary, uniform = matrix.shape[0], smoothing / matrix.shape[0]
    size = max(1, CHUNK_LOGITS // vocabulary)
    buffer = matrix.new_empty(min(size, len(vectors)), vocabulary)
    for part in _parts(len(vectors), size):
        logits = widen(torch.mm(vectors[part], matrix.mT, out=buffer[: len(vectors[part])]))
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
    return loss, likelihood, grad_vectors, grad_matrix


def _fused(vectors: Tensor, matrix: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the same without a copy of the logits and without waiting for the device, so that it can be captured."""
    from saccade.training.kernels.cross_entropy import differentiate_

    (num_rows, vocabulary), width = (len(vectors), len(matrix)), vectors.shape[1]
    vectors, matrix = _pad_rows(vectors, vectors.dtype), _pad_rows(matrix, vectors.dtype)
    aligned = -(-vocabulary // 8) * 8  # rows begin at 16 bytes
    wave = ROWS_OF_MULTIPROCESSOR * num_multiprocessors(vectors.device)
    parts = chunks(num_rows, aligned * matrix.itemsize, wave)
    buffer = matrix.new_empty(max((part.stop - part.start for part in parts), default=0), aligned)[:, :vocabulary]
    grad_vectors, grad_matrix = torch.empty_like(vectors), torch.empty_like(matrix, dtype=torch.float32)
    answer_2N = grad_matrix.new_empty(2, num_rows)
    for part in parts:
        gradient = buffer[: part.stop - part.start]
        for some in _parts(len(gradient), wave):  # a rest that began another wave would cost what the wave does
            torch.mm(vectors[part][some], matrix.mT, out=gradient[some])
        differentiate_(gradient, target[part], smoothing, answer_2N[:, part])
        for some in _parts(len(gradient), wave):
            torch.mm(gradient[some], matrix, out=grad_vectors[part][some])
        _add_product_(grad_matrix, gradient.mT, vectors[part], is_first=part.start == 0)
    if not num_rows:
        grad_matrix.zero_()
    return answer_2N[0].sum(), answer_2N[1].sum(), grad_vectors[:, :width], grad_matrix[:, :width]


def _pad_rows(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Pad rows whose length isn't a multiple of 8 with zeros, to a multiple of 64: other products are half as fast."""
    width = rows.shape[1]
    if width % 8 == 0:
        return rows.to(dtype)
    filled = rows.new_empty(len(rows), -(-width // 64) * 64, dtype=dtype)
    filled[:, :width], filled[:, width:] = rows, 0
    return filled


def chunks(num_rows: int, row_bytes: int, wave: int) -> list[slice]:
    """Cut rows into chunks whose logits exist at the same time: whole waves, the last with a rest that still fits.

    Where the bytes are not enough for a wave, chunks are equal, in tiles of 128.
    """
    most = CHUNK_BYTES // row_bytes
    if most >= wave:
        size = most // wave * wave
        ends = [*range(size, num_rows - most + size, size), num_rows]
    else:
        count = -(-num_rows * row_bytes // CHUNK_BYTES)
        size = max(1, -(-num_rows // (max(1, count) * 128)) * 128)
        ends = [*range(size, num_rows, size), num_rows]
    return [slice(first, last) for first, last in itertools.pairwise([0, *ends]) if first < last]


def _parts(num_rows: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, num_rows, size))


def _add_product_(total: Tensor, a: Tensor, b: Tensor, *, is_first: bool) -> None:
    """Compute total += a b, in total's dtype where the device can; the first product replaces what is there."""
    beta = 0 if is_first else 1
    if a.dtype == total.dtype:
        total.addmm_(a, b, beta=beta)
    elif _adds_wide(a.device):
        torch.addmm(total, a, b, beta=beta, out_dtype=total.dtype, out=total)
    elif is_first:
        total.copy_(a @ b)
    else:
        total += a @ b


@functools.cache
def _adds_wide(device: torch.device) -> bool:
    """Tell whether products of bfloat16 can be added to float32 as they are made: on CUDA, in some torch versions."""
    total, a = torch.zeros(8, 8, device=device), torch.zeros(8, 8, dtype=torch.bfloat16, device=device)
    try:
        torch.addmm(total, a, a, beta=0, out_dtype=total.dtype, out=total)
    except (RuntimeError, TypeError):
        return False
    return True


@linear_cross_entropy.register_fake
def _(
    vectors: Tensor, matrix: Tensor, target: Tensor, smoothing: float, narrow: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    del target, smoothing, narrow
    total = matrix.new_empty((), dtype=torch.promote_types(matrix.dtype, torch.float32))
    return total, torch.empty_like(total), torch.empty_like(vectors), torch.empty_like(matrix)


def _save(
    ctx: torch.autograd.function.FunctionCtx,
    inputs: tuple[Tensor, Tensor, Tensor, float, Sequence[Tensor]],
    output: tuple[Tensor, Tensor, Tensor, Tensor],
) -> None:
    ctx.num_given = len(inputs[4])  # type: ignore[attr-defined]
    ctx.save_for_backward(output[2], output[3])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # zeros as large as the matrix


def _differentiate(
    ctx: torch.autograd.function.FunctionCtx, grad: Tensor, *unused: None
) -> tuple[Tensor, Tensor, None, None, list[None]]:
    del unused
    vectors, matrix = ctx.saved_tensors  # type: ignore[attr-defined]
    if not is_one(grad):
        vectors, matrix = vectors * grad.to(vectors.dtype), matrix * grad.to(matrix.dtype)
    return vectors, matrix, None, None, [None] * ctx.num_given  # type: ignore[attr-defined]


linear_cross_entropy.register_autograd(_differentiate, setup_context=_save)
