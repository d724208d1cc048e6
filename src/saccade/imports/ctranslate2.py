"""CTranslate2 folders that `saccade export` wrote: the weights of model.bin, and the tokenizers beside it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast, final

import torch
from torch import Tensor

from saccade.attention.positions import Positions, Sinusoidal
from saccade.data.text.tokenizer import AnyTokenizer, SentencePiece, load_tokenizer
from saccade.errors import UserError
from saccade.export.ctranslate2 import ACTIVATIONS, BESIDE, find_tokenizer, spell_vocabulary
from saccade.imports.folder import Fields, read_bytes
from saccade.imports.huggingface import ROUNDING, describe_network
from saccade.models.transformer import BlockSizes, Transformer

T = TypeVar("T")
MODEL, VERSION = "model.bin", 6
TYPES: dict[int, tuple[torch.dtype, int]] = {  # of numbers in the file, and their bytes
    0: (torch.float32, 4),
    1: (torch.int8, 1),
    2: (torch.int16, 2),
    3: (torch.int32, 4),
}
NAMES = ("RELU", "GELUTanh", "SWISH", "GELU")  # of activations, by their number


class ReadFolder(NamedTuple):
    """A model that was read: as a network and tokenizers of ours, with the sections of its config."""

    network: Transformer
    source: AnyTokenizer
    target: AnyTokenizer
    sections: dict[str, Any]

    def tokenizer_of(self, side: str) -> AnyTokenizer:
        """Return the tokenizer of a side."""
        return self.source if side == "source" else self.target


def is_ours(folder: Path) -> bool:
    """Tell whether a folder holds a model of CTranslate2."""
    return (folder / MODEL).is_file()


def read_folder(folder: Path) -> ReadFolder:
    """Read the weights, tokenizers and settings of a folder that `saccade export` wrote."""
    if not (folder / BESIDE).is_file():
        why = "without it the tokenizers and settings are lost; only folders that `saccade export` writes have them"
        raise UserError(f"{folder / BESIDE}: there is no such file; {why}")
    beside, weights = Fields(folder / BESIDE), Variables(folder / MODEL)
    source, target = (load_tokenizer(find_tokenizer(folder, side)) for side in ("source", "target"))
    network = _read_network(weights, (source, target), folder)
    positions = network.positions
    longest = None if positions is None or isinstance(positions, Sinusoidal) else len(cast(Any, positions).table)
    sections = {
        "origin": folder.resolve().name,
        "texts": beside.read("texts", str, "auto"),
        "tokenizer": {"kind": tokenizer_kind(source), "shared": network.source is network.target},
        "data": {"max_length": 256 if longest is None else longest // 4},
        "model": describe_network(network),
        "decoding": beside.read("decoding", dict),
    }
    codes = beside.read("languages", list, [])
    languages = {"languages": dict(zip(("source", "target"), codes, strict=True))} if codes else {}
    return ReadFolder(network.eval(), source, target, sections | languages)


def tokenizer_kind(tokenizer: AnyTokenizer) -> str:
    """Return the kind that a config has; both kinds of SentencePiece are read alike."""
    return "unigram" if isinstance(tokenizer, SentencePiece) else tokenizer.kind


@final
class Variables:
    """The variables of a model.bin, each taken once; other names of a variable are aliases."""

    def __init__(self, path: Path) -> None:
        self.path, self._bytes, self._at = path, read_bytes(path), 0
        try:
            self._read()
        except (struct.error, UnicodeDecodeError, KeyError, RuntimeError, ValueError):
            raise UserError(f"{path}: it can't be read to its end; copy it again") from None

    def __contains__(self, name: str) -> bool:
        return name in self.found

    def take(self, name: str) -> Tensor:
        """Return a variable in float32."""
        if name not in self.found:
            raise UserError(f"{self.path}: {name}: missing")
        self.taken.add(self.aliases.get(name, name))
        found = self.found[name]
        if found.dtype != torch.float32:
            raise UserError(f"{self.path}: {name}: its numbers were rounded (quantized), and what they were is lost")
        return found

    def number(self, name: str) -> int:
        if name not in self.found:
            raise UserError(f"{self.path}: {name}: missing")
        return int(self.found[name])

    def _read(self) -> None:
        version, name, _ = self._unpack("I"), self._text(), self._unpack("I")
        if (version, name) != (VERSION, "TransformerSpec"):
            allowed = f"TransformerSpec of version {VERSION}"
            raise UserError(f"{self.path}: {name} of version {version} given; allowed: {allowed}")
        self.found, self.taken = dict(self._variables()), set[str]()
        self.aliases = {self._text(): self._text() for _ in range(self._unpack("I"))}
        self.found |= {alias: self.found[name] for alias, name in self.aliases.items()}

    def _variables(self) -> Iterator[tuple[str, Tensor]]:
        for _ in range(self._unpack("I")):
            name = self._text()
            shape = [self._unpack("I") for _ in range(self._unpack("B"))]
            dtype, _ = TYPES[self._unpack("B")]
            size = self._unpack("I")
            content = bytearray(self._bytes[self._at : self._at + size])
            self._at += size
            yield name, torch.frombuffer(content, dtype=dtype).reshape(shape)

    def _unpack(self, kind: str) -> int:
        (found,) = struct.unpack_from(f"<{kind}", self._bytes, self._at)
        self._at += struct.calcsize(f"<{kind}")
        return int(found)

    def _text(self) -> str:
        size = self._unpack("H")
        self._at += size
        return self._bytes[self._at - size : self._at - 1].decode()


def _read_network(weights: Variables, both: tuple[AnyTokenizer, AnyTokenizer], folder: Path) -> Transformer:
    source_VD, target_VD = weights.take("encoder/embeddings_0/weight"), weights.take("decoder/embeddings/weight")
    output_VD, width = weights.take("decoder/projection/weight"), source_VD.shape[1]
    for side, tokenizer, table_VD in zip(("source", "target"), both, (source_VD, target_VD), strict=True):
        if len(table_VD) != len(spell_vocabulary(tokenizer)):
            given = f"{tokenizer.size:,} pieces given"
            raise UserError(f"{find_tokenizer(folder, side)}: {given}; allowed: {len(table_VD):,}")
    hidden = weights.take("encoder/layer_0/ffn/linear_0/weight").shape[0]
    positions, table_PD = _read_positions(weights, width)
    counts = [_count_layers(weights, side) for side in ("encoder", "decoder")]
    network = Transformer(
        source=len(source_VD),
        target_vocabulary=len(target_VD),
        sizes=BlockSizes(
            width,
            weights.number("encoder/num_heads"),
            hidden,
            activation=_read_activation(weights),
            norm="pre" if weights.number("encoder/pre_norm") else "post",
            positions=positions,
        ),
        num_encoder_layers=counts[0],
        num_decoder_layers=counts[1],
        share_embeddings=torch.equal(source_VD, target_VD),
        share_output=torch.equal(target_VD, output_VD),
        output_bias="decoder/projection/bias" in weights,
        max_length=1024 if table_PD is None else len(table_PD),
    )
    state = {"source.weight": source_VD, "target.weight": target_VD, "output.weight": output_VD}
    if network.output_bias is not None:
        state["output_bias"] = weights.take("decoder/projection/bias")
    if table_PD is not None:
        state["positions.table"] = table_PD
    for side in ("encoder", "decoder"):
        if positions == "relative":
            state[f"{side}_bias.table"] = weights.take(f"{side}/layer_0/self_attention/relative_attention_bias")
        state |= _read_side(weights, network, side)
    network.load_state_dict(state)
    return network


def _read_side(weights: Variables, network: Transformer, side: str) -> dict[str, Tensor]:
    state = dict[str, Tensor]()

    def norm(ours: str, theirs: str) -> None:
        state[f"{ours}.weight"], state[f"{ours}.bias"] = weights.take(f"{theirs}/gamma"), weights.take(f"{theirs}/beta")

    def linear(theirs: str, *ours: str) -> None:
        for kind in ("weight", "bias"):
            parts = weights.take(f"{theirs}/{kind}").chunk(len(ours))
            state.update({f"{name}.{kind}": part for name, part in zip(ours, parts, strict=True)})

    if network.sizes.norm == "pre":
        norm(f"{side}_norm", f"{side}/layer_norm")
    attends = "attention" if side == "encoder" else "own"
    for number in range(len(getattr(network, side))):
        ours, theirs = f"{side}.{number}", f"{side}/layer_{number}"
        norm(f"{ours}.residuals.0.norm", f"{theirs}/self_attention/layer_norm")
        projections = [f"{ours}.{attends}.{part}" for part in ("query", "key", "value")]
        linear(f"{theirs}/self_attention/linear_0", *projections)
        linear(f"{theirs}/self_attention/linear_1", f"{ours}.{attends}.output")
        if side == "decoder":
            norm(f"{ours}.residuals.1.norm", f"{theirs}/attention/layer_norm")
            linear(f"{theirs}/attention/linear_0", f"{ours}.cross.query")
            linear(f"{theirs}/attention/linear_1", f"{ours}.cross.key", f"{ours}.cross.value")
            linear(f"{theirs}/attention/linear_2", f"{ours}.cross.output")
        norm(f"{ours}.residuals.{1 if side == 'encoder' else 2}.norm", f"{theirs}/ffn/layer_norm")
        linear(f"{theirs}/ffn/linear_0", f"{ours}.feed_forward.inner")
        linear(f"{theirs}/ffn/linear_1", f"{ours}.feed_forward.outer")
        if f"{theirs}/ffn/linear_0_noact/weight" in weights:
            linear(f"{theirs}/ffn/linear_0_noact", f"{ours}.feed_forward.gate")
    return state


def _read_positions(weights: Variables, width: int) -> tuple[str, Tensor | None]:
    """Return the kind of positions, and the table of learned ones."""
    name = "encoder/position_encodings/encodings"
    if name in weights:
        table_PD = weights.take(name)
        place = Positions.following(0, len(table_PD), torch.device("cpu"))
        for kind in ("sinusoidal", "sinusoidal_halves") if width % 2 == 0 else ():
            expected_PD = Sinusoidal(width, halves=kind == "sinusoidal_halves")(place)
            if torch.allclose(expected_PD, table_PD, atol=ROUNDING):
                return kind, None
        return "learned", table_PD
    return ("relative" if "encoder/layer_0/self_attention/relative_attention_bias" in weights else "rotary"), None


def _read_activation(weights: Variables) -> str:
    number = weights.number("encoder/activation")
    if number >= len(NAMES) or NAMES[number] not in ACTIVATIONS.values():
        raise UserError(f"{weights.path}: encoder/activation: {number} given; allowed: {', '.join(ACTIVATIONS)}")
    if "encoder/layer_0/ffn/linear_0_noact/weight" in weights:
        return "swiglu"
    return next(ours for ours, theirs in ACTIVATIONS.items() if theirs == NAMES[number])


def _count_layers(weights: Variables, side: str) -> int:
    return len(
        {name.split("/")[1] for name in weights.found if name.startswith(f"{side}/layer_") and name.count("/") > 2}
    )
