"""Hugging Face folders of Marian (OPUS-MT) and Pegasus: config, weights and tokenizers as a network of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from saccade.attention.positions import Positions, Sinusoidal
from saccade.export.huggingface import BIAS, SIDES, Numbering, list_places, width_order
from saccade.imports.folder import Fields, Tensors
from saccade.imports.generation import find_silent, read_search
from saccade.imports.vocabulary import Side, SpecialIds, find_id, make_side, read_names
from saccade.models.transformer import BlockSizes, Dropouts, Transformer

ACTIVATIONS = {"swish": "silu", "silu": "silu", "relu": "relu", "gelu": "gelu"}
NORMS = {"marian": "post", "pegasus": "pre"}  # of the families that are read
SILENT = -1000.0  # the bias of an id that has no probability
UNUSED = ("normalize_before", "normalize_embedding", "add_final_layer_norm", "add_bias_logits")  # of both families
ROUNDING = 2e-3  # of a table in half precision
Sides = tuple[Side, Side]
Rows = tuple[Tensor, Tensor, Tensor]  # of the embeddings of sources and targets, and of the output


class Files(NamedTuple):
    """The files of a folder that say what its model is."""

    folder: Path
    config: Fields
    generation: Fields  # of old folders the config
    tokenizer: Fields

    @classmethod
    def of(cls, folder: Path) -> Files:
        """Read them."""
        config = Fields(folder / "config.json")
        generation = Fields(folder / "generation_config.json", optional=True)
        tokenizer = Fields(folder / "tokenizer_config.json", optional=True)
        return cls(folder, config, generation if generation.content else config, tokenizer)


class ReadModel(NamedTuple):
    """A model that was read: as a network and tokenizers of ours, with the sections of its config."""

    network: Transformer
    source: Side
    target: Side
    sections: dict[str, Any]
    numbering: Numbering


def read_model(folder: Path) -> ReadModel:
    """Read a folder."""
    files = Files.of(folder)
    config = files.config
    config.choose("model_type", NORMS)
    special, sizes = _read_special(files), _read_sizes(config)
    silent = find_silent(files.generation, special)
    sides, tensors = _read_sides(files, special), Tensors(folder)
    network = _read_network(config, tensors, sizes, sides)
    tensors.refuse_others()
    _silence(network, sides[1].number_V, special, silent)
    sections = {
        "origin": folder.resolve().name,
        "texts": "sentences",
        **_read_languages(files.tokenizer),
        "data": {"max_length": config.size("max_position_embeddings") // 4},
        "tokenizer": {"kind": "listed", "shared": network.source is network.target},
        "model": _describe(network),
        "training": {"metric": "bleu"},
        "decoding": read_search(files.generation, config.size("max_position_embeddings")),
    }
    numbering = Numbering(sides[0].number_V, sides[1].number_V, silent)
    return ReadModel(network.eval(), *sides, sections, numbering)


def _read_special(files: Files) -> SpecialIds:
    """Read the ids of <pad>, <s> (what a decoder reads first), </s> and <unk>."""
    config, path = files.config, files.folder / "vocab.json"
    size = config.size("vocab_size")
    names = read_names(path, size)
    start = "decoder_start_token_id"
    holder = files.generation if files.generation.content.get(start) is not None else config
    found = config.read("pad_token_id", int), holder.read(start, int), config.read("eos_token_id", int)
    for fields, name, number in zip(
        (config, holder, config), ("pad_token_id", start, "eos_token_id"), found, strict=True
    ):
        if not 0 <= number < size:
            raise fields.refuse(name, f"0 to {size - 1}")
    end = files.tokenizer.read("eos_token", str, "</s>")
    if names.get(found[2]) != end:
        raise config.refuse("eos_token_id", f"{find_id(path, names, end)}, the id of {end} in {path.name}")
    return SpecialIds(*found, find_id(path, names, files.tokenizer.read("unk_token", str, "<unk>")))


def _read_sides(files: Files, special: SpecialIds) -> Sides:
    """Read both tokenizers; they share one list, or have their own."""
    sizes = files.config.size("vocab_size"), _target_size(files.config)
    separate = files.tokenizer.read("separate_vocabs", bool, False)
    names = "vocab.json", "target_vocab.json" if separate else "vocab.json"
    source, target = (
        make_side(files.folder / f"{side}.spm", read_names(files.folder / name, size), special, size)
        for side, name, size in zip(("source", "target"), names, sizes, strict=True)
    )
    return source, target


def _target_size(config: Fields) -> int:
    size = config.size("vocab_size")
    return size if _shares(config) else config.read("decoder_vocab_size", int, size)


def _shares(config: Fields) -> bool:
    """Return whether sources and targets have one vocabulary."""
    return config.read("share_encoder_decoder_embeddings", bool, True)


def _read_sizes(config: Fields) -> BlockSizes:
    for name in UNUSED:
        config.choose(name, (None, False, config.content["model_type"] == "pegasus"), None)
    config.choose("scale_embedding", (True,), False)
    for name in ("attention_heads", "ffn_dim"):
        config.choose(f"decoder_{name}", (config.size(f"encoder_{name}"),))
    width, heads = config.size("d_model"), config.size("encoder_attention_heads")
    if width % heads or width % 2:
        raise config.refuse("d_model", f"an even multiple of encoder_attention_heads, {heads}")
    rates = [config.read(name, float, 0.0) for name in ("dropout", "attention_dropout", "activation_dropout")]
    return BlockSizes(
        width,
        heads,
        config.size("encoder_ffn_dim"),
        activation=ACTIVATIONS[config.choose("activation_function", ACTIVATIONS)],
        norm=NORMS[config.content["model_type"]],
        dropouts=Dropouts(*rates),
    )


def _read_network(config: Fields, tensors: Tensors, sizes: BlockSizes, sides: Sides) -> Transformer:
    """Build the network and fill it with their weights."""
    table_PD = _read_positions(config, tensors, sizes.width)
    source_VD, target_VD, output_VD = _read_embeddings(config, tensors, sides)
    network = Transformer(
        source=len(source_VD),
        target_vocabulary=len(target_VD),
        sizes=sizes if table_PD is None else sizes._replace(positions="learned"),
        num_encoder_layers=config.size("encoder_layers"),
        num_decoder_layers=config.size("decoder_layers"),
        share_embeddings=source_VD is target_VD,
        share_output=output_VD is target_VD,
        output_bias=True,
        max_length=1024 if table_PD is None else len(table_PD),
    )
    order = width_order(network).argsort()
    tables = {"source": source_VD, "target": target_VD, "output": output_VD}
    state = {f"{name}.weight": table_VD[:, order] for name, table_VD in tables.items()}
    if table_PD is not None:
        state["positions.table"] = table_PD
    size = _target_size(config)
    bias_V = tensors.take(BIAS, 1, size)[0] if BIAS in tensors else torch.zeros(size)
    state["output_bias"] = bias_V[sides[1].number_V]
    network.load_state_dict(state | _read_layers(network, tensors, order))
    return network


def _read_layers(network: Transformer, tensors: Tensors, order: Tensor) -> dict[str, Tensor]:
    state = {}
    for place in list_places(network):
        module = cast(nn.Linear, network.get_submodule(place.ours))
        bias = tensors.take(f"{place.theirs}.bias", *module.bias.shape)
        state[f"{place.ours}.bias"] = bias[order] if place.writes_width else bias
        weight = tensors.take(f"{place.theirs}.weight", *module.weight.shape)
        state[f"{place.ours}.weight"] = weight[place.pick(order)]
    return state


def _read_positions(config: Fields, tensors: Tensors, width: int) -> Tensor | None:
    """Return the table of positions; None if it is not stored, or holds sinusoids as it should."""
    size = config.size("max_position_embeddings")
    names = [name for side in SIDES if (name := f"model.{side}.embed_positions.weight") in tensors]
    found = [tensors.take(name, size, width) for name in names]
    table_PD = Sinusoidal(width)(Positions.following(0, size, torch.device("cpu")))
    half_PD = torch.cat([table_PD[:, 0::2], table_PD[:, 1::2]], 1)
    if all(torch.allclose(one_PD, half_PD, atol=ROUNDING) for one_PD in found):
        return None
    if not torch.equal(found[0], found[-1]) or size % 4:
        raise tensors.refuse(names[-1], "sinusoids, or one table of positions for both sides, with a multiple of four")
    return found[0]


def _read_embeddings(config: Fields, tensors: Tensors, sides: Sides) -> Rows:
    """Return the rows of our ids; matrices that are one there are one tensor here."""
    ties = config.read("tie_word_embeddings", bool, True)
    shared, output = "model.shared", "lm_head"
    source, target = (f"model.{side}.embed_tokens" for side in SIDES)
    source_V, target_V = (side.number_V for side in sides)
    width, sizes = config.size("d_model"), (config.size("vocab_size"), _target_size(config))

    def read(size: int, *names: str) -> Tensor:
        return tensors.take_one([f"{name}.weight" for name in names], size, width)

    if ties and _shares(config):
        source_VD = read(sizes[0], shared, source, target, output)[source_V]
        return source_VD, source_VD, source_VD
    first = source if f"{source}.weight" in tensors else shared
    second = target if f"{target}.weight" in tensors else shared
    source_VD = read(sizes[0], first)[source_V]
    target_VD = read(sizes[1], *dict.fromkeys((second, *([output] if ties else []))))[target_V]
    tensors.forget(f"{shared}.weight")
    return source_VD, target_VD, target_VD if ties else read(sizes[1], output)[target_V]


def _silence(network: Transformer, number_V: Tensor, special: SpecialIds, silent: list[int]) -> None:
    """Take the probability of ids that a search never writes; our <s>, where it is a copy of another id, has none."""
    assert network.output_bias is not None
    rows = [row for row, number in enumerate(number_V.tolist()) if number in silent]
    if special.start in (special.pad, special.end, special.unknown):
        rows.append(1)
    network.output_bias.data[rows] = SILENT


def _read_languages(tokenizer: Fields) -> dict[str, Any]:
    """Return the languages, where both are said."""
    codes = [tokenizer.read(f"{side}_lang", str, "") for side in ("source", "target")]
    return {"languages": dict(zip(("source", "target"), codes, strict=True))} if all(codes) else {}


def _describe(network: Transformer) -> dict[str, Any]:
    """Return the section of the model."""
    sizes = network.sizes
    ties = "three" if network.source is network.target else "two"
    return {
        "width": sizes.width,
        "num_heads": sizes.num_heads,
        "hidden_width": sizes.hidden_width,
        "num_layers": len(network.encoder),
        "num_decoder_layers": len(network.decoder),
        "dropout": sizes.dropouts.residual,
        "attention_dropout": sizes.dropouts.attention,
        "activation_dropout": sizes.dropouts.activation,
        "activation": sizes.activation,
        "norm": sizes.norm,
        "positions": sizes.positions,
        "tied": ties if network.output is network.target else "none",
        "output_bias": True,
    }
