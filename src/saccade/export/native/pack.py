"""Packs a model's weights into the file that the native library maps, once for each model and kind of number."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from saccade.attention.positions import Learned, Relative, Rotary, Sinusoidal
from saccade.decoding import Ensemble
from saccade.errors import UserError
from saccade.export.native import recurrent
from saccade.export.native.library import cache_folder, find_library, find_writable, load_library
from saccade.export.projections import Affine, read_affine, read_projections, refuse_sizes
from saccade.files import replace_file
from saccade.layers.feed_forward import FeedForward
from saccade.layers.residual import Norm
from saccade.models.pointing.copying import CopyingModel
from saccade.models.seq2seq import Seq2Seq
from saccade.models.text_encoder import RecurrentTextEncoder, TransformerTextEncoder
from saccade.models.transformer import BlockSizes, DecoderBlock, EncoderBlock, Residual, Transformer

VERSION = 4  # of the file; csrc/model.c has it, too
MAGIC, HEADER, ALIGNMENT, PANEL = b"saccade", 256, 64, 64
SIZES = struct.Struct("<8s23qdQ")
ACTIVATIONS = ("relu", "gelu", "silu", "swiglu")
NAMES = (  # of sizes, behind the version and the number of bytes
    *("is_int8", "width", "num_heads", "hidden", "num_encoder", "num_decoder", "num_source", "num_target", "is_pre"),
    *("activation", "positions", "num_positions", "window", "share_source", "share_output", "distance"),
    *("kind", "cell", "direction", "score", "input"),
)
KIND_OF_BLOCKS = 5  # csrc/native.h has it, too
POSITIONS = ("none", "sinusoidal", "learned", "rotary", "relative", "sinusoidal_halves")
MOST_KEPT = 8  # packed models in the cache; the one that was used longest ago goes first
CHECKED = ".checked"  # a file beside: which library was compared with torch
Array = NDArray[Any]
Searchable = Transformer | Seq2Seq
Packable = Searchable | TransformerTextEncoder | RecurrentTextEncoder


def refuse(network: nn.Module) -> str | None:
    """Say what of a model the native library can't run; None if it can run all."""
    if isinstance(network, Ensemble):
        return "an ensemble (it runs one model)"
    if isinstance(network, CopyingModel):
        return "model.copies: true (its search writes tokens of the vocabulary only)"
    if isinstance(network, RecurrentTextEncoder):
        return None
    if isinstance(network, TransformerTextEncoder):
        return refuse_sizes(network.sizes._replace(window=None))
    if not isinstance(network, Transformer | Seq2Seq):
        return f"a {type(network).__name__} (it runs Transformers and RNNs that read and write texts)"
    if not isinstance(network.source, nn.Embedding):
        return "a source that is no ids"
    if isinstance(network, Seq2Seq):
        return recurrent.refuse(network)
    return refuse_sizes(network.sizes._replace(window=None))


def pack(network: Packable, quantization: str) -> Path:
    """Return the packed file of a model in the cache; it is written if it isn't there."""
    path = cache_folder() / "packed" / f"{_fingerprint(network)}-{quantization}.bin"
    if path.exists():
        with suppress(OSError):
            os.utime(path)
        return path
    try:
        with find_writable(path.parent) as folder:
            path = folder / path.name
            with replace_file(path) as draft:
                write(network, draft, quantization)
            _remove_old(folder)
    except OSError as error:
        raise UserError(f"{path}: the packed model can't be written: {error.strerror}; set SACCADE_CACHE") from None
    return path


def check_once(packed: Path, kernels: str, check: Callable[[], None]) -> None:
    """Check a packed model the first time that this library runs it with these kernels."""
    library, mark = find_library(), packed.with_suffix(CHECKED)
    stamp = f"{library.name} {library.stat().st_mtime_ns} {kernels}"
    if mark.exists() and mark.read_text("utf-8") == stamp:
        return
    check()
    with suppress(OSError), replace_file(mark) as draft:
        draft.write_text(stamp, encoding="utf-8")


