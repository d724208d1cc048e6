"""Hugging Face folders of Marian (OPUS-MT) and Pegasus: config, weights and tokenizers as a network of ours."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from saccade.attention.positions import Positions, Sinusoidal
from saccade.data.text.tokenizer import ListedPieces
from saccade.export.huggingface import BIAS, SIDES, Numbering, list_places
from saccade.imports.folder import Fields, Tensors
from saccade.imports.generation import find_silent, read_search
from saccade.imports.layouts import Codes, Files, Layout, read_layout
from saccade.imports.vocabulary import SpecialIds, TokenizerIds, find_id, make_side
from saccade.models.transformer import BlockSizes, Dropouts, Transformer

ACTIVATIONS = {"swish": "silu", "silu": "silu", "relu": "relu", "gelu": "gelu"}
NORMS = {"marian": "post", "pegasus": "pre", "m2m_100": "pre"}  # of the families that are read
SILENT = -1000.0  # the bias of an id that has no probability
UNUSED = ("normalize_before", "normalize_embedding", "add_final_layer_norm", "add_bias_logits")  # of both families
ROUNDING = 2e-3  # of a table in half precision
Sides = tuple[TokenizerIds, TokenizerIds]
Rows = tuple[Tensor, Tensor, Tensor]  # of the embeddings of sources and targets, and of the output


class ReadModel(NamedTuple):
    """A model that was read: as a network and tokenizers of ours, with the sections of its config."""

    network: Transformer
    source: TokenizerIds
    target: TokenizerIds
    sections: dict[str, Any]
    numbering: Numbering
    layout: Layout

    def tokenizer_of(self, side: str) -> ListedPieces:
        """Return the tokenizer of a side."""
        return (self.source if side == "source" else self.target).tokenizer


def read_model(folder: Path, languages: Codes = None) -> ReadModel:
    """Read a folder; of a model for many languages, the two that are asked for."""
    files = Files.of(folder)
    config, layout = files.config, read_layout(files, languages)
    num_positions = config.size("max_position_embeddings", least=8)
    special, sizes = _read_special(files, layout), _read_sizes(config)
    sides, tensors = _make_sides(files, layout, special), Tensors(folder)
    silent = find_silent(files.generation, special, sides[1])
    network = _read_network(files, tensors, sizes, sides)
    tensors.refuse_others()
    _silence(network, sides[1].number_V, special, silent)
    sections = {
        "origin": folder.resolve().name,
        "texts": "sentences",
        **_name_languages(layout.codes or _read_codes(files.tokenizer)),
        "data": {"max_length": num_positions // 4},
        "tokenizer": {"kind": "listed", "shared": network.source is network.target},
        "model": describe_network(network),
        "training": {"metric": "bleu"},
        "decoding": read_search(files.generation, num_positions),
    }
    numbering = Numbering(sides[0].number_V, sides[1].number_V, silent)
    return ReadModel(network.eval(), *sides, sections, numbering, layout)


def _read_special(files: Files, layout: Layout) -> SpecialIds:
    """Read the ids of <pad>, <s> (what a decoder reads first), </s> and <unk>."""
    config, path, names = files.config, layout.lists[0], layout.names[0]
    size = config.size("vocab_size")
    start = "decoder_start_token_id"
    holder = files.generation if files.generation.content.get(start) is not None else config
    found = config.read("pad_token_id", int), holder.read(start, int), config.read("eos_token_id", int)
    for fields, name, number in zip(
        (config, holder, config), ("pad_token_id", start, "eos_token_id"), found, strict=True
    ):
        if not 0 <= number < size:
            raise fields.refuse(name, f"0 to {size - 1}")
    end = files.tokenizer.read_token("eos_token", "</s>")
    if names.get(found[2]) != end:
        raise config.refuse("eos_token_id", f"{find_id(path, names, end)}, the id of {end} in {path.name}")
    return SpecialIds(*found, find_id(path, names, files.tokenizer.read_token("unk_token", "<unk>")))


def _make_sides(files: Files, layout: Layout, special: SpecialIds) -> Sides:
    """Make both tokenizers; an output begins with its language, whatever else it begins with."""
    source, target = (
        make_side(model, names, special, size, first=first, begins_empty=bool(first) and at == 1, tokens=layout.tokens)
        for at, (model, names, size, first) in enumerate(
            zip(layout.models, layout.names, files.vocabulary_sizes(), layout.first, strict=True)
        )
    )
    return source, target


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
    rates = [config.rate(name) for name in ("dropout", "attention_dropout", "activation_dropout")]
    return BlockSizes(
        width,
        heads,
        config.size("encoder_ffn_dim"),
        activation=ACTIVATIONS[config.choose("activation_function", ACTIVATIONS)],
        norm=NORMS[config.content["model_type"]],
        dropouts=Dropouts(*rates),
    )


def _read_network(files: Files, tensors: Tensors, sizes: BlockSizes, sides: Sides) -> Transformer:
    """Build the network and fill it with their weights."""
    config, size = files.config, files.vocabulary_sizes()[1]
    is_many = config.content["model_type"] == "m2m_100"
    table_PD = _make_positions(config, tensors) if is_many else _read_positions(config, tensors, sizes.width)
    source_VD, target_VD, output_VD = _read_embeddings(files, tensors, sides)
    _check_layers(config, tensors)
    network = Transformer(
        source=len(source_VD),
        target_vocabulary=len(target_VD),
        sizes=sizes._replace(positions="sinusoidal_halves" if table_PD is None else "learned"),
        num_encoder_layers=config.size("encoder_layers"),
        num_decoder_layers=config.size("decoder_layers"),
        share_embeddings=source_VD is target_VD,
        share_output=output_VD is target_VD,
        output_bias=True,
        max_length=1024 if table_PD is None else len(table_PD),
    )
    state = {"source.weight": source_VD, "target.weight": target_VD, "output.weight": output_VD}
    if table_PD is not None:
        state["positions.table"] = table_PD
    bias_V = tensors.take(BIAS, 1, size)[0] if BIAS in tensors else torch.zeros(size)
    state["output_bias"] = bias_V[sides[1].number_V]
    network.load_state_dict(state | _read_layers(network, tensors))
    return network


def _check_layers(config: Fields, tensors: Tensors) -> None:
    """Refuse numbers that the weights don't have, before a network of that size is built."""
    for side in SIDES:
        found = tensors.count_parts(f"model.{side}.layers.")
        if config.size(f"{side}_layers") != found:
            raise config.refuse(f"{side}_layers", f"{found}, as the folder's weights have")
        sizes = config.size(f"{side}_ffn_dim"), config.size("d_model")
        tensors.take(f"model.{side}.layers.0.fc1.weight", *sizes)


