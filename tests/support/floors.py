"""The floors of the house: a module may import from its own floor and from those before it."""

from __future__ import annotations

FLOORS = [
    {"errors", "files", "manifest"},
    {"ops"},
    {"attention", "data"},
    {"layers"},
    {"models"},
    {"decoding", "inspection", "training"},
    {"config"},
    {"tasks"},
    {"export"},
    {"runs"},
    {"huggingface", "imports"},
    {"bulk", "serving", "api", "datasets", "lab", "bench", "cli"},
    {"__main__"},
]


def floor_of(path: str) -> int:
    """Return the floor of a module (saccade.ops.linear) or of a file (ops/linear.py); -1 for the package itself."""
    parts = path.removeprefix("saccade.").replace("/", ".").removesuffix(".py").split(".")
    return next((index for index, rooms in enumerate(FLOORS) if parts[0] in rooms), -1)
