"""Products in float8: the equation with both factors rounded, and a model that learns as in float32."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.models.transformer import BlockSizes, Dropouts, Transformer
from saccade.ops import float8
from saccade.ops.linear import fused_linear
from saccade.ops.relu_network import fused_network
from saccade.training.distributed.shards import transformer_blocks
from saccade.training.losses import smoothed_cross_entropy


def rounded(x: Tensor, dtype: torch.dtype = torch.float8_e4m3fn) -> Tensor:
    scale = x.abs().max() / torch.finfo(dtype).max
    return (x / scale).to(dtype).float() * scale


@pytest.mark.parametrize("shape", [(32, 48), (2, 17, 48), (1, 48)])
def test_it_is_the_product_of_rounded_factors_and_so_are_its_gradients(shape: tuple[int, ...]) -> None:
    x, weight, bias = (torch.randn(size, requires_grad=True) for size in (shape, (64, 48), (64,)))
    grad = torch.randn(*shape[:-1], 64)
    y = float8.linear(x, weight, bias)
    x8, weight8, grad8 = rounded(x), rounded(weight), rounded(grad, torch.float8_e5m2)
    rows, others = grad8.reshape(-1, 64), x8.reshape(-1, 48)
    expected = (x8 @ weight8.mT + bias, grad8 @ weight8, rows.mT @ others, grad.reshape(-1, 64).sum(0))
    for found, wanted in zip((y, *torch.autograd.grad(y, (x, weight, bias), grad)), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_odd_widths_stay_wide_and_zeros_stay_zero() -> None:
    x, weight = torch.randn(32, 48), torch.randn(7, 48)
    assert torch.equal(float8.linear(x, weight), F.linear(x, weight))
    assert not float8.linear(torch.zeros(16, 16), torch.zeros(16, 16)).any()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_operator_keeps_torchs_rules() -> None:
    given = (*(torch.randn(size, requires_grad=True) for size in ((2, 17, 48), (64, 48), (64,))), torch.float32)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(float8.float8_linear, given, test_utils=tests)


def network(**sizes: float) -> Transformer:
    torch.manual_seed(5)
    return Transformer(
        source=19,
        target_vocabulary=19,
        sizes=BlockSizes(32, 2, 64, dropouts=Dropouts(0.0, 0.0, 0.0), **sizes),  # type: ignore[arg-type]
        num_encoder_layers=1,
        num_decoder_layers=1,
        share_embeddings=True,
    )


def test_only_the_blocks_linear_layers_and_only_while_training(monkeypatch: pytest.MonkeyPatch) -> None:
    model, shapes = network(), []
    names = [*model.state_dict()]
    float8.train_in_float8(transformer_blocks(model))
    assert [*model.state_dict()] == names

    def seen(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        shapes.append([*weight.shape])
        return float8.linear(x, weight, bias)

    monkeypatch.setitem(float8.INSTEAD, F.linear, seen)
    source_BS, length_B = torch.randint(4, 19, (16, 20)), torch.full((16,), 20)
    model.train()(source_BS, length_B, source_BS)
    one, two, three = [32, 32], [64, 32], [96, 32]  # what is projected of one sequence is one product
    encoder, decoder = [three, one, [64, 32], [32, 64]], [three, one, one, one, [64, 32], [32, 64]]
    assert shapes == [*encoder, two, *decoder]
    shapes.clear()
    model.eval()(source_BS, length_B, source_BS)
    assert not shapes
    with float8._InFloat8():  # as the kernels for CUDA spell it
        rows = torch.randn(32, 32)
        eye, zeros = [torch.eye(32)[:16], torch.eye(32)[16:]], [torch.zeros(16)] * 2
        y, kept = (fused_linear(rows, eye, zeros, relu, [])[0] for relu in (True, False))
        whole = torch.eye(32), torch.zeros(32)
        twice = fused_network(rows, whole, whole, [], [])[0]
    assert torch.equal(twice, rounded(rounded(rows).relu()))
    assert torch.equal(y, rounded(rows).relu())
    assert torch.equal(kept, rounded(rows))


def test_a_copy_computes_with_its_own_weights() -> None:
    """A model in training is written with by a copy of it, in another precision."""
    model = network()
    float8.train_in_float8(transformer_blocks(model))
    copied = copy.deepcopy(model).double()
    source_BS, length_B = torch.randint(4, 19, (2, 6)), torch.full((2,), 6)
    assert copied.eval()(source_BS, length_B, source_BS).dtype == torch.float64
    with torch.no_grad():
        expected = model.eval()(source_BS, length_B, source_BS).clone()
        for parameter in copied.parameters():
            parameter.zero_()
        torch.testing.assert_close(model(source_BS, length_B, source_BS), expected)
        assert not copied(source_BS, length_B, source_BS).any()
    model.train()  # and has a mode of its own
    assert not copied(source_BS, length_B, source_BS).any()


def curve(model: Transformer, *, recomputes: bool = False) -> list[float]:
    """Losses of learning to copy."""
    model.recomputes = recomputes
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    random, found = torch.Generator().manual_seed(1), []
    for _ in range(60):
        ids_BS = torch.randint(4, 19, (16, 8), generator=random)
        read_BT = F.pad(ids_BS[:, :-1], (1, 0), value=1)
        vectors_BTD = model.train()(ids_BS, torch.full((16,), 8), read_BT)
        loss, _ = smoothed_cross_entropy(
            vectors_BTD.flatten(0, 1), model.output.weight, ids_BS.flatten(), smoothing=0.1
        )
        optimizer.zero_grad()
        (loss / ids_BS.numel()).backward()
        optimizer.step()
        found.append(float(loss.detach()) / ids_BS.numel())
    return found


def test_a_model_learns_as_in_float32() -> None:
    wide, narrow = network(), network()
    float8.train_in_float8(transformer_blocks(narrow))
    expected, found = torch.tensor(curve(wide)), torch.tensor(curve(narrow))
    assert not torch.equal(expected, found)
    assert expected[-1] < 0.8 * expected[0]
    assert (found - expected).abs().max() < 0.1
    assert (found[-10:].mean() / expected[-10:].mean() - 1).abs() < 0.02


def test_recomputed_blocks_are_as_narrow_the_second_time() -> None:
    models = [network() for _ in range(2)]
    for model in models:
        float8.train_in_float8(transformer_blocks(model))
    kept, made_again = (curve(model, recomputes=flag)[:5] for model, flag in zip(models, (False, True), strict=True))
    assert kept == made_again


def test_it_is_refused_on_a_cpu() -> None:
    assert float8.refuses(torch.device("cpu")) == "it needs a CUDA device"
