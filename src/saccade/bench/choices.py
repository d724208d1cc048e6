"""What may be said to a benchmark, and where it runs."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

import torch

from saccade.errors import UserError

PEERS_FOLDER = Path("~/.cache/saccade/peers")


class Device(StrEnum):
    """Where to run."""

    cpu = "cpu"
    cuda = "cuda"


def check(device: Device) -> None:
    """It is there."""
    if device == Device.cuda and not torch.cuda.is_available():
        raise UserError("--device: cuda given, but torch sees no CUDA device here; allowed: cpu")


def refuse(device: str, **given: object) -> None:
    """What goes with the other device is refused, not ignored."""
    for name, value in given.items():
        if value is not None:
            raise UserError(f"--{name.replace('_', '-')}: given, but it goes with --device {device}")


def numbers(name: str, text: str) -> tuple[int, ...]:
    """A list of numbers as it is typed."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise UserError(f"--{name}: {text!r} given; allowed: numbers above 0, with commas")
    return tuple(dict.fromkeys(map(int, parts)))


def named(option: str, text: str | None, allowed: Iterable[str]) -> tuple[str, ...]:
    """Names as they are typed, with commas; all, if there are none."""
    allowed = tuple(allowed)
    given = allowed if text is None else tuple(part.strip() for part in text.split(","))
    if wrong := [name for name in given if name not in allowed]:
        raise UserError(f"--{option}: {wrong[0]!r} given; allowed: {', '.join(allowed)}, with commas")
    return given


def machine(device: torch.device) -> dict[str, str | int]:
    """What the figures were measured on."""
    threads = torch.get_num_threads()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {threads} threads"
    return {"device": device.type, "name": name, "torch": torch.__version__, "threads": threads}
