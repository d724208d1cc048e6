"""A whole training step through the interpreted kernels tracks the plain one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from saccade.attention import linear, relu_network
from saccade.layers import residual
from saccade.models import transformer
from saccade.models.transformer import BlockSizes, Dropouts, Transformer
from saccade.training import losses

FUSED: list[Any] = [linear, relu_network, residual, transformer, losses]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_step_equals_the_plain_step(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = BlockSizes(width=16, num_heads=2, hidden_width=24, norm=norm, dropouts=Dropouts(0.0))
    plain = Transformer(source=11, target_vocabulary=13, sizes=sizes, num_encoder_layers=1, num_decoder_layers=1)
    read = torch.randint(1, 13, (2, 3))
    inputs, results = (torch.randint(1, 11, (2, 5)), torch.tensor([5, 4]), read), []
    for fused, model in enumerate((plain, copy.deepcopy(plain))):
        for module in FUSED:
            monkeypatch.setattr(module, "is_fused", lambda _, fused=fused: bool(fused))
        vectors_ND = model(*inputs).flatten(0, 1)
        loss, _ = losses.smoothed_cross_entropy(vectors_ND, model.output.weight, read.flatten(), smoothing=0.1)
        loss.backward()
        results.append([loss.detach(), *(parameter.grad for parameter in model.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-4)
