"""Errors that the command line tells in one line."""

from __future__ import annotations


class UserError(ValueError):
    """Bad input: the message says what was wrong, where, and what is allowed. The command line exits with 2."""


class NonFiniteLoss(RuntimeError):
    """Raised when the loss was infinite or not a number too often in a row. The command line exits with 1."""
