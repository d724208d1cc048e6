"""Text encoders: padding and batch-mates change nothing, the last state is the last, order counts or doesn't."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch

from saccade.models.text_encoder import (
    BagEncoder,
    RecurrentTextEncoder,
    TextEncoder,
    TransformerTextEncoder,
    last_steps,
)
from saccade.models.transformer import BlockSizes, Dropouts

WIDTH = 7
SIZES = BlockSizes(12, 3, 17, dropouts=Dropouts(0.0))
MAKERS: dict[str, Callable[[], TextEncoder]] = {
    "bag": lambda: BagEncoder(WIDTH),
    **{
        f"{cell} {direction}": functools.partial(
            RecurrentTextEncoder, WIDTH, 10, cell=cell, direction=direction, num_layers=2
        )
        for cell in ("rnn", "gru", "lstm")
        for direction in ("forward", "backward", "both")
    },
    **{
        f"transformer {positions}": functools.partial(
            TransformerTextEncoder, WIDTH, SIZES._replace(positions=positions)
        )
        for positions in ("sinusoidal", "learned", "rotary", "relative")
    },
}


@pytest.mark.parametrize("name", list(MAKERS))
def test_padding_and_batch_mates_change_nothing(name: str) -> None:
    torch.manual_seed(1)
    encoder = MAKERS[name]().double()
    x_BSD, length_B = torch.randn(3, 5, WIDTH, dtype=torch.float64), torch.tensor([5, 2, 3])
    memory_BSD, last_BD = encoder(x_BSD, length_B)
    assert memory_BSD.shape == (3, 5, encoder.width)
    assert last_BD.shape == (3, encoder.width)
    for row, length in enumerate(length_B.tolist()):
        alone = encoder(x_BSD[row : row + 1, :length], length_B[row : row + 1])
        torch.testing.assert_close(alone.memory_BSD[0], memory_BSD[row, :length])
        torch.testing.assert_close(alone.last_BD[0], last_BD[row])


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_the_last_state_of_both_directions_has_read_everything(cell: str) -> None:
    torch.manual_seed(1)
    encoder = RecurrentTextEncoder(WIDTH, 10, cell=cell)
    memory_BSD, last_BD = encoder(torch.randn(2, 5, WIDTH), torch.tensor([5, 3]))
    forward_BD, backward_BD = last_BD.split(5, -1)
    torch.testing.assert_close(forward_BD, torch.stack([memory_BSD[0, 4, :5], memory_BSD[1, 2, :5]]))
    torch.testing.assert_close(backward_BD, memory_BSD[:, 0, 5:])


@pytest.mark.parametrize(("name", "is_equal"), [("bag", True), ("gru forward", False), ("transformer learned", False)])
def test_only_a_bag_forgets_the_order(name: str, is_equal: bool) -> None:
    torch.manual_seed(1)
    encoder, x_BSD, length_B = MAKERS[name](), torch.randn(1, 5, WIDTH), torch.tensor([5])
    turned = encoder(x_BSD.flip(1), length_B).memory_BSD.flip(1)
    assert torch.allclose(turned, encoder(x_BSD, length_B).memory_BSD, atol=1e-5) is is_equal


def test_last_steps() -> None:
    x_BSD = torch.arange(12).view(2, 3, 2)
    assert last_steps(x_BSD, torch.tensor([3, 1])).tolist() == [[4, 5], [6, 7]]
