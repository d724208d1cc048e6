"""CTranslate2: every Transformer whose attention is a softmax of scaled dot products, in float32 or int8."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast, final

import torch
from torch import Tensor, nn

from saccade.attention import MultiHeadAttention
from saccade.attention.positions import Learned, Positions, Relative, Sinusoidal
from saccade.data.text.tokenizer import PAD, SPECIAL, START, UNKNOWN, SentencePiece, Tokenizer
from saccade.export.projections import Affine, Projections, read_affine, read_projections, refuse_sizes
from saccade.export.proof import TOKENS, Ids, find_aligning
from saccade.inspection.insight import Head
from saccade.layers.feed_forward import FeedForward
from saccade.layers.residual import Norm
from saccade.models.transformer import DecoderBlock, EncoderBlock, Residual, Transformer
from saccade.tasks.base import Portable

NUM_POSITIONS = 2048  # of sinusoids, which end nowhere; the table has to
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH", "swiglu": "SWISH"}
BESIDE = "import.json"  # of a folder; CTranslate2 passes over it
KEPT = (  # of the search's options
    *("length_penalty", "length_offset", "min_length", "max_length", "max_length_factor", "max_length_extra"),
    *("no_repeat_ngram", "max_rounds", "patience"),
)
PATIENCE = 100.0  # a search that ends when so many times its width are finished


def refuse(portable: Portable) -> str | None:
    """Say what of a model CTranslate2 can't say."""
    network = portable.network
    return refuse_sizes(network.sizes) if isinstance(network, Transformer) else "an RNN (it runs Transformers)"


def write(portable: Portable, folder: Path, quantization: str) -> Mapping[str, object]:
    """Write the model's folder; the head that aligns best is the first, which `return_attention` tells."""
    network = cast(Transformer, portable.network)
    spec = _make_spec(network, find_aligning(portable))
    for side, tokenizer in (("source", portable.source), ("target", portable.target)):
        getattr(spec, f"register_{side}_vocabulary")(spell_vocabulary(tokenizer))
    spec.config.add_source_eos = True
    spec.config.decoder_start_token = SPECIAL[START]
    spec.config.layer_norm_epsilon = _first_norm(network).eps
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))
    _write_beside(portable, folder)
    return {"longest": find_longest(network)}


def _write_beside(portable: Portable, folder: Path) -> None:
    """Write what CTranslate2 doesn't read, and `saccade import` needs: the tokenizers, languages and search."""
    kept = asdict(portable.options)
    search = {"beam": kept.pop("width"), **{name: kept[name] for name in KEPT}, "max_source_length": portable.longest}
    content = {"languages": list(portable.languages or ()), "decoding": search}
    (folder / BESIDE).write_text(json.dumps(content, indent=1), "utf-8")
    for side, tokenizer in (("source", portable.source), ("target", portable.target)):
        ending = "model" if isinstance(tokenizer, SentencePiece) else "json"
        tokenizer.save(folder / f"tokenizer.{side}.{ending}")


def find_tokenizer(folder: Path, side: str) -> Path:
    """Return the file of a side's tokenizer."""
    paths = [folder / f"tokenizer.{side}.{ending}" for ending in ("model", "json")]
    return next((path for path in paths if path.is_file()), paths[0])


def spell_vocabulary(tokenizer: Tokenizer) -> list[str]:
    """Return the name of every id; a word of a text that is spelled like <s> gets a mark, as names must differ."""
    names = tokenizer.pieces(range(tokenizer.size))
    return [f"{name}'" if number > UNKNOWN and name in SPECIAL else name for number, name in enumerate(names)]


def find_longest(network: Transformer) -> int | None:
    """Return the number of steps that the exported model reads; None: any number."""
    if isinstance(network.positions, Learned):
        return len(network.positions.table)
    return NUM_POSITIONS if isinstance(network.positions, Sinusoidal) else None


