"""saccade: attention models you can train, run fast and look into.

Tensor names carry their shape: B batch, N hypotheses, H heads, T query steps, S key steps, D model width, K head
width, V vocabulary, L layers, C channels, Y rows, X columns.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

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
    from saccade.runs.load import load_run as load
else:

    def __getattr__(name: str) -> object:
        # attention needs torch alone, `load` everything: each is imported when its name is first used
        if name not in __all__:
            raise AttributeError(f"module 'saccade' has no attribute {name!r}")
        if name == "load":
            found = import_module("saccade.runs.load").load_run
        else:
            found = getattr(import_module("saccade.attention"), name)
        return globals().setdefault(name, found)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


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
