"""Hugging Face, without code of our own: post-norm Transformers are Marian's network, pre-norm ones Pegasus'."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast, final

import torch
from torch import Tensor, nn

from saccade.attention import MultiHeadAttention
from saccade.attention.positions import Learned
from saccade.data.batches import decoder_input, pad_sources
from saccade.data.text.tokenizer import END, PAD, START, SentencePiece, Tokenizer
from saccade.decoding import BeamOptions
from saccade.export.ctranslate2 import find_longest
from saccade.export.projections import Affine, read_affine, read_projections, refuse_sizes
from saccade.export.proof import TOKENS, Ids, find_aligning, pick_log_probabilities
from saccade.layers.feed_forward import FeedForward
from saccade.layers.residual import Norm
from saccade.models.transformer import DecoderBlock, EncoderBlock, Transformer
from saccade.tasks.base import Portable
from saccade.tasks.texts import batch_by_length

EPSILON = 1e-5  # of both networks' norms
Named = Iterator[tuple[str, Tensor]]


def refuse(portable: Portable) -> str | None:
    """Say what of a model neither network can say."""
    network = portable.network
    if not isinstance(network, Transformer):
        return "an RNN (its networks of this kind are Transformers)"
    if not all(isinstance(tokenizer, SentencePiece) for tokenizer in (portable.source, portable.target)):
        return "words or characters (its tokenizer is SentencePiece; tokenizer.kind: unigram or bpe)"
    sizes = network.sizes
    if sizes.positions not in ("sinusoidal", "learned"):
        return f"model.positions: {sizes.positions} (none of its translation networks has them)"
    if sizes.positions == "learned" and sizes.norm == "post":
        return "model.positions: learned with model.norm: post (learned ones come with pre)"
    if sizes.activation == "swiglu":
        return "model.activation: swiglu (none of its translation networks has a gate)"
    if sizes.norm == "pre" and network.source is not network.target and _sizes_differ(network):
        return "model.norm: pre with vocabularies of two sizes (its pre-norm network has one)"
    return refuse_sizes(sizes)


def write(portable: Portable, folder: Path, quantization: str) -> Mapping[str, object]:
    """Write config, weights, generation config and tokenizer."""
    del quantization
    from transformers.utils import logging

    logging.disable_progress_bar()
    network = cast(Transformer, portable.network)
    model = _make_model(network)
    state = {name: tensor.float().contiguous() for name, tensor in _name_weights(network)}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert all("embed_positions" in name or name == "final_logits_bias" for name in missing), missing
    model.generation_config = _make_generation_config(portable.options, find_longest(network))
    model.save_pretrained(folder)
    _write_tokenizer(portable, folder)
    return {"architecture": type(model).__name__, "longest": find_longest(network)}


def _sizes_differ(network: Transformer) -> bool:
    return len(cast(nn.Embedding, network.source).weight) != len(network.target.weight)


def _make_model(network: Transformer) -> Any:
    from transformers import MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

    sizes, shares = network.sizes, network.source is network.target
    common: dict[str, Any] = {
        "vocab_size": len(cast(nn.Embedding, network.source).weight),
        "d_model": sizes.width,
        "activation_function": sizes.activation,
        "scale_embedding": True,
        "max_position_embeddings": find_longest(network),
        "pad_token_id": PAD,
        "bos_token_id": START,
        "eos_token_id": END,
        "decoder_start_token_id": START,
        "forced_eos_token_id": None,
        "attention_dropout": sizes.dropouts.attention,
        "activation_dropout": sizes.dropouts.activation,
        "dropout": sizes.dropouts.residual,
    }
    for side, layers in (("encoder", network.encoder), ("decoder", network.decoder)):
        common[f"{side}_layers"] = len(layers)
        common[f"{side}_attention_heads"] = sizes.num_heads
        common[f"{side}_ffn_dim"] = sizes.hidden_width
    if sizes.norm == "pre":
        ties = shares and network.output is network.target
        return PegasusForConditionalGeneration(PegasusConfig(**common, tie_word_embeddings=ties))
    ties = network.output is network.target
    common |= {"decoder_vocab_size": len(network.target.weight), "share_encoder_decoder_embeddings": shares and ties}
    return MarianMTModel(MarianConfig(**common, tie_word_embeddings=ties))


def _make_generation_config(options: BeamOptions, longest: int | None) -> Any:
    from transformers import GenerationConfig

    beam = {"length_penalty": options.length_penalty, "early_stopping": False} if options.width > 1 else {}
    return GenerationConfig(
        num_beams=options.width,
        max_new_tokens=min(options.max_length, 512 if longest is None else longest - 1),
        no_repeat_ngram_size=options.no_repeat_ngram,
        suppress_tokens=[PAD, START],
        pad_token_id=PAD,
        bos_token_id=START,
        eos_token_id=END,
        decoder_start_token_id=START,
        **beam,
    )


def _write_tokenizer(portable: Portable, folder: Path) -> None:
    """Write the files that Marian's tokenizer reads; Pegasus' own has another vocabulary below id 4."""
    separate = cast(SentencePiece, portable.source).model != cast(SentencePiece, portable.target).model
    for side, tokenizer in (("source", portable.source), ("target", portable.target)):
        (folder / f"{side}.spm").write_bytes(cast(SentencePiece, tokenizer).model)
    _write_json(folder / "vocab.json", _spell_vocabulary(portable.source))
    if separate:
        _write_json(folder / "target_vocab.json", _spell_vocabulary(portable.target))
    longest = find_longest(cast(Transformer, portable.network))
    codes = dict(zip(("source_lang", "target_lang"), portable.languages or (), strict=False))
    config = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": separate,
        "model_max_length": longest,
        "clean_up_tokenization_spaces": False,
        **codes,
    }
    _write_json(folder / "tokenizer_config.json", config)


def _spell_vocabulary(tokenizer: Tokenizer) -> dict[str, int]:
    return {name: number for number, name in enumerate(tokenizer.pieces(range(tokenizer.size)))}


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1), "utf-8")


def _name_weights(network: Transformer) -> Named:
    """Yield every weight under its name there.

    Sinusoids stand in halves there, sines and then cosines, and interleaved here: the width is permuted.
    """
    order = torch.arange(network.sizes.width)
    if not isinstance(network.positions, Learned):
        order = torch.cat([order[0::2], order[1::2]])
    else:
        for side in ("encoder", "decoder"):
            yield f"model.{side}.embed_positions.weight", network.positions.table.detach()
    for name, embedding in (
        ("model.shared", network.source),
        ("model.encoder.embed_tokens", network.source),
        ("model.decoder.embed_tokens", network.target),
        ("lm_head", network.output),
    ):
        if name != "model.shared" or network.source is network.target is network.output or network.sizes.norm == "pre":
            yield f"{name}.weight", cast(nn.Embedding, embedding).weight.detach()[:, order]
    for side, norm in (("encoder", network.encoder_norm), ("decoder", network.decoder_norm)):
        if isinstance(norm, Norm):
            yield from _name_norm(f"model.{side}.layer_norm", norm, order)
    for number, encoding in enumerate(cast(Iterator[EncoderBlock], network.encoder)):
        yield from _name_encoder(f"model.encoder.layers.{number}", encoding, order)
    for number, block in enumerate(cast(Iterator[DecoderBlock], network.decoder)):
        yield from _name_decoder(f"model.decoder.layers.{number}", block, order)


def _name_encoder(name: str, block: EncoderBlock, order: Tensor) -> Named:
    attending, feeding = (cast(Any, residual).norm for residual in block.residuals)
    yield from _name_attention(f"{name}.self_attn", block.attention, order)
    yield from _name_norm(f"{name}.self_attn_layer_norm", attending, order)
    yield from _name_feed_forward(name, block.feed_forward, feeding, order)


def _name_decoder(name: str, block: DecoderBlock, order: Tensor) -> Named:
    own, cross, feeding = (cast(Any, residual).norm for residual in block.residuals)
    yield from _name_attention(f"{name}.self_attn", block.own, order)
    yield from _name_norm(f"{name}.self_attn_layer_norm", own, order)
    yield from _name_attention(f"{name}.encoder_attn", block.cross, order)
    yield from _name_norm(f"{name}.encoder_attn_layer_norm", cross, order)
    yield from _name_feed_forward(name, block.feed_forward, feeding, order)


def _name_attention(name: str, attention: MultiHeadAttention, order: Tensor) -> Named:
    read = read_projections(attention)
    for part, affine in (("q_proj", read.query), ("k_proj", read.key), ("v_proj", read.value)):
        yield from _name_affine(f"{name}.{part}", Affine(affine.weight[:, order], affine.bias))
    yield from _name_affine(f"{name}.out_proj", read.output.pick(order))


def _name_feed_forward(name: str, network: FeedForward, norm: Norm, order: Tensor) -> Named:
    inner = read_affine(network.inner)
    yield from _name_affine(f"{name}.fc1", Affine(inner.weight[:, order], inner.bias))
    yield from _name_affine(f"{name}.fc2", read_affine(network.outer).pick(order))
    yield from _name_norm(f"{name}.final_layer_norm", norm, order)


def _name_norm(name: str, norm: Norm, order: Tensor) -> Named:
    assert norm.eps == EPSILON
    yield from _name_affine(name, Affine(norm.weight.detach()[order], norm.bias.detach()[order]))


def _name_affine(name: str, affine: Affine) -> Named:
    yield f"{name}.weight", affine.weight
    yield f"{name}.bias", affine.bias


@final
class HuggingFaceEngine:
    """A folder, loaded by Hugging Face's Auto classes."""

    name = "Hugging Face"
    renormalizes = False

    def __init__(self, portable: Portable, folder: Path) -> None:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        self.head = find_aligning(portable)
        self.longest = find_longest(cast(Transformer, portable.network))
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.no_grad()
    def log_probabilities(self, sources: Ids, targets: Ids) -> list[list[float]]:
        found: list[list[float]] = [[] for _ in sources]
        lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        for rows in batch_by_length(lengths, TOKENS):
            wanted = [targets[row] for row in rows]
            read = {**_pad([sources[row] for row in rows]), "decoder_input_ids": decoder_input(wanted)}
            for row, steps in zip(rows, pick_log_probabilities(self.model(**read).logits, wanted), strict=True):
                found[row] = steps
        return found

    @torch.no_grad()
    def search(self, sources: Ids, beam: int, limit: int, *, thorough: bool) -> Ids:
        del thorough  # without a length penalty it never ends too early
        how = {} if beam == 1 else {"length_penalty": 0.0, "early_stopping": "never"}
        found: Ids = [[] for _ in sources]
        for rows in batch_by_length([len(source) for source in sources], TOKENS // beam):
            read = _pad([sources[row] for row in rows])
            written = self.model.generate(
                **read, num_beams=beam, max_new_tokens=limit, no_repeat_ngram_size=0, do_sample=False, **how
            )
            for row, ids in zip(rows, written[:, 1:].tolist(), strict=True):
                found[row] = ids[: ids.index(END)] if END in ids else [number for number in ids if number != PAD]
        return found

    def encode(self, texts: list[str]) -> Ids:
        return [ids[:-1] for ids in self.tokenizer(texts)["input_ids"]]  # without </s>

    def decode(self, outputs: Ids) -> list[str]:
        return list(self.tokenizer.batch_decode(outputs, skip_special_tokens=True))

    @torch.no_grad()
    def attend(self, sources: Ids, limit: int) -> list[tuple[list[int], Tensor]]:
        self.model.set_attn_implementation("eager")
        told = []
        for source, ids in zip(sources, self.search(sources, 1, limit, thorough=False), strict=True):
            read = {**_pad([source]), "decoder_input_ids": decoder_input([ids])}
            weights = self.model(**read, output_attentions=True).cross_attentions[self.head.layer][0]
            told.append((ids, weights.mean(0) if self.head.head is None else weights[self.head.head]))
        self.model.set_attn_implementation("sdpa")
        return told


def _pad(sources: Ids) -> dict[str, Tensor]:
    source_BS, length_B = pad_sources(sources)
    return {"input_ids": source_BS, "attention_mask": (torch.arange(source_BS.shape[1]) < length_B[:, None]).long()}
