"""The choice of the engine that searches, and of how its numbers are stored, as the command line and Python name it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

EngineName = Literal["auto", "torch", "native", "ctranslate2", "onnx"]
Quantization = Literal["float32", "int8"]


class EngineChoice(NamedTuple):
    """The engine that searches, how its numbers are stored, and a file of the ids that outputs may have."""

    name: EngineName = "auto"
    quantization: Quantization = "float32"
    shortlist: Path | None = None


AUTO, TORCH = EngineChoice(), EngineChoice("torch")
