"""saccade: attention models you can train, run fast and look into.

Tensor names carry their shape: B batch, N hypotheses, H heads, T query steps, S key steps, D model width, K head
width, V vocabulary, L layers, C channels, Y rows, X columns.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.errors import describe_missing

if TYPE_CHECKING:
    from saccade.attention import (
        NORMALIZERS,
        SCORES,
        LocalP,
        MultiHeadAttention,
        StructuredSelfAttention,
        attend,
        explain,
        masks,
        self_attend,
    )
else:

    def __getattr__(name: str) -> object:
        # torch is imported with the first of these names, so that the command line starts at once
        if name not in __all__:
            raise AttributeError(f"module 'saccade' has no attribute {name!r}")
        return globals().setdefault(name, getattr(import_module("saccade.attention"), name))

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


def load(folder: Path | str, *others: Path | str) -> Any:
    """Load a trained run: a `Predictor`, of a class that depends on its task.

    Several are an ensemble, decoded as the first one says.
    """
    try:
        from saccade.runs.load import load_run
    except ModuleNotFoundError as error:
        raise ImportError(describe_missing("saccade.load", error)) from error
    return load_run(folder, *others)


__version__ = version("saccade")

__all__ = [
    "NORMALIZERS",
    "SCORES",
    "LocalP",
    "MultiHeadAttention",
    "StructuredSelfAttention",
    "__version__",
    "attend",
    "explain",
    "load",
    "masks",
    "self_attend",
]
