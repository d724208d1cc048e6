"""Chapter 9: a whole Transformer from parts, which learns to sort digits."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

import saccade
from saccade.attention.positions import Positions, Sinusoidal
from saccade.inspection.draw.figure import open_picture
from saccade.lab.fit import fit

PICTURE = Path(__file__).with_suffix(".png")
DIGITS, LENGTH, WIDTH, HEADS, BLOCKS = 10, 8, 32, 4, 1
START = DIGITS  # what the decoder reads first
STEPS, BATCH, RATE = 300, 32, 0.006


class Block(nn.Module):
    """Self-attention, attention to the source in a decoder, and a feed-forward network, each with its residual."""

    def __init__(self, *, reads_source: bool) -> None:
        super().__init__()
        self.own = saccade.MultiHeadAttention(WIDTH, HEADS)
        self.cross = saccade.MultiHeadAttention(WIDTH, HEADS) if reads_source else None
        self.network = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))

    def forward(self, x_BTD: Tensor, source_BSD: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return the vectors after this block, and the weights over the source."""
        y_BTD, weight_BHTS = self.norms[0](x_BTD), None
        x_BTD = x_BTD + self.own(
            y_BTD, y_BTD, mask=saccade.masks.full() if self.cross is None else saccade.masks.causal()
        )
        if self.cross is not None:
            output_BTD, weight_BHTS = self.cross(self.norms[1](x_BTD), source_BSD, return_weights=True)
            x_BTD = x_BTD + output_BTD
        return x_BTD + self.network(self.norms[2](x_BTD)), weight_BHTS


class Transformer(nn.Module):
    """An encoder and a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(DIGITS + 1, WIDTH), Sinusoidal(WIDTH)
        self.encoder = nn.ModuleList(Block(reads_source=False) for _ in range(BLOCKS))
        self.decoder = nn.ModuleList(Block(reads_source=True) for _ in range(BLOCKS))
        self.norm, self.output = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, DIGITS)

    def forward(self, source_BS: Tensor, read_BT: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return logits of the next digit for each step, and the last block's weights over the source."""
        memory_BSD, weights = self._embed(source_BS), None
        for block in self.encoder:
            memory_BSD, _ = block(memory_BSD)
        x_BTD = self._embed(read_BT)
        for block in self.decoder:
            x_BTD, weights = block(x_BTD, memory_BSD)
        return self.output(self.norm(x_BTD)), weights

    def _embed(self, ids_BT: Tensor) -> Tensor:
        places = Positions.following(0, ids_BT.shape[1], ids_BT.device)
        return self.embedding(ids_BT) * WIDTH**0.5 + self.positions(places)


def draw(num_rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw digits, what the decoder reads, and the digits in order."""
    source_BS = torch.randint(DIGITS, (num_rows, LENGTH))
    write_BT = source_BS.sort(1).values
    return source_BS, nn.functional.pad(write_BT[:, :-1], (1, 0), value=START), write_BT


@torch.no_grad()
def sort(model: Transformer, source_BS: Tensor) -> Tensor:
    """Write digit by digit, the most likely one each time."""
    read_BT = torch.full((len(source_BS), 1), START)
    for _ in range(LENGTH):
        next_B1 = model(source_BS, read_BT)[0][:, -1:].argmax(-1)
        read_BT = torch.cat([read_BT, next_B1], 1)
    return read_BT[:, 1:]


def main(picture: Path = PICTURE, num_steps: int = STEPS) -> None:
    """Train, print and draw."""
    torch.manual_seed(1)
    model = Transformer()

    def draw_loss() -> Tensor:
        source_BS, read_BT, write_BT = draw(BATCH)
        return nn.functional.cross_entropy(model(source_BS, read_BT)[0].flatten(0, 1), write_BT.flatten())

    losses = fit(model.parameters(), draw_loss, num_steps=num_steps, rate=RATE, most_norm=1.0, falls=True)
    source_BS, read_BT, write_BT = draw(200)
    found_BT = sort(model, source_BS)
    print(f"{float((found_BT == write_BT).all(1).float().mean()):.0%} of 200 rows are sorted without a mistake")
    print(f"{source_BS[0].tolist()} -> {found_BT[0].tolist()}")
    with torch.no_grad():
        weight_BHTS = model(source_BS[:1], read_BT[:1])[1]
    assert weight_BHTS is not None
    with open_picture(picture, (8.0, 3.4)) as figure:
        left, right = figure.subplots(1, 2)
        left.plot(losses, linewidth=1)
        left.set_xlabel("step", fontsize=9)
        left.set_ylabel("nats", fontsize=9)
        left.set_title("loss", fontsize=10, loc="left")
        right.imshow(weight_BHTS[0].mean(0).numpy(), cmap="Blues", vmin=0)
        right.set_xticks(range(LENGTH), source_BS[0].tolist())
        right.set_yticks(range(LENGTH), found_BT[0].tolist())
        right.set_title("written (down), read (across)", fontsize=10, loc="left")


if __name__ == "__main__":
    main()
