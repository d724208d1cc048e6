"""The benchmarks of an accelerator on one, at tiny sizes: everybody runs, and memory is measured."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from saccade.bench import decoding
from saccade.bench.attention import additive
from saccade.bench.training import accelerator
from saccade.bench.training.flops import ModelSizes
from saccade.bench.training.trainers import TrainJob

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")

CUDA = torch.device("cuda")
TINY = ModelSizes(width=64, num_layers=1, vocabulary=211, num_heads=2, hidden_width=128)
TINY_RNN = ModelSizes(width=48, num_layers=1, vocabulary=211, embedding_width=40)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own, where it compiles
@pytest.mark.parametrize("sizes", [TINY, TINY_RNN])
def test_everybody_trains_here(sizes: ModelSizes) -> None:
    names = accelerator.choose_model_peers(None, is_recurrent=sizes.is_recurrent)
    names = tuple(name for name in names if "compiled" not in name)
    if importlib.util.find_spec("transformers") is None:
        names = tuple(name for name in names if "marian" not in name)
    job = TrainJob(CUDA, sizes, tokens=1024, steps=3, warmup=2, peers=names, recurrent_batches=(7,))
    report = accelerator.run(job, lambda _: None)
    assert [row.problem for row in report.rows] == [None] * len(report.rows)
    assert all(row.peak_bytes and row.peak_bytes > 4 * 211 * 40 for row in report.rows)
    assert report.ceiling > 1e13


def test_everybody_writes_here() -> None:
    peers = ("generate",) if importlib.util.find_spec("transformers") is not None else ()
    job = decoding.DecodeJob(CUDA, TINY, batches=(1, 5), output_length=7, peers=peers)
    rows = decoding.run(job, lambda _: None)
    assert [row.problem for row in rows] == [None] * len(rows)
    assert {row.tokens for row in rows} == {7, 35}


def test_additive_attention_beside_the_plain_expression() -> None:
    rows = [row for case in additive.all_cases(CUDA, quick=True) for row in additive.measure(case, CUDA, most=3)]
    assert [row.problem for row in rows] == [None] * len(rows)
    assert {"exact", "series", "eager", "attend", "eager step"} == {row.name for row in rows}
    assert all(row.seconds and row.call_seconds and row.seconds <= row.call_seconds for row in rows)
    assert all(row.largest_error < (1e-2 if row.dtype == "bfloat16" else 1e-3) for row in rows)
