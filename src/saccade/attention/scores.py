"""Scores: how well key s answers query t, e_ts = score(q_t, k_s).

Every score is a module with two methods:

    memory = score.memory(key_BSD)             the once-per-source work, returned and not kept
    score_BTS = score(query_BTD, memory)       the equation

`heads` gives a score one set of parameters per head: `Additive(64, 64, heads=(8,))` scores [B, 8, T, 64].
A score that is a dot product in disguise says so in `as_dot`, and then runs on fused kernels.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.ops.kernels.unit import unit
from saccade.ops.linear import project_heads

LOCATIONS = 512  # positions that the location score knows, unless it is told otherwise


class DotForm(NamedTuple):
    """A score spelled as scale * query · key; both broadcast to [..., T, K] and [..., S, K]."""

    query: Tensor
    key: Tensor
    scale: float


class Score(nn.Module):
    """The base of all scores. Widths left out are not checked; parameter-free scores need none."""

    reads_position: ClassVar[bool] = False  # the score depends on where the key stands, not only on what it is
    reads_query: ClassVar[bool] = True  # False: after normalising, every query gets the same weights
    equal_widths: ClassVar[bool] = False  # the equation needs D_q = D_k
    dots_memory: ClassVar[bool] = False  # `as_dot` takes the memory as its key, and both are as wide as the query

    def __init__(
        self, query_width: int | None = None, key_width: int | None = None, *, heads: tuple[int, ...] = ()
    ) -> None:
        super().__init__()
        if self.equal_widths and None not in (query_width, key_width) and query_width != key_width:
            given = f"query_width={query_width}, key_width={key_width}"
            raise ValueError(f"key_width: {given} given; {type(self).__name__} needs both alike")
        self.query_width, self.key_width, self.heads = query_width, key_width, heads

    @property
    def memory_width(self) -> int | None:
        """The width of what `memory` returns; None where it is the key's, and that was left out."""
        return self.key_width

    def memory(self, key_BSD: Tensor) -> Tensor:
        """Compute what depends on the keys alone, [..., S, width of the memory]."""
        return key_BSD

    def forward(self, query_BTD: Tensor, memory_BSD: Tensor) -> Tensor:
        """Score each query with each key, [..., T, S]."""
        raise NotImplementedError

    def as_dot(self, query_BTD: Tensor, memory_BSD: Tensor) -> DotForm | None:
        """Spell the same score, up to a constant in each row, as a dot product; None where it isn't one."""
        del query_BTD, memory_BSD
        return None

    def extra_repr(self) -> str:
        """Return the widths, as print shows them."""
        return f"query_width={self.query_width}, key_width={self.key_width}"

    def _parameter(self, *shape: int, std: float = 0.0, value: float | None = None) -> nn.Parameter:
        """Make a parameter of this shape for each head: normal with `std`, or all `value`. No shape: one number."""
        size = (*self.heads, *shape)
        return nn.Parameter(torch.randn(size) * std if value is None else torch.full(size, value))


class LearnedScore(Score):
    """A score with parameters: it must know both widths."""

    query_width: int
    key_width: int

    def __init__(self, query_width: int, key_width: int, *, heads: tuple[int, ...] = ()) -> None:
        for name, width in (("query_width", query_width), ("key_width", key_width)):
            if width < 1:
                raise ValueError(f"{name}: {width} given; it must be 1 or more")
        super().__init__(query_width, key_width, heads=heads)


@final
class Mean(Score):
    """e = 0: uniform weights, the average pooling that attention replaces."""

    reads_query = False
    memory_width = 0

    def memory(self, key_BSD: Tensor) -> Tensor:
        """Keep nothing but the number of keys."""
        return key_BSD[..., :0]

    def forward(self, query_BTD: Tensor, memory_BSD: Tensor) -> Tensor:
        """e = 0: the product of nothing with nothing."""
        return query_BTD[..., :0] @ memory_BSD.mT

    def as_dot(self, query_BTD: Tensor, memory_BSD: Tensor) -> DotForm:
        return DotForm(F.pad(query_BTD[..., :0], (0, 1)), F.pad(memory_BSD, (0, 1)), 1.0)


@final
class Dot(Score):
    """e = q·k (Luong 2015, section 3.1)."""

    equal_widths = True
    dots_memory = True

    def forward(self, query_BTD: Tensor, memory_BSD: Tensor) -> Tensor:
        return query_BTD @ memory_BSD.mT

    def as_dot(self, query_BTD: Tensor, memory_BSD: Tensor) -> DotForm:
        return DotForm(query_BTD, memory_BSD, 1.0)


