"""The encoder of clips: a place sees its frame and those beside it, and nothing behind the end of the clip."""

from __future__ import annotations

import pytest
import torch

from saccade.layers.clip_encoder import ClipEncoder


def build() -> ClipEncoder:
    return ClipEncoder(16, frames=7, rows=12, columns=8).double()


@pytest.mark.parametrize("frame", [0, 2, 4])
def test_a_frame_is_seen_in_its_moment_and_beside_it(frame: int) -> None:
    encoder, clip = build(), torch.randint(0, 256, (1, 5, 3, 12, 8))
    changed = clip.clone()
    changed[:, frame, :, 5, 5] = 255 - changed[:, frame, :, 5, 5]
    moved_F = (encoder(clip) != encoder(changed)).any(-1).view(5, 6).any(-1)
    assert moved_F.tolist() == [abs(at - frame) <= 1 for at in range(5)]


def test_padding_and_batch_mates_change_nothing() -> None:
    encoder, clip = build(), torch.randint(0, 256, (3, 5, 3, 12, 8))
    padded = torch.cat([clip, clip.new_zeros(3, 2, 3, 12, 8)], 1)
    torch.testing.assert_close(encoder(padded)[1:2, : 5 * 6], encoder(clip[1:2]))


def test_a_place_knows_when_it_is() -> None:
    encoder = build()
    same = encoder(torch.zeros(1, 4, 3, 12, 8)).detach().view(4, 6, 16)
    moved_FD = (same - same[:1])[:, 0]
    torch.testing.assert_close(moved_FD, (encoder.time_FD[:4] - encoder.time_FD[0]).detach())


def test_mistakes_are_named() -> None:
    encoder = build()
    wanted = r"this model reads 1 to 7 of 3 x 12 x 8 \(channels, rows, columns\)"
    with pytest.raises(ValueError, match=f"clip: 8 frames of 3 x 12 x 8 given; {wanted}"):
        encoder(torch.zeros(1, 8, 3, 12, 8))
    with pytest.raises(ValueError, match=f"clip: 2 frames of 3 x 8 x 8 given; {wanted}"):
        encoder(torch.zeros(1, 2, 3, 8, 8))
    with pytest.raises(ValueError, match="clip: 0 frames"):
        encoder(torch.zeros(1, 0, 3, 12, 8))
