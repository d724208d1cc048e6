"""Kernels on CPU tensors, in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import pytest

from saccade.attention.kernels import triton_here

if importlib.util.find_spec("triton") is not None:
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        """Triton 3.6 asks numpy for the int of an array of one element, which numpy 2.4 refuses."""
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patched


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_here, "INTERPRETED", True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without triton there is nothing to interpret, and on a GPU nothing is."""
    has_triton, is_interpreted = importlib.util.find_spec("triton") is not None, "TRITON_INTERPRET" in os.environ
    reason = "by itself on a GPU: TRITON_INTERPRET=1 pytest tests/kernels" if has_triton else "pip install triton"
    for item in items:
        if "tests/kernels" in item.path.as_posix() and not (has_triton and is_interpreted):
            item.add_marker(pytest.mark.skip(reason=f"needs Triton's interpreter: {reason}"))
