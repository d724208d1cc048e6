"""The largest logits of each row: the kernel against topk and log_softmax."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from saccade.data.tokenizer import END


@pytest.fixture
def best():  # type: ignore[no-untyped-def]
    from saccade.decoding.kernels import best as module

    return module


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_ids", "count"), [(7, 7), (37, 1), (101, 8), (300, 4)])
def test_the_best_of_all_parts(best, dtype: torch.dtype, num_ids: int, count: int, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(best, "PART", 64)
    logits = (3 * torch.randn(5, num_ids)).to(dtype)
    logits[1, 10:] = -torch.inf
    logits[2, 3:6] = 9.0  # equal ones: the lowest id first
    short = torch.tensor([True, False, True, False, False])
    log_p, token, total = best.best(logits, count, 0b1011, END, short)
    exact = logits.float().log_softmax(-1)
    torch.testing.assert_close(total, logits.float().logsumexp(1))
    exact[:, [0, 1, 3]] = -torch.inf
    exact[short, END] = -torch.inf
    expected = exact.sort(dim=1, descending=True, stable=True)
    torch.testing.assert_close(log_p, expected.values[:, :count])
    real = log_p.isfinite()
    assert token[real].equal(expected.indices[:, :count][real])
    assert (token >= 0).all()
    assert (token < num_ids).all()


def test_it_compiles_for_hopper() -> None:
    script = Path(__file__).parent / "compile_best.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("part_kernel") == done.stdout.count("join_kernel") == 4
