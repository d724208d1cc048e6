"""Kernels on CPU tensors, in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import numpy as np
import pytest

from saccade.ops.kernels import availability

if importlib.util.find_spec("triton") is not None:
    import triton.language as tl
    from triton.runtime import interpreter

    from kernels.quick_interpreter import hasten

    hasten()
    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        """Triton 3.6 asks numpy for the int of an array of one element, which numpy 2.4 refuses."""
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    def called(self: Any, *args: Any, **options: Any) -> Any:
        """A function that a kernel calls: what the kernel sees of the language is patched already, so not again."""
        if self.fn.__globals__.get("tl") is not tl:
            interpreter._patch_lang(self.fn)
        return self.rewrite()(*args, **options)

    interpreter._patch_lang_tensor = patched
    interpreter.InterpretedFunction.__call__ = called


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "INTERPRETED", True)


@pytest.fixture
def widened_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter would multiply the bits of bfloat16."""

    def widened(x: Any) -> Any:
        return (x.data.astype(np.uint32) << 16).view(np.float32) if x.dtype == tl.bfloat16 else x.data

    def dot(self: Any, a: Any, b: Any, sum_so_far: Any, *precision: Any) -> Any:
        del self, precision
        product = np.matmul(widened(a), widened(b), dtype=np.float32) + sum_so_far.data
        return interpreter.TensorHandle(product, sum_so_far.dtype.scalar)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without triton there is nothing to interpret, and on a GPU nothing is."""
    has_triton, is_interpreted = importlib.util.find_spec("triton") is not None, "TRITON_INTERPRET" in os.environ
    reason = "by itself on a GPU: TRITON_INTERPRET=1 pytest tests/kernels" if has_triton else "pip install triton"
    for item in items:
        if "tests/kernels" in item.path.as_posix() and not (has_triton and is_interpreted):
            item.add_marker(pytest.mark.skip(reason=f"needs Triton's interpreter: {reason}"))
