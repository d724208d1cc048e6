"""The fused parts of a training step on a CUDA device: as exact as the plain spelling, capturable, and in bfloat16."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.data.packing import IGNORED
from saccade.layers import feed_forward, residual
from saccade.models.transformer import BlockSizes, Dropouts, Transformer
from saccade.ops.cuda_graphs import record, warm_up
from saccade.ops.embedding import embedding_backward
from saccade.ops.linear import fused_linear
from saccade.ops.pass_context import Seeds, draw_seed
from saccade.ops.precision import _writes_wide
from saccade.ops.relu_network import fused_network
from saccade.ops.residual import residual as fused_residual
from saccade.training import losses

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"),  # a backward pass's thread has no context at first
]
DTYPES = [torch.float32, torch.bfloat16]
SHARE = 0.1


@pytest.fixture(autouse=True)
def _exact_float32() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False


def rows(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, device="cuda").to(dtype).requires_grad_()


def close(ours: list[Tensor], plain: list[Tensor], exact: list[Tensor], dtype: torch.dtype) -> None:
    for index, (mine, theirs, true) in enumerate(zip(ours, plain, exact, strict=True)):
        assert mine.isfinite().all(), index
        bound = 3 * (theirs - true).abs().amax() + 8 * torch.finfo(dtype).eps * true.abs().amax()
        assert (mine - true).abs().amax() <= bound, index


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "width"), [(25_344, 512), (3001, 1024), (77, 37), (5, 128), (1, 2000)])
@pytest.mark.parametrize(("adds", "drops", "norms"), [(1, 1, 1), (1, 0, 1), (0, 0, 1), (1, 1, 0)])
def test_residuals(num_rows: int, width: int, dtype: torch.dtype, adds: int, drops: int, norms: int) -> None:
    answer, x = rows(num_rows, width, dtype=dtype), rows(num_rows, width, dtype=dtype) if adds else None
    weight, bias = (torch.randn(width, device="cuda", requires_grad=True) for _ in range(2)) if norms else (None, None)
    seed = draw_seed(answer.device) if drops else None
    ones = torch.ones(num_rows, width, device="cuda")
    factor = ones if seed is None else fused_residual(ones, None, None, None, seed, SHARE, 0.0)[0]
    if drops and num_rows * width > 10_000:
        assert abs(float((factor == 0).double().mean()) - SHARE) < 5 * (0.09 / factor.numel()) ** 0.5
    grad = torch.randn(num_rows, width, device="cuda").to(dtype)

    def spelled_out(wide: torch.dtype) -> list[Tensor]:
        leaves = [t if t is None else t.detach().to(wide).requires_grad_() for t in (answer, x, weight, bias)]
        narrow = leaves[0] * factor.to(wide)  # type: ignore[operator]
        total = narrow if leaves[1] is None else leaves[1] + narrow
        y = total if weight is None else F.layer_norm(total, (width,), leaves[2], leaves[3])
        found = torch.autograd.grad(y, [leaf for leaf in leaves if leaf is not None], grad.to(wide))
        return [y.detach().double(), *(one.double() for one in found)]

    y, *_ = fused_residual(answer, x, weight, bias, seed, SHARE, 1e-5)
    found = torch.autograd.grad(y, [leaf for leaf in (answer, x, weight, bias) if leaf is not None], grad)
    close([y.double(), *(one.double() for one in found)], spelled_out(dtype), spelled_out(torch.float64), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "width", "hidden"), [(2560, 512, 2048), (77, 37, 300), (3, 64, 128)])
@pytest.mark.parametrize("relu", [True, False])
def test_linear_layers(num_rows: int, width: int, hidden: int, dtype: torch.dtype, relu: bool) -> None:
    x, weights = rows(num_rows, width, dtype=dtype), rows(hidden, width, dtype=torch.float32).split([8, hidden - 8])
    biases = rows(hidden, dtype=torch.float32).split([8, hidden - 8])
    grad = torch.randn(num_rows, hidden, device="cuda").to(dtype)
    leaves = [tensor.detach().requires_grad_() for tensor in (x, *weights, *biases)]

    def spelled_out(wide: torch.dtype) -> list[Tensor]:
        copies = [leaf.detach().to(dtype).to(wide).requires_grad_() for leaf in leaves]
        y = F.linear(copies[0], torch.cat(copies[1:3]), torch.cat(copies[3:]))
        y = F.relu(y) if relu else y
        return [y, *torch.autograd.grad(y, copies, grad.to(wide))]

    y, _ = fused_linear(leaves[0], leaves[1:3], leaves[3:], relu, [])
    found = torch.autograd.grad(y, leaves, grad, retain_graph=True)
    close([y, *found], spelled_out(dtype), spelled_out(torch.float64), dtype)
    assert all(one.dtype == torch.float32 for one in found[1:])
    for one, again in zip(found, torch.autograd.grad(y, leaves, grad), strict=True):
        assert torch.equal(one, again)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16])
@pytest.mark.parametrize(
    ("num_rows", "width", "hidden"), [(2560, 512, 2048), (3001, 1024, 4096), (77, 37, 300), (300, 72, 200), (3, 64, 8)]
)
def test_relu_networks(num_rows: int, width: int, hidden: int, dtype: torch.dtype) -> None:
    x, grad = rows(num_rows, width, dtype=dtype), torch.randn(num_rows, width, device="cuda").to(dtype)
    shapes = ((hidden, width), (hidden,), (width, hidden), (width,))
    leaves = [x, *(rows(*shape, dtype=torch.float32) for shape in shapes)]
    with torch.no_grad():
        leaves[1] /= width**0.5
        leaves[3] /= hidden**0.5

    def spelled_out(wide: torch.dtype) -> list[Tensor]:
        copies = [leaf.detach().to(dtype).to(wide).requires_grad_() for leaf in leaves]
        y = F.linear(F.linear(*copies[:3]) * is_open, *copies[3:])
        return [y, *torch.autograd.grad(y, copies, grad.to(wide))]

    def step() -> list[Tensor]:
        own = [leaf.detach().requires_grad_() for leaf in leaves]  # each call's, on its stream
        y, relu, *_ = fused_network(own[0], own[1:3], own[3:], [], [])
        return [relu.detach(), y.detach(), *torch.autograd.grad(y, own, grad)]

    relu, *found = step()
    is_open = relu > 0  # next to zero, that depends on how sums are rounded
    exact = F.linear(*(leaf.to(dtype).double() for leaf in leaves[:3]))
    assert (is_open != (exact > 0)).double().mean() < 1e-4
    graph, (_, *again) = captured(step)
    graph.replay()
    for ours in (found, again):
        close(ours, spelled_out(dtype), spelled_out(torch.float64), dtype)
        assert all(one.dtype == torch.float32 for one in ours[2:])


@pytest.mark.parametrize(("num_rows", "depth", "width"), [(25_600, 512, 2048), (1000, 1024, 4096), (1, 8, 136)])
def test_a_masked_product_is_one_kernel_on_hopper(
    num_rows: int, depth: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from saccade.ops.kernels import masked_product

    grad, weight = (torch.randn(shape, device="cuda").bfloat16() for shape in ((num_rows, depth), (depth, width)))
    hidden = torch.randn(num_rows, width, device="cuda").relu().bfloat16()
    if torch.cuda.get_device_capability() >= (9, 0):
        monkeypatch.setattr(masked_product, "mask_gradient", None)  # the other way
    found, sums = masked_product.masked_product(grad, weight, hidden)
    exact = torch.where(hidden > 0, grad.double() @ weight.double(), 0.0)
    torch.testing.assert_close(found.double(), exact, atol=1e-3, rtol=2.0**-8)
    torch.testing.assert_close(sums.double(), exact.sum(0), atol=1e-5 * float(exact.abs().sum(0).max()), rtol=0.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_places", "width"), [(25_600, 512), (3001, 1024), (77, 37), (1, 8), (0, 64)])
@pytest.mark.parametrize("vocabulary", [1, 37_000, 70_000])
@pytest.mark.parametrize("share", [0.0, SHARE])
@pytest.mark.parametrize("num_reads", [1, 2])
def test_gradients_of_embeddings(
    num_places: int, width: int, vocabulary: int, dtype: torch.dtype, share: float, num_reads: int
) -> None:
    cuts = [num_places] if num_reads == 1 else [num_places // 3, num_places - num_places // 3]
    ids = (torch.rand(1, num_places, device="cuda") ** 8 * vocabulary).long()  # the first one very often
    grad, seed = rows(1, num_places, width, dtype=dtype).detach(), draw_seed(ids.device) if share else None
    inputs = (grad.split(cuts, 1), ids.split(cuts, 1), seed, vocabulary, 2.0, share, torch.float32)
    ours = embedding_backward(*inputs)
    assert ours.equal(embedding_backward(*inputs))
    kept = torch.ones(num_places, width, device="cuda")
    if share:
        kept = fused_residual(kept, None, None, None, seed, share, 0.0)[0]
    plain, exact = (
        torch.zeros(vocabulary, width, dtype=wide, device="cuda").index_add(0, ids[0], 2 * grad[0].to(wide) * kept)
        for wide in (torch.float32, torch.float64)
    )
    close([ours], [plain], [exact], torch.float32)


def test_a_replayed_pass_draws_other_seeds() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    seeds = Seeds(device)

    def step() -> torch.Tensor:
        with seeds:
            return torch.cat([draw_seed(device) for _ in range(5)])

    warm_up(step, device)
    graph, seed_5 = record(step)
    found = set()
    for _ in range(3):
        graph.replay()
        found |= {*seed_5.tolist()}
    assert len(found) == 15
    torch.manual_seed(3)
    eagerly = step().tolist()
    torch.manual_seed(3)
    graph.replay()
    assert seed_5.tolist() == eagerly


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_rows", "width"), [(25_344, 512), (25_344, 1536), (1, 40), (3001, 37), (0, 64)])
def test_column_sums(num_rows: int, width: int, dtype: torch.dtype) -> None:
    from saccade.ops.kernels.columns import column_sums

    x = torch.randn(num_rows, width, device="cuda").to(dtype)
    torch.testing.assert_close(column_sums(x), x.double().sum(0).float(), atol=1e-3, rtol=1e-5)


def test_narrowed_weights_are_rounded_as_torch_does() -> None:
    from saccade.ops.kernels.narrow import join_narrow

    for widths in ([512], [512, 512, 512], [5, 300, 7]):
        weights = [rows(width, 512, dtype=torch.float32) for width in widths]
        biases = [rows(width, dtype=torch.float32) for width in widths]
        weight, bias = join_narrow(weights, biases, torch.bfloat16)
        assert bias is not None
        assert torch.equal(weight, torch.cat(weights).bfloat16())
        assert torch.equal(bias, torch.cat(biases).bfloat16())


def test_this_torch_writes_products_in_float32() -> None:
    assert _writes_wide(torch.device("cuda"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("num_rows", "vocabulary", "width"),
    [(700, 37_000, 64), (1000, 45, 64), (300, 8193, 20), (300, 50_257, 64), (200, 100_003, 64)],
)
def test_loss(num_rows: int, vocabulary: int, width: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "CHUNK_BYTES", 300 * vocabulary * dtype.itemsize)
    vectors, matrix = rows(num_rows, width, dtype=dtype), rows(vocabulary, width, dtype=torch.float32)
    target = torch.randint(vocabulary, (num_rows,), device="cuda")
    target[::7] = IGNORED
    results = []
    for fused in (True, False):
        monkeypatch.setattr(losses, "is_fused", lambda _, fused=fused: fused)
        loss, likelihood = losses.smoothed_cross_entropy(vectors, matrix, target, smoothing=0.1)
        results.append([loss, likelihood, *torch.autograd.grad(loss, (vectors, matrix))])
    wide = [tensor.detach().to(dtype).double().requires_grad_() for tensor in (vectors, matrix)]
    exact = [
        F.cross_entropy(wide[0] @ wide[1].mT, target, reduction="sum", label_smoothing=share, ignore_index=-1)
        for share in (0.1, 0.0)
    ]
    close(results[0], results[1], [*exact, *torch.autograd.grad(exact[0], wide)], dtype)
    assert (results[0][2][target == IGNORED] == 0).all()


def test_the_loss_holds_one_chunk_of_logits() -> None:
    vectors, matrix = rows(25_344, 512, dtype=torch.bfloat16), rows(37_000, 512, dtype=torch.float32)
    target = torch.randint(37_000, (25_344,), device="cuda")
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    losses.smoothed_cross_entropy(vectors, matrix, target, smoothing=0.1)[0].backward()
    assert torch.cuda.max_memory_allocated() - before < losses.CHUNK_BYTES + (600 << 20)
    assert losses._adds_wide(vectors.device)  # this torch adds bfloat16 products to float32


def captured(step: Callable[[], list[Tensor]]) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph, result


def test_all_of_it_can_be_captured_and_a_replay_drops_others() -> None:
    norm, layer = residual.Norm(64).cuda(), feed_forward.FeedForward(64, 256).cuda()
    x, matrix = rows(300, 64, dtype=torch.bfloat16), rows(999, 64, dtype=torch.float32)
    target = torch.randint(-1, 999, (300,), device="cuda")
    leaves = [x, matrix, *norm.parameters(), *layer.parameters()]

    def step() -> list[Tensor]:
        with torch.autocast("cuda", torch.bfloat16):
            y = residual.add(x, layer(norm(x)), 0.5)
            y = residual.add(y, layer(y), 0.5, norm)
        loss, _ = losses.smoothed_cross_entropy(y, matrix, target, smoothing=0.1)
        return [loss, *torch.autograd.grad(loss, leaves)]

    graph, result = captured(step)
    replays = []
    for _ in range(2):
        graph.replay()
        replays.append([tensor.clone() for tensor in result])
    assert all(tensor.isfinite().all() for tensor in itertools.chain(*replays))
    assert not torch.equal(replays[0][0], replays[1][0])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_step_in_bfloat16_tracks_the_plain_float32_step(norm: str) -> None:
    sizes = BlockSizes(width=64, num_heads=4, hidden_width=128, norm=norm, dropouts=Dropouts(0.0))
    options = {"source": 97, "target_vocabulary": 101, "num_encoder_layers": 2, "num_decoder_layers": 2}
    plain = Transformer(sizes=sizes, **options)  # type: ignore[arg-type]
    fused = copy.deepcopy(plain).cuda()
    assert fused.training  # without dropout: embeddings are fused in training alone
    ids = torch.randint(1, 97, (6, 11)), torch.full((6,), 11), torch.randint(1, 101, (6, 9))
    results = []
    for model, device in ((plain, "cpu"), (fused, "cuda")):
        source, length, read = (tensor.to(device) for tensor in ids)
        with torch.autocast("cuda", torch.bfloat16, enabled=device == "cuda"):
            vectors = model(source, length, read)
        assert vectors.dtype == (torch.bfloat16 if device == "cuda" else torch.float32)
        loss, _ = losses.smoothed_cross_entropy(
            vectors.flatten(0, 1), model.output.weight, read.flatten(), smoothing=0.1
        )
        loss.backward()
        results.append([loss.detach().cpu(), *(p.grad.cpu() for p in model.parameters() if p.grad is not None)])
    assert abs(results[1][0] / results[0][0] - 1) < 0.01
    largest = max(float(theirs.norm()) for theirs in results[0][1:])  # the keys' biases have no gradient but noise
    for ours, theirs in zip(results[1][1:], results[0][1:], strict=True):
        assert (ours - theirs).norm() <= 0.08 * theirs.norm() + 0.005 * largest
