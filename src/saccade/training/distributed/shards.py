"""Shards a model over the processes of a team (FSDP2): each keeps its part of every weight, gradient and moment.

A block's weights are whole only while it computes; embeddings, one matrix in up to three roles, belong to the model
itself and are whole from its forward pass to the end of its backward pass. Elsewhere weights are `DTensor`s, which the
functions here turn into whole tensors and back; they return the tensors of a model without shards unchanged.
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
    """Shard a model, the same in every process, block by block and then the rest; gradients will be sums."""
    from torch.distributed.device_mesh import init_device_mesh  # imports take a second
    from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)  # no code writes into it
    mesh = init_device_mesh(device.type, (team.size,))
    for module in [*transformer_blocks(model), model]:
        cut = fully_shard(module, mesh=mesh)
        cut.set_gradient_divide_factor(1.0)
        cut.set_force_sum_reduction_for_comms(True)  # gloo can only sum
        for name in ALSO_FORWARD:
            if hasattr(module, name):
                register_fsdp_forward_method(module, name)
    assert isinstance(model, FSDPModule)
    model._get_fsdp_state()._lazy_init()  # makes it the root, even if a block runs first


def transformer_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the blocks of the Transformers in a model."""
    return [module for module in model.modules() if isinstance(module, EncoderBlock | DecoderBlock)]


def is_sharded(model: nn.Module) -> bool:
    """Return whether each process has only a part of a model."""
    return hasattr(model, "unshard")


def is_shard(tensor: Tensor) -> bool:
    """Return whether a tensor is a `DTensor`."""
    return hasattr(tensor, "full_tensor")


@contextmanager
def unshard(model: nn.Module) -> Iterator[None]:
    """Give every process all weights in this block, so that it may compute with them alone."""
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


def local_shard(tensor: Tensor) -> Tensor:
    """Return this process's part of a tensor."""
    return cast(Any, tensor).to_local() if is_shard(tensor) else tensor


def join_shards(tensor: Tensor) -> Tensor:
    """Return the whole tensor; all processes must call it."""
    return cast(Any, tensor).full_tensor() if is_shard(tensor) else tensor


def shard_like(tensor: Tensor, other: Tensor) -> Tensor:
    """Shard a whole tensor, which all processes have, as another is sharded."""
    if not is_shard(other) or is_shard(tensor):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    like = cast(Any, other)
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


def gather_shards(tensors: Mapping[str, Tensor], *, keep: bool) -> dict[str, Tensor]:
    """Return every tensor whole, joined one after the other; processes that don't `keep` them get nothing."""
    found = {}
    for name, tensor in tensors.items():
        one = join_shards(tensor)
        if keep:
            found[name] = one.cpu() if is_shard(tensor) else one  # together they may not fit on the device
    return found
