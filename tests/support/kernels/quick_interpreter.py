"""Triton's interpreter, twice as fast: types of blocks, shapes and tuples are made once.

It makes them anew for each operation of each program, which is most of its time. It also computes whole numbers once
more to see whether they overflow, and then does not look. What it computes, and each of its checks, is the same.
"""

from __future__ import annotations

import builtins
import math
from functools import cached_property
from typing import Any

import numpy as np
import triton.language as tl
from triton.language import core, semantic
from triton.runtime import interpreter

_BLOCKS: dict[tuple[Any, ...], dict[str, Any]] = {}
_SHAPES: dict[tuple[int, ...], tuple[Any, Any]] = {}
_DTYPES: dict[Any, Any] = {}
_make_block, _dtype_of = core.block_type.__init__, interpreter._get_np_dtype
_look_for_overflow = semantic.TritonSemantic.binary_op_sanitize_overflow_impl
_POINTER = np.dtype(np.uint64)


def _block(self: Any, element_ty: Any, shape: Any) -> None:
    """Make a block's type as the first one of its elements and shape was made."""
    sizes = builtins.tuple([one.value if isinstance(one, core.constexpr) else one for one in shape])
    key = (type(element_ty), element_ty.name, getattr(element_ty, "address_space", None), sizes)
    if (made := _BLOCKS.get(key)) is None:
        _make_block(self, element_ty, shape)
        _BLOCKS[key] = dict(vars(self))
    else:
        vars(self).update(made)


def _tensor(self: Any, handle: Any, kind: Any) -> None:
    """Give a tensor its shape, which it shares with all others of this shape."""
    self.handle, self.type, self.dtype = handle, kind, kind.scalar
    sizes = builtins.tuple(kind.shape.values) if kind.is_block() else ()
    if (made := _SHAPES.get(sizes)) is None:
        shape = core.tuple([core.constexpr(size) for size in sizes])
        made = _SHAPES[sizes] = shape, core.constexpr(math.prod(sizes))
    self.shape, self.numel = made


def _tuple(self: Any, args: Any, kind: Any = None) -> None:
    """Keep the values; their type is worked out when somebody asks for it."""
    self.values = list(args)
    if kind is not None:
        self.type = kind if isinstance(kind, core.tuple_type) else core.tuple_type(kind)


def _equal(self: Any, other: Any) -> Any:
    values = other.values if isinstance(other, core.tuple) else other
    return core.constexpr(self.values == [core._unwrap_if_constexpr(one) for one in values])


def _dtype(kind: Any) -> Any:
    element = kind.element_ty if isinstance(kind, tl.block_type) else kind
    if isinstance(element, tl.pointer_type):
        return _POINTER
    if (made := _DTYPES.get(element)) is None:
        made = _DTYPES[element] = _dtype_of(element)
    return made


def _overflow(self: Any, *operands: Any) -> None:
    """Compute once more only where somebody looks at it."""
    if self.builder.options.debug:
        _look_for_overflow(self, *operands)


def hasten() -> None:
    """Put these into their places."""
    core.block_type.__init__, core.tensor.__init__ = _block, _tensor
    core.tuple.__init__, core.tuple.__eq__ = _tuple, _equal
    core.tuple.type = cached_property(lambda self: core._type_for_tuple_values(self.values))
    core.tuple.type.__set_name__(core.tuple, "type")
    interpreter._get_np_dtype = _dtype
    semantic.TritonSemantic.binary_op_sanitize_overflow_impl = _overflow
