"""Contexts: what stands behind a window's end is never read, and what was said before is."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch

from saccade import SCORES
from saccade.layers.dialogue import AttentionContext, Context, RecurrentContext

WIDTH = 5
MAKERS: dict[str, Callable[[], Context]] = {
    **{cell: functools.partial(RecurrentContext, WIDTH, 7, cell=cell) for cell in ("rnn", "gru", "lstm")},
    **{f"attention {score}": functools.partial(AttentionContext, WIDTH, longest=4, score=score) for score in SCORES},
}


@pytest.mark.parametrize("name", list(MAKERS))
def test_only_the_window_is_read(name: str) -> None:
    torch.manual_seed(1)
    context = MAKERS[name]()
    window_BWD, length_B = torch.randn(3, 4, WIDTH), torch.tensor([4, 1, 3])
    whole = context(window_BWD, length_B)
    assert whole.shape == (3, context.width)
    for row, length in enumerate(length_B.tolist()):
        alone = context(window_BWD[row : row + 1, :length], length_B[row : row + 1])
        torch.testing.assert_close(alone[0], whole[row])
    earlier = window_BWD.clone()
    earlier[0, 0] += 1.0
    assert not torch.allclose(context(earlier, length_B)[0], whole[0])


def test_attention_by_hand() -> None:
    context = AttentionContext(2, longest=3, score="dot")
    window_BWD = torch.tensor([[[0.0, 8.0], [torch.log(torch.tensor(3.0)), 0.0], [50.0, 50.0]]])
    with torch.no_grad():  # the text before gets just the score that the text gives itself
        context.distance_WD[1] = torch.tensor([torch.log(torch.tensor(3.0)), 0.0])
    found = context(window_BWD, torch.tensor([2]))
    torch.testing.assert_close(found, torch.tensor([[torch.log(torch.tensor(3.0)).item() / 2, 4.0]]))
