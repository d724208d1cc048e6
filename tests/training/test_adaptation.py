"""Low-rank adapters are added once where no weight changes, and a copy of a network adds its own."""

from __future__ import annotations

import copy

import torch
from torch import nn

from saccade.attention import MultiHeadAttention
from saccade.training.adaptation import add_adapters, adding_once


@torch.no_grad()
def test_a_copy_in_half_precision_adds_its_own_adapters() -> None:
    """As when outputs are searched for on a CUDA device, between two losses of a validation."""
    network = nn.Sequential(MultiHeadAttention(12, 3))
    assert add_adapters(network, 2, seed=1) == 4
    attention = network[0]
    assert isinstance(attention, MultiHeadAttention)
    for parameter in attention.parameters():
        parameter.add_(0.5)
    with adding_once(network):
        other = copy.deepcopy(attention)
        for parameter in other.parameters():
            parameter.data = parameter.data.bfloat16()
        assert other.query.weight.dtype == torch.bfloat16
        assert attention.query.weight.dtype == torch.float32
        assert attention.query.weight is attention.query.weight
        torch.testing.assert_close(other.query.weight.float(), attention.query.weight, atol=0.02, rtol=0.02)
    assert attention.query.weight is not attention.query.weight
