"""Begins with the weights of another model, and trains a part of them: frozen parts, low-rank adapters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast, final

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from saccade.attention import MultiHeadAttention
from saccade.errors import UserError
from saccade.layers.feed_forward import FeedForward
from saccade.training.checkpoints import unique_state

Rows = Sequence[Sequence[int]]  # for each row here the rows of the other model whose mean it is; none: it is new
PROJECTIONS: dict[type[nn.Module], tuple[str, ...]] = {
    MultiHeadAttention: ("query", "key", "value", "output"),
    FeedForward: ("inner", "gate", "outer"),
}
EMBEDDINGS = "embeddings"
_SUMS: dict[int, Tensor | None] = {}  # of adapters inside `adding_once`, by their ids


@final
class LowRank(nn.Module):
    """W + B A with A of r rows, drawn at random, and B zero at first: it begins as W (Hu 2021, section 4.1)."""

    def __init__(self, weight_FD: Tensor, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        rows, columns = weight_FD.shape
        drawn_RD = torch.randn(rank, columns, generator=generator) * columns**-0.5
        self.down_RD = nn.Parameter(drawn_RD.to(weight_FD))
        self.up_FR = nn.Parameter(weight_FD.new_zeros(rows, rank))

    def forward(self, weight_FD: Tensor) -> Tensor:
        sum_FD = _SUMS.get(id(self))
        if sum_FD is None:
            sum_FD = weight_FD + self.up_FR @ self.down_RD
        if id(self) in _SUMS:
            _SUMS[id(self)] = sum_FD
        return sum_FD


@contextmanager
def adding_once(network: nn.Module) -> Iterator[None]:
    """Add the adapters of a network to their weights once, inside the block, where no weight may change.

    A copy of the network adds its own. With `parametrize.cached` it would get these sums, or leave this network its
    own, in half precision.
    """
    own = [id(module) for module in network.modules() if isinstance(module, LowRank)]
    _SUMS.update(dict.fromkeys(own))
    try:
        yield
    finally:
        for number in own:
            del _SUMS[number]


@torch.no_grad()
def inherit_weights(
    network: nn.Module, weights: Mapping[str, Tensor], rows: Mapping[str, tuple[Rows, ...] | None], where: str
) -> list[str]:
    """Take the weights of another model; of some of them `rows` say what each axis takes.

    What has no rows there, or takes none, stays as it was initialised. Return the names of weights with other rows.
    """
    own = unique_state(network)
    if different := weights.keys() ^ own.keys():
        names = ", ".join(sorted(different)[:3])
        raise UserError(f"from: {where} has other weights than this config makes; only one of them has {names}")
    axes = {name: rows.get(name, ()) for name in weights}
    taken = {
        name: own[name] if given is None else _take(weights[name], given, own[name]) for name, given in axes.items()
    }
    for name, weight in own.items():
        if taken[name].shape != weight.shape:
            sizes = _size(taken[name]), _size(weight)
            raise UserError(f"from: {name} is {sizes[0]} in {where}, but {sizes[1]} with this config")
    network.load_state_dict(taken, strict=False)  # the other names of tied tensors follow
    return [name for name, given in rows.items() if given is not None and not _are_same(weights[name], given)]


def _take(other: Tensor, axes: tuple[Rows, ...], own: Tensor) -> Tensor:
    """Average the rows of a weight that each row here takes, axis by axis."""
    is_known = torch.ones((), dtype=torch.bool)
    for axis, rows in enumerate(axes):
        from_axis = other.movedim(axis, 0)
        means = [from_axis[list(places)].mean(0) if places else torch.zeros_like(from_axis[0]) for places in rows]
        other = torch.stack(means).movedim(0, axis)
        is_known = is_known & torch.tensor([len(places) > 0 for places in rows]).view(-1, *[1] * (own.dim() - axis - 1))
    return other.where(is_known, own.to(other.device)) if axes and other.shape == own.shape else other


def _are_same(other: Tensor, axes: tuple[Rows, ...]) -> bool:
    sizes = other.shape[: len(axes)]
    return all([*map(list, rows)] == [[row] for row in range(size)] for rows, size in zip(axes, sizes, strict=True))


def _size(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape))


def freeze_parts(network: nn.Module, parts: Sequence[str]) -> None:
    """Let parts stay as they are: embeddings, or modules and weights by their paths."""
    for part in parts:
        found = _find_part(network, part)
        if not found:
            raise UserError(
                f"training.freeze: {part!r} given; allowed for this model: {', '.join(list_parts(network))}"
            )
        for parameter in found:
            parameter.requires_grad_(False)


def _find_part(network: nn.Module, part: str) -> list[nn.Parameter]:
    """Find the weights of a part; encoder_norm belongs to the encoder."""
    if part == EMBEDDINGS:
        return [cast(nn.Parameter, table.weight) for table in network.modules() if isinstance(table, nn.Embedding)]
    named = network.named_parameters(remove_duplicate=False)
    return [parameter for name, parameter in named if name == part or name.startswith((f"{part}.", f"{part}_"))]


def list_parts(network: nn.Module) -> list[str]:
    """List the names of a network's parts that may be frozen, those at its top."""
    tops = {name.split(".")[0] for name, _ in network.named_parameters(remove_duplicate=False)}
    own = {top for top in tops if not any(top.startswith(f"{other}_") for other in tops)}
    has_embeddings = any(isinstance(module, nn.Embedding) for module in network.modules())
    return sorted(own | ({EMBEDDINGS} if has_embeddings else set()))


def add_adapters(network: nn.Module, rank: int, seed: int, new: Sequence[str] = ()) -> int:
    """Add low-rank adapters to the projections of attention and feed-forward layers; return how many there are.

    Of the other weights only those that are `new` train.
    """
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and name in new)
    found = list_projections(network)
    if not found:
        raise UserError(f"training.lora: {rank} given, but this model has no multi-head attention; allowed: 0")
    most = min(min(projection.weight.shape) for projection in found)
    if rank >= most:
        raise UserError(f"training.lora: {rank} given; a rank must be below the narrowest projection's width, {most}")
    generator = torch.Generator().manual_seed(seed)
    for projection in found:
        adapter = LowRank(projection.weight, rank, generator)
        parametrize.register_parametrization(projection, "weight", adapter)
    return len(found)


def list_projections(network: nn.Module) -> list[nn.Linear]:
    """List the projections of attention and feed-forward layers."""
    layers = [(module, names) for module in network.modules() if (names := PROJECTIONS.get(type(module)))]
    found = [getattr(layer, name) for layer, names in layers for name in names]
    return [cast(nn.Linear, projection) for projection in found if projection is not None]
