"""Chapter 8: sinusoidal positions, their products, and two heads with different weights."""

from __future__ import annotations

from pathlib import Path

import torch

import saccade
from saccade.attention.positions import Positions, Sinusoidal
from saccade.inspection.draw.figure import open_picture

PICTURE = Path(__file__).with_suffix(".png")
PLACES, WIDTH = 64, 64


def main(picture: Path = PICTURE) -> None:
    """Print the products of some places and the weights of two heads, and draw the table."""
    table_SD = Sinusoidal(WIDTH)(Positions.following(0, PLACES, torch.device("cpu")))
    product_SS = table_SD @ table_SD.mT
    apart = (product_SS.diagonal(5) - product_SS[0, 5]).abs().max()
    print(f"products of places that are 5 apart differ by at most {float(apart):.1e}")
    torch.manual_seed(1)
    heads = saccade.MultiHeadAttention(WIDTH, 2)
    x_BSD = table_SD[None, :5]
    _, weight_BHTS = heads(x_BSD, x_BSD, return_weights=True)
    for head, weight_TS in enumerate(weight_BHTS[0]):
        print(f"head {head + 1}, place 0 reads: " + " ".join(f"{weight:.2f}" for weight in weight_TS[0].tolist()))
    with open_picture(picture, (9.0, 3.4)) as figure:
        left, right = figure.subplots(1, 2)
        left.imshow(table_SD.numpy(), cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
        left.set_xlabel("number of the vector", fontsize=9)
        left.set_ylabel("place", fontsize=9)
        left.set_title("positions", fontsize=10, loc="left")
        for place in (0, 20, 40):
            right.plot(product_SS[place] / product_SS[0, 0], label=f"place {place}")
        right.set_xlabel("other place", fontsize=9)
        right.set_title("how alike", fontsize=10, loc="left")
        right.legend(fontsize=8, frameon=False)
        for axes in (left, right):
            axes.tick_params(labelsize=8)


if __name__ == "__main__":
    main()
