"""Chapter 7: self-attention without weights, and what it can't know."""

from __future__ import annotations

from pathlib import Path

import torch

import saccade
from saccade.inspection.draw.figure import open_picture
from saccade.lab.claims import order

PICTURE = Path(__file__).with_suffix(".png")
STEPS, LENGTH, TIMES, SHARP = 300, 12, 3, 2.0


def main(picture: Path = PICTURE, num_steps: int = STEPS) -> None:
    """Print, train and draw."""
    torch.manual_seed(3)
    x_SD = SHARP * torch.nn.functional.normalize(torch.randn(LENGTH, 2), dim=-1)
    permuted = torch.randperm(LENGTH)
    far = (saccade.self_attend(x_SD[permuted]) - saccade.self_attend(x_SD)[permuted]).abs().max()
    print(f"attention of permuted words, and permuted attention of words: {float(far):.1e} apart")
    shown = [x_SD]
    for _ in range(TIMES):
        shown.append(saccade.self_attend(shown[-1]))
    for positions in ("none", "relative"):
        reader = order.train(positions, 1, trained=16, num_steps=num_steps)
        print(f"positions {positions}: {order.share_right(reader, 16):.0%} of the symbols before are told")
    print(f"best guess without order: {order.best_guess(16):.0%}")
    with open_picture(picture, (10.0, 2.8)) as figure:
        for number, (axes, now) in enumerate(zip(figure.subplots(1, TIMES + 1), shown, strict=True)):
            axes.scatter(*now.T, c=range(LENGTH), cmap="tab20")
            axes.set_xlim(-1.2 * SHARP, 1.2 * SHARP)
            axes.set_ylim(-1.2 * SHARP, 1.2 * SHARP)
            axes.set_aspect("equal")
            axes.set_title("before" if not number else f"after {number}", fontsize=10, loc="left")
            axes.tick_params(labelsize=8)


if __name__ == "__main__":
    main()
