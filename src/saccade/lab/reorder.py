"""A small model learns to put letters in order, and its additive attention shows how."""

from __future__ import annotations

from typing import final

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention import SCORES, attend, masks

LETTERS = "abcdefghijklmnopqrstuvwxyz"
START, PAD = len(LETTERS), len(LETTERS) + 1
SHORTEST, LONGEST = 4, 12
BATCH, WIDTH = 128, 96


def shuffled_letters(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Rows of different letters [B, S], padded, and their lengths."""
    length_B = torch.randint(SHORTEST, LONGEST + 1, (count,), generator=generator)
    letters_BS = torch.rand(count, len(LETTERS), generator=generator).argsort(-1)[:, :LONGEST]
    return letters_BS.masked_fill(torch.arange(LONGEST) >= length_B[:, None], PAD), length_B


@final
class Sorter(nn.Module):
    """A bidirectional GRU reads the letters; a GRU writes them in order, and additive attention finds the next one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(PAD + 1, width)
        self.encoder = nn.GRU(width, width // 2, bidirectional=True, batch_first=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.score = SCORES["additive"](width, width)
        self.output = nn.Linear(2 * width, len(LETTERS))

    def forward(self, source_BS: Tensor, length_B: Tensor, written_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the next letter [B, T, V] after what is written so far, and the weights [B, T, S]."""
        memory_BSD = self.encoder(self.embedding(source_BS))[0] + self.embedding(source_BS)
        state_BTD = self.decoder(self.embedding(written_BT))[0]
        mask = masks.padding(length_B)
        context_BTD, weight_BTS = attend(
            state_BTD, memory_BSD, memory_BSD, score=self.score, mask=mask, return_weights=True
        )
        return self.output(torch.cat([state_BTD, context_BTD], -1)), weight_BTS


def loss_of(model: Sorter, source_BS: Tensor, length_B: Tensor) -> Tensor:
    """Cross-entropy of the sorted letters, given the ones before."""
    sorted_BT = source_BS.sort(-1).values  # padding is the largest, so it stays behind
    written_BT = F.pad(sorted_BT[:, :-1], (1, 0), value=START)
    logits_BTV, _ = model(source_BS, length_B, written_BT)
    return F.cross_entropy(logits_BTV.flatten(0, 1), sorted_BT.flatten(), ignore_index=PAD)


@torch.no_grad()
def write(model: Sorter, source_BS: Tensor, length_B: Tensor) -> tuple[Tensor, Tensor]:
    """Greedy decoding: the letters the model writes [B, T], and where it looked for each [B, T, S]."""
    written_BT = torch.full((len(source_BS), 1), START)
    for _ in range(int(length_B.max())):
        logits_BTV, weight_BTS = model(source_BS, length_B, written_BT)
        written_BT = torch.cat([written_BT, logits_BTV[:, -1:].argmax(-1)], 1)
    return written_BT[:, 1:], weight_BTS


def accuracy(model: Sorter, source_BS: Tensor, length_B: Tensor) -> float:
    """The share of rows written without a single mistake."""
    written_BT, _ = write(model, source_BS, length_B)
    right_BT = source_BS.sort(-1).values[:, : written_BT.shape[1]]
    beyond_BT = torch.arange(written_BT.shape[1]) >= length_B[:, None]
    return ((written_BT == right_BT) | beyond_BT).all(-1).float().mean().item()


def train(model: Sorter, *, steps: int, generator: torch.Generator, console: Console) -> None:
    """Adam on fresh random rows, with a progress bar."""
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]:.3f}"), TimeRemainingColumn())
    with Progress(TextColumn("training"), *columns, console=console) as progress:
        task = progress.add_task("training", total=steps, loss=float("nan"))
        for _ in range(steps):
            loss = loss_of(model, *shuffled_letters(BATCH, generator))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            progress.update(task, advance=1, loss=loss.item())
