"""The loss on logits, interpreted: as exact as the plain spelling, and rows that don't count do nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.data.packing import IGNORED
from saccade.ops.half_weights import HalfWeights
from saccade.ops.known_gradients import differentiate, is_one
from saccade.training import losses
from saccade.training.losses import chunks, smoothed_cross_entropy


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("num_rows", "vocabulary"), [(150, 45), (5, 9001), (2, 20_483), (1, 3)])
def test_it_is_as_exact_as_the_plain_spelling(
    num_rows: int, vocabulary: int, smoothing: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "CHUNK_BYTES", 75 * 48 * dtype.itemsize)  # two chunks of the first
    vectors = torch.randn(num_rows, 16).to(dtype).requires_grad_()
    matrix, target = torch.randn(vocabulary, 16, requires_grad=True), torch.randint(vocabulary, (num_rows,))
    target[1::3] = IGNORED
    results = []
    for fused in (True, False):
        monkeypatch.setattr(losses, "is_fused", lambda _, fused=fused: fused)
        loss, likelihood = smoothed_cross_entropy(vectors, matrix, target, smoothing=smoothing)
        results.append([loss, likelihood, *torch.autograd.grad(3 * loss, (vectors, matrix))])
    wide = [tensor.detach().to(dtype).double().requires_grad_() for tensor in (vectors, matrix)]
    logits = wide[0] @ wide[1].mT
    loss, likelihood = (
        F.cross_entropy(logits, target, reduction="sum", label_smoothing=share, ignore_index=IGNORED)
        for share in (smoothing, 0.0)
    )
    exact = [loss, likelihood, *torch.autograd.grad(3 * loss, wide)]
    for true, ours, plain in zip(exact, *results, strict=True):
        bound = 3 * (plain - true).abs().amax() + 8 * torch.finfo(dtype).eps * true.abs().amax()
        assert (ours - true).abs().amax() <= bound
    for result in results:
        assert (result[2][target == IGNORED] == 0).all()
        assert result[3].dtype == torch.float32


@pytest.mark.parametrize("fused", [True, False])
def test_gradients_of_the_whole_loss_are_not_multiplied(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "is_fused", lambda _: fused)
    monkeypatch.setattr(losses, "is_one", lambda grad: noted(grad))
    leaves, found = [torch.randn(40, 16, requires_grad=True), torch.randn(11, 16, requires_grad=True)], []
    target, known = torch.randint(11, (40,)), list[bool]()

    def noted(grad: Tensor) -> bool:
        known.append(is_one(grad))
        return known[-1]

    def loss() -> Tensor:
        return smoothed_cross_entropy(leaves[0], leaves[1], target, smoothing=0.1)[0]

    for backward in (differentiate, Tensor.backward, lambda one: differentiate(2 * one)):
        for leaf in leaves:
            leaf.grad = None
        backward(loss())
        found.append([leaf.grad for leaf in leaves])
    assert known == [True, False, False]
    for one, other, twice in zip(*found, strict=True):
        assert torch.equal(one, other)
        assert torch.equal(2 * one, twice)


@pytest.mark.parametrize("width", [16, 20])
def test_a_matrix_that_is_narrowed_for_the_pass(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "is_fused", lambda _: True)
    vectors, target = torch.randn(40, width).bfloat16().requires_grad_(), torch.randint(11, (40,))
    matrix = torch.randn(11, width).bfloat16().float().requires_grad_()  # interpreted, a copy isn't rounded but cut
    half_weights, found = HalfWeights(), []
    for _ in range(2):
        with half_weights:
            loss, _ = smoothed_cross_entropy(vectors, matrix, target, smoothing=0.1)
        found.append([loss, *torch.autograd.grad(loss, (vectors, matrix))])
    assert [tuple(copy.shape) for _, copy in half_weights.pairs] == [(11, width)]
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
    assert found[1][2].dtype == torch.float32


@pytest.mark.parametrize("width", [1, 20, 62, 72])
def test_odd_widths_are_filled_up_and_cut_again(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, matrix = torch.randn(40, width, requires_grad=True), torch.randn(11, width, requires_grad=True)
    target, results = torch.randint(11, (40,)), []
    for fused in (True, False):
        monkeypatch.setattr(losses, "is_fused", lambda _, fused=fused: fused)
        loss, _ = smoothed_cross_entropy(vectors, matrix, target, smoothing=0.1)
        results.append([loss, *torch.autograd.grad(loss, (vectors, matrix))])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("stride", [45, 48, 56])
def test_neighbours_of_a_row_are_left_alone(stride: int, dtype: torch.dtype) -> None:
    from saccade.training.kernels.cross_entropy import TWICE, blocks_for, differentiate_

    logits = torch.randn(6, stride).to(dtype)
    target = torch.tensor([44, 0, IGNORED, 7, 43, IGNORED])
    wide = logits[:, :45].double().requires_grad_()
    true = F.cross_entropy(wide, target, reduction="none", ignore_index=IGNORED, label_smoothing=0.1)
    gradient = torch.autograd.grad(true.sum(), wide)[0]
    keeps = dtype == torch.bfloat16 and stride % 8 == 0
    assert blocks_for(logits[:, :45]).keeps == keeps
    for blocks in (None, TWICE):
        ours, answer = logits.clone(), torch.empty(2, 6)
        differentiate_(ours[:, :45], target, 0.1, answer, blocks=blocks)
        torch.testing.assert_close(answer[0].double(), true.detach(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(ours[:, :45].double(), gradient, rtol=0, atol=torch.finfo(dtype).eps)
        assert (ours[:, 48:] == logits[:, 48:]).all()


def test_shares_of_large_logits_are_right_to_the_last_bits() -> None:
    from saccade.training.kernels.cross_entropy import differentiate_

    logits, target = 100 * torch.randn(40, 9001), torch.arange(40)
    true = logits.double().softmax(1)
    true[target, target] -= 1
    differentiate_(logits, target, 0.0, torch.empty(2, 40))
    torch.testing.assert_close(logits.double(), true, rtol=0, atol=4 * torch.finfo(torch.float32).eps)


@pytest.mark.parametrize("fused", [True, False])
def test_nothing_to_predict(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "is_fused", lambda _: fused)
    for num_rows in (0, 4):
        vectors, matrix = torch.randn(num_rows, 5, requires_grad=True), torch.randn(11, 5, requires_grad=True)
        target = torch.full((num_rows,), IGNORED)
        loss, likelihood = smoothed_cross_entropy(vectors, matrix, target, smoothing=0.1)
        assert (float(loss.detach()), float(likelihood)) == (0.0, 0.0)
        assert all((grad == 0).all() for grad in torch.autograd.grad(loss, (vectors, matrix)))


def test_logits_far_apart_stay_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "is_fused", lambda _: True)
    vectors, matrix = torch.eye(2, requires_grad=True), torch.full((5000, 2), -3e4)
    matrix[4321, 0], matrix[7, 1] = 3e4, 2.9e4
    loss, _ = smoothed_cross_entropy(vectors, matrix, torch.tensor([4321, 4321]), smoothing=0.0)
    torch.testing.assert_close(loss, torch.tensor(5.9e4))
    assert torch.autograd.grad(loss, vectors)[0].isfinite().all()


def test_chunks_are_whole_waves_or_equal_and_in_tiles() -> None:
    def sizes(num_rows: int, row_bytes: int = 2 * 37_000) -> list[int]:
        parts = chunks(num_rows, row_bytes, 8448)  # 33 x 4 tiles of 256 x 128: one for each multiprocessor
        assert [part.start for part in parts] == [0, *(part.stop for part in parts)][: len(parts)]
        return [part.stop - part.start for part in parts]

    assert sizes(25_344) == [8448] * 3
    assert sizes(25_600) == [8448, 8448, 8704]
    assert sizes(26_000) == [8448] * 3 + [656]  # the rest is too much for the bytes
    assert sizes(9000) == [9000]
    assert sizes(100) == [100]
    assert sizes(0) == []
    assert sizes(25_600, 4 * 37_000) == [4352] * 5 + [3840]
    assert sizes(300, 1 << 30) == [128, 128, 44]


@pytest.mark.parametrize("num_rows", [190, 192, 390, 400])
def test_a_wave_and_its_rest(num_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "CHUNK_BYTES", 200 * 48 * 4)  # waves are of 192 rows here
    vectors, matrix = torch.randn(num_rows, 16, requires_grad=True), torch.randn(45, 16, requires_grad=True)
    target, results = torch.randint(45, (num_rows,)), []
    target[1::3] = IGNORED
    for fused in (True, False):
        monkeypatch.setattr(losses, "is_fused", lambda _, fused=fused: fused)
        loss, likelihood = smoothed_cross_entropy(vectors, matrix, target, smoothing=0.1)
        results.append([loss, likelihood, *torch.autograd.grad(loss, (vectors, matrix))])
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)