@final
class ScaledDot(Score):
    """e = q·k / sqrt(d), of variance 1 where q and k have it (Vaswani 2017, section 3.2.1)."""

    equal_widths = True
    dots_memory = True

    def forward(self, query_BTD: Tensor, memory_BSD: Tensor) -> Tensor:
        """e = q·k / sqrt(d); the query is divided first, so that float16 overflows only where the score itself does."""
        return (query_BTD / math.sqrt(query_BTD.shape[-1])) @ memory_BSD.mT

    def as_dot(self, query_BTD: Tensor, memory_BSD: Tensor) -> DotForm:
        """Return query and memory unchanged, with the scale 1 / sqrt(d)."""
        return DotForm(query_BTD, memory_BSD, 1.0 / math.sqrt(query_BTD.shape[-1]))


@final
class General(LearnedScore):
    """e = qᵀ W k, the bilinear score (Luong 2015, section 3.1). W: [D_q, D_k]."""

    dots_memory = True

    def __init__(self, query_width: int, key_width: int, *, heads: tuple[int, ...] = ()) -> None:
        super().__init__(query_width, key_width, heads=heads)
        self.W = self._parameter(query_width, key_width, std=(query_width * key_width) ** -0.5)  # Var e = 1

    @property
    def memory_width(self) -> int:
        """W k is as wide as the query."""
        return self.query_width

    def memory(self, key_BSD: Tensor) -> Tensor:
        return project_heads(key_BSD, self.W)

    def forward(self, query_BTD: Tensor, memory_BSD: Tensor) -> Tensor:
        return query_BTD @ memory_BSD.mT

    def as_dot(self, query_BTD: Tensor, memory_BSD: Tensor) -> DotForm:
        return DotForm(query_BTD, memory_BSD, 1.0)


