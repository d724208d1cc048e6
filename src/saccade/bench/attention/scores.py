"""`saccade bench attention`: compares every score with torch's own attention, in one run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention import SCORES, MultiHeadAttention, Score, attend, masks
from saccade.bench.measure import medians_side_by_side
from saccade.training.memory import peak_memory

Run = Callable[[], Tensor]


@dataclass(frozen=True)
class ScoreCase:
    """Two ways to compute the same tensor, ours and a peer's; they are built when they are needed."""

    section: str
    name: str
    peer: str
    shape: str
    build: Callable[[], tuple[Run, Run | None, list[Tensor]]]  # ours, theirs if it fits, and what wants a gradient
    backward: bool = False


@dataclass(frozen=True)
class ScoreRow:
    """The figures of one case. Ratios below 1 mean that ours is faster or takes less memory."""

    section: str
    name: str
    peer: str
    shape: str
    backward: bool
    seconds: float
    peer_seconds: float | None
    time_ratio: float | None
    peak_bytes: int | None
    peer_peak_bytes: int | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class ScoreSizes(NamedTuple):
    """The sizes B x H x T x K of an attention, with S = T."""

    batch: int
    heads: int
    length: int
    width: int

    def __str__(self) -> str:
        return "x".join(str(size) for size in self)


