"""A model cut over the processes of a team (FSDP2): each keeps its part of every weight, gradient and moment.

A block's weights are whole only while it computes; embeddings, one matrix in up to three roles, belong to the model
itself and are whole from its forward pass to the end of its backward pass. Elsewhere weights are `DTensor`s, which the
functions here turn into whole tensors and back; a model that is not sharded passes through them as it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from saccade.models.transformer import DecoderBlock, EncoderBlock
from saccade.training.distributed.team import Team

ALSO_FORWARD = ("read", "forward_packed")  # methods that compute with a module's weights, beside `forward`


def shard(model: nn.Module, team: Team, device: torch.device) -> None:
    """Cut a model, the same in every process, block by block and then the rest; gradients will be sums."""
    from torch.distributed.device_mesh import init_device_mesh  # a second of imports, which only who shards waits for
    from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)  # nobody writes into it
    mesh = init_device_mesh(device.type, (team.size,))
    for module in [*blocks(model), model]:
        cut = fully_shard(module, mesh=mesh)
        cut.set_gradient_divide_factor(1.0)
        cut.set_force_sum_reduction_for_comms(True)  # gloo knows no other
        for name in ALSO_FORWARD:
            if hasattr(module, name):
                register_fsdp_forward_method(module, name)
    assert isinstance(model, FSDPModule)
    model._get_fsdp_state()._lazy_init()  # it is the root, even if a block is asked first


def blocks(model: nn.Module) -> list[nn.Module]:
    """The blocks of its Transformers."""
    return [module for module in model.modules() if isinstance(module, EncoderBlock | DecoderBlock)]


def is_sharded(model: nn.Module) -> bool:
    """Whether each process has only a part of it."""
    return hasattr(model, "unshard")


def is_cut(tensor: Tensor) -> bool:
    """Whether this is a `DTensor`."""
    return hasattr(tensor, "full_tensor")


@contextmanager
def whole(model: nn.Module) -> Iterator[None]:
    """Every process has all weights in this block, and may compute with them alone."""
    if not is_sharded(model):
        yield
        return
    cut: list[Any] = [module for module in model.modules() if is_sharded(module)]
    cast(Any, model).set_reshard_after_forward(False)
    for module in cut:
        module.unshard()
    try:
        yield
    finally:
        for module in cut:
            module.reshard()
            module.set_reshard_after_forward(module is not model, recurse=False)


def part(tensor: Tensor) -> Tensor:
    """What this process has of it."""
    return cast(Any, tensor).to_local() if is_cut(tensor) else tensor


def joined(tensor: Tensor) -> Tensor:
    """All of it; everybody must ask."""
    return cast(Any, tensor).full_tensor() if is_cut(tensor) else tensor


def cut_like(tensor: Tensor, other: Tensor) -> Tensor:
    """A whole tensor, which everybody has, cut as another is."""
    if not is_cut(other) or is_cut(tensor):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    like = cast(Any, other)
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


def gathered(tensors: Mapping[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """All of every tensor, joined one after the other; whoever doesn't `keep` them gets nothing."""
    found = {}
    for name, tensor in tensors.items():
        one = joined(tensor)
        if keep:
            found[name] = one.cpu() if is_cut(tensor) else one  # together they may not fit the device
    return found
