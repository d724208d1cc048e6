"""Chapter 2: attention in three lines, and where a network looks that writes its source backwards."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor

import saccade
from saccade.inspection.draw.figure import open_picture
from saccade.lab.claims.bottleneck import Kind, draw_batch, train
from saccade.models.seq2seq_attention import AttentionOptions, SourceAttention

PICTURE = Path(__file__).with_suffix(".png")
LENGTH, STEPS = 10, 500


def attend_by_hand(query_TD: Tensor, key_SD: Tensor, value_SV: Tensor) -> Tensor:
    """Score, normalise, average."""
    score_TS = query_TD @ key_SD.mT / math.sqrt(query_TD.shape[-1])
    weight_TS = score_TS.softmax(-1)
    return weight_TS @ value_SV


def read_weights(length: int, num_steps: int) -> Tensor:
    """Train a network to reverse, and return the weights [T, S] of one source."""
    network = train("reverse", Kind("luong", 64, AttentionOptions("general")), 1, longest=length, num_steps=num_steps)
    batch, seen = draw_batch("reverse", 1, length), list[Tensor]()
    aligner: SourceAttention = network.decoder.aligner
    forward = aligner.forward

    def look(*given: object, **options: object) -> Tensor:
        output, weights = forward(*given, **{**options, "return_weights": True})
        seen.append(weights[0])
        return output

    aligner.forward = look
    with torch.no_grad():
        network(batch.source_BS, batch.source_length_B, batch.read_BT)
    return torch.cat(seen)[:length, :length]


def main(picture: Path = PICTURE, num_steps: int = STEPS) -> None:
    """Compare, train, print and draw."""
    torch.manual_seed(1)
    query, key, value = torch.randn(2, 8), torch.randn(5, 8), torch.randn(5, 3)
    far = (attend_by_hand(query, key, value) - saccade.attend(query, key, value)).abs().max()
    print(f"by hand and by saccade.attend: {float(far):.1e} apart")
    weight_TS = read_weights(LENGTH, num_steps)
    looked = weight_TS.argmax(-1).tolist()
    print("writing symbol 1, 2, 3 ... it looked at " + ", ".join(str(place + 1) for place in looked))
    with open_picture(picture, (4.4, 3.8)) as figure:
        axes = figure.subplots()
        axes.imshow(weight_TS.numpy(), cmap="Blues", vmin=0, vmax=1, extent=(0.5, LENGTH + 0.5, LENGTH + 0.5, 0.5))
        axes.set_xlabel("place in the source")
        axes.set_ylabel("symbol that is written")
        axes.set_title("Where a network looks that reverses", fontsize=10, loc="left")


if __name__ == "__main__":
    main()
