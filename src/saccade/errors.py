"""The error that stands for a user's mistake."""

from __future__ import annotations


class UserError(ValueError):
    """Bad input: the message says what was wrong, where, and what is allowed. The command line exits with 2."""
