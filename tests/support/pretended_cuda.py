"""Runs what an accelerator would run, on a CUDA device that has shapes and no numbers (`cpp/pretended_cuda.cpp`).

Devices that don't meet, dtypes and shapes that don't fit, and every question that would make the host wait are errors.
Kernels are not run: an operator answers with its fake, a Triton kernel called directly is noted.

    LD_PRELOAD=... python tests/pretended_cuda.py [name ...]
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
from rich.console import Console
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from saccade.attention import MultiHeadAttention
from saccade.bench.training.flops import ModelSizes
from saccade.bench.training.trainers import TrainJob, config_of, word_tokenizer
from saccade.data.stream import Stream
from saccade.decoding import BeamOptions
from saccade.decoding.constraints import constrain
from saccade.decoding.continuous import sources, step
from saccade.decoding.continuous.greedy_state import StateSize
from saccade.ops.kernels import nvrtc
from saccade.runs.config import check_config
from saccade.tasks import devices
from saccade.tasks.translate import batches, task
from saccade.tasks.write import task as writing
from saccade.tasks.write.measure import write_loss
from saccade.training.loop import Trainer

CUDA = torch.device("cuda")
TRANSFORMER = ModelSizes(64, 2, 200, num_heads=2, hidden_width=96)
RNN = ModelSizes(32, 2, 200, embedding_width=24)
TRAININGS: dict[str, tuple[ModelSizes, dict[str, Any]]] = {
    "packed": (TRANSFORMER, {}),
    "packed post-norm": (TRANSFORMER, {"model.norm": "post"}),
    "packed rotary": (TRANSFORMER, {"model.positions": "rotary"}),
    "packed cosine": (TRANSFORMER, {"model.score": "cosine"}),
    "packed window": (TRANSFORMER, {"model.window": 4}),
    "packed swiglu": (TRANSFORMER, {"model.activation": "swiglu"}),
    "packed float32": (TRANSFORMER, {"training.precision": "float32"}),
    "packed float8": (TRANSFORMER, {"training.precision": "float8"}),
    "packed recomputed": (TRANSFORMER, {"training.recompute": True}),
    "padded": (TRANSFORMER, {"training.batches": "padded"}),
    "relative": (TRANSFORMER, {"model.positions": "relative"}),
    "entmax15": (TRANSFORMER, {"model.normalizer": "entmax15"}),
    "additive": (TRANSFORMER, {"model.score": "additive"}),
    "bahdanau": (RNN, {}),
    "luong": (RNN, {"model.attention": "luong"}),
    "local_p": (RNN, {"model.scope": "local_p", "model.score": "general"}),
    "local_m": (RNN, {"model.scope": "local_m"}),
    "none": (RNN, {"model.attention": "none"}),
    "copies": (TRANSFORMER, {"model.copies": True}),
    "copies rnn": (RNN, {"model.copies": True, "model.coverage": True, "training.coverage": 1.0}),
}
RECURRENT = {"kind": "recurrent", "width": 24, "embedding_width": 16}
TEXTS: dict[str, dict[str, Any]] = {
    "text": {"width": 32},
    "text relative": {"width": 32, "positions": "relative", "dropout": 0.1},
    "text lstm": {**RECURRENT, "num_layers": 2},
    "text key-value": {**RECURRENT, "attention": "key_value"},
    "text ngram": {**RECURRENT, "attention": "ngram", "span": 3},
    "text lstmn": {**RECURRENT, "cell": "lstmn"},
}
WRITINGS = {"greedy": 1, "beam": 4}
LIBRARY, PUT = torch.library.Library("aten", "IMPL", "Meta"), Tensor.__setitem__


class Hopper:
    multi_processor_count = 132


def pretend() -> None:
    """What asks for a driver, or has no fake, answered as a Hopper chip would."""
    answers: list[tuple[Any, str, Any]] = [
        (torch.cuda, "is_available", lambda: True),
        (torch.cuda, "is_bf16_supported", lambda *_, **__: True),
        (torch.cuda, "get_device_capability", lambda *_: (9, 0)),
        (torch.cuda, "get_device_properties", lambda *_: Hopper),
        (torch.amp.autocast_mode, "amp_definitely_not_available", lambda: False),
        (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
        *((torch, name, recurrence) for name in ("gru", "rnn_tanh", "lstm")),
        (nn.Module, "to", lambda module, *_, **__: module),
        (nvrtc, "refuses", lambda _: None),
        (triton.runtime.jit.JITFunction, "run", lambda *_, **__: None),
        (Tensor, "__setitem__", put),
        (step, "_capture", lambda own, _: own),
        (step, "to_device", sent),
        (sources, "to_device", sent),
    ]
    for owner, name, answer in answers:
        setattr(owner, name, answer)
    LIBRARY.impl("_thnn_fused_gru_cell", gru)
    LIBRARY.impl("_thnn_fused_gru_cell_backward", gru_backward)


def put(tensor: Tensor, index: Any, value: Any) -> None:
    """A number that is put where a tensor says is copied from the host, which waits, and can't be captured."""
    indices = index if isinstance(index, tuple) else (index,)
    is_host = not isinstance(value, Tensor) and any(isinstance(one, Tensor) for one in indices)
    assert not (is_host and tensor.device.type == "cuda"), "a number of the host is copied: index_fill_"
    PUT(tensor, index, value)


