"""Chapter 4: masks, and the weights of four normalisers."""

from __future__ import annotations

from pathlib import Path

import torch

from saccade import NORMALIZERS, masks
from saccade.inspection.draw.figure import open_picture

PICTURE = Path(__file__).with_suffix(".png")
SIZE, SCALES = 8, 60


def main(picture: Path = PICTURE) -> None:
    """Print the weights of one row of scores, and draw masks and weights."""
    shown = {
        "causal": masks.causal(),
        "padding (6 of 8)": masks.padding(torch.tensor([6])),
        "window of 2": masks.window(2),
        "causal & window": masks.causal() & masks.window(2),
    }
    score_S = torch.tensor([1.0, 0.8, 0.3, -0.2, -1.0])
    with open_picture(picture, (9.6, 5.0)) as figure:
        places = figure.subplots(2, 4)
        for axes, (name, mask) in zip(places[0], shown.items(), strict=True):
            axes.imshow(mask.dense(SIZE, SIZE).reshape(SIZE, SIZE).numpy(), cmap="Blues", vmin=0, vmax=1.4)
            axes.set_title(name, fontsize=10, loc="left")
            axes.set_xlabel("key", fontsize=9)
            axes.set_ylabel("query", fontsize=9)
            axes.tick_params(labelsize=8)
        scale_N = torch.linspace(0, 6, SCALES)
        for axes, (name, kind) in zip(places[1], NORMALIZERS.items(), strict=True):
            weight_NS = kind().eval()(scale_N[:, None] * score_S)
            print(f"{name:10}" + " ".join(f"{weight:6.3f}" for weight in kind().eval()(2 * score_S[None])[0].tolist()))
            axes.plot(scale_N, weight_NS)
            axes.set_title(name, fontsize=10, loc="left")
            axes.set_xlabel("scores times", fontsize=9)
            axes.set_ylim(-0.02, 1.02)
            axes.tick_params(labelsize=8)
            axes.spines[["top", "right"]].set_visible(False)
        places[1][0].set_ylabel("weight of each key", fontsize=9)


if __name__ == "__main__":
    main()