@final
class ReducedRank(LearnedScore):
    """e = (U q)·(V k), the bilinear score of rank r << d. U: [r, D_q], V: [r, D_k]."""

    def __init__(
        self, query_width: int, key_width: int, *, rank: int | None = None, heads: tuple[int, ...] = ()
    ) -> None:
        super().__init__(query_width, key_width, heads=heads)
        self.rank = max(1, min(query_width, key_width) // 4) if rank is None else rank
        if self.rank < 1:
            raise ValueError(f"rank: {rank} given; it must be 1 or more")
        self.U = self._parameter(self.rank, query_width, std=(query_width**2 * self.rank) ** -0.25)  # Var e = 1
        self.V = self._parameter(self.rank, key_width, std=(key_width**2 * self.rank) ** -0.25)

    @property
    def memory_width(self) -> int:
        return self.rank

    def memory(self, key_BSD: Tensor) -> Tensor:
        return project_heads(key_BSD, self.V)

    def forward(self, query_BTD: Tensor, memory_BSD: Tensor) -> Tensor:
        return project_heads(query_BTD, self.U) @ memory_BSD.mT

    def as_dot(self, query_BTD: Tensor, memory_BSD: Tensor) -> DotForm:
        return DotForm(project_heads(query_BTD, self.U), memory_BSD, 1.0)


@final
class Additive(LearnedScore):
    """e = vᵀ tanh(W q + U k + b) (Bahdanau 2015, section 3.1 and appendix A.1.2). W: [A, D_q], U: [A, D_k].

    Luong's concat, vᵀ tanh(W [q; k]), is the same with W split in two; so is the perceptron f_att (Xu 2015, 3.1.2).
    """

    def __init__(
        self,
        query_width: int,
        key_width: int,
        *,
        hidden_width: int | None = None,
        heads: tuple[int, ...] = (),
    ) -> None:
        super().__init__(query_width, key_width, heads=heads)
        hidden_width = key_width if hidden_width is None else hidden_width
        if hidden_width < 1:
            raise ValueError(f"hidden_width: {hidden_width} given; it must be 1 or more")
        self.W = self._parameter(hidden_width, query_width, std=query_width**-0.5)
        self.U = self._parameter(hidden_width, key_width, std=key_width**-0.5)
        self.b = self._parameter(hidden_width, std=0.0)
        self.v = self._parameter(hidden_width, std=hidden_width**-0.5)

    @property
    def memory_width(self) -> int:
        return self.v.shape[-1]

    def project(self, query_BTD: Tensor) -> Tensor:
        return project_heads(query_BTD, self.W)

    def memory(self, key_BSD: Tensor) -> Tensor:
        projected = project_heads(key_BSD, self.U)
        return projected + self.b.unsqueeze(-2).to(projected.dtype)

    def forward(self, query_BTD: Tensor, memory_BSD: Tensor) -> Tensor:
        """e = vᵀ tanh(W q + (U k + b)). Holds a [T, S, A] tensor; `kernels.additive` doesn't."""
        hidden_BTSA = torch.tanh(self.project(query_BTD).unsqueeze(-2) + memory_BSD.unsqueeze(-3))
        return (hidden_BTSA @ self.v[..., None, :, None]).squeeze(-1)


@final
class Concat(LearnedScore):
    """e = w·[q; k]. The query's part is the same for every key, so it cancels in any normaliser. w: [D_q + D_k]."""

    reads_query = False
    memory_width = 1

    def __init__(self, query_width: int, key_width: int, *, heads: tuple[int, ...] = ()) -> None:
        super().__init__(query_width, key_width, heads=heads)
        self.w = self._parameter(query_width + key_width, std=key_width**-0.5)  # Var e = 1 in a row

    def memory(self, key_BSD: Tensor) -> Tensor:
        """w's second part times k, once per source: [..., S, 1]."""
        return key_BSD @ self.w[..., self.query_width :, None]

    def forward(self, query_BTD: Tensor, memory_BSD: Tensor) -> Tensor:
        """e = w·[q; k], in its two parts."""
        return query_BTD @ self.w[..., : self.query_width, None] + memory_BSD.mT

    def as_dot(self, query_BTD: Tensor, memory_BSD: Tensor) -> DotForm:
        query_BT1 = query_BTD @ self.w[..., : self.query_width, None]
        return DotForm(F.pad(query_BT1, (0, 1), value=1.0), F.pad(memory_BSD, (1, 0), value=1.0), 1.0)


@final
class Cosine(LearnedScore):
    """e = β cos(q, k), content addressing with a learned sharpness β (Graves 2014, section 3.3.1).

    β starts at sqrt(d), where the score of random vectors has variance 1, as scaled dot has. A zero vector scores 0.
    """

    equal_widths = True
    dots_memory = True

    def __init__(self, query_width: int, key_width: int, *, heads: tuple[int, ...] = ()) -> None:
        super().__init__(query_width, key_width, heads=heads)
        self.beta = self._parameter(value=math.sqrt(key_width))

    def memory(self, key_BSD: Tensor) -> Tensor:
        return unit(key_BSD)

    def forward(self, query_BTD: Tensor, memory_BSD: Tensor) -> Tensor:
        """e = β (q / |q|)·(k / |k|)."""
        return self.beta[..., None, None] * (unit(query_BTD) @ memory_BSD.mT)

    def as_dot(self, query_BTD: Tensor, memory_BSD: Tensor) -> DotForm:
        return DotForm(unit(query_BTD, self.beta[..., None, None]), memory_BSD, 1.0)


@final
class Location(LearnedScore):
    """e_i = (W q)_i: position i's score from the query alone (Luong 2015, section 3.1). W: [max_length, D_q]."""

    reads_position = True
    memory_width = 0

    def __init__(
        self, query_width: int, key_width: int, *, max_length: int = LOCATIONS, heads: tuple[int, ...] = ()
    ) -> None:
        super().__init__(query_width, key_width, heads=heads)
        if max_length < 1:
            raise ValueError(f"max_length: {max_length} given; it must be 1 or more")
        self.max_length = max_length
        self.W = self._parameter(max_length, query_width, std=query_width**-0.5)

    def memory(self, key_BSD: Tensor) -> Tensor:
        """Keep nothing but the number of keys."""
        return key_BSD[..., :0]

    def forward(self, query_BTD: Tensor, memory_BSD: Tensor) -> Tensor:
        """e = W q, cut to the S positions that are there."""
        return query_BTD @ self._rows(memory_BSD).mT

    def as_dot(self, query_BTD: Tensor, memory_BSD: Tensor) -> DotForm:
        """q·W_i: the rows of W are the keys."""
        return DotForm(query_BTD, self._rows(memory_BSD), 1.0)

    def _rows(self, memory_BSD: Tensor) -> Tensor:
        num_keys = memory_BSD.shape[-2]
        if num_keys > self.max_length:
            raise ValueError(f"key: {num_keys} steps given; location was built for max_length={self.max_length}")
        return self.W[..., :num_keys, :]


SCORES: dict[str, type[Score]] = {
    "mean": Mean,
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "general": General,
    "reduced_rank": ReducedRank,
    "additive": Additive,
    "concat": Concat,
    "cosine": Cosine,
    "location": Location,
}
