"""Judges a reader's own `attend`, from the exercises of the course, against the reference: a line for each property."""

from __future__ import annotations

import inspect
import math
import runpy
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from saccade.attention.normalizers import Softmax
from saccade.errors import UserError

Attend = Callable[..., Any]  # (query [..., T, D], key [..., S, D], value [..., S, V], mask) -> output, weights
CLOSE = 1e-5
T, S, D, V = 3, 5, 16, 7


class PropertyCheck(NamedTuple):
    """A property, and what is wrong with it; None: it holds."""

    name: str
    problem: str | None
    hint: str = ""

    def line(self) -> str:
        """Return one line for people."""
        if self.problem is None:
            return f"ok    {self.name}"
        return f"WRONG {self.name}: {self.problem}{f'; {self.hint}' if self.hint else ''}"


class _CheckFailed(Exception):
    """Raised by a check; the message says what is wrong."""


def load(path: Path) -> Attend:
    """Run a reader's file and return its `attend`."""
    try:
        found = runpy.run_path(str(path)).get("attend")
    except FileNotFoundError:
        raise UserError(f"there is no file at {path}") from None
    except (Exception, SystemExit) as error:
        raise UserError(f"{path}{_name_line(error, path)}: {_describe(error)}") from None
    if not callable(found):
        raise UserError(f"{path}: it defines no function attend; the course's chapter 2 says what it takes and returns")
    return found


def judge(attend: Attend, path: Path) -> Iterator[PropertyCheck]:
    """Yield the verdict on each property, each by itself; those of masks only if it takes one."""
    first, *others = BASIC
    yield (found := _try(*first, attend, path))
    if found.problem is not None:
        return  # nothing else can be asked
    for name, check, hint in others:
        yield _try(name, check, hint, attend, path)
    try:
        takes_mask = "mask" in inspect.signature(attend).parameters
    except (TypeError, ValueError):
        takes_mask = False
    for name, check, hint in MASKED if takes_mask else ():
        yield _try(name, check, hint, attend, path)


def _try(name: str, check: Callable[[Attend], None], hint: str, attend: Attend, path: Path) -> PropertyCheck:
    torch.manual_seed(1)
    try:
        check(attend)
    except _CheckFailed as wrong:
        return PropertyCheck(name, str(wrong), hint)
    except Exception as error:
        return PropertyCheck(name, f"it failed{_name_line(error, path)}: {_describe(error)}")
    return PropertyCheck(name, None)


def _name_line(error: BaseException, path: Path) -> str:
    """Name the line of the reader's file that failed."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    return f", line {own[-1].lineno}" if own else ""


def _describe(error: BaseException) -> str:
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {' '.join(said.split())[:120]}" if said else type(error).__name__


def reference(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return what is right: softmax(q·k / sqrt(D)) over the allowed keys, and its weighted sum of values."""
    weights = Softmax()(query @ key.mT / math.sqrt(query.shape[-1]), mask)
    return weights @ value, weights


def _draw(*leading: int, width: int = D) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.randn(*leading, *size) for size in ((T, width), (S, width), (S, V)))  # type: ignore[return-value]


def _ask(attend: Attend, *given: Any, **options: Any) -> tuple[Tensor, Tensor]:
    found = attend(*given, **options)
    if not (isinstance(found, tuple) and len(found) == 2 and all(isinstance(one, Tensor) for one in found)):
        raise _CheckFailed(f"it returns {type(found).__name__}; wanted: two tensors, (output, weights)")
    return found


def _compare(what: str, found: Tensor, wanted: Tensor, bound: float = CLOSE) -> None:
    if found.shape != wanted.shape:
        raise _CheckFailed(f"{what} has the shape {list(found.shape)}; wanted: {list(wanted.shape)}")
    if not found.isfinite().all():
        raise _CheckFailed(f"{what} has {int((~found.isfinite()).sum())} numbers that are not finite")
    if (far := float((found - wanted).detach().abs().max())) > bound:
        raise _CheckFailed(f"{what} is off by up to {far:.2g}")


def _shapes(attend: Attend) -> None:
    given = _draw()
    for what, found, wanted in zip(("output", "weights"), _ask(attend, *given), reference(*given), strict=True):
        _compare(what, torch.zeros_like(found), torch.zeros_like(wanted))


def _sums(attend: Attend) -> None:
    weights = _ask(attend, *_draw())[1]
    if (lowest := float(weights.min())) < 0:
        raise _CheckFailed(f"a weight is {lowest:.2g}")
    _compare("the sum of a row", weights.sum(-1), torch.ones(weights.shape[:-1]))