class TensorPlace(NamedTuple):
    """The device and the precision of the tensors."""

    device: torch.device
    dtype: torch.dtype

    def random(self, *shape: int) -> Tensor:
        """Draw a tensor that requires a gradient."""
        return torch.randn(*shape, device=self.device, dtype=self.dtype).requires_grad_()

    def three(self, *shape: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.random(*shape), self.random(*shape), self.random(*shape)

    def put(self, module: nn.Module) -> Any:
        return module.to(self.device, self.dtype)


def all_cases(place: TensorPlace, *, quick: bool = False) -> list[ScoreCase]:
    """List the cases of the benchmark; `quick` leaves out the slow ones."""
    standard = ScoreSizes(2, 4, 128, 32) if quick else ScoreSizes(8, 8, 512, 64)
    additive = ScoreSizes(2, 1, 64, 64) if quick else ScoreSizes(8, 1, 256, 256)
    window = ScoreSizes(1, 1, 2048, 64) if quick else ScoreSizes(1, 1, 16_384, 64)
    cases = [_against_sdpa(place, name, standard) for name in SCORES if name != "additive"]
    cases += [_additive(place, additive, compiled=False), _multi_head(place, standard), _window(place, window, 128)]
    if not quick:
        cases.append(_additive_long(place, ScoreSizes(1, 1, 4096, 512)))
    if can_compile(place) and not quick:
        cases.append(_additive(place, additive, compiled=True))
    both_ways = [variant for case in cases for variant in (case, replace(case, backward=True))]
    return both_ways if quick else [*both_ways, *_growth(place)]


def can_compile(place: TensorPlace) -> bool:
    """Return whether torch.compile works here; on a CPU it needs a C++ compiler."""
    return place.device.type != "cpu" or shutil.which("g++") is not None


def _growth(place: TensorPlace) -> Iterator[ScoreCase]:
    """List cases that show how time and memory grow with T, D and H."""
    for length in (128, 512, 2048):
        yield _grow_along(_against_sdpa(place, "scaled_dot", ScoreSizes(2, 8, length, 64)), "T")
    for length in (64, 128, 256, 512):
        yield _grow_along(_additive(place, ScoreSizes(4, 1, length, 128), compiled=False), "T")
    for length in (4096, 8192, 16_384):
        yield _grow_along(_window(place, ScoreSizes(1, 1, length, 64), 128), "T")
    for width in (32, 64, 128, 256):
        yield _grow_along(_against_sdpa(place, "scaled_dot", ScoreSizes(2, 8, 512, width)), "D")
        yield _grow_along(_additive(place, ScoreSizes(4, 1, 128, width), compiled=False), "D")
    for heads in (1, 4, 16):
        yield _grow_along(_against_sdpa(place, "scaled_dot", ScoreSizes(2, heads, 512, 512 // heads)), "H")


def _grow_along(case: ScoreCase, axis: str) -> ScoreCase:
    return replace(case, section=f"growth with {axis}", backward=True)


def _against_sdpa(place: TensorPlace, name: str, sizes: ScoreSizes) -> ScoreCase:
    def build() -> tuple[Run, Run, list[Tensor]]:
        score = place.put(SCORES[name](sizes.width, sizes.width, heads=(sizes.heads,)))
        tensors = place.three(sizes.batch, sizes.heads, sizes.length, sizes.width)
        projected = place.three(sizes.batch, sizes.heads, sizes.length, sizes.width)

        return (
            lambda: attend(*tensors, score=score),
            lambda: _sdpa(*projected),
            [*tensors, *score.parameters(), *projected],
        )

    return ScoreCase("every score", name, "torch SDPA, already projected", str(sizes), build)


def _additive(place: TensorPlace, sizes: ScoreSizes, *, compiled: bool) -> ScoreCase:
    def build() -> tuple[Run, Run, list[Tensor]]:
        score: Score = place.put(SCORES["additive"](sizes.width, sizes.width))
        tensors = place.three(sizes.batch * sizes.heads, sizes.length, sizes.width)

        def broadcast(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return attend(query, key, value, score=score, backend="reference")

        theirs = torch.compile(broadcast) if compiled else broadcast
        return lambda: attend(*tensors, score=score), lambda: theirs(*tensors), [*tensors, *score.parameters()]

    peer = "torch.compile of the broadcast" if compiled else "eager broadcast"
    return ScoreCase("additive", "additive", peer, str(sizes), build)


def _additive_long(place: TensorPlace, sizes: ScoreSizes) -> ScoreCase:
    """Return a case without a peer: the broadcast tensor alone would take 32 GiB in float32."""
    case = _additive(place, sizes, compiled=False)

    def build() -> tuple[Run, None, list[Tensor]]:
        ours, _, leaves = case.build()
        return ours, None, leaves

    return replace(case, peer="nothing (the broadcast doesn't fit)", build=build)


def _multi_head(place: TensorPlace, sizes: ScoreSizes) -> ScoreCase:
    width = sizes.heads * sizes.width

    def build() -> tuple[Run, Run, list[Tensor]]:
        ours = place.put(MultiHeadAttention(width, sizes.heads))
        theirs = place.put(nn.MultiheadAttention(width, sizes.heads, batch_first=True))
        x = place.random(sizes.batch, sizes.length, width)
        leaves = [x, *ours.parameters(), *theirs.parameters()]
        return lambda: ours(x), lambda: theirs(x, x, x, need_weights=False)[0], leaves

    return ScoreCase("multi-head", "multi-head", "torch.nn.MultiheadAttention", str(sizes), build)


def _window(place: TensorPlace, sizes: ScoreSizes, radius: int) -> ScoreCase:
    def build() -> tuple[Run, Run, list[Tensor]]:
        tensors = place.three(sizes.batch, sizes.heads, sizes.length, sizes.width)
        mask = masks.window(radius)
        return lambda: attend(*tensors, mask=mask), lambda: _sdpa(*tensors), list(tensors)

    return ScoreCase("window", f"window {radius}", "torch SDPA, all pairs", str(sizes), build)


def _sdpa(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value)


def measure(case: ScoreCase, place: TensorPlace) -> ScoreRow:
    """Measure time and memory of both sides of a case, run in turns."""
    ours, theirs, leaves = case.build()
    runs = {"ours": _step(ours, leaves, case.backward)}
    if theirs is not None:
        runs["theirs"] = _step(theirs, leaves, case.backward)
    seconds = medians_side_by_side(runs, place.device)
    peaks = {}
    for name, run in runs.items():
        _clear_gradients(leaves)  # gradients of the run before would be freed inside this one, and hide what it takes
        peaks[name] = peak_memory(run, place.device)
    return ScoreRow(
        section=case.section,
        name=case.name,
        peer=case.peer,
        shape=case.shape,
        backward=case.backward,
        seconds=seconds["ours"],
        peer_seconds=seconds.get("theirs"),
        time_ratio=seconds["ours"] / seconds["theirs"] if theirs is not None else None,
        peak_bytes=peaks["ours"],
        peer_peak_bytes=peaks.get("theirs"),
    )


def _clear_gradients(leaves: list[Tensor]) -> None:
    for leaf in leaves:
        leaf.grad = None


def _step(run: Run, leaves: list[Tensor], backward: bool) -> Callable[[], None]:
    def forward_only() -> None:
        with torch.no_grad():
            run()

    def both() -> None:
        _clear_gradients(leaves)
        output = run()
        output.backward(torch.ones_like(output))

    return both if backward else forward_only
