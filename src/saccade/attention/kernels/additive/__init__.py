"""Additive attention: tiles for a CPU, and CUDA C++ and Triton for an accelerator."""

from pathlib import Path


def sources(*names: str) -> tuple[Path, ...]:
    """Name CUDA C++ files of this folder."""
    return tuple(Path(__file__).with_name("cuda") / name for name in names)
