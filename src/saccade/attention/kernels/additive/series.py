"""The additive score on the tensor cores: a sine series of tanh separates queries from keys (docs/additive.md).

|score error| <= ERROR * sum |v| + the rounding of its float16 features, as long as max |q| + max |k| <= RANGE in a
batch entry. That is found out on the device; entries beyond it are computed again by the exact kernel, which returns
at once for the others. The gradients are the exact ones.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from saccade.attention.call import Attended, Call
from saccade.attention.kernels.additive import fractions as cuda
from saccade.attention.kernels.additive import fused, sources
from saccade.attention.kernels.additive.scope import Dropout, Masked, Scope
from saccade.attention.kernels.additive.weights import wide_product
from saccade.ops.kernels import nvrtc
from saccade.ops.kernels.nvrtc import pointer

REASON = "it was asked for: tanh as a sine series, a matrix product for the tensor cores"
FILES = sources("device.cuh", "additive_series.cu")
RANGE, ERROR = 5.0, 8.9e-4  # |tanh x - series| <= ERROR for |x| <= RANGE: docs/additive.md
BASE = 0.36959913571644626  # pi / 8.5
COEFFICIENTS = (1.204545358, 0.267161573, 0.081430639, 0.025354268, 0.008001567, 0.002724883)
TERMS = len(COEFFICIENTS)
ELEMENTS = 4096  # that a block of threads turns into features


class _Series(ctypes.Structure):
    _fields_ = [("base", ctypes.c_float), ("coefficient", ctypes.c_float * TERMS)]


class SineFeatures(NamedTuple):
    """Queries and keys as vectors whose dot product is the score, [N, steps, 2 TERMS A] in float16."""

    query: Tensor
    key: Tensor
    range_N2: Tensor  # max |q|, max |k|


refuses = fused.refuses  # what the exact kernel can't take over, this one doesn't take


def run(call: Call) -> Attended:
    """As the exact kernel, by the series."""
    return fused.run(call, additive_series)


def features(query_NTA: Tensor, key_NSA: Tensor, v_NA: Tensor) -> SineFeatures:
    """Sines and cosines of both sides, v and the coefficients folded into the queries'."""
    count, _, width = query_NTA.shape
    range_N2 = v_NA.new_zeros(count, 2)
    series = _Series(BASE, (ctypes.c_float * TERMS)(*COEFFICIENTS))
    module = nvrtc.load(FILES, _defines(query_NTA.dtype), query_NTA.device)
    rows = max(1, ELEMENTS // width)
    made = []
    for tensor, v in ((query_NTA, v_NA), (key_NSA, None)):
        steps = tensor.shape[1]
        made.append(tensor.new_empty(count, steps, 2 * TERMS * width, dtype=torch.float16))
        sizes = [ctypes.c_int(x) for x in (steps, width, rows)]
        tensors = (pointer(tensor), pointer(v), series, pointer(made[-1]), pointer(range_N2))
        module.launch("features", (-(-steps // rows), count, 1), 256, 64, [*tensors, *sizes])
    return SineFeatures(made[0], made[1], range_N2)


@torch.library.custom_op("saccade::additive_series", mutates_args=())
def additive_series(
    query_NTA: Tensor,
    key_NSA: Tensor,
    v_NA: Tensor,
    value_NSD: Tensor,
    mask: Tensor | None,
    low: int | None,
    high: int | None,
    inner: int,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """softmax(v·tanh(q_t + k_s)) values, [N, T, D], and the log-sums [N, T] (of the series without its constant)."""
    made = features(query_NTA, key_NSA, v_NA)
    scope, drawing = Scope(low, high, mask, inner), Dropout(dropout, seed)
    count, num_queries = query_NTA.shape[:2]
    output = value_NSD.new_empty(count, num_queries, value_NSD.shape[-1])
    log_sum = v_NA.new_empty(count, num_queries)
    for part, steps in fused.parts(count, num_queries, key_NSA.shape[1]):
        score = wide_product(made.query[part, steps], made.key[part].mT)
        masked = Masked(scope, drawing, part.start, steps.start)
        weight = _weights(score, log_sum[part, steps], masked, value_NSD.dtype)
        torch.bmm(weight, value_NSD[part], out=output[part, steps])
    given, beyond = cuda.RawTerms(query_NTA, key_NSA, v_NA), cuda.Beyond(made.range_N2, RANGE)
    cuda.attend_prepared_or_raw(given, value_NSD, scope, drawing, over=(output, log_sum), beyond=beyond)
    return output, log_sum


additive_series.register_fake(fused.attended_shapes)
additive_series.register_autograd(fused.differentiate, setup_context=fused.save)


def _weights(score_NTS: Tensor, log_sum_NT: Tensor, masked: Masked, dtype: torch.dtype) -> Tensor:
    count, num_queries, num_keys = score_NTS.shape
    weight = score_NTS.new_empty(score_NTS.shape, dtype=dtype)
    structs = [masked.scope.allowed(), masked.dropout.drawing()]
    sizes = [ctypes.c_int(x) for x in (num_queries, num_keys, masked.first_n, masked.first_t)]
    tensors = [pointer(x) for x in (score_NTS, weight, log_sum_NT)]
    module = nvrtc.load(FILES, _defines(dtype), score_NTS.device)
    module.launch("weights", (num_queries, count, 1), 128, 64, [*tensors, *structs, *sizes])
    return weight


def _defines(dtype: torch.dtype) -> dict[str, int]:
    return {"INPUT": cuda.INPUTS[dtype], "TERMS": TERMS}