def _remove_old(folder: Path) -> None:
    files = sorted(folder.glob("*.bin"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[MOST_KEPT:]:
        path.unlink(missing_ok=True)
        path.with_suffix(CHECKED).unlink(missing_ok=True)


def _fingerprint(network: Packable) -> str:
    """Return a name that is that of these weights and sizes alone."""
    sizes: object = _list_sizes(network)
    if isinstance(network, Transformer | TransformerTextEncoder):  # its score is folded into the weights
        sizes = network.sizes._replace(dropouts=())  # type: ignore[arg-type]
    found = hashlib.sha256(repr((VERSION, sizes)).encode())
    for name, tensor in (*network.named_parameters(), *network.named_buffers()):
        data = tensor.detach().cpu().contiguous()
        count = data.numel() * data.element_size()
        checksum = load_library().saccade_checksum(data.data_ptr(), count // 32 * 32)
        rest = data.view(-1).view(torch.uint8)[count // 32 * 32 :].numpy().tobytes() if data.numel() else b""
        found.update(repr((name, tuple(data.shape), str(data.dtype), checksum, rest)).encode())
    return found.hexdigest()[:32]


@torch.no_grad()
def write(network: Packable, path: Path, quantization: str) -> None:
    """Write the packed file: the header, and each array, aligned."""
    is_int8 = quantization == "int8"
    with path.open("wb") as file:
        file.write(bytes(HEADER))
        for array in _list_arrays(network, is_int8):
            data = np.ascontiguousarray(array)
            if data.dtype == np.float32 and np.isnan(data).any():
                raise UserError("engine: native can't run this model, some of its weights are not numbers")
            file.write(data.tobytes())
            file.write(bytes(-data.nbytes % ALIGNMENT))
    data = np.memmap(path, np.uint8, "r+")
    body, sizes = data[HEADER:], {"is_int8": is_int8, **_list_sizes(network)}
    numbers = [sizes.get(name, 0) for name in NAMES]
    checksum = load_library().saccade_checksum(body.ctypes.data, len(body))
    data[: SIZES.size] = np.frombuffer(
        SIZES.pack(MAGIC, VERSION, len(data), *numbers, _find_epsilon(network), checksum), np.uint8
    )
    data.flush()


def _list_sizes(network: Packable) -> dict[str, int]:
    """Return the sizes of the header that are not 0."""
    if isinstance(network, RecurrentTextEncoder):
        return recurrent.list_reader(network)
    if isinstance(network, TransformerTextEncoder):
        project = network.project
        width = network.width if isinstance(project, nn.Identity) else project.in_features
        blocks = {"kind": KIND_OF_BLOCKS, "num_encoder": len(network.blocks), "input": width}
        return _list_block_sizes(network.sizes, network.positions, network.bias) | blocks
    tables = {
        "num_source": cast(nn.Embedding, network.source).num_embeddings,
        "num_target": network.target.num_embeddings,
        "share_source": network.source is network.target,
        "share_output": network.output is network.target,
    }
    if isinstance(network, Seq2Seq):
        return {**tables, **recurrent.list_sizes(network)}
    blocks = {"num_encoder": len(network.encoder), "num_decoder": len(network.decoder)}
    return tables | blocks | _list_block_sizes(network.sizes, network.positions, network.decoder_bias)


def _list_block_sizes(sizes: BlockSizes, position: nn.Module | None, relative: Relative | None) -> dict[str, int]:
    return {
        "width": sizes.width,
        "num_heads": sizes.num_heads,
        "hidden": sizes.hidden_width,
        "is_pre": sizes.norm == "pre",
        "activation": ACTIVATIONS.index(sizes.activation),
        "positions": POSITIONS.index(sizes.positions),
        "num_positions": len(position.table) if isinstance(position, Learned) else 0,
        "window": -1 if sizes.window is None else sizes.window,
        "distance": 0 if relative is None else relative.max_distance,
    }


def _find_epsilon(network: Packable) -> float:
    return next((module.eps for module in network.modules() if isinstance(module, Norm)), 1.0)


def _list_arrays(network: Packable, is_int8: bool) -> Iterator[Array]:
    """Yield what the file holds, in the order in which csrc/model.c takes it."""
    if isinstance(network, RecurrentTextEncoder):
        for cell in recurrent.list_cells(network.layers.layers):
            yield from _pack(cell, is_int8)
        return
    if isinstance(network, TransformerTextEncoder):
        yield from _list_positions(network, network.positions, {network.bias: -1})
        if isinstance(network.project, nn.Linear):
            yield from _pack(read_affine(network.project), is_int8)
        yield from _list_encoder(network.blocks, is_int8)
        if isinstance(network.norm, nn.LayerNorm):
            yield from _list_norm(network.norm)
        return
    if isinstance(network, Seq2Seq):
        yield from _list_tables(network, None, is_int8)
        for part in recurrent.list_matrices(network):
            yield from _pack(part, is_int8) if isinstance(part, Affine) else [_pad(part.numpy(), 0)]
        return
    yield from _list_positions(network, network.positions, {network.encoder_bias: -1, network.decoder_bias: 0})
    yield from _list_tables(network, network.output_bias, is_int8)
    yield from _list_blocks(network, is_int8)


def _list_tables(network: Transformer | Seq2Seq, output_bias: Tensor | None, is_int8: bool) -> Iterator[Array]:
    """Yield the embeddings of the target, and those of the source and the output where they are others."""
    tables: list[tuple[nn.Module, Tensor | None]] = [
        (network.target, output_bias if network.output is network.target else None)
    ]
    if network.source is not network.target:
        tables.append((network.source, None))
    if network.output is not network.target:
        tables.append((network.output, output_bias))
    for table, bias in tables:
        weight = cast(nn.Embedding, table).weight.detach().float()
        given = weight.new_zeros(len(weight)) if bias is None else bias.detach().float()
        yield from _pack(Affine(weight, given), is_int8, unused=-np.inf)


def _list_encoder(blocks: nn.ModuleList, is_int8: bool) -> Iterator[Array]:
    for block in cast(Iterator[EncoderBlock], blocks):
        attending, feeding = cast(list[Residual], list(block.residuals))
        own = read_projections(block.attention)
        yield from _list_norm(attending.norm)
        yield from _pack(_join(own.query, own.key, own.value), is_int8)
        yield from _pack(own.output, is_int8)
        yield from _list_feed_forward(block.feed_forward, feeding.norm, is_int8)


def _list_blocks(network: Transformer, is_int8: bool) -> Iterator[Array]:
    yield from _list_encoder(network.encoder, is_int8)
    for layer in cast(Iterator[DecoderBlock], network.decoder):
        attending, crossing, feeding = cast(list[Residual], list(layer.residuals))
        own, cross = read_projections(layer.own), read_projections(layer.cross)
        yield from _list_norm(attending.norm)
        yield from _pack(_join(own.query, own.key, own.value), is_int8)
        yield from _pack(own.output, is_int8)
        yield from _list_norm(crossing.norm)
        yield from _pack(cross.query, is_int8)
        yield from _pack(_join(cross.key, cross.value), is_int8)
        yield from _pack(cross.output, is_int8)
        yield from _list_feed_forward(layer.feed_forward, feeding.norm, is_int8)
    for norm in (network.encoder_norm, network.decoder_norm):
        if isinstance(norm, Norm):
            yield from _list_norm(norm)


def _list_positions(
    network: Transformer | TransformerTextEncoder, position: nn.Module | None, biases: Mapping[Relative | None, int]
) -> Iterator[Array]:
    """Yield rates or vectors of positions, or the biases of distances, which begin far before a step or at it."""
    if isinstance(position, Sinusoidal):
        yield position.get_buffer("exact_half").double().numpy()
    elif isinstance(position, Learned):
        yield _pad(position.table.detach().float().numpy(), 1)
    elif network.sizes.positions == "rotary":
        rotary = next(module for module in network.modules() if isinstance(module, Rotary))
        yield rotary.angles.get_buffer("rate_half").double().numpy()
    for relative, begins in biases.items():
        if relative is not None:
            yield _list_bias(relative, begins * relative.max_distance)


def _list_bias(relative: Relative, first: int) -> Array:
    """Return the bias of each head for distances to both sides, or for 0, -1, -2 ... (s - t)."""
    last = relative.max_distance
    distance = torch.arange(first, last + 1) if first else -torch.arange(last + 1)
    return relative.table.detach()[relative._bucket(distance)].float().mT.contiguous().numpy()


def _list_norm(norm: nn.LayerNorm) -> Iterator[Array]:
    yield from (_pad(part.detach().float().numpy(), 0) for part in (norm.weight, norm.bias))


def _list_feed_forward(network: FeedForward, norm: Norm, is_int8: bool) -> Iterator[Array]:
    yield from _list_norm(norm)
    for linear in (network.inner, network.gate, network.outer):
        if linear is not None:
            yield from _pack(read_affine(linear), is_int8)


def _join(*parts: Affine) -> Affine:
    return Affine(torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts]))


def _pad(array: Array, axis: int, value: float = 0, to: int = PANEL) -> Array:
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, -array.shape[axis] % to)
    return np.pad(array, widths, constant_values=value)


def _pack(affine: Affine, is_int8: bool, unused: float = 0) -> Iterator[Array]:
    """Yield the bias, of 8 bits also the scale of each output, and the weights in panels of 64 outputs."""
    weight_NK, bias_N = affine.weight.numpy(), affine.bias.numpy()
    yield _pad(bias_N, 0, unused)
    if not is_int8:
        yield _pad(weight_NK, 0).reshape(-1, PANEL, weight_NK.shape[1]).transpose(0, 2, 1)
        return
    scale_N = np.abs(weight_NK).max(1) / np.float32(127)
    yield _pad(scale_N, 0)
    byte_NK = np.rint(weight_NK / np.where(scale_N == 0, np.float32(1), scale_N)[:, None]) + 128
    padded_NK = _pad(_pad(byte_NK.astype(np.uint8), 0, 128), 1, 128, to=4)
    yield padded_NK.reshape(-1, PANEL, padded_NK.shape[1] // 4, 4).transpose(0, 2, 1, 3)
