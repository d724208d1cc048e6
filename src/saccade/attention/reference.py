"""Attention as the equations say it. Every kernel is a faster spelling of `reference`, never another function."""

from __future__ import annotations

from torch import Tensor

from saccade.attention.call import Attended, Call
from saccade.attention.normalizers import Hard
from saccade.ops.dropout import dropout


def reference(call: Call) -> Attended:
    """c = sum_i a_i v_i, a = normalise(e), e_i = score(q, k_i)."""
    return expect(call, call.score(call.query, call.memory))


def expect(call: Call, score_BTS: Tensor) -> Attended:
    """From scores to the expected value, and the evidence: the weights before dropout."""
    if call.bias is not None:
        score_BTS = score_BTS + call.bias.to(score_BTS.dtype)
    mask_BTS = call.dense_mask()
    weight_BTS = call.normalizer(score_BTS, mask_BTS).expand(*call.leading, -1, -1)
    log_probability = None
    if call.wants_log_probability:
        assert isinstance(call.normalizer, Hard)
        log_probability = call.normalizer.log_probability(score_BTS, mask_BTS, weight_BTS)
    if call.mask.factor is not None:
        weight_BTS = weight_BTS * call.mask.factor(call.grid()).to(weight_BTS.dtype)
    kept_BTS = dropout(weight_BTS, call.dropout) if call.dropout else weight_BTS
    return Attended(kept_BTS.to(call.value.dtype) @ call.value, weight_BTS, log_probability)
