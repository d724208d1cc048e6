"""Chapter 10: does a weight say how much a word matters? Words are erased one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from saccade.inspection.draw.figure import open_picture
from saccade.lab.claims.penalty import KINDS, LENGTH, NOISE, VARIANTS, HopReader, draw, learn

PICTURE = Path(__file__).with_suffix(".png")
STEPS, SENTENCES = 400, 64


@torch.no_grad()
def erase(reader: HopReader, ids_BS: torch.Tensor, variant_BK: torch.Tensor) -> torch.Tensor:
    """Return how far log p of the right answer falls when each word is replaced by noise, [B, S]."""

    def log_p(now_BS: torch.Tensor) -> torch.Tensor:
        found_BKV = reader(now_BS)[0].log_softmax(-1)
        return found_BKV.gather(-1, variant_BK[..., None]).sum((1, 2))

    falls = []
    for place in range(LENGTH):
        erased_BS = ids_BS.clone()
        erased_BS[:, place] = torch.randint(KINDS * VARIANTS, KINDS * VARIANTS + NOISE, (len(ids_BS),))
        falls.append(log_p(ids_BS) - log_p(erased_BS))
    return torch.stack(falls, 1)


def main(picture: Path = PICTURE, num_steps: int = STEPS) -> None:
    """Train, erase, print and draw."""
    reader = learn(0.1, seed=1, num_steps=num_steps)
    ids_BS, variant_BK = draw(SENTENCES)
    with torch.no_grad():
        weight_BS = reader(ids_BS)[1].sum(1)  # of all hops
    fall_BS = erase(reader, ids_BS, variant_BK)
    ranks = [np.argsort(np.argsort(one.flatten().numpy())) for one in (weight_BS, fall_BS)]
    print(f"Spearman's correlation of weights and falls: {float(np.corrcoef(*ranks)[0, 1]):.2f}")
    matters_BS = ids_BS < KINDS * VARIANTS
    print(f"weight on words that matter: {float(weight_BS[matters_BS].sum() / weight_BS.sum()):.0%}")
    with open_picture(picture, (5.2, 3.6)) as figure:
        axes = figure.subplots()
        for chosen_BS, name in ((~matters_BS, "noise"), (matters_BS, "words that matter")):
            axes.scatter(weight_BS[chosen_BS], fall_BS[chosen_BS], s=8, alpha=0.6, label=name)
        axes.set_xlabel("weight, sum of the hops", fontsize=9)
        axes.set_ylabel("log p falls by", fontsize=9)
        axes.legend(fontsize=8, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
