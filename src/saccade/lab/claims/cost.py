"""The cost of a layer: operations, steps that wait for each other, and layers until the ends meet."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from saccade.attention import attend, masks
from saccade.lab.experiment import Check, Experiment, Lines, Measurements, Panel, Points, slope

WIDTH, LENGTH, WINDOW, KERNEL = 32, 1024, 32, 5
LENGTHS, FULL_LENGTHS = (256, 512, 1024, 2048), (512, 1024, 2048, 4096, 8192)
WIDTHS = (16, 32, 64, 128)
WINDOWS, KERNELS = (32, 64, 128), (3, 5, 9, 17)
CHAINS = (16, 32, 64, 128)  # lengths at which steps and layers are counted
SMALL_WINDOW = 4  # at these lengths
DEEPEST = 64

Layer = Callable[[Tensor], Tensor]  # from [1, N, D] to [1, N, D]
KINDS = ("self-attention", "restricted", "recurrent", "convolution")


def measure(seed: int, is_full: bool) -> Measurements:
    """Count operations, and layers until the first input reaches the last output, and fit exponents."""
    torch.manual_seed(seed)
    lengths = FULL_LENGTHS if is_full else LENGTHS
    by_length = {kind: [(n, count_operations(make(kind), n, WIDTH)) for n in lengths] for kind in KINDS}
    by_width = {kind: [(d, count_operations(make(kind, width=d), LENGTH, d)) for d in WIDTHS] for kind in KINDS}
    by_window = [(r, count_operations(make("restricted", window=r), LENGTH, WIDTH)) for r in WINDOWS]
    by_kernel = [(k, count_operations(make("convolution", kernel=k), LENGTH, WIDTH)) for k in KERNELS]
    steps = {kind: [(n, _longest_chain(make(kind)(_draw(n, WIDTH)))) for n in CHAINS] for kind in KINDS}
    layers = {kind: [(n, count_layers(kind, n)) for n in CHAINS] for kind in KINDS}
    layers["dilated convolution"] = [(n, count_layers("dilated convolution", n)) for n in CHAINS]
    numbers = {f"{kind}, n": exponent(points) for kind, points in by_length.items()}
    numbers |= {f"{kind}, d": exponent(points) for kind, points in by_width.items()}
    numbers |= {"restricted, r": exponent(by_window), "convolution, k": exponent(by_kernel)}
    numbers |= {f"{kind}, steps": exponent(points) for kind, points in steps.items()}
    numbers |= {f"{kind}, layers": exponent(points) for kind, points in layers.items()}
    numbers["dilated convolution, layers a doubling"] = slope(
        [(math.log2(n), count) for n, count in layers["dilated convolution"]]
    )
    panels: dict[str, Lines] = {"operations": by_length, "widths": by_width, "steps": steps, "layers": layers}
    return Measurements(panels, numbers)


def make(
    kind: str, *, width: int = WIDTH, window: int = WINDOW, kernel: int = KERNEL, dilation: int | None = None
) -> Layer:
    """Make a layer of a kind. Attention is what the table of Vaswani 2017 counts: scores and sums, no projections.

    A dilated convolution looks back only: otherwise its way would lead through places that there are not.
    """
    if kind == "self-attention":
        return lambda x_BND: attend(x_BND, x_BND, x_BND)
    if kind == "restricted":
        return lambda x_BND: attend(x_BND, x_BND, x_BND, mask=masks.window(window))
    if kind == "recurrent":
        cells = nn.RNN(width, width, batch_first=True)
        return lambda x_BND: cells(x_BND)[0]
    convolve = nn.Conv1d(width, width, kernel, dilation=dilation or 1)
    before, behind = (kernel // 2, kernel // 2) if dilation is None else (dilation * (kernel - 1), 0)
    return lambda x_BND: convolve(nn.functional.pad(x_BND.mT, (before, behind))).mT


def count_operations(layer: Layer, length: int, width: int) -> float:
    """Count multiplications and additions of matrix products, as they are run."""
    with FlopCounterMode(display=False, custom_mapping=_FUSED) as counter:
        layer(_draw(length, width))
    return float(counter.get_total_flops())


def _count_fused(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query, key, value))


_FUSED: dict[Any, Any] = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _count_fused}


def count_layers(kind: str, length: int) -> int:
    """Count the layers, or the steps of a recurrent one, until the first input reaches the last output."""
    x_BND = _draw(length, WIDTH)
    if kind == "recurrent":  # one layer is enough, but its way leads through every step
        return length
    y_BND = x_BND
    for number in range(1, DEEPEST + 1):
        if kind == "dilated convolution":
            y_BND = make("convolution", dilation=KERNEL ** (number - 1))(y_BND)
        else:
            y_BND = make(kind, window=SMALL_WINDOW)(y_BND)
        (grad_BND,) = torch.autograd.grad(y_BND[:, -1].sum(), x_BND, retain_graph=True)
        if bool(grad_BND[:, 0].any()):
            return number
    raise AssertionError(f"{kind}: the ends of {length} steps have not met after {DEEPEST} layers")


def _draw(length: int, width: int) -> Tensor:
    return torch.randn(1, length, width, requires_grad=True)


def _longest_chain(output: Tensor) -> int:
    """Count the operations of the longest chain in the graph of an output: those that wait for each other."""
    depth: dict[Any, int] = {None: 0}
    stack = [output.grad_fn]
    while stack:
        node = stack[-1]
        before = [parent for parent, _ in node.next_functions] if node is not None else []
        if waiting := [parent for parent in before if parent not in depth]:
            stack += waiting
            continue
        depth[node] = 1 + max((depth[parent] for parent in before), default=0) if node is not None else 0
        stack.pop()
    return depth[output.grad_fn]


def exponent(points: Points) -> float:
    """Return p of the best y = c x^p."""
    return slope([(math.log(x), math.log(y)) for x, y in points])


def _expect(number: str, says: str, expected: float) -> Check:
    return Check(number, f"{says}: {expected:g}", least=expected - 0.15, most=expected + 0.15)


COST = Experiment(
    name="cost",
    question="What do self-attention, restricted attention, recurrent and convolutional layers cost?",
    claim="Operations a layer grow as n² d, r n d, n d² and k n d²; steps that wait for each other as 1, 1, n and 1; "
    "the longest way between two positions as 1, n / r, n and log_k n (n / k without dilation).",
    source="Vaswani 2017, section 4, table 1",
    setup="Operations of matrix products are counted while the layers run. Steps: the longest chain of operations in "
    "torch's graph. Way: layers until the first input reaches the last output, found by gradients (of a recurrent "
    "layer: its steps). Exponents are slopes between logarithms; a number is as predicted within 0.15.",
    prediction="All exponents are those of the table. A dilated convolution needs less than one more layer when the "
    "length doubles.",
    checks=(
        _expect("self-attention, n", "operations of self-attention grow with n to the power of", 2),
        _expect("self-attention, d", "and with d to the power of", 1),
        _expect("restricted, n", "operations of restricted attention with n", 1),
        _expect("restricted, r", "with the window r", 1),
        _expect("restricted, d", "with d", 1),
        _expect("recurrent, n", "operations of a recurrent layer with n", 1),
        _expect("recurrent, d", "with d", 2),
        _expect("convolution, n", "operations of a convolution with n", 1),
        _expect("convolution, k", "with its kernel k", 1),
        _expect("convolution, d", "with d", 2),
        _expect("self-attention, steps", "steps of self-attention that wait for each other, with n", 0),
        _expect("restricted, steps", "of restricted attention", 0),
        _expect("recurrent, steps", "of a recurrent layer", 1),
        _expect("convolution, steps", "of a convolution", 0),
        _expect("self-attention, layers", "the longest way through self-attention, with n", 0),
        _expect("restricted, layers", "through restricted attention", 1),
        _expect("recurrent, layers", "through a recurrent layer", 1),
        _expect("convolution, layers", "through convolutions without dilation", 1),
        Check(
            "dilated convolution, layers a doubling",
            "layers that dilated convolutions need more when n doubles",
            0.2,
            0.8,
        ),
    ),
    panels={
        "operations": Panel("Operations by length", "length n", "operations", log_across=True, log_up=True),
        "widths": Panel("Operations by width", "width d", "operations", log_across=True, log_up=True),
        "steps": Panel("Steps that wait", "length n", "operations in a chain", log_across=True, log_up=True),
        "layers": Panel("Way between the ends", "length n", "layers or steps", log_across=True, log_up=True),
    },
    measure=measure,
    minutes="a few seconds",
)