def _make_spec(network: Transformer, aligning: Head) -> Any:
    from ctranslate2.specs import common_spec, transformer_spec

    sizes = network.sizes
    common: dict[str, Any] = {
        "num_heads": sizes.num_heads,
        "pre_norm": sizes.norm == "pre",
        "activation": common_spec.Activation[ACTIVATIONS[sizes.activation]],
        "ffn_glu": sizes.activation == "swiglu",
        "relative_attention_bias": sizes.positions == "relative",
    }
    if sizes.positions == "rotary":
        common |= {"rotary_dim": sizes.width // sizes.num_heads, "rotary_interleave": True}
    encoder = transformer_spec.TransformerEncoderSpec(len(network.encoder), **common)
    decoder = transformer_spec.TransformerDecoderSpec(
        len(network.decoder),
        alignment_layer=aligning.layer,
        alignment_heads=sizes.num_heads if aligning.head is None else 1,
        **common,
    )
    for part in (encoder, decoder):
        _set_positions(part, network)
    encoder.embeddings[0].weight = _weight(network.source)
    decoder.embeddings.weight = _weight(network.target)
    decoder.projection.weight = _weight(network.output)
    if network.output_bias is not None:
        decoder.projection.bias = network.output_bias.detach().float()
    for part, norm in ((encoder, network.encoder_norm), (decoder, network.decoder_norm)):
        if isinstance(norm, Norm):
            _set_norm(part.layer_norm, norm)
    for layer, encoding in zip(encoder.layer, cast(Iterator[EncoderBlock], network.encoder), strict=True):
        _set_encoder(layer, encoding, network.encoder_bias)
    for number, (layer, block) in enumerate(
        zip(decoder.layer, cast(Iterator[DecoderBlock], network.decoder), strict=True)
    ):
        first = aligning.head if number == aligning.layer else None
        _set_decoder(layer, block, network.decoder_bias, first)
    return transformer_spec.TransformerSpec(encoder, decoder)


def _set_positions(part: Any, network: Transformer) -> None:
    """Set the table of positions that are added to embeddings; where there are none, there must be no encoder of
    them, which the specification of an encoder has beside rotary ones."""
    if network.positions is not None:
        place = Positions.following(0, cast(int, find_longest(network)), torch.device("cpu"))
        part.position_encodings.encodings = network.positions(place).detach().float()
    elif hasattr(part, "position_encodings"):
        delattr(part, "position_encodings")


def _set_encoder(layer: Any, block: EncoderBlock, bias: Relative | None) -> None:
    attending, feeding = cast(list[Residual], list(block.residuals))
    _set_self_attention(layer.self_attention, block.attention, attending.norm, bias)
    _set_feed_forward(layer.ffn, block.feed_forward, feeding.norm)


def _set_decoder(layer: Any, block: DecoderBlock, bias: Relative | None, first: int | None) -> None:
    own, cross, feeding = cast(list[Residual], list(block.residuals))
    _set_self_attention(layer.self_attention, block.own, own.norm, bias)
    read = read_projections(block.cross)
    read = read if first is None else read.put_first(first)
    _set_norm(layer.attention.layer_norm, cross.norm)
    _set_linears(layer.attention.linear, [[read.query], [read.key, read.value], [read.output]])
    _set_feed_forward(layer.ffn, block.feed_forward, feeding.norm)


def _set_self_attention(spec: Any, attention: MultiHeadAttention, norm: Norm, bias: Relative | None) -> None:
    read: Projections = read_projections(attention)
    _set_norm(spec.layer_norm, norm)
    _set_linears(spec.linear, [[read.query, read.key, read.value], [read.output]])
    if bias is not None:
        spec.relative_attention_bias = bias.table.detach().float()
        spec.relative_attention_max_distance = torch.tensor(bias.max_distance, dtype=torch.int32).numpy()


def _set_feed_forward(spec: Any, network: FeedForward, norm: Norm) -> None:
    _set_norm(spec.layer_norm, norm)
    _set_linears([spec.linear_0, spec.linear_1], [[read_affine(network.inner)], [read_affine(network.outer)]])
    if network.gate is not None:
        _set_linears([spec.linear_0_noact], [[read_affine(network.gate)]])


def _set_linears(specs: list[Any], parts: list[list[Affine]]) -> None:
    """Set linear layers, each of several matrices side by side."""
    for spec, joined in zip(specs, parts, strict=True):
        spec.weight = torch.cat([part.weight for part in joined])
        spec.bias = torch.cat([part.bias for part in joined])


def _set_norm(spec: Any, norm: Norm) -> None:
    spec.gamma, spec.beta = norm.weight.detach().float(), norm.bias.detach().float()


def _weight(embedding: nn.Module) -> Tensor:
    return cast(nn.Embedding, embedding).weight.detach().float().clone()  # int8 is written in place


def _first_norm(network: Transformer) -> Norm:
    return next(module for module in network.modules() if isinstance(module, Norm))


@final
class CTranslate2Engine:
    """A CTranslate2 folder on the CPU."""

    name = "CTranslate2"
    renormalizes = True
    ends_early = True

    def __init__(self, portable: Portable, folder: Path) -> None:
        import ctranslate2

        self.longest = find_longest(cast(Transformer, portable.network))
        self.source, self.target = spell_vocabulary(portable.source), spell_vocabulary(portable.target)
        self.begins = spell(self.target, [portable.target.encode("")])[0]
        self._ids = {name: number for number, name in enumerate(self.target)}
        threads = torch.get_num_threads()
        self.translator = ctranslate2.Translator(str(folder), device="cpu", inter_threads=1, intra_threads=threads)

    def log_probabilities(self, sources: Ids, targets: Ids) -> list[list[float]]:
        found = self.translator.score_batch(
            spell(self.source, sources),
            spell(self.target, targets),
            max_input_length=0,
            max_batch_size=TOKENS,
            batch_type="tokens",
        )
        return [list(one.log_probs) for one in found]

    def search(self, sources: Ids, beam: int, limit: int, *, thorough: bool) -> Ids:
        found = self._translate(sources, limit, beam_size=beam, patience=PATIENCE if thorough else 1.0)
        return [self.read(one.hypotheses[0]) for one in found]

    def search_as(self, sources: Ids, **how: Any) -> Ids:
        """Return outputs as CTranslate2 searches them with these options, and otherwise with its own."""
        found = self.translator.translate_batch(
            spell(self.source, sources), max_batch_size=TOKENS, batch_type="tokens", **how
        )
        return [self.read(one.hypotheses[0]) for one in found]

    def encode(self, texts: list[str]) -> None:
        """Return nothing: tokens come from outside."""

    def decode(self, outputs: Ids) -> None:
        """Return nothing: tokens come from outside."""

    def attend(self, sources: Ids, limit: int) -> list[tuple[list[int], Tensor]]:
        found = self._translate(sources, limit, beam_size=1, return_attention=True)
        return [(self.read(one.hypotheses[0]), torch.tensor(one.attention[0])) for one in found]

    def _translate(self, sources: Ids, limit: int, *, beam_size: int, **more: Any) -> list[Any]:
        return self.translator.translate_batch(
            spell(self.source, sources),
            [self.begins or None] * len(sources),
            beam_size=beam_size,
            length_penalty=0,
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=limit,
            suppress_sequences=[[SPECIAL[PAD]], [SPECIAL[START]]],
            max_batch_size=TOKENS // beam_size,
            batch_type="tokens",
            **more,
        )

    def read(self, names: list[str]) -> list[int]:
        return [self._ids[name] for name in names]


def spell(names: list[str], rows: Ids) -> list[list[str]]:
    """Return rows of ids by their names."""
    return [[names[number] for number in ids] for ids in rows]
