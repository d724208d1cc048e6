"""Embeddings with their places, interpreted: what the plain spelling gives, and its gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saccade.attention.positions import Positions, Sinusoidal
from saccade.data.packing import PackedRow
from saccade.layers import embedding as layers
from saccade.layers.embedding import embed
from saccade.models.transformer import BlockSizes, Dropouts, Transformer
from saccade.ops.embedding import EmbeddingGradientInputs, embedding, embedding_backward
from saccade.ops.kernels.columns import ColumnBlocks
from saccade.ops.kernels.embedding_gradient import backward
from saccade.ops.residual import residual
from saccade.training.losses import smoothed_cross_entropy


@pytest.mark.parametrize("width", [16, 38, 520])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("placed", [True, False])
def test_it_is_the_plain_spelling(width: int, packed: bool, placed: bool) -> None:
    table, ids, positions = torch.randn(29, width, requires_grad=True), torch.randint(29, (3, 7)), Sinusoidal(width)
    place = Positions(torch.randint(5, (3, 7)), 5) if packed else Positions.following(2, 7, ids.device)
    rows = positions(Positions.following(0, place.end, ids.device)) if placed else None
    (ours,) = embed([ids], table, [place], rows, 0.0)
    plain = table[ids] * width**0.5 + (positions(place) if placed else 0.0)
    torch.testing.assert_close(ours, plain)
    grad = torch.randn(3, 7, width)
    for one, other in zip(torch.autograd.grad(ours, table, grad), torch.autograd.grad(plain, table, grad), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.usefixtures("widened_products")
def test_what_is_dropped_gets_no_gradient() -> None:
    table, ids, seed = torch.ones(5, 64, requires_grad=True), torch.arange(5), torch.tensor([7])
    (y,) = embedding([ids], table, [], None, seed, 2.0, 0.25, torch.bfloat16)
    assert y.dtype == torch.bfloat16
    factor = residual(torch.ones(5, 64), None, None, None, seed, 0.25, 0.0)[0]
    assert 0 < int((factor == 0).sum()) < factor.numel()
    torch.testing.assert_close(y.float(), 2 * factor, atol=0.01, rtol=0.01)
    (grad,) = torch.autograd.grad(y.sum(), table)
    torch.testing.assert_close(grad, 2 * factor, atol=0.02, rtol=0.01)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_operator_keeps_torchs_rules() -> None:
    table, place, ids = torch.randn(5, 8, requires_grad=True), torch.arange(3), torch.randint(5, (2, 3))
    for reads in (1, 2):
        rest = (torch.randn(4, 8), torch.tensor([7]), 2.0, 0.5, table.dtype)
        torch.library.opcheck(embedding, ([ids] * reads, table, [place] * reads, *rest))


@pytest.mark.parametrize("sizes", [(11, 30), (0, 5), (5, 0), (1, 1)])
@pytest.mark.parametrize("share", [0.0, 0.25])
def test_two_reads_give_the_sum_of_their_gradients(sizes: tuple[int, int], share: float) -> None:
    table, positions = torch.randn(7, 24, requires_grad=True), torch.randn(40, 24)
    ids, places = ([torch.randint(end, (1, size)) for size in sizes] for end in (7, 40))
    rest = (positions, torch.tensor([5]) if share else None, 2.0, share, torch.float32)
    ours = embedding(ids, table, places, *rest)
    (joined,) = embedding([torch.cat(ids, 1)], table, [torch.cat(places, 1)], *rest)
    assert torch.cat(ours, 1).equal(joined)
    grad = torch.randn(1, sum(sizes), 24)
    true = torch.autograd.grad(joined, table, grad)
    torch.testing.assert_close(torch.autograd.grad(ours, table, grad.split(sizes, 1), retain_graph=True), true)
    one = torch.autograd.grad(ours[1], table, grad.split(sizes, 1)[1], retain_graph=True)
    other = torch.autograd.grad(ours[0], table, grad.split(sizes, 1)[0])
    torch.testing.assert_close(one[0] + other[0], true[0])


@pytest.mark.parametrize("num_tables", [1, 2])
def test_a_packed_step_equals_the_plain_step(num_tables: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = BlockSizes(16, 2, 24, dropouts=Dropouts(0.0))
    model = Transformer(
        source=11,
        target_vocabulary=11,
        sizes=sizes,
        num_encoder_layers=1,
        num_decoder_layers=1,
        share_embeddings=num_tables == 1,
    )
    lengths = [[4, 2], [3, 5]]
    rows = [
        PackedRow(
            torch.randint(1, 11, (1, sum(side))),
            torch.tensor([0, side[0], sum(side)]),
            torch.cat([torch.arange(length) for length in side]),
            max(side),
        )
        for side in lengths
    ]
    found = []
    for is_fused in (False, True):
        monkeypatch.setattr(layers, "is_fused", lambda _, answer=is_fused: answer)
        for _ in range(2):  # the second is added to the first
            vectors_1TD = model.forward_packed(*rows)
            loss, _ = smoothed_cross_entropy(vectors_1TD[0], model.output.weight, rows[1].ids_1T[0], smoothing=0.1)
            loss.backward()
        found.append([parameter.grad for parameter in model.parameters()])
        model.zero_grad()
    torch.testing.assert_close(found[1], found[0], atol=2e-5, rtol=1e-4)


IDS = {  # at places; a chunk of 16
    "few, often": torch.arange(83) * 7 % 5,
    "one everywhere": torch.full((83,), 3),
    "each once": torch.arange(83),
    "to a border": torch.arange(80) // 16,
    "over each border": (torch.arange(83) + 5) // 16,
    "over two borders": torch.tensor([4] * 3 + [9] * 13 + [2] * 40 + [7] * 8),
    "one place": torch.tensor([82]),
    "none": torch.arange(0),
}


@pytest.mark.usefixtures("widened_products")
@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize(("dtype", "share"), [(torch.float32, 0.0), (torch.bfloat16, 0.25)])
def test_the_gradient_sums_every_place_of_an_id(name: str, dtype: torch.dtype, share: float) -> None:
    check(IDS[name], 70, dtype, share, ColumnBlocks(rows=16, columns=64, warps=4))


@pytest.mark.usefixtures("widened_products")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [4, 37, 130])
def test_the_gradient_as_it_is_cut(dtype: torch.dtype, width: int) -> None:
    check(IDS["few, often"], width, dtype, 0.1 if width == 37 else 0.0, None)


def check(ids: Tensor, width: int, dtype: torch.dtype, share: float, blocks: ColumnBlocks | None) -> None:
    ids = ids[torch.randperm(len(ids), generator=torch.Generator().manual_seed(3))]
    grad, seed = torch.randn(len(ids), width).to(dtype), torch.tensor([7]) if share else None
    kept = residual(torch.ones(len(ids), width), None, None, None, seed, share, 0.0)[0] if share else 1.0
    true = torch.zeros(83, width).double().index_add(0, ids, 1.5 * grad.double() * kept)
    for cuts in ([len(ids)], [len(ids) // 3, len(ids) - len(ids) // 3]):
        given = EmbeddingGradientInputs(grad.split(cuts), ids.split(cuts), seed, 83, 1.5, share, torch.float32)
        ours = backward(given, blocks)
        torch.testing.assert_close(ours.double(), true, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("vocabulary", [1 << 16, (1 << 16) + 1])
def test_large_ids_are_told_apart(vocabulary: int) -> None:
    ids = torch.tensor([[0, vocabulary - 1, 32_768], [32_767, vocabulary - 1, 0]])
    grad = torch.randn(2, 3, 16)
    ours = embedding_backward([grad], [ids], None, vocabulary, 2.0, 0.0, torch.float32)
    true = torch.zeros(vocabulary, 16).index_add(0, ids.flatten(), 2 * grad.flatten(0, 1))
    torch.testing.assert_close(ours, true)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_gradients_operator_keeps_torchs_rules() -> None:
    ids, grad = torch.randint(5, (2, 3)), torch.randn(2, 3, 8)
    torch.library.opcheck(embedding_backward, ([grad], [ids], torch.tensor([7]), 5, 2.0, 0.5, torch.float32))