def gru(given: Tensor, hidden: Tensor, h: Tensor, *biases: Tensor) -> tuple[Tensor, Tensor]:
    del given, hidden, biases
    return torch.empty_like(h), h.new_empty(len(h), 5 * h.shape[1])


def gru_backward(grad: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    del workspace, has_bias
    wide = grad.new_empty(len(grad), 3 * grad.shape[1])
    return wide, torch.empty_like(wide), torch.empty_like(grad), None, None


def recurrence(x_BSD: Tensor, hidden: Any, weights: list[Tensor], *options: Any) -> tuple[Tensor, ...]:
    """Of the shape and with the gradients of cuDNN's."""
    del options
    states = hidden if isinstance(hidden, list) else [hidden]
    all_of_them = x_BSD.sum(-1, keepdim=True) + sum(tensor.sum() for tensor in (*weights, *states))
    output_BSD = all_of_them.expand(-1, -1, states[0].shape[-1]).contiguous()
    return output_BSD, *(output_BSD[:, -1].unsqueeze(0) for _ in states)


def moved(network: nn.Module, dtype: torch.dtype | None = None) -> Any:
    """With parameters and buffers on the device; in a dtype of their own they learn nothing."""
    made: dict[nn.Parameter, nn.Parameter] = {}
    for old in network.parameters():
        new = torch.empty(old.shape, dtype=dtype or old.dtype, device=CUDA)
        made[old] = nn.Parameter(new, requires_grad=dtype is None)
    for module in network.modules():
        module._parameters |= {name: made[old] for name, old in module._parameters.items() if old is not None}
        module._buffers |= {name: sent(old) for name, old in module._buffers.items() if old is not None}
    return network


def configured(sizes: ModelSizes, changes: dict[str, Any]) -> tuple[Any, Any]:
    job = TrainJob(CUDA, sizes, tokens=512, steps=1, warmup=1, recurrent_batches=(16,))
    work = job.works()[0]
    config = config_of(job, work)
    for key, value in changes.items():
        section, name = key.split(".")
        changed = getattr(config, section).model_copy(update={name: value})
        config = config.model_copy(update={section: changed})
    return config, work


def train(sizes: ModelSizes, changes: dict[str, Any], folder: Path) -> str:
    """Forward, backward, clip and update, from a batch as it is loaded."""
    config, work = configured(sizes, changes)
    material = batches.TrainingPairs.of([work.store(folder / "store", sizes.vocabulary)])
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        network = task.model(config, (word_tokenizer(sizes.vocabulary),) * 2).train()
        config = batches.settle(config, network, material, Console(quiet=True))
    plan = batches.plan(config, material)
    loaded = plan.load(plan.epoch(0)[0])
    with mode:
        batch = pytree.tree_map_only(Tensor, mode.from_tensor, loaded)
        moved(network)
        options = devices.training_options(config, network)
        trainer = Trainer(network, plan, batches.choose_loss(config, network), options, folder / "run")
        trainer.batches.close()
        trainer.backward(batch, torch.zeros((), device=CUDA))
        assert all(parameter.grad is not None for parameter in network.parameters())
        norm = trainer._clip()
        trainer.optimizer.found_inf = (~norm.isfinite()).float()
        trainer.optimizer.step()
    return f"{config.training.batches}, {'captured' if batches.is_steady(config) else 'not captured'}"


def train_on_texts(model: dict[str, Any], folder: Path) -> str:
    """The same for a language model; the state that it carries on is written on the device."""
    sections = {"data": {"train": "x", "context": 8}, "model": model, "training": {"batch_size": 4, "max_steps": 9}}
    config = check_config({"task": "write", "device": "cuda", **sections}, "write.yaml")
    plan = writing.make_plan(config, Stream(np.arange(4, 200, dtype=np.int32), 1, 1, 1))
    loaded = plan.load(plan.epoch(0)[0])
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        network = writing.make_network(config, 200).train()
        batch = pytree.tree_map_only(Tensor, mode.from_tensor, loaded)
        moved(network)
        options = devices.training_options(config, network)
        trainer = Trainer(network, plan, partial(write_loss, network), options, folder / "run")
        trainer.batches.close()
        trainer.backward(batch, torch.zeros((), device=CUDA))
        assert all(parameter.grad is not None for parameter in network.parameters())
    return "captured"


def write(width: int, folder: Path) -> str:
    """Sentences enter, steps are taken, what was written leaves."""
    del folder
    config, options = configured(TRANSFORMER, {})[0], BeamOptions(width=width)
    source, length = torch.full((3, 12), 5), torch.tensor([12, 3, 1])
    constraints = constrain(options, source, length, [])  # on the host, as `slots` does
    with FakeTensorMode(allow_non_fake_inputs=True), torch.inference_mode():
        network = moved(task.model(config, (word_tokenizer(200),) * 2).eval(), torch.bfloat16)
        for module in network.modules():
            if isinstance(module, MultiHeadAttention):
                module.join()
        torch.tensor, plain = partial(_tensor, torch.tensor), torch.tensor
        try:
            slots = step.SlotBatch(network, options, StateSize(8, width, 20, 12), CUDA)
            slots.enter([0, 1, 2], network.start(sent(source), sent(length)), constraints)
            slots.step()
            slots.step()
            step.to_host(slots.state.live_B)
            slots.columns([0, 2], 4)
        finally:
            torch.tensor = plain
    return f"{width} hypotheses"


def sent(tensor: Tensor, device: torch.device = CUDA) -> Tensor:
    """The like of a tensor of the host, whose numbers can't go there."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=device)


def _tensor(plain: Callable[..., Tensor], data: Any, *, device: torch.device = CUDA, **options: Any) -> Tensor:
    return sent(plain(data, **options), device)


def main() -> int:
    """0 if all went through."""
    pretend()
    chosen, failed = sys.argv[1:], 0
    runs: dict[str, Callable[[Path], str]] = {name: partial(train, *given) for name, given in TRAININGS.items()}
    runs |= {name: partial(train_on_texts, model) for name, model in TEXTS.items()}
    runs |= {name: partial(write, width) for name, width in WRITINGS.items()}
    for name, run in runs.items():
        if chosen and name not in chosen:
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                print(f"{name}: {run(Path(folder))}")  # noqa: T201
        except Exception:
            failed += 1
            print(f"{name}: failed\n{traceback.format_exc()}")  # noqa: T201
    return failed


if __name__ == "__main__":
    sys.exit(main())
