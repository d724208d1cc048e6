"""The demo's model learns, and looks at the letter it writes."""

from __future__ import annotations

import io

import torch
from rich.console import Console

from saccade.lab.reorder import WIDTH, Sorter, accuracy, shuffled_letters, train, write


def test_the_sorter_learns_to_look_at_the_letter_it_writes() -> None:
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    model = Sorter(WIDTH)
    source, length = shuffled_letters(200, generator)
    assert accuracy(model, source, length) < 0.05
    train(model, steps=350, generator=generator, console=Console(file=io.StringIO()))
    assert accuracy(model, source, length) > 0.7
    written, weights = write(model, source, length)
    looked_at = source.gather(1, weights.argmax(-1))
    real = torch.arange(written.shape[1]) < length[:, None]
    assert (looked_at == written)[real].float().mean() > 0.6  # by chance: about 0.12