def _weights(attend: Attend) -> None:
    given = _draw(width=1)  # where scaling changes nothing
    _compare("at width 1, the weight of a key", _ask(attend, *given)[1], reference(*given)[1])


def _scale(attend: Attend) -> None:
    given = _draw(width=256)
    _compare("at width 256, the weight of a key", _ask(attend, *given)[1], reference(*given)[1])


def _output(attend: Attend) -> None:
    query, key, value = _draw()
    output, weights = _ask(attend, query, key, value)
    _compare("output", output, weights @ value)


def _order(attend: Attend) -> None:
    query, key, value = _draw()
    order = torch.tensor([3, 0, 4, 2, 1])
    output, weights = _ask(attend, query, key, value)
    permuted, moved = _ask(attend, query, key[order], value[order])
    _compare("output", permuted, output)
    _compare("weights", moved, weights[:, order])


def _batches(attend: Attend) -> None:
    query, key, value = _draw(2, 4)
    output, weights = _ask(attend, query, key, value)
    alone = [_ask(attend, query[1, place], key[1, place], value[1, place]) for place in range(4)]
    _compare("output", output[1], torch.stack([one for one, _ in alone]))
    _compare("weights", weights[1], torch.stack([one for _, one in alone]))


def _large(attend: Attend) -> None:
    query, key, value = _draw()
    weights = _ask(attend, 1000 * query, 1000 * key, value)[1]
    _compare("the sum of a row", weights.sum(-1), torch.ones(T))


def _gradients(attend: Attend) -> None:
    given = tuple(tensor.double().requires_grad_() for tensor in _draw(width=2))
    found = torch.autograd.grad(_ask(attend, *given)[0].square().sum(), given, allow_unused=True)
    for name, gradient in zip(("query", "key", "value"), found, strict=True):
        if gradient is None:
            raise _CheckFailed(f"no gradient reaches {name}")
    if not torch.autograd.gradcheck(lambda *each: _ask(attend, *each)[0], given, raise_exception=False):
        raise _CheckFailed("they are not those of finite differences")


def _forbidden(attend: Attend) -> None:
    (query, key, value), mask = _draw(), torch.tensor([[1, 1, 0, 0, 1], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]]).bool()
    weights = _ask(attend, query, key, value, mask=mask)[1]
    if (largest := float(weights[~mask].abs().nan_to_num(torch.inf).max())) > 0:
        raise _CheckFailed(f"a forbidden key weighs {largest:.2g}; wanted: exactly 0")
    for row, allowed in enumerate(mask):
        alone = _ask(attend, query[row : row + 1], key[allowed], value[allowed])[1]
        _compare("the weight of an allowed key", weights[row : row + 1, allowed], alone)


def _blind(attend: Attend) -> None:
    given, mask = [tensor.requires_grad_() for tensor in _draw()], torch.ones(T, S).bool()
    mask[1] = False
    output, weights = _ask(attend, *given, mask=mask)
    _compare("its weights", weights[1], torch.zeros(S))
    gradients = torch.autograd.grad(output.sum(), given)
    if not all(gradient.isfinite().all() for gradient in gradients):
        raise _CheckFailed("its gradient is not finite")


Check = tuple[str, Callable[[Attend], None], str]
BASIC: tuple[Check, ...] = (
    ("returns output [T, V] and weights [T, S]", _shapes, "output = weights @ value"),
    ("weights are not negative, and those of a query sum to 1", _sums, "softmax over the last axis, the keys"),
    ("weights are a softmax of q·k", _weights, "look at the score, and at the axis of softmax"),
    ("q·k is divided by sqrt(D)", _scale, "divide by the square root of the width of the query"),
    ("output is the weighted sum of values", _output, ""),
    ("the order of the keys doesn't matter", _order, "nothing may depend on the place of a key"),
    ("batches and heads in front", _batches, "count axes from the end: key.mT, softmax(-1)"),
    ("large scores don't overflow", _large, "subtract each row's largest score before exp, or use torch's softmax"),
    ("gradients are right", _gradients, "don't detach, and compute with torch alone"),
)
MASKED: tuple[Check, ...] = (
    ("mask: forbidden keys weigh 0", _forbidden, "True = may attend; forbid before softmax"),
    (
        "mask: a query without any key gets zeros",
        _blind,
        "fill with a large number below 0, not -inf; then with 0",
    ),
)
