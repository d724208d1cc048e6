"""The loss of a model that copies: -log (g p_word(y) + (1 - g) sum_{s: x_s = y} a_s), as one safe sum of logarithms.

Neither the distribution over words nor the one over copied words is ever held for a whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.data.batches import PairBatch
from saccade.data.text.tokenizer import UNKNOWN
from saccade.models.pointing.copying import NEVER, CopyingModel, CopyInputs
from saccade.ops.kernels.availability import is_fused
from saccade.training.losses import log_probabilities, read_output

Rows = Callable[[Tensor], Tensor]  # from [B, T, ...] to the rows that count, [N, ...]
LEAST_MASS = 1e-30  # of what can be copied, where all weights are elsewhere: its logarithm is a number


def copy_loss(
    network: nn.Module, batch: PairBatch, *, smoothing: float = 0.0, coverage: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the summed loss and negative log-likelihood of the target tokens; padding counts for nothing.

    `smoothing` draws the words of the vocabulary towards uniform. `coverage` times the weight on places that had it
    before, sum_s min(a_ts, sum_{u<t} a_us), joins the loss (See 2017, equation 12).
    """
    found: CopyInputs = network(batch.source_BS, batch.source_length_B, batch.read_BT)
    real_BT = torch.arange(batch.write_BT.shape[1], device=batch.write_BT.device) < batch.target_length_B[:, None]
    keeps_all = is_fused(found.vectors_BTD)  # to leave padding out, the device would have to be asked where it is
    real_N = real_BT.flatten() if keeps_all else real_BT.new_ones(()).expand(1)

    def rows(tensor: Tensor) -> Tensor:
        return tensor.flatten(0, 1) if keeps_all else tensor[real_BT]

    likelihood_N, mean_N = _log_p(cast(CopyingModel, network).below, batch, found, rows)
    likelihood = (likelihood_N * real_N).sum()
    loss = -(1 - smoothing) * likelihood - smoothing * (mean_N * real_N).sum()
    if coverage:
        loss = loss + coverage * (rows(_cover_again(found.weight_BTS)) * real_N).sum()
    return loss, -likelihood.detach()


def _log_p(below: nn.Module, batch: PairBatch, found: CopyInputs, rows: Rows) -> tuple[Tensor, Tensor]:
    """Return log p of each target, [N], and the mean of log p_word over the vocabulary, [N]."""
    vectors_BTD, matrix_VD = read_output(below, found.vectors_BTD)
    same_BTS = batch.write_BT.unsqueeze(-1) == batch.source_BS.unsqueeze(1)
    mass_N, can_copy_N = rows((found.weight_BTS * same_BTS).sum(-1)), rows(same_BTS.any(-1))
    write_N, gate_N = rows(batch.write_BT), rows(found.gate_BT).to(mass_N.dtype)
    is_unknown_N = write_N >= len(matrix_VD)
    word_N, mean_N = log_probabilities(rows(vectors_BTD), matrix_VD, write_N.masked_fill(is_unknown_N, UNKNOWN))
    word_N = (F.logsigmoid(gate_N) + word_N).masked_fill(is_unknown_N & can_copy_N, NEVER)
    copied_N = F.logsigmoid(-gate_N) + mass_N.clamp_min(LEAST_MASS).log()
    return torch.logaddexp(word_N, copied_N.masked_fill(~can_copy_N, NEVER)), mean_N


def _cover_again(weight_BTS: Tensor) -> Tensor:
    """Return for each step the weight on places that had it before, [B, T]."""
    before_BTS = weight_BTS.cumsum(1) - weight_BTS
    return torch.minimum(weight_BTS, before_BTS).sum(-1)
