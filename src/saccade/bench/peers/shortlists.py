"""Made shortlists and sources for the decoding benchmark: as many target tokens as learned ones have.

Tokens are as frequent as Zipf's law says, those that stand for a source token, too. A source token that is seen often
has MOST of them, a rare one fewer: it was seen a few times only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from saccade.data.text.tokenizer import SPECIAL

MOST, COMMON = 100, 200  # as `saccade shortlist` keeps
SEEN = 4_000_000  # tokens of the text that a shortlist is learned from
FLATTEN = 2.7  # of Mandelbrot's form of the law
SEED = 3


def draw_sources(batch: int, length: int, vocabulary: int) -> Tensor:
    """Draw source ids [B, S] without specials."""
    drawn = torch.multinomial(_frequencies(vocabulary), batch * length, replacement=True)
    return (drawn + len(SPECIAL)).view(batch, length)


def draw_shortlist(vocabulary: int) -> tuple[list[list[int]], list[int]]:
    """Return for each source id the target ids that stand for it, and the ids that all outputs may have."""
    generator, share = torch.Generator().manual_seed(SEED), _frequencies(vocabulary)
    counts = (share / share.sum() * SEEN).clamp(1, MOST).long().tolist()
    drawn = torch.multinomial(share, MOST * len(share), replacement=True, generator=generator)
    rows = (drawn + len(SPECIAL)).view(len(share), MOST).tolist()
    listed = [sorted(set(row[:count])) for row, count in zip(rows, counts, strict=True)]
    return [*([] for _ in SPECIAL), *listed], list(range(min(vocabulary, len(SPECIAL) + COMMON)))


def _frequencies(vocabulary: int) -> Tensor:
    """Return the frequency of each id but the specials; the most frequent one comes first."""
    return 1 / (torch.arange(vocabulary - len(SPECIAL)) + 1 + FLATTEN)
