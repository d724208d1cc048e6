"""Compiles every shipped configuration of the fused kernels for Hopper, without a device; prints those that spill.

A script of its own: in the tests' process kernels are interpreted, and those cannot be compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton
from compile_here import resources  # type: ignore[import-not-found]

from saccade.ops.kernels import embedding, embedding_gradient, float8, masked_product, narrow, residual
from saccade.ops.kernels.columns import MASKED_SUMS, SUMS, TOTALS, _columns_kernel
from saccade.training.kernels import adam, cross_entropy

STREAM = tuple(
    f"{name}_ptr" for name in ("branch", "x", "y", "grad", "second", "grad_sum", "grad_branch", "hidden", "masked")
)
OTHERS: dict[str, Any] = {
    "logits_ptr": "*bf16",
    "bits_ptr": "*i32",
    "rows_ptr": "*fp8e4nv",
    "turned_ptr": "*fp8e4nv",
    "heights": ("i32",) * 3,
    **dict.fromkeys(("weight_ptrs", "bias_ptrs"), ("*fp32",) * 3),
    **dict.fromkeys(("narrow_ptr", "narrow_bias_ptr"), "*bf16"),
    "key_ptr": "*i16",
    **dict.fromkeys(("piece_ptr", "first_ptr"), "*i32"),
    **dict.fromkeys(
        ("address_ptr", "grad_address_ptr", "seed_ptr", "target_ptr", "id_ptr", "place_ptr", "order_ptr"), "*i64"
    ),
    **dict.fromkeys(("num_rows", "num_places", "half", "threshold", "num_entries", "num_turned", "width"), "i32"),
    **dict.fromkeys(("num_before", "num_first"), "i32"),
    **dict.fromkeys(("factor", "scale", "epsilon", "smoothing", "rate"), "fp32"),
}


def main() -> None:
    """One line a configuration that keeps registers in memory; nothing if all is well."""
    for kernel, constants, warps in configurations():
        for stream in ("*bf16", "*fp32") if constants.get("WIDTH") == 512 else ("*bf16",):
            used = usage(kernel, constants, warps, stream)
            if "STACK:0 " not in used:
                print(kernel.fn.__name__, constants, warps, stream, used)  # noqa: T201
    for kernel, constants, warps, stream in gradients_of_embeddings():
        used = usage(kernel, constants, warps, stream)
        if "STACK:0 " not in used:
            print(kernel.fn.__name__, constants, warps, stream, used)  # noqa: T201
    for kernel, constants, blocks in rows_of_logits():
        used = usage(kernel, constants, blocks.warps, "*bf16", blocks.registers)
        if "STACK:0 " not in used:
            print(kernel.fn.__name__, constants, blocks, used)  # noqa: T201

    used = product_that_is_masked()
    if "STACK:0 " not in used:
        print("masked product", used)  # noqa: T201


def configurations() -> Iterator[tuple[Any, dict[str, Any], int]]:
    """Widths of recipes and an odd one; the parts in use."""
    for width in (37, 512, 1024):
        padded = triton.next_power_of_2(width)
        for adds, drops, norms, keeps in ((1, 1, 1, 0), (1, 1, 1, 1), (0, 0, 1, 0), (1, 1, 0, 0)):
            absent = [*([] if adds else ["x_ptr"]), *([] if drops else ["seed_ptr"])]
            flags: dict[str, Any] = {"WIDTH": width, "PADDED": padded, "ADDS": bool(adds), "DROPS": bool(drops)}
            blocks = residual.forward_blocks(width)
            parts = (
                flags
                | {"NORMS": bool(norms), "KEEPS": bool(keeps), "ROWS": blocks.rows, "EARLY": False}
                | dict.fromkeys(absent)
            )
            missing = {} if norms else dict.fromkeys(("weight_ptr", "bias_ptr"))
            yield residual._forward_kernel, parts | missing, blocks.warps
            if norms:
                flags = {name: flags[name] for name in ("WIDTH", "PADDED", "ADDS", "DROPS")}
                blocks = residual.backward_blocks(width)
                absent += ["x_ptr", "y_ptr"] if keeps else ["grad_total_ptr"]
                flags |= {"ADDS": bool(adds and not keeps), "KEPT": bool(keeps), "STAGES": blocks.stages}
                flags |= {"SUMS": bool(adds)}
                parts = flags | {"ROWS": blocks.rows} | dict.fromkeys(absent)
                yield residual._backward_kernel, parts, blocks.warps
    blocks = residual.forward_blocks(512)
    parts = {"WIDTH": 512, "PADDED": 512, "PLACED": True, "DROPS": True, "ROWS": blocks.rows, "EARLY": True}
    yield embedding._kernel, parts, blocks.warps
    for width in (37, 512, 2048):
        for tile, masks in ((SUMS, False), (MASKED_SUMS, True), (TOTALS, False)):
            parts = {"WIDTH": width, "ROWS": tile.rows, "COLUMNS": tile.columns, "STAGES": tile.stages, "MASKS": masks}
            absent = [] if masks else ["hidden_ptr", "masked_ptr"]
            yield _columns_kernel, parts | dict.fromkeys(absent), tile.warps
    parts = {"WIDTH": 512, "BIASED": True, "NUMBERS": narrow.NUMBERS}
    yield narrow._narrow_kernel, parts, narrow.WARPS
    for is_even in (True, False):
        parts = {"EVEN": is_even, "TARGET": triton.language.bfloat16, "NUMBERS": narrow.NUMBERS}
        yield narrow._many_kernel, parts, narrow.WARPS
        rules = {"BETA": 0.9, "LOG_BETA": -0.1, "BETA_OF_SQUARES": 0.98, "LOG_BETA_OF_SQUARES": -0.02, "EPSILON": 1e-9}
        yield (
            adam._adam_kernel,
            parts | rules | {"DECAY": 0.1, "DECOUPLED": is_even, "NUMBERS": adam.NUMBERS},
            adam.WARPS,
        )
    cut = float8.BLOCKS
    yield float8._largest_kernel, {"ENTRIES": cut.entries}, cut.warps
    limits = {"LARGEST": 448.0, "SMALLEST": 1e-30}
    yield float8._narrow_kernel, limits | {"ROWS": cut.rows, "COLUMNS": cut.columns}, cut.warps


def gradients_of_embeddings() -> Iterator[tuple[Any, dict[str, Any], int, str]]:
    """Each dtype has its own tile."""
    joined = embedding_gradient.JOINED
    for width in (37, 512, 1024):
        for cut, stream in ((embedding_gradient.SUMS, "*bf16"), (embedding_gradient.EXACT_SUMS, "*fp32")):
            parts = {"WIDTH": width, "ROWS": cut.rows, "COLUMNS": cut.columns}
            padded = triton.next_power_of_2(width)
            flags = {"TWO": True, "DROPS": True, "PADDED": padded}
            yield embedding_gradient._sums_kernel, parts | flags, cut.warps, stream
            parts |= {"CHUNKS": joined.rows, "COLUMNS": joined.columns}
            yield embedding_gradient._join_kernel, parts, joined.warps, stream


def rows_of_logits() -> Iterator[tuple[Any, dict[str, Any], cross_entropy.LossBlocks]]:
    """Vocabularies kept with 64 registers a thread, odd ones that fill them, with 128, and read twice."""
    for vocabulary in (3, 12_000, 37_000, 40_953, 90_105, 128_000):
        width = triton.cdiv(vocabulary, 8) * 8
        blocks = cross_entropy.blocks_for(torch.empty(1, width, dtype=torch.bfloat16)[:, :vocabulary])
        columns = min(blocks.columns, triton.next_power_of_2(width))
        parts = {"STRIDE": width, "VOCABULARY": vocabulary, "WIDTH": width, "COLUMNS": columns}
        yield cross_entropy._read_once if blocks.keeps else cross_entropy._read_twice, parts, blocks


def product_that_is_masked() -> str:
    """Of matrices that the accelerator copies by tiles."""
    cut, kernel = masked_product.BLOCKS, masked_product._masked_product_kernel
    tiles = {"grad": (cut.rows, cut.step), "weight": (cut.step, cut.columns)}
    tiles |= dict.fromkeys(("hidden", "masked"), (cut.rows, cut.columns))
    constants = {"DEPTH": 512, "WIDTH": 2048, "ROWS": cut.rows, "COLUMNS": cut.columns, "STEP": cut.step}
    constants |= {"GROUP": cut.group}
    signature = {name: f"tensordesc<bf16[{height}, {width}]>" for name, (height, width) in tiles.items()}
    signature |= {"sum_ptr": "*fp32", "num_rows": "i32"} | dict.fromkeys(constants, "constexpr")
    return str(resources(kernel, signature, constants, {"num_warps": cut.warps, "num_stages": cut.stages}))


def usage(kernel: Any, constants: dict[str, Any], warps: int, stream: str, registers: int | None = None) -> str:
    """Registers, stack and shared memory of a compiled kernel."""
    types = dict.fromkeys(STREAM, stream) | OTHERS
    signature = {name: "constexpr" if name in constants else types.get(name, "*fp32") for name in kernel.arg_names}
    return str(resources(kernel, signature, constants, {"num_warps": warps, "maxnreg": registers}))


if __name__ == "__main__":
    main()
