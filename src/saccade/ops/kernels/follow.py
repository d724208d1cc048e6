# mypy: disable-error-code="no-untyped-def"
"""The point in a kernel from which on the one before it is over."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def follow(EARLY: tl.constexpr):
    """Wait until the kernel before has written everything, and let the next one begin.

    Before this, a kernel that began early reads only what was written two kernels ago or earlier, and writes nothing.
    """
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
