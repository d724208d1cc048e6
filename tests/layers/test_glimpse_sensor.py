"""The sensor: the mean of the right pixels at every scale, zeros outside, and a cost without the image's size."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.layers.glimpse_sensor import GlimpseSensor


def by_hand(image_CYX: Tensor, top: int, left: int, size: int, scale: int) -> Tensor:
    """The patch whose middle is that of the first one, cut from a padded image and averaged."""
    edge, side = size * scale, size * scale
    padded = F.pad(image_CYX, (edge, edge, edge, edge))
    top, left = (start + size // 2 - side // 2 + edge for start in (top, left))
    return F.avg_pool2d(padded[:, top : top + side, left : left + side], scale)


def location(top: int, left: int, size: int, rows: int, columns: int) -> Tensor:
    return torch.tensor([2 * (left + size / 2) / columns - 1, 2 * (top + size / 2) / rows - 1])


@pytest.mark.parametrize("num_scales", [1, 2, 3, 4])
@pytest.mark.parametrize(("top", "left"), [(0, 0), (5, 9), (11, 3)])
def test_patches_are_means_of_pixels(num_scales: int, top: int, left: int) -> None:
    image_BCYX = torch.rand(3, 2, 17, 23)
    seen = GlimpseSensor(6, num_scales)(image_BCYX, location(top, left, 6, 17, 23).expand(3, 1, 2))
    assert seen.shape == (3, num_scales * 2, 6, 6)
    for row in range(3):
        patches = [by_hand(image_BCYX[row], top, left, 6, 2**scale) for scale in range(num_scales)]
        torch.testing.assert_close(seen[row], torch.cat(patches), atol=1e-5, rtol=0)


def test_an_odd_patch_at_a_pixels_middle() -> None:
    image = torch.arange(35.0).view(1, 1, 5, 7)
    seen = GlimpseSensor(3, 1)(image, location(1, 2, 3, 5, 7).view(1, 1, 2))
    torch.testing.assert_close(seen[0, 0], torch.tensor([[9.0, 10, 11], [16, 17, 18], [23, 24, 25]]))


def test_copies_of_an_image_look_elsewhere_and_batch_mates_change_nothing() -> None:
    image_BCYX, location_BM2 = torch.rand(3, 1, 19, 19), torch.rand(3, 5, 2) * 2 - 1
    sensor = GlimpseSensor(4, 3)
    together = sensor(image_BCYX, location_BM2).view(3, 5, 3, 4, 4)
    for row in range(3):
        for copy in range(5):
            alone = sensor(image_BCYX[row : row + 1], location_BM2[row, copy].view(1, 1, 2))
            torch.testing.assert_close(together[row, copy], alone[0])


def test_outside_the_image_all_is_black() -> None:
    seen = GlimpseSensor(4, 2)(torch.ones(1, 1, 8, 8), torch.tensor([[[1.0, 1.0]]]))
    assert seen[0, 0].tolist() == [[1.0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert seen[0, 1].sum() == 4


def test_channels_vary_fastest_in_memory() -> None:
    seen = GlimpseSensor(4, 3)(torch.rand(2, 1, 8, 8), torch.zeros(2, 1, 2))
    assert seen.is_contiguous(memory_format=torch.channels_last)


def test_what_is_read_does_not_grow_with_the_image() -> None:
    """Everything that is sampled is the same number of points: a location in a plain image sees the same anywhere."""
    sensor, small = GlimpseSensor(4, 3), torch.rand(1, 1, 16, 16)
    large = F.pad(small, (100, 100, 100, 100))
    torch.testing.assert_close(
        sensor(small, torch.zeros(1, 1, 2)), sensor(large, torch.zeros(1, 1, 2)), atol=1e-4, rtol=0
    )
    assert sensor.x_N1.shape == sensor.y_N1.shape == (16 * (1 + 1 + 4), 1)
