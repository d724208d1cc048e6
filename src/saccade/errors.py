"""Errors that the command line tells in one line, and what is said of a missing library."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MEMORY_SIGNS = (  # in messages of torch and numpy
    "can't allocate memory",
    "could not create a primitive",
    "not enough memory",
    "out of memory",
    "bad_alloc",
    "Storage size calculation overflowed",
    "Maximum allowed dimension exceeded",
    "array is too big",
)


class UserError(ValueError):
    """Bad input: the message says what was wrong, where, and what is allowed. The command line exits with 2."""


class NonFiniteLoss(RuntimeError):
    """Raised when the loss was infinite or not a number too often in a row. The command line exits with 1."""


class LostProcess(RuntimeError):
    """Raised when another process of a training has ended. The command line exits with 1."""


def describe_missing(user: str, error: ModuleNotFoundError, extra: str = "run") -> str:
    """Name the library that `user` needs, and the line that installs it."""
    return f"{user} needs {error.name}: pip install 'saccade[{extra}]'"


def suggest(name: str, names: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the nearest one of these, or all of them."""
    names = list(names)
    near = difflib.get_close_matches(name, names, n=1)
    return f" (did you mean {near[0]}?)" if near else f"; allowed: {', '.join(names)}"


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that memory does not suffice."""
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in MEMORY_SIGNS)
