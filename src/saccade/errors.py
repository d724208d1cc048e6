"""Errors that the command line tells in one line, and what is said of a missing library."""

from __future__ import annotations


class UserError(ValueError):
    """Bad input: the message says what was wrong, where, and what is allowed. The command line exits with 2."""


class NonFiniteLoss(RuntimeError):
    """Raised when the loss was infinite or not a number too often in a row. The command line exits with 1."""


def describe_missing(user: str, error: ModuleNotFoundError, extra: str = "run") -> str:
    """Name the library that `user` needs, and the line that installs it."""
    return f"{user} needs {error.name}: pip install 'saccade[{extra}]'"
