"""The native library as an engine: a model whose steps it computes, for any search and for proofs."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any, NamedTuple, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.attention.positions import Learned
from saccade.data.batches import decoder_input, pad_sources
from saccade.decoding import Stepper
from saccade.export.native.library import OpenedModel, choose_kernels, load_library
from saccade.export.native.pack import PANEL, Searchable
from saccade.export.proof import TOKENS, Ids, Sources, pick_log_probabilities, search_ours
from saccade.models.transformer import Transformer
from saccade.tasks.texts import batch_by_length

Integers = NDArray[np.int64]


class NativeState(NamedTuple):
    """Rows between two steps: the sentence of each [N], and where the keys and values of its steps are, [N, T]."""

    batch: NativeBatch
    sentence_N: Integers
    past_NT: Integers

    def rows(self, index_N: Tensor) -> NativeState:
        index = index_N.numpy()
        return NativeState(self.batch, self.sentence_N[index], self.past_NT[index])


@final
class NativeBatch:
    """Sources that were read, and the keys and values of all steps that followed, whoever may still need them."""

    def __init__(self, engine: NativeEngine, sources: list[list[int]]) -> None:
        self.engine = engine
        lengths = np.array([len(ids) for ids in sources], np.int32)
        ids = np.array([number for ids in sources for number in ids], np.int32)
        library = load_library()
        self.handle = library.saccade_start(engine.handle, len(sources), lengths.ctypes.data, ids.ctypes.data)
        if not self.handle:
            raise MemoryError("there is no memory for the keys and values of these sources")
        weakref.finalize(self, library.saccade_end, self.handle)


@final
class NativeEngine:
    """A packed model, opened; its results don't depend on the kernels' threads, nor on the other rows of a batch."""

    name = "native"
    renormalizes = False
    ends_early = False

    def __init__(
        self, network: Searchable, packed: Path, kernels: str | None = None, threads: int | None = None
    ) -> None:
        self.kernels = choose_kernels() if kernels is None else kernels
        self.threads = torch.get_num_threads() if threads is None else threads
        self._opened = OpenedModel(packed, self.kernels, self.threads)
        self.width, self.vocabulary = network.target.embedding_dim, network.target.num_embeddings
        self.source_vocabulary = cast(Any, network.source).num_embeddings
        positions = network.positions if isinstance(network, Transformer) else None
        self.longest = len(positions.table) if isinstance(positions, Learned) else None

    @property
    def handle(self) -> int:
        """The opened model of this process."""
        return self._opened.handle

    def start(self, source_BS: Tensor, source_length_B: Tensor, /) -> NativeState:
        """Read the source; its encoder runs in the library."""
        rows = [ids[:length] for ids, length in zip(source_BS.tolist(), source_length_B.tolist(), strict=True)]
        self.check_ids(rows)
        return NativeState(NativeBatch(self, rows), np.arange(len(rows)), np.zeros((len(rows), 0), np.int64))

    def check_ids(self, sources: list[list[int]]) -> None:
        """Refuse what would be read beyond a table's end."""
        for ids in sources:
            if not ids or not 0 <= min(ids) <= max(ids) < self.source_vocabulary:
                raise ValueError(f"source: {ids} given; ids are from 0 to {self.source_vocabulary - 1}")
            if self.longest is not None and len(ids) > self.longest:
                raise ValueError(f"source: {len(ids)} steps given; learned positions end at {self.longest}")

    def advance(self, state: NativeState, read_BT: Tensor) -> tuple[Tensor, NativeState]:
        """Read some ids; return the decoder's vectors [B, T, D] and the state after them."""
        (count, steps), before = read_BT.shape, state.past_NT.shape[1]
        if self.longest is not None and before + steps > self.longest:
            raise ValueError(f"positions: {before + steps} steps given; learned positions end at {self.longest}")
        ids_TN = np.ascontiguousarray(read_BT.T.numpy(), np.int32)
        if ids_TN.size and not 0 <= ids_TN.min() <= ids_TN.max() < self.vocabulary:
            raise ValueError(
                f"target: ids from {ids_TN.min()} to {ids_TN.max()} given; allowed: below {self.vocabulary}"
            )
        past_NT = np.zeros((count, before + steps), np.int64)
        past_NT[:, :before] = state.past_NT
        sentence_N = np.ascontiguousarray(state.sentence_N)
        vectors_TND = torch.empty(steps, count, self.width)
        for step in range(steps):
            failed = load_library().saccade_step(
                state.batch.handle,
                count,
                sentence_N.ctypes.data,
                before + step,
                past_NT.ctypes.data,
                before + steps,
                ids_TN[step].ctypes.data,
                vectors_TND[step].data_ptr(),
            )
            if failed:
                raise MemoryError("there is no memory for the keys and values of this step")
        return vectors_TND.transpose(0, 1), NativeState(state.batch, state.sentence_N, past_NT)

    def logits(self, vectors: Tensor) -> Tensor:
        rows_ND = vectors.reshape(-1, self.width).contiguous()
        room = self.vocabulary + -self.vocabulary % PANEL
        logits_NV = torch.empty(len(rows_ND), room)
        if load_library().saccade_logits(self.handle, len(rows_ND), rows_ND.data_ptr(), logits_NV.data_ptr(), room):
            raise MemoryError("there is no memory for these logits")
        return logits_NV[:, : self.vocabulary].unflatten(0, vectors.shape[:-1])

    def log_probabilities(self, sources: Sources, targets: Ids) -> list[list[float]]:
        found: list[list[float]] = [[] for _ in sources]
        lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        for rows in batch_by_length(lengths, TOKENS):
            wanted = [targets[row] for row in rows]
            state = self.start(*pad_sources([sources[row] for row in rows]))
            vectors_BTD, _ = self.advance(state, decoder_input(wanted))
            for row, steps in zip(rows, pick_log_probabilities(self.logits(vectors_BTD), wanted), strict=True):
                found[row] = steps
        return found

    def search(self, sources: Sources, beam: int, limit: int, *, thorough: bool) -> Ids:
        del thorough
        return search_ours(cast(Stepper, self), sources, beam, limit)

    def encode(self, texts: list[str]) -> None:
        """Return nothing: ids come from outside."""

    def decode(self, outputs: Ids) -> None:
        """Return nothing: ids come from outside."""

    def attend(self, sources: Sources, limit: int) -> None:
        """Return nothing: what is looked at is computed by torch."""
