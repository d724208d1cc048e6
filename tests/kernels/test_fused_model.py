"""A whole training step through the interpreted kernels tracks the plain one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from saccade.layers import embedding, residual
from saccade.models.transformer import BlockSizes, Dropouts, Transformer
from saccade.ops import linear, relu_network
from saccade.ops.pass_context import SEEDS_AT_ONCE, Seeds
from saccade.training import losses

FUSED: list[Any] = [linear, relu_network, residual, embedding, losses]


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


def test_blocks_that_are_made_again_draw_their_seeds_singly(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in FUSED:
        monkeypatch.setattr(module, "is_fused", lambda _: True)
    sizes, ids, length = BlockSizes(16, 2, 24), torch.randint(1, 11, (2, 3)), torch.tensor([3, 2])
    model = Transformer(source=11, target_vocabulary=11, sizes=sizes, num_encoder_layers=1, num_decoder_layers=1)
    counts = []
    for model.recomputes in (False, True):
        with Seeds(torch.device("cpu")) as seeds:
            model(ids, length, ids).sum().backward()
            counts.append(SEEDS_AT_ONCE - len([*seeds._left]))
    assert counts == [7, 4]  # two tables and five residuals, of which two are added after the blocks