def _read_layers(network: Transformer, tensors: Tensors) -> dict[str, Tensor]:
    state = {}
    for place in list_places(network):
        module = cast(nn.Linear, network.get_submodule(place.ours))
        state[f"{place.ours}.bias"] = tensors.take(f"{place.theirs}.bias", *module.bias.shape)
        state[f"{place.ours}.weight"] = tensors.take(f"{place.theirs}.weight", *module.weight.shape)
    return state


def _read_positions(config: Fields, tensors: Tensors, width: int) -> Tensor | None:
    """Return the table of positions; None if it is not stored, or holds sinusoids as it should."""
    size = config.size("max_position_embeddings")
    names = [name for side in SIDES if (name := f"model.{side}.embed_positions.weight") in tensors]
    found = [tensors.take(name, size, width) for name in names]
    if not found:
        return None
    table_PD = Sinusoidal(width, halves=True)(Positions.following(0, size, torch.device("cpu")))
    if all(torch.allclose(one_PD, table_PD, atol=ROUNDING) for one_PD in found):
        return None
    if not torch.equal(found[0], found[-1]) or size % 4:
        raise tensors.refuse(names[-1], "sinusoids, or one table of positions for both sides, with a multiple of four")
    return found[0]


def _make_positions(config: Fields, tensors: Tensors) -> Tensor:
    """Return the sinusoids of M2M100, which have rates of their own: 10000^(-i / (D/2 - 1)), from position 2 on."""
    size, half = config.size("max_position_embeddings"), config.size("d_model") // 2
    if size % 4 or half < 2:
        raise config.refuse("max_position_embeddings", "a multiple of four, with a d_model of 4 or more")
    for side in SIDES:
        for name in ("weights", "_float_tensor"):  # what old folders stored of them
            tensors.forget(f"model.{side}.embed_positions.{name}")
    rate_half = torch.exp(torch.arange(half) * (-math.log(10_000) / (half - 1)))
    angle_PK = torch.arange(2, size + 2)[:, None] * rate_half
    return torch.cat([angle_PK.sin(), angle_PK.cos()], 1)


def _read_embeddings(files: Files, tensors: Tensors, sides: Sides) -> Rows:
    """Return the rows of our ids; matrices that are one there are one tensor here."""
    config, sizes = files.config, files.vocabulary_sizes()
    ties = config.read("tie_word_embeddings", bool, True)
    shared, output = "model.shared", "lm_head"
    source, target = (f"model.{side}.embed_tokens" for side in SIDES)
    source_V, target_V = (side.number_V for side in sides)
    width = config.size("d_model")

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


def _read_codes(tokenizer: Fields) -> Codes:
    source, target = (tokenizer.read(f"{side}_lang", str, "") for side in ("source", "target"))
    return (source, target) if source and target else None


def _name_languages(codes: Codes) -> dict[str, Any]:
    """Return the languages as a config has them: deu-Latn for deu_Latn."""
    if codes is None:
        return {}
    return {"languages": dict(zip(("source", "target"), (code.replace("_", "-") for code in codes), strict=True))}


def describe_network(network: Transformer) -> dict[str, Any]:
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
        "output_bias": network.output_bias is not None,
    }
