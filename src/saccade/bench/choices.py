"""Options that several benchmarks share: the device, lists of names and numbers, and the machine's description."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

import torch

from saccade.errors import UserError

PEERS_FOLDER = Path("~/.cache/saccade/peers")


class Device(StrEnum):
    """The device that a benchmark runs on."""

    cpu = "cpu"
    cuda = "cuda"


def check_device(device: Device) -> None:
    """Raise a `UserError` if the device is not available."""
    if device == Device.cuda and not torch.cuda.is_available():
        raise UserError("--device: cuda given, but torch sees no CUDA device here; allowed: cpu")


def refuse_options(device: str, **given: object) -> None:
    """Raise a `UserError` for options that only work with another device."""
    for name, value in given.items():
        if value is not None:
            raise UserError(f"--{name.replace('_', '-')}: given, but it goes with --device {device}")


def parse_numbers(name: str, text: str) -> tuple[int, ...]:
    """Parse a list of numbers with commas between them."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise UserError(f"--{name}: {text!r} given; allowed: numbers above 0, with commas")
    return tuple(dict.fromkeys(map(int, parts)))


def parse_names(option: str, text: str | None, allowed: Iterable[str]) -> tuple[str, ...]:
    """Parse a list of names with commas between them; without a text, return all allowed names."""
    allowed = tuple(allowed)
    given = allowed if text is None else tuple(part.strip() for part in text.split(","))
    if wrong := [name for name in given if name not in allowed]:
        raise UserError(f"--{option}: {wrong[0]!r} given; allowed: {', '.join(allowed)}, with commas")
    return given


def describe_machine(device: torch.device) -> dict[str, str | int]:
    """Describe the device, the threads and the version of torch that the figures come from."""
    threads = torch.get_num_threads()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {threads} threads"
    return {"device": device.type, "name": name, "torch": torch.__version__, "threads": threads}
