"""torch operators whose arguments are written down once, as the fields of a NamedTuple.

torch reads an operator's arguments off a function's signature and takes tensors, numbers and lists of them only. The
operator, the shapes of its outputs, its gradient and its kernel would each repeat that signature. Here a parameter may
be a NamedTuple: the operator takes its fields one by one, and the functions get them together.

    @operator("saccade::scale", shapes=lambda given: torch.empty_like(given.x))
    def scale(given: ScaleInputs) -> Tensor: ...

    scale(*ScaleInputs(x, 2.0))
"""

from __future__ import annotations

import functools
import inspect
import itertools
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.library import CustomOpDef  # type: ignore[attr-defined]


def operator(
    name: str, *, shapes: Callable[..., Any], mutates: Iterable[str] = ()
) -> Callable[[Callable[..., Any]], CustomOpDef]:
    """Define a torch operator by the decorated function; `shapes` takes the same and returns empty outputs."""

    def define(function: Callable[..., Any]) -> CustomOpDef:
        hints = typing.get_type_hints(function)
        returned = hints.pop("return")
        defined = torch.library.custom_op(name, _flatten(function, hints, returned), mutates_args=mutates)
        defined.register_fake(_flatten(shapes, hints, returned))
        return defined

    return define


def _flatten(function: Callable[..., Any], hints: dict[str, Any], returned: Any) -> Callable[..., Any]:
    """Return the function with each NamedTuple among its parameters replaced by the fields of it."""

    @functools.wraps(function)
    def flat(*arguments: Any) -> Any:
        left = iter(arguments)
        return function(*(_take(left, hint) for hint in hints.values()))

    fields = [field for name, hint in hints.items() for field in _fields(hint, name)]
    flat.__signature__ = inspect.Signature(fields, return_annotation=returned)  # type: ignore[attr-defined]
    return flat


def _take(arguments: Iterator[Any], hint: Any) -> Any:
    """Take a parameter's value off the arguments; torch leaves out those at the end that equal their defaults."""
    return hint(*itertools.islice(arguments, len(hint._fields))) if hasattr(hint, "_fields") else next(arguments)


def _fields(hint: Any, name: str) -> Iterator[inspect.Parameter]:
    fields = typing.get_type_hints(hint) if hasattr(hint, "_fields") else {name: hint}
    defaults = getattr(hint, "_field_defaults", {})
    for field, kind in fields.items():
        default = defaults.get(field, inspect.Parameter.empty)
        yield inspect.Parameter(field, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)


def save(ctx: FunctionCtx, *values: Any) -> None:
    """Keep values for the backward pass: tensors as autograd wants them kept, the others as they are."""
    ctx.save_for_backward(*(value if isinstance(value, Tensor) else None for value in values))  # type: ignore[arg-type]
    ctx.others = tuple(None if isinstance(value, Tensor) else value for value in values)  # type: ignore[attr-defined]


def restore(ctx: FunctionCtx) -> list[Any]:
    """Return what `save` was given."""
    tensors, others = ctx.saved_tensors, ctx.others  # type: ignore[attr-defined]
    return [other if tensor is None else tensor for tensor, other in zip(tensors, others, strict=True)]
