"""Chapter 6: what the hops of structured self-attention look at, without the penalty and with it."""

from __future__ import annotations

from pathlib import Path

import torch

from saccade.inspection.draw.figure import open_picture
from saccade.lab.claims.penalty import KINDS, VARIANTS, draw, learn, overlap

PICTURE = Path(__file__).with_suffix(".png")
STEPS = 400


def main(picture: Path = PICTURE, num_steps: int = STEPS) -> None:
    """Train both, print how much hops overlap, and draw how much each hop looks at each kind of word."""
    with open_picture(picture, (7.4, 3.2)) as figure:
        for axes, penalty in zip(figure.subplots(1, 2), (0.0, 0.3), strict=True):
            reader = learn(penalty, seed=1, num_steps=num_steps)
            ids_BS, variant_BK = draw(256)
            with torch.no_grad():
                logit_BKV, weight_BRS, _ = reader(ids_BS)
            right = float((logit_BKV.argmax(-1) == variant_BK).float().mean())
            print(f"penalty {penalty}: hops overlap by {overlap(weight_BRS):.2f}, {right:.1%} of the words are told")
            kind_BS = (ids_BS // VARIANTS).clamp(max=KINDS)  # the last one is noise
            kind_BSK = torch.nn.functional.one_hot(kind_BS, KINDS + 1).float()
            seen_RK = (weight_BRS @ kind_BSK).mean(0)
            axes.imshow(seen_RK.numpy(), cmap="Blues", vmin=0, vmax=1)
            for hop, row in enumerate(seen_RK.tolist()):
                for kind, weight in enumerate(row):
                    ink = "white" if weight > 0.5 else "black"
                    axes.text(kind, hop, f"{weight:.2f}", ha="center", va="center", color=ink, fontsize=9)
            axes.set_xticks(range(KINDS + 1), [*(f"kind {kind + 1}" for kind in range(KINDS)), "noise"], fontsize=8)
            axes.set_yticks(range(len(seen_RK)), [f"hop {hop + 1}" for hop in range(len(seen_RK))], fontsize=8)
            axes.set_title(f"penalty times {penalty:g}", fontsize=10, loc="left")


if __name__ == "__main__":
    main()
