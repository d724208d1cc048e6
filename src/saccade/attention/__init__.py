"""Every attention: scores, normalisers, masks, and `attend` that joins them."""

from saccade.attention import masks
from saccade.attention.attend import KeyValue, attend, explain, self_attend
from saccade.attention.kernels.select import BACKENDS, Choice
from saccade.attention.masks import LocalP, Mask
from saccade.attention.multihead import MultiHeadAttention
from saccade.attention.normalizers import NORMALIZERS
from saccade.attention.scores import SCORES, Score
from saccade.attention.structured import StructuredSelfAttention

__all__ = [
    "BACKENDS",
    "NORMALIZERS",
    "SCORES",
    "Choice",
    "KeyValue",
    "LocalP",
    "Mask",
    "MultiHeadAttention",
    "Score",
    "StructuredSelfAttention",
    "attend",
    "explain",
    "masks",
    "self_attend",
]
