"""The tests of tests/device, which are left out where there is no CUDA device: at least they can be imported."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parent / "device").glob("test_*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_is_imported(path: Path) -> None:
    assert any(name.startswith("test_") for name in runpy.run_path(str(path)))
