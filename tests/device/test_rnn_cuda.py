"""RNN encoder-decoders on an accelerator: what the CPU computes, and all of it in one CUDA graph."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from saccade import attend, explain, masks
from saccade.attention.scores import SCORES
from saccade.layers.maxout import maxout
from saccade.layers.recurrent.gru_cell import gru_cell
from saccade.layers.recurrent.layers import CELLS, DIRECTIONS
from saccade.layers.recurrent.scan import scan
from saccade.models.seq2seq import DECODERS, RecurrentSizes, Seq2Seq
from saccade.models.seq2seq_attention import SCOPES, AttentionOptions

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SOURCE, LENGTH = torch.randint(0, 11, (5, 7)), torch.tensor([7, 2, 5, 1, 6])
READ = torch.randint(0, 13, (5, 6))
FACTOR = torch.randn(5, 6, 24)


def build(
    cell: str = "gru",
    num_layers: int = 2,
    attention_options: AttentionOptions | None = None,
    widths: tuple[int, int] = (32, 24),
    **options: object,
) -> Seq2Seq:
    sizes = RecurrentSizes(*widths, num_layers=num_layers, cell=cell, dropout=0.0)
    options["attention_options"] = attention_options or AttentionOptions()
    return Seq2Seq(source=11, target_vocabulary=13, sizes=sizes, **options)  # type: ignore[arg-type]


def results(model: Seq2Seq, device: str, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    model = copy.deepcopy(model).to(device)
    with torch.autocast(device, dtype, enabled=dtype != torch.float32):
        vectors = model(SOURCE.to(device), LENGTH.to(device), READ.to(device))
    (vectors * FACTOR[..., : vectors.shape[-1]].to(device)).sum().backward()
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return [tensor.detach().float().cpu() for tensor in (vectors, *gradients)]


@pytest.fixture(autouse=True)
def _exactly() -> object:
    """cuDNN's recurrence takes TF32 unless it is told."""
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("attention", DECODERS)
@pytest.mark.parametrize("feeds_input", [False, True])
def test_as_on_the_cpu(cell: str, direction: str, attention: str, feeds_input: bool) -> None:
    model = build(cell, direction=direction, attention=attention, feeds_input=feeds_input)
    for ours, theirs in zip(results(model, "cuda"), results(model, "cpu"), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("scope", SCOPES)
def test_any_score_in_any_scope(score: str, scope: str) -> None:
    model = build(attention_options=AttentionOptions(score, "softmax", scope, radius=2))
    for ours, theirs in zip(results(model, "cuda"), results(model, "cpu"), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("attention", DECODERS)
def test_rows_that_are_filled_up(cell: str, attention: str) -> None:
    model = build(cell, attention=attention, widths=(38, 22))  # neither of them, nor half of one, is whole 16 bytes
    for ours, theirs in zip(results(model, "cuda"), results(model, "cpu"), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("attention", DECODERS)
@pytest.mark.parametrize("widths", [(32, 24), (38, 22)])
def test_bfloat16_tracks_float32(cell: str, attention: str, widths: tuple[int, int]) -> None:
    """As a CPU's bfloat16 does: a gradient whose terms cancel, like a score's bias, is small and keeps their rounding,
    and a maxout of two that are almost equal sends its gradient the other way."""
    model = build(cell, attention=attention, widths=widths)
    exact, rounded = results(model, "cpu"), results(model, "cpu", torch.bfloat16)
    narrow = results(model, "cuda", torch.bfloat16)
    for true, theirs, ours in zip(exact, rounded, narrow, strict=True):
        assert (ours - true).norm() <= 0.1 * true.norm() + 3 * (theirs - true).norm() + 1e-4
    true, theirs, ours = (torch.cat([tensor.flatten() for tensor in each]) for each in (exact, rounded, narrow))
    assert (ours - true).norm() < 0.03 * true.norm() + 3 * (theirs - true).norm()


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("is_both", [False, True])
def test_an_lstm_keeps_its_state_over_padding(cell: str, is_both: bool) -> None:
    cells = CELLS[cell](6, 5, 2, batch_first=True, bidirectional=is_both)  # type: ignore[arg-type]
    x = torch.randn(5, 7, 6)
    found, states = scan(copy.deepcopy(cells).cuda(), x.cuda(), length_B=LENGTH.cuda())
    expected, hidden = scan(cells, x, length_B=LENGTH)
    torch.testing.assert_close(found.cpu(), expected, atol=1e-4, rtol=1e-4)
    for ours, theirs in zip(states, hidden, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("attention", DECODERS)
@pytest.mark.parametrize("cell", CELLS)
def test_forward_and_backward_are_one_graph(cell: str, attention: str, dtype: torch.dtype) -> None:
    model = build(cell, attention=attention).cuda()
    source, length, read, factor = (tensor.cuda() for tensor in (SOURCE, LENGTH, READ, FACTOR))

    def step() -> Tensor:
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            vectors: Tensor = model(source, length, read)
        (vectors * factor).sum().backward()
        return vectors.detach()

    def forget() -> None:
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.zero_()

    forget()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    source.copy_(source.flip(0))  # another batch in the same place
    length.copy_(length.flip(0))
    forget()
    graph.replay()
    found = [captured.clone(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
    forget()
    expected = [step(), *(p.grad for p in model.parameters() if p.grad is not None)]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-3)


@contextlib.contextmanager
def nothing_waits() -> Iterator[None]:
    """What makes the host wait for the device is an error inside, and only there."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype feature")
        try:
            torch.cuda.set_sync_debug_mode("error")
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nothing_waits_for_the_host(dtype: torch.dtype) -> None:
    model = build(num_layers=2).cuda()
    source, length, read = (tensor.cuda() for tensor in (SOURCE, LENGTH, READ))

    def step() -> None:
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            total = model(source, length, read).sum()
        total.backward()

    step()
    with nothing_waits():
        step()


@pytest.mark.parametrize(("num_rows", "width"), [(5, 40), (80, 1000), (512, 1000)])
def test_a_step_of_a_gru(num_rows: int, width: int) -> None:
    steps = torch.randn(num_rows, 3, 3 * width, device="cuda", dtype=torch.bfloat16)
    given, hidden = torch.randn(2, num_rows, 3 * width, device="cuda", dtype=torch.bfloat16)
    leaves = [x.requires_grad_() for x in (steps[:, 1], given, hidden, torch.randn(num_rows, width, device="cuda"))]
    wide, narrow = gru_cell(*leaves)
    exact = [leaf.detach().float().requires_grad_() for leaf in leaves]
    expected = torch.ops.aten._thnn_fused_gru_cell(exact[0] + exact[1], exact[2], exact[3])[0]
    torch.testing.assert_close(wide, expected)
    torch.testing.assert_close(narrow, expected.bfloat16(), atol=0.01, rtol=0.01)
    factor = torch.randn_like(wide)
    found = torch.autograd.grad((wide * factor).sum() + narrow.float().sum(), leaves)
    for ours, true in zip(found, torch.autograd.grad((expected * (factor + 1)).sum(), exact), strict=True):
        torch.testing.assert_close(ours.float(), true, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_maxout_of_pairs(dtype: torch.dtype) -> None:
    x = torch.randn(50, 30, 1240, dtype=dtype, requires_grad=True)
    there = x.detach().cuda().requires_grad_()
    y, ours = maxout(x), maxout(there)
    grad = torch.randn_like(y)
    torch.testing.assert_close(ours.cpu(), y, atol=0, rtol=0)
    (expected,), (found,) = torch.autograd.grad(y, x, grad), torch.autograd.grad(ours, there, grad.cuda())
    torch.testing.assert_close(found.cpu(), expected, atol=0, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_rows", [4, 300])
@pytest.mark.parametrize(("num_keys", "width"), [(30, 1000), (7, 33), (500, 96)])
def test_one_additive_look(dtype: torch.dtype, num_rows: int, num_keys: int, width: int) -> None:
    score = SCORES["additive"](24, width).cuda().to(dtype).requires_grad_(False)
    length = torch.tensor([num_keys, 1, num_keys // 2 + 1, 0], device="cuda").repeat(num_rows // 4)
    query, memory, value = (
        torch.randn(num_rows, *shape, device="cuda").to(dtype)
        for shape in ((1, 24), (num_keys, width), (num_keys, width))
    )
    query.requires_grad_()
    mask = masks.padding(length)
    assert explain(query, None, value, memory=memory, score=score, mask=mask).backend == "additive_step"
    found = []
    for backend, kind in (("auto", dtype), ("reference", dtype), ("reference", torch.float64)):
        tensors = [tensor.detach().to(kind) for tensor in (query, memory, value)]
        tensors[0].requires_grad_()
        scores = copy.deepcopy(score).to(kind)
        context = attend(tensors[0], None, tensors[2], memory=tensors[1], score=scores, mask=mask, backend=backend)
        (gradient,) = torch.autograd.grad(context.double().square().sum(), tensors[0])
        found.append((context.detach().double(), gradient.double()))
    for ours, plain, true in zip(*found, strict=True):
        rounding = torch.finfo(dtype).eps * true.abs().amax()
        assert (ours - true).abs().amax() <= 2 * (plain - true).abs().amax() + 8 * rounding
    assert not found[0][1][1::4].any()  # who has one key looks at it whatever it asks
