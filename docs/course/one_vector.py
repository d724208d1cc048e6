"""Chapter 1: copies symbols through one vector, and counts by length how many come back."""

from __future__ import annotations

from pathlib import Path

from saccade.inspection.draw.panels import Axes, BandCurve, to_file
from saccade.lab.claims.bottleneck import Kind, share_right, train

PICTURE = Path(__file__).with_suffix(".png")
WIDTHS, LENGTHS = (32, 64, 128), (2, 4, 8, 12, 16, 20)
STEPS = 250


def main(picture: Path = PICTURE, num_steps: int = STEPS) -> None:
    """Train a network of each width, print the shares of right symbols, and draw them."""
    bands = {}
    for width in WIDTHS:
        network = train("copy", Kind("none", width), seed=1, longest=LENGTHS[-1], num_steps=num_steps)
        shares = [share_right(network, "copy", length) for length in LENGTHS]
        print(f"width {width:3}: " + "  ".join(f"{n}: {share:.0%}" for n, share in zip(LENGTHS, shares, strict=True)))
        bands[f"a vector of {width}"] = BandCurve(list(LENGTHS), shares, shares, shares)
    to_file(picture, [(Axes("Copied through one vector", "length of the source", "share of right symbols"), bands)])


if __name__ == "__main__":
    main()
