"""saccade: attention models you can train, run fast and look into.

Tensor names carry their shape: B batch, N hypotheses, H heads, T query steps, S key steps, D model width, K head
width, V vocabulary, L layers, C channels, Y rows, X columns.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from saccade.errors import describe_missing

if TYPE_CHECKING:
    from saccade.api import evaluate, look, show, train, trust
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
    from saccade.runs.events import TrainingEvent
    from saccade.runs.load import load
    from saccade.tasks.base import Predictor
else:
    RUNS = {  # names that need the extra `run`
        "Predictor": "saccade.tasks.base:Predictor",
        "TrainingEvent": "saccade.runs.events:TrainingEvent",
        "evaluate": "saccade.api:evaluate",
        "load": "saccade.runs.load:load",
        "look": "saccade.api:look",
        "show": "saccade.api:show",
        "train": "saccade.api:train",
        "trust": "saccade.api:trust",
    }

    def __getattr__(name: str) -> object:
        # torch is imported with the first of these names, so that the command line starts at once
        if name not in __all__:
            raise AttributeError(f"module 'saccade' has no attribute {name!r}")
        try:
            return globals().setdefault(name, resolve_name(RUNS.get(name, f"saccade.attention:{name}")))
        except ModuleNotFoundError as error:
            if name not in RUNS:
                raise
            raise ImportError(describe_missing(f"saccade.{name}", error)) from error

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


try:
    __version__ = version("saccade")
except PackageNotFoundError:  # a source tree on the path, not installed: nothing tells its version
    __version__ = "0+unknown"

__all__ = [
    "NORMALIZERS",
    "SCORES",
    "LocalP",
    "MultiHeadAttention",
    "Predictor",
    "StructuredSelfAttention",
    "TrainingEvent",
    "__version__",
    "attend",
    "evaluate",
    "explain",
    "load",
    "look",
    "masks",
    "self_attend",
    "show",
    "train",
    "trust",
]
