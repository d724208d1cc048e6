"""Matrices in float8, interpreted: what torch rounds to, as they are and turned."""

from __future__ import annotations

import pytest
import torch

from saccade.ops import float8


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("shape", [(64, 64), (61, 37), (1, 16), (130, 5)])
def test_it_is_torchs(shape: tuple[int, int], dtype: torch.dtype) -> None:
    from saccade.ops.kernels import float8 as kernel

    for wide in (torch.float32, torch.bfloat16):
        for factor in (1.0, 1e-6, 3e4, 0.0):
            x_RD = (factor * torch.randn(shape)).to(wide)
            theirs = float8.narrow(x_RD, dtype)
            ours = float8.Narrow(*kernel.narrow(x_RD, kernel.largest(x_RD), dtype, float8.SMALLEST))
            assert ours.turned_DR.shape == theirs.turned_DR.shape
            assert ours.scale == theirs.scale
            assert_same(ours.rows_RD, theirs.rows_RD)
            assert_same(ours.turned_DR, theirs.turned_DR)


def assert_same(mine: torch.Tensor, other: torch.Tensor) -> None:
    """But for the interpreter, which rounds ties up and forgets to carry to the next power of two; a device doesn't."""
    smallest = torch.finfo(other.dtype).smallest_normal * torch.finfo(other.dtype).eps  # above 0
    mine, other = mine.float(), other.float()
    is_carried = (torch.frexp(other)[0].abs() == 0.5) & (2 * mine == other)
    is_near = (mine - other).abs() <= (0.25 * other.abs()).clamp_min(smallest)
    assert (is_carried | is_near).all()
    assert (mine != other).float().mean() < 0.1 or mine.numel() < 100


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_stays_so(bad: float) -> None:
    from saccade.ops.kernels import float8 as kernel

    x_RD = torch.randn(20, 16)
    x_RD[3, 5] = bad
    ours = kernel.narrow(x_RD, kernel.largest(x_RD), torch.float8_e4m3fn, float8.SMALLEST)
    for narrow in (float8.Narrow(*ours), float8.narrow(x_RD, torch.float8_e4m3fn)):
        assert not (narrow.rows_RD.float() * narrow.scale)[3, 5].isfinite()
        assert not (narrow.turned_DR.float() * narrow.scale)[5, 3].isfinite()
