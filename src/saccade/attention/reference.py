"""The equation of attention. Every kernel is a faster spelling of `reference`, never another function."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from saccade.attention.call import Attended, Call
from saccade.attention.normalizers import Hard
from saccade.ops.dropout import dropout


def reference(call: Call, score: Callable[[Tensor, Tensor], Tensor] | None = None) -> Attended:
    """c_t = sum_s a_ts v_s, a_t = normalise(e_t), e_ts = score(q_t, k_s); `score` may be a faster way to the same e."""
    score = call.score if score is None else score
    score_BTS = add_bias(call, score(call.query, call.memory))  # how well key s answers query t
    weight_BTS, log_probability_BT = normalize(call, score_BTS)  # forbidden keys weigh exactly 0
    return Attended(average(call, weight_BTS), weight_BTS, log_probability_BT)  # the expected value, and the evidence


def add_bias(call: Call, score_BTS: Tensor) -> Tensor:
    """Add what the positions of a pair alone are worth."""
    return score_BTS if call.bias is None else score_BTS + call.bias.to(score_BTS.dtype)


def normalize(call: Call, score_BTS: Tensor) -> tuple[Tensor, Tensor | None]:
    """Turn the scores of allowed keys into weights; hard attention also has log p of the key that it picked."""
    mask_BTS, log_probability_BT = call.dense_mask(), None
    weight_BTS = call.normalizer(score_BTS, mask_BTS).expand(*call.leading, -1, -1)
    if call.wants_log_probability:
        assert isinstance(call.normalizer, Hard)
        log_probability_BT = call.normalizer.log_probability(score_BTS, mask_BTS, weight_BTS)
    if call.mask.factor is not None:  # local-p's Gaussian (Luong 2015, section 3.2)
        weight_BTS = weight_BTS * call.mask.factor(call.grid()).to(weight_BTS.dtype)
    return weight_BTS, log_probability_BT


def average(call: Call, weight_BTS: Tensor) -> Tensor:
    """Sum the values by their weights, after dropout; the weights themselves stay whole."""
    kept_BTS = dropout(weight_BTS, call.dropout) if call.dropout else weight_BTS
    return kept_BTS.to(call.value.dtype) @ call.value
