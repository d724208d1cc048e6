"""ONNX Runtime as an engine: both graphs, decoded by the search of this library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.data.batches import decoder_input
from saccade.decoding import Stepper
from saccade.export.onnx.write import DECODER, ENCODER, MODEL, find_longest
from saccade.export.proof import TOKENS, Ids, Sources, find_aligning, pick_log_probabilities, search_ours
from saccade.tasks.base import Portable, PortablePass
from saccade.tasks.texts import batch_by_length

Arrays = dict[str, NDArray[Any]]


class RuntimeState(NamedTuple):
    """Arrays that stay the same for all steps of a batch, and those of the step before; both begin with the batch."""

    fixed: Arrays
    past: Arrays

    def rows(self, index_N: Tensor) -> RuntimeState:
        index = index_N.numpy()
        return RuntimeState(*({name: value[index] for name, value in part.items()} for part in self))


def load_graph(path: Path) -> Any:
    """Return a session of ONNX Runtime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run_graph(session: Any, given: Mapping[str, NDArray[Any]]) -> Arrays:
    """Return all outputs for those of the given values that the graph reads."""
    read = {one.name: given[one.name] for one in session.get_inputs()}
    return dict(zip((one.name for one in session.get_outputs()), session.run(None, read), strict=True))


def load(portable: Portable | PortablePass, folder: Path) -> OnnxEngine | OnnxPass:
    """Load what was written for a model."""
    return OnnxEngine(portable, folder) if isinstance(portable, Portable) else OnnxPass(folder)


@final
class OnnxPass:
    """The graph of a model that answers in one pass, in ONNX Runtime."""

    name = "ONNX Runtime"

    def __init__(self, folder: Path) -> None:
        self._graph = load_graph(folder / MODEL)

    def compute(self, batch: Any) -> dict[str, Tensor]:
        given = {name.rpartition("_")[0]: tensor.numpy() for name, tensor in batch._asdict().items()}
        return {name: torch.from_numpy(value) for name, value in run_graph(self._graph, given).items()}


@final
class OnnxEngine:
    """Both graphs in ONNX Runtime."""

    name = "ONNX Runtime"
    renormalizes = False
    ends_early = False

    def __init__(self, portable: Portable, folder: Path) -> None:
        self._encoder, self._decoder = (load_graph(folder / name) for name in (ENCODER, DECODER))
        self._outputs = [one.name for one in self._decoder.get_outputs()]
        self._inputs = [one.name for one in self._decoder.get_inputs()]
        (self._read,) = (one for one in self._decoder.get_inputs() if one.name == "read")
        self.longest, self._join = find_longest(portable.network), portable.join
        self.head = find_aligning(portable) if "attention" in self._outputs else None

    def start(self, source: Tensor, source_length_B: Tensor, /) -> RuntimeState:
        """Read the source; the past is what the encoder says, or that of no steps."""
        given = {"source": source.numpy(), "source_length": source_length_B.numpy()}
        found = {**given, **run_graph(self._encoder, given)}
        past = {
            name: found[name] if name in found else found[name.replace("past", "memory")][:, :, :0]
            for name in self._inputs
            if name.startswith("past")
        }
        return RuntimeState({name: found[name] for name in self._inputs if name in found and name not in past}, past)

    def advance(self, state: RuntimeState, read_BT: Tensor) -> tuple[Tensor, RuntimeState]:
        """Read some ids and return logits."""
        found, state = self._run(state, read_BT)
        return torch.from_numpy(found["logits"]), state

    def logits(self, vectors: Tensor) -> Tensor:
        return vectors

    def log_probabilities(self, sources: Sources, targets: Ids) -> list[list[float]]:
        found: list[list[float]] = [[] for _ in sources]
        lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        for rows in batch_by_length(lengths, TOKENS):
            wanted = [targets[row] for row in rows]
            state = self.start(*self._join([sources[row] for row in rows]))
            logits_BTV, _ = self.advance(state, decoder_input(wanted))
            for row, steps in zip(rows, pick_log_probabilities(logits_BTV, wanted), strict=True):
                found[row] = steps
        return found

    def search(self, sources: Sources, beam: int, limit: int, *, thorough: bool) -> Ids:
        del thorough
        return search_ours(cast(Stepper, self), sources, beam, limit, self._join)

    def encode(self, texts: list[str]) -> None:
        """Return nothing: ids come from outside."""

    def decode(self, outputs: Ids) -> None:
        """Return nothing: ids come from outside."""

    def attend(self, sources: Sources, limit: int) -> list[tuple[list[int], Tensor]] | None:
        if self.head is None:
            return None
        told = []
        for source, ids in zip(sources, self.search(sources, 1, limit, thorough=False), strict=True):
            found, _ = self._run(self.start(*self._join([source])), decoder_input([ids]))
            told.append((ids, self.head._replace(shift=0).of(torch.from_numpy(found["attention"][0]))))
        return told

    def _run(self, state: RuntimeState, read_BT: Tensor) -> tuple[Arrays, RuntimeState]:
        """Read some ids: all at once, or one by one if the graph is that of one step."""
        size = 1 if self._read.shape[1] == 1 else read_BT.shape[1]
        several = list[Arrays]()
        for read in read_BT.split(size, 1):
            found = self._decoder.run(None, {"read": read.contiguous().numpy(), **state.fixed, **state.past})
            several.append(dict(zip(self._outputs, found, strict=True)))
            past = {name: several[-1][name.replace("past", "present")] for name in state.past}
            state = state._replace(past=past)
        axes = {"logits": 1, "attention": 3}
        joined = {
            name: np.concatenate([one[name] for one in several], axes[name]) for name in axes if name in self._outputs
        }
        return joined, state
