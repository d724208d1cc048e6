"""Products in float8 on an accelerator: torch's rounding, the emulated product, and the loss curve of bfloat16."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from saccade.ops import float8
from saccade.runs import config as config_file
from saccade.runs import train

CUDA = torch.device("cuda")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or float8.refuses(CUDA) is not None, reason="no CUDA device with float8 here"
)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("wide", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(256, 512), (61, 48), (4099, 80)])
def test_the_kernel_rounds_as_torch_does(shape: tuple[int, int], wide: torch.dtype, dtype: torch.dtype) -> None:
    x_RD = torch.randn(shape, device=CUDA).to(wide)
    ours, theirs = float8.narrow(x_RD, dtype), float8.narrow(x_RD.cpu(), dtype)
    torch.testing.assert_close(ours.scale.cpu(), theirs.scale, rtol=1e-6, atol=0.0)
    for mine, other in zip(ours[:2], theirs[:2], strict=True):
        assert mine.shape == other.shape
        differs = mine.cpu().float() != other.float()  # a reciprocal's last bit may decide a tie
        assert differs.float().mean() < 1e-3


@pytest.mark.parametrize("wide", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(256, 512), (3, 61, 48)])
def test_it_is_the_emulated_product(shape: tuple[int, ...], wide: torch.dtype) -> None:
    x, weight, bias = (torch.randn(size).to(CUDA) for size in (shape, (128, shape[-1]), (128,)))
    grad, found = torch.randn(*shape[:-1], 128).to(CUDA), []
    for place in (CUDA, torch.device("cpu")):
        own = [tensor.to(place, wide).requires_grad_() for tensor in (x, weight, bias)]
        y = float8.linear(*own)
        found.append([y, *torch.autograd.grad(y, own, grad.to(place, wide))])
    for here, there in zip(*found, strict=True):
        error = (here.cpu().float() - there.float()).norm() / there.float().norm()
        assert error < (1e-3 if wide == torch.float32 else 1e-2)


def test_a_run_tracks_bfloat16(tmp_path: Path) -> None:
    words = [f"w{index}" for index in range(12)]
    rows = [(words[i % 12], words[i * 5 % 12], words[i * 7 % 11]) for i in range(400)]
    (tmp_path / "rows.tsv").write_text("".join(f"{' '.join(r)}\t{' '.join(r[::-1])}\n" for r in rows), "utf-8")
    files = {"source": str(tmp_path / "rows.tsv")}
    content = {
        "data": {"train": files, "valid": files},
        "tokenizer": {"kind": "words", "vocabulary_size": 20},
        "model": {"size": "tiny", "width": 64, "num_heads": 2, "hidden_width": 128, "num_layers": 2, "dropout": 0.0},
        "training": {"max_steps": 120, "tokens_per_batch": 400, "learning_rate": 0.002, "warmup_steps": 20},
    }
    curves = {}
    for precision in ("bfloat16", "float8"):
        training = {**content["training"], "precision": precision}  # type: ignore[dict-item]
        made = config_file.check_config({**content, "training": training}, "test")
        train.train(made, tmp_path / precision, Console(quiet=True))
        logged = [json.loads(line) for line in (tmp_path / precision / "log.jsonl").read_text("utf-8").splitlines()]
        curves[precision] = torch.tensor([row["loss"] for row in logged if "loss" in row])
        assert config_file.load_config(tmp_path / precision / "config.yaml").training.precision == precision
    assert not torch.equal(curves["bfloat16"], curves["float8"])
    assert curves["float8"][-1] < 0.7 * curves["float8"][0]
    assert (curves["float8"] - curves["bfloat16"]).abs().max() < 0.15
