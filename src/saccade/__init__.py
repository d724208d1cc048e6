"""saccade: attention models you can train, run fast and look into.

Tensor names carry their shape: B batch, N hypotheses, H heads, T query steps, S key steps, D model width, K head
width, V vocabulary, L layers, C channels, Y rows, X columns.
"""

from importlib.metadata import version

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
