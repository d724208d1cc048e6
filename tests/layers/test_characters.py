"""Vectors from spelling: padding and batch-mates change nothing, order counts, a CNN worked by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from saccade.layers.characters import Characters


@pytest.mark.parametrize("reader", ["cnn", "lstm"])
def test_padding_and_batch_mates_change_nothing(reader: str) -> None:
    layer = Characters(11, 6, reader=reader, embedding_width=5).double()
    character_NC, length_N = torch.randint(1, 11, (3, 7)), torch.tensor([7, 3, 4])
    found_ND = layer(character_NC, length_N)
    assert found_ND.shape == (3, 6)
    alone = layer(character_NC[1:2, :3], length_N[1:2])
    torch.testing.assert_close(found_ND[1:2], alone)
    changed = character_NC.clone()
    changed[1, 3:] = 10
    torch.testing.assert_close(layer(changed, length_N)[1:2], alone)
    assert not torch.allclose(layer(character_NC.flip(1), torch.tensor([7, 7, 7]))[0], found_ND[0])


def test_a_cnn_by_hand() -> None:
    """One filter that sums what a character and its neighbours are; the greatest sum is the word's."""
    layer = Characters(5, 1, embedding_width=1)
    assert isinstance(layer.reader, nn.Conv1d)
    with torch.no_grad():
        layer.embedding.weight.copy_(torch.tensor([[0.0], [1.0], [2.0], [4.0], [-8.0]]))
        layer.reader.weight.fill_(1.0)
        layer.reader.bias.zero_()  # type: ignore[union-attr]
    found = layer(torch.tensor([[1, 2, 3, 4], [4, 4, 3, 3]]), torch.tensor([4, 2]))
    assert found.tolist() == [[7.0], [0.0]]


def test_another_reader_is_refused() -> None:
    with pytest.raises(ValueError, match="characters: 'gru' given; allowed: cnn, lstm"):
        Characters(5, 3, reader="gru")
