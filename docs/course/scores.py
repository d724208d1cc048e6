"""Chapter 3: the weights of five keys under all scores, untrained."""

from __future__ import annotations

from pathlib import Path

import torch

import saccade
from saccade.inspection.draw.figure import open_picture

PICTURE = Path(__file__).with_suffix(".png")
WIDTH, KEYS = 16, 5


def main(picture: Path = PICTURE) -> None:
    """Print and draw the weights."""
    torch.manual_seed(4)
    query, key = torch.randn(1, WIDTH), torch.randn(KEYS, WIDTH)
    rows = {}
    for name, kind in saccade.SCORES.items():
        score = kind(WIDTH, WIDTH)
        rows[name] = saccade.attend(query, key, key, score=score, return_weights=True)[1][0].tolist()
        print(f"{name:13}" + " ".join(f"{weight:6.3f}" for weight in rows[name]))
    with open_picture(picture, (7.2, 3.2)) as figure:
        axes = figure.subplots()
        for number, weights in enumerate(rows.values()):
            left = 0.0
            for place, weight in enumerate(weights):
                axes.barh(number, weight, left=left, color=f"C{place}", edgecolor="white")
                left += weight
        axes.set_yticks(range(len(rows)), list(rows), fontsize=9)
        axes.invert_yaxis()
        axes.set_xlabel("weight of each key", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
