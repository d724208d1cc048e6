"""Runs that read pictures, and a picture for each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from pages.runs import digits, shapes
from saccade.data.pictures.shapes import paint_shapes
from saccade.runs import config as config_file
from saccade.runs import train


@pytest.fixture(scope="session")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs that tell (shapes) and glimpse (digits), and with shapes.png and digits.png."""
    folder = tmp_path_factory.mktemp("seeing")
    for name, content in {"shapes": shapes(), "digits": digits(folder)}.items():
        train.train(config_file.check_config({"device": "cpu", **content}, name), folder / name, Console(quiet=True))
    Image.fromarray(paint_shapes(1, side=24).picture_NCYX[0].transpose(1, 2, 0)).save(folder / "shapes.png")
    Image.fromarray(np.full((40, 40), 255, np.uint8)).save(folder / "digits.png")
    return folder
