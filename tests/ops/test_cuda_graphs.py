"""Recording a CUDA graph, without a device: what may not happen meanwhile."""

from __future__ import annotations

import contextlib
import gc

import pytest
import torch

from saccade.ops.cuda_graphs import record


@pytest.mark.parametrize("was_enabled", [True, False])
def test_no_garbage_is_collected_while_a_graph_is_recorded(monkeypatch: pytest.MonkeyPatch, was_enabled: bool) -> None:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: contextlib.nullcontext())
    before = gc.isenabled()
    (gc.enable if was_enabled else gc.disable)()
    try:
        assert record(gc.isenabled)[1] is False
        with pytest.raises(RuntimeError):
            record(_fail)
        assert gc.isenabled() is was_enabled
    finally:
        (gc.enable if before else gc.disable)()


def _fail() -> None:
    raise RuntimeError
