"""The additive score on the tensor cores: a sine series of tanh separates queries from keys (docs/additive.md).

|score error| <= ERROR * sum |v| + the rounding of its float16 features, as long as max |q| + max |k| <= RANGE in a
batch entry. The device checks this; entries beyond it are computed again by the exact kernel, which returns at once
for the others. The gradients are the exact ones.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from saccade.attention.call import Attended, Call
from saccade.attention.kernels.additive import fractions as cuda
from saccade.attention.kernels.additive import fused, sources
from saccade.attention.kernels.additive.scope import AdditiveInputs, ScopePart
from saccade.attention.kernels.additive.weights import wide_product
from saccade.ops.kernels import nvrtc
from saccade.ops.kernels.nvrtc import pointer
from saccade.ops.operator import operator

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
    """Queries and keys as vectors whose dot product is the score, [B, steps, 2 TERMS A] in float16."""

    query: Tensor
    key: Tensor
    range_B2: Tensor  # max |q|, max |k|


refuses = fused.refuses  # what the exact kernel can't take over, this one doesn't take


def run(call: Call) -> Attended:
    """Attend as the exact kernel does, by the series."""
    return fused.run(call, additive_series)


def features(query_BTA: Tensor, key_BSA: Tensor, v_BA: Tensor) -> SineFeatures:
    """Compute sines and cosines of both sides; v and the coefficients go into the queries'."""
    count, _, width = query_BTA.shape
    range_B2 = v_BA.new_zeros(count, 2)
    series = _Series(BASE, (ctypes.c_float * TERMS)(*COEFFICIENTS))
    module = nvrtc.load(FILES, _defines(query_BTA.dtype), query_BTA.device)
    rows = max(1, ELEMENTS // width)
    made = []
    for tensor, v in ((query_BTA, v_BA), (key_BSA, None)):
        steps = tensor.shape[1]
        made.append(tensor.new_empty(count, steps, 2 * TERMS * width, dtype=torch.float16))
        sizes = [ctypes.c_int(x) for x in (steps, width, rows)]
        tensors = (pointer(tensor), pointer(v), series, pointer(made[-1]), pointer(range_B2))
        module.launch("features", (-(-steps // rows), count, 1), 256, 64, [*tensors, *sizes])
    return SineFeatures(made[0], made[1], range_B2)


@operator("saccade::additive_series", shapes=fused.output_shapes)
def additive_series(given: AdditiveInputs) -> tuple[Tensor, Tensor]:
    """Compute softmax(v·tanh(q_t + k_s)) values, [B, T, D], and log-sums [B, T] of the series without its constant."""
    query_BTA, key_BSA, v_BA, value_BSD, *_ = given
    made = features(query_BTA, key_BSA, v_BA)
    count, num_queries = query_BTA.shape[:2]
    output = value_BSD.new_empty(count, num_queries, value_BSD.shape[-1])
    log_sum = v_BA.new_empty(count, num_queries)
    for part, steps in fused.parts(count, num_queries, key_BSA.shape[1]):
        score = wide_product(made.query[part, steps], made.key[part].mT)
        masked = ScopePart(given.scope, given.dropout, part.start, steps.start)
        weight = _weights(score, log_sum[part, steps], masked, value_BSD.dtype)
        torch.bmm(weight, value_BSD[part], out=output[part, steps])
    raw, beyond = cuda.RawTerms(query_BTA, key_BSA, v_BA), cuda.Beyond(made.range_B2, RANGE)
    cuda.attend_prepared_or_raw(raw, value_BSD, given.scope, given.dropout, over=(output, log_sum), beyond=beyond)
    return output, log_sum


additive_series.register_autograd(fused.differentiate, setup_context=fused.keep)


def _weights(score_BTS: Tensor, log_sum_BT: Tensor, masked: ScopePart, dtype: torch.dtype) -> Tensor:
    count, num_queries, num_keys = score_BTS.shape
    weight = score_BTS.new_empty(score_BTS.shape, dtype=dtype)
    structs = [masked.scope.struct(), masked.dropout.struct()]
    sizes = [ctypes.c_int(x) for x in (num_queries, num_keys, masked.first_n, masked.first_t)]
    tensors = [pointer(x) for x in (score_BTS, weight, log_sum_BT)]
    module = nvrtc.load(FILES, _defines(dtype), score_BTS.device)
    module.launch("weights", (num_queries, count, 1), 128, 64, [*tensors, *structs, *sizes])
    return weight


def _defines(dtype: torch.dtype) -> dict[str, int]:
    return {"INPUT": cuda.INPUTS[dtype], "TERMS": TERMS}
