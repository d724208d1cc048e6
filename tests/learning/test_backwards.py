"""The RNN family learns: a source is written backwards, so that every step must look in another place."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from saccade.data.text.tokenizer import END, START
from saccade.decoding import BeamOptions, beam_search
from saccade.models.seq2seq import RecurrentSizes, Seq2Seq
from saccade.models.seq2seq_attention import AttentionOptions


def rows(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Random symbols [B, 6] with </s> behind them, and the same backwards."""
    source_BS = torch.randint(4, 16, (count, 6), generator=generator)
    return F.pad(source_BS, (0, 1), value=END), F.pad(source_BS.flip(1), (0, 1), value=END)


@pytest.mark.parametrize(
    ("attention", "attention_options"),
    [
        ("bahdanau", AttentionOptions("additive")),
        ("luong", AttentionOptions("additive")),
        ("luong", AttentionOptions("general", normalizer="entmax15")),
    ],
)
def test_it_learns_to_write_backwards(attention: str, attention_options: AttentionOptions) -> None:
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    sizes = RecurrentSizes(48, 48)
    model = Seq2Seq(
        source=16,
        target_vocabulary=16,
        sizes=sizes,
        attention=attention,
        attention_options=attention_options,
        share_embeddings=True,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)
    length_B = torch.full((64,), 7)
    for _ in range(220):
        source_BS, write_BT = rows(64, generator)
        logits_BTV = model.logits(model(source_BS, length_B, F.pad(write_BT[:, :-1], (1, 0), value=START)))
        optimizer.zero_grad()
        F.cross_entropy(logits_BTV.flatten(0, 1), write_BT.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    source_BS, write_BT = rows(64, generator)
    found = beam_search(model, source_BS, length_B, BeamOptions(width=1))
    right = [best[0].ids == row for best, row in zip(found, write_BT[:, :-1].tolist(), strict=True)]
    assert sum(right) / 64 > 0.9
