"""RNN encoder-decoders on an accelerator: what the CPU computes, and all of it in one CUDA graph."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from saccade import attend, explain, masks
from saccade.attention.scores import SCORES
from saccade.layers.padded import scanned
from saccade.layers.recurrent import CELLS, DIRECTIONS
from saccade.models.aligner import SCOPES, Look
from saccade.models.seq2seq import DECODERS, RecurrentSizes, Seq2Seq

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SOURCE, LENGTH = torch.randint(0, 11, (5, 7)), torch.tensor([7, 2, 5, 1, 6])
READ = torch.randint(0, 13, (5, 6))
FACTOR = torch.randn(5, 6, 24)


def build(cell: str = "gru", num_layers: int = 2, look: Look | None = None, **options: object) -> Seq2Seq:
    sizes = RecurrentSizes(32, 24, num_layers=num_layers, cell=cell, dropout=0.0)
    return Seq2Seq(source=11, target_vocabulary=13, sizes=sizes, look=look or Look(), **options)  # type: ignore[arg-type]


def results(model: Seq2Seq, device: str, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    model = copy.deepcopy(model).to(device)
    with torch.autocast(device, dtype, enabled=dtype != torch.float32):
        vectors = model(SOURCE.to(device), LENGTH.to(device), READ.to(device))
    (vectors * FACTOR.to(device)).sum().backward()
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
    model = build(look=Look(score, "softmax", scope, radius=2))
    for ours, theirs in zip(results(model, "cuda"), results(model, "cpu"), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("attention", DECODERS)
def test_bfloat16_tracks_float32(cell: str, attention: str) -> None:
    model = build(cell, attention=attention)
    exact, narrow = results(model, "cpu"), results(model, "cuda", torch.bfloat16)
    for true, ours in zip(exact, narrow, strict=True):
        assert (ours - true).norm() <= 0.1 * true.norm() + 1e-4
    together = [torch.cat([tensor.flatten() for tensor in tensors]) for tensors in (exact, narrow)]
    assert (together[0] - together[1]).norm() < 0.03 * together[0].norm()


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("is_both", [False, True])
def test_an_lstm_keeps_its_state_over_padding(cell: str, is_both: bool) -> None:
    cells = CELLS[cell](6, 5, 2, batch_first=True, bidirectional=is_both)  # type: ignore[arg-type]
    x = torch.randn(5, 7, 6)
    found, states = scanned(copy.deepcopy(cells).cuda(), x.cuda(), length_B=LENGTH.cuda())
    expected, hidden = scanned(cells, x, length_B=LENGTH)
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


def test_nothing_waits_for_the_host() -> None:
    model = build(num_layers=2).cuda()
    source, length, read = (tensor.cuda() for tensor in (SOURCE, LENGTH, READ))
    model(source, length, read).sum().backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        model(source, length, read).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_keys", "width"), [(30, 1000), (7, 33), (500, 96)])
def test_one_additive_look(dtype: torch.dtype, num_keys: int, width: int) -> None:
    score = SCORES["additive"](24, width).cuda().to(dtype).requires_grad_(False)
    length = torch.tensor([num_keys, 1, num_keys // 2 + 1, 0], device="cuda")
    query, memory, value = (
        torch.randn(4, *shape, device="cuda").to(dtype) for shape in ((1, 24), (num_keys, width), (num_keys, width))
    )
    query.requires_grad_()
    mask = masks.padding(length)
    assert explain(query, None, value, memory=memory, score=score, mask=mask).backend == "additive_step"
    found = []
    for backend, kind in (("auto", dtype), ("reference", torch.float64)):
        tensors = [tensor.detach().to(kind) for tensor in (query, memory, value)]
        tensors[0].requires_grad_()
        scores = copy.deepcopy(score).to(kind)
        context = attend(tensors[0], None, tensors[2], memory=tensors[1], score=scores, mask=mask, backend=backend)
        (gradient,) = torch.autograd.grad(context.double().square().sum(), tensors[0])
        found.append((context.detach().double(), gradient.double()))
    tolerance = 30 * torch.finfo(dtype).eps
    for ours, true in zip(*found, strict=True):
        torch.testing.assert_close(ours, true, atol=tolerance, rtol=tolerance)
