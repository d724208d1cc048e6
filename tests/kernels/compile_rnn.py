"""Compiles the kernels of RNN training for Hopper, without a device; prints those that spill.

A script of its own: in the tests' process kernels are interpreted, and those cannot be compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from compile_here import resources  # type: ignore[import-not-found]

from saccade.attention.kernels.additive import step_triton as additive
from saccade.layers.recurrent.kernels import heads
from saccade.ops.kernels import gru, maxout

WIDE = ("state", "wide", "grad_wide", "grad_state", "score", "log_sum")
NUMBERS = {"length": "*i64", "num_keys": "i32", "num_steps": "i32", "num_pairs": "i32", **dict.fromkeys(WIDE, "*fp32")}


HEADS = (heads._forward_kernel, heads._backward_kernel)


def main() -> None:
    """One line a configuration that keeps registers in memory; nothing if all is well."""
    for kernel, constants in configurations():
        for kind in ("bf16", "fp32") if kernel not in HEADS else ("fp32",):
            used = usage(kernel, dict(constants), kind)
            if "STACK:0 " not in used:
                print(kernel.fn.__name__, constants, kind, used)  # noqa: T201


def configurations() -> Iterator[tuple[Any, dict[str, Any]]]:
    """The sizes of a recipe, and odd ones."""
    for num_rows, num_keys, width in ((80, 30, 1000), (512, 30, 1000), (4, 1024, 33)):
        memory = torch.empty(num_rows, num_keys, width, device="meta")
        constants = additive.constants(memory, memory)
        constants["SIZES"] = constants["SIZES"]._replace(is_fast=True)
        for kernel in (additive._forward, additive._backward):
            yield kernel, constants
    for width in (33, 1000):
        constants = gru.constants(torch.empty(1, width, device="meta"))
        for known in ({}, {"known": None}):
            yield gru._forward_kernel, constants | known
        for absent in ({}, {"grad_wide": None}, {"grad_narrow": None, "known": None}):
            yield gru._backward_kernel, constants | absent
    for kernel in HEADS:
        for places, cells in ((128, 20), (7, 5)):
            yield kernel, heads.constants(torch.empty(1, places, cells, device="meta"))
    for kernel in (maxout._forward_kernel, maxout._backward_kernel):
        yield kernel, {"BLOCK": maxout.BLOCK, "num_warps": maxout.WARPS}


def usage(kernel: Any, constants: dict[str, Any], kind: str) -> str:
    """Registers, stack and shared memory of a compiled kernel."""
    options = {"num_warps": constants.pop("num_warps")}
    signature = {n: "constexpr" if n in constants else NUMBERS.get(n, f"*{kind}") for n in kernel.arg_names}
    return str(resources(kernel, signature, constants, options))


if __name__ == "__main__":
    main()
