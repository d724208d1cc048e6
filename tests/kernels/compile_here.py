"""Compile the shipped kernels for an H200 (sm_90), without one: `python compile_here.py [all]`; a line for each.

The launchers run as they are, on CPU tensors; Triton is told of a device that isn't there, and only compiles.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import driver
from triton.runtime.jit import JITFunction


class Absent:
    """A driver that knows what it would compile for."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device


def compile_only() -> None:
    """From now on a launch compiles and prints what came out."""
    driver.set_active(Absent())
    run = JITFunction.run

    def compiled(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        del warmup
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        dtype = (args[0] if isinstance(args[0], torch.Tensor) else args[0].data).dtype
        print(self.fn.__name__, dtype, f"{kernel.metadata.shared} bytes shared")  # noqa: T201
        return kernel

    JITFunction.run = compiled


def resources(kernel: Any, signature: dict[str, Any], constants: dict[str, Any], options: dict[str, Any]) -> str:
    """Registers, stack and shared memory of a kernel, compiled for pointers to 16 bytes."""
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names) if signature[name][0] == "*"}
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        said = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return re.search(r"REG.*", said)[0]  # type: ignore[index]


def packed(dtype: torch.dtype, width: int, dropout: float, band: tuple[int | None, int | None]) -> None:
    """Forward and backward, the tensors slices of one projection as a model has them."""
    from saccade.attention.kernels.packed.op import packed_attention, packed_attention_backward

    start = torch.tensor([0, 20, 50, 64, 64], dtype=torch.int32)
    query, key, value = torch.randn(64, 3, 8, width, dtype=dtype).permute(1, 2, 0, 3)
    rules = (start, None, torch.zeros(1, dtype=torch.int64), width**-0.5, *band, dropout, 100)
    output, peak = packed_attention(query, key, value, *rules)
    packed_attention_backward(output, query, key, value, *rules, output, peak)


def crossing(dtype: torch.dtype) -> None:
    """Another row of keys, whose heads are shared by two of the query's, in a window."""
    from saccade.attention.kernels.packed.op import packed_attention, packed_attention_backward

    query, (key, value) = torch.randn(8, 64, 32, dtype=dtype), torch.randn(2, 4, 80, 32, dtype=dtype)
    starts = (torch.tensor([0, 20, 50, 64]), torch.tensor([0, 9, 70, 77]))
    rules = (*starts, None, 0.2, -5, 5, 0.0, 100)
    output, peak = packed_attention(query, key, value, *rules)
    packed_attention_backward(output, query, key, value, *rules, output, peak)


def step(dtype: torch.dtype, rows: int, ancestor: torch.Tensor | None, is_new: bool) -> None:
    """A decoder's step, its query a slice of one projection."""
    from saccade.attention.kernels.decode.step import step_attention

    query, key, value = torch.randn(rows, 3, 8, 64, dtype=dtype).unbind(1)
    caches = (torch.zeros(rows, 32, 8, 64, dtype=dtype), torch.zeros(rows, 32, 8, 64, dtype=dtype))
    new = (key, value) if is_new else (None, None)
    step_attention(query, *caches, torch.zeros(rows, dtype=torch.int32), ancestor, *new, 0.125)


def streamed(
    dtype: torch.dtype,
    width: int,
    num_keys: int,
    kind: str,
    mask: torch.Tensor | None = None,
    high: int | None = None,
    is_local: bool = False,
    dropout: float = 0.0,
) -> None:
    """Forward and backward, the tensors slices of a projection as a model has them; four heads share two of keys."""
    from saccade.attention.kernels.sparse.op import streamed_attention, streamed_attention_backward

    query, keys = (torch.randn(2, num_keys, heads, width, dtype=dtype).transpose(1, 2) for heads in (4, 2))
    centre = torch.rand(2, 4, num_keys) if is_local else None
    more = (mask, centre, torch.zeros(1, dtype=torch.int64), kind, 0.125, None, high, 5, dropout)
    output, peak = streamed_attention(query, keys, keys, *more)
    streamed_attention_backward(output, query, keys, keys, *more, peak)


if __name__ == "__main__":
    compile_only()
    for dtype in (torch.bfloat16, torch.float32):
        packed(dtype, 64, 0.1, (None, 0))
    packed(torch.float16, 40, 0.0, (None, None))
    crossing(torch.bfloat16)
    step(torch.bfloat16, 64, torch.zeros(64, 32, dtype=torch.int32), is_new=True)
    step(torch.bfloat16, 600, torch.zeros(600, dtype=torch.int32), is_new=False)
    step(torch.float32, 600, None, is_new=True)
    by_key, by_pair = torch.ones(2, 1, 1, 400, dtype=torch.bool), torch.ones(1, 1, 100, 100, dtype=torch.bool)
    streamed(torch.bfloat16, 64, 400, "entmax15", by_key, high=0, dropout=0.1)
    streamed(torch.bfloat16, 64, 100, "softmax", by_pair, is_local=True)
    if "all" in sys.argv:  # every tiling that is shipped: a minute
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            for width in (64, 128, 256):
                for num_keys in (100, 400):
                    streamed(dtype, width, num_keys, "sparsemax")
