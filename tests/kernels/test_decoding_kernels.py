"""The kernels of decoding against their plain spellings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.data.text.tokenizer import END
from saccade.decoding import BeamOptions
from saccade.decoding.constraints import Constraints
from saccade.decoding.continuous.greedy_state import GreedyState, StateSize, TopTokens
from slot_cases import BEAMS, assert_beams_updated


@pytest.fixture
def best():  # type: ignore[no-untyped-def]
    from saccade.decoding.continuous.kernels import top_tokens as module

    return module


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_ids", "count"), [(7, 7), (37, 1), (101, 8), (300, 4), (300, 32)])
def test_the_best_of_all_parts(best, dtype: torch.dtype, num_ids: int, count: int, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(best, "PART", 64)
    logits = (3 * torch.randn(5, num_ids)).to(dtype)
    logits[1, 10:] = -torch.inf
    logits[2, 3:6] = 9.0  # equal ones: the lowest id first
    logits[3] = logits[3].round()
    logits[4] = torch.tensor([0.0, -0.0, -1.0]).repeat(num_ids)[:num_ids]
    short = torch.tensor([True, False, True, False, False])
    log_p, token, total = best.best(logits, count, 0b1011, END, torch.where(short, 2, 3), 3)
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


def test_where_nothing_else_is_left_a_short_row_may_end(best) -> None:  # type: ignore[no-untyped-def]
    logits = torch.full((2, 5), -torch.inf)
    logits[:, END] = 0.5
    log_p, token, _ = best.best(logits, 2, 0b11, END, torch.tensor([0, 1]), 1)
    assert token[:, 0].tolist() == [END, END]
    assert log_p.tolist() == [[0.0, -torch.inf]] * 2


def test_a_greedy_step_is_taken_as_without_the_kernel() -> None:
    from saccade.decoding.continuous.kernels.greedy_update import update

    options, size = BeamOptions(max_rounds=2), StateSize(6, 1, 70, 8)
    states = [GreedyState(options, size, torch.device("cpu")) for _ in range(2)]
    index, guarded = torch.arange(5), torch.tensor([True, False, True, True, True])
    limit = torch.tensor([60, 60, 9, 60, 60])
    for state in states:
        state.enter(index, Constraints(options, torch.zeros(5, 0, dtype=torch.long), limit, guarded))
    for step in range(50):
        token = torch.randint(4, 7, (6, 1))
        token[:2] = 5 + step % 2  # it goes round: 0 is cut, 1 may
        token[3] = 7 if step < 20 else END
        found = TopTokens(torch.randn(6, 1), token)
        states[0].update(found)
        update(states[1], found)
        for expected, given in zip(states[0]._tensors(), states[1]._tensors(), strict=True):
            assert expected.equal(given)
    assert states[0].live_B.tolist() == [False, True, False, False, True, False]


@pytest.mark.parametrize(("width", "num_best", "num_ids", "rounds"), BEAMS)
def test_a_beams_step_is_taken_as_without_the_kernel(
    width: int, num_best: int, num_ids: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from saccade.decoding.continuous.kernels import beam_update

    monkeypatch.setattr(beam_update, "COPIED", 64)
    options = BeamOptions(width=width, num_best=num_best, max_rounds=rounds, length_penalty=0.6)
    with np.errstate(invalid="ignore"):  # rows that aren't there come from others that aren't
        assert_beams_updated(beam_update.update, options, num_ids, torch.device("cpu"), monkeypatch)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sources_enter_some_slots(dtype: torch.dtype) -> None:
    from saccade.attention.kernels.decode.enter import enter

    kept, expected = torch.randn(2, 2, 6, 30, 3, 8).to(dtype)
    new_key, new_value = torch.randn(3, 25, 2, 3, 8).to(dtype).unbind(2)
    index_EX = torch.tensor([[4, 0], [1, 0], [3, 0]])
    expected.copy_(kept)
    enter((kept[0], kept[1]), index_EX[:, 0], (new_key, new_value))
    for part, new in zip(expected, (new_key, new_value), strict=True):
        part[index_EX[:, 0], :25] = new
    assert kept.equal(expected)


@pytest.mark.usefixtures("quick_start")
def test_they_compile_for_hopper() -> None:
    script = Path(__file__).parent / "compile_decoding.py"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("part_kernel") == done.stdout.count("join_kernel") == 4
    assert done.stdout.count("enter_kernel") == 2
    assert done.stdout.count("update_kernel") == 2 + 3
