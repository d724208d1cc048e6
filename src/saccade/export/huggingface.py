"""Hugging Face, without code of our own: post-norm Transformers are Marian's network, pre-norm ones Pegasus'."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor, nn

from saccade.attention import MultiHeadAttention
from saccade.attention.positions import Learned
from saccade.data.batches import decoder_input, pad_sources
from saccade.data.text.tokenizer import END, PAD, START, ListedPieces, SentencePiece, Tokenizer
from saccade.decoding import BeamOptions
from saccade.export.ctranslate2 import find_longest
from saccade.export.projections import Affine, read_affine, read_projections, refuse_sizes
from saccade.export.proof import TOKENS, Ids, find_aligning, pick_log_probabilities
from saccade.layers.residual import Norm
from saccade.models.transformer import Transformer
from saccade.tasks.base import Portable
from saccade.tasks.texts import batch_by_length
from saccade.training.checkpoints import disk_errors

EPSILON = 1e-5  # of both networks' norms
SIDES = ("encoder", "decoder")
BIAS = "final_logits_bias"
LOGITS = 1 << 25  # of a batch
ATTENTIONS = {  # of a block of each side, in order: their names there and here
    "encoder": {"self_attn": "attention"},
    "decoder": {"self_attn": "own", "encoder_attn": "cross"},
}
PROJECTIONS = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
Named = Iterator[tuple[str, Tensor]]


def refuse(portable: Portable) -> str | None:
    """Say what of a model neither network can say."""
    network = portable.network
    if not isinstance(network, Transformer):
        return "an RNN (its networks of this kind are Transformers)"
    both = (portable.source, portable.target)
    if not all(isinstance(tokenizer, SentencePiece | ListedPieces) for tokenizer in both):
        return "words or characters (its tokenizer is SentencePiece; tokenizer.kind: unigram or bpe)"
    if any(getattr(tokenizer, "first", None) for tokenizer in both):
        return "a token that stands before every text (a language chosen by `saccade import --languages`)"
    sizes = network.sizes
    if sizes.positions not in ("sinusoidal", "sinusoidal_halves", "learned"):
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
    assert all("embed_positions" in name or name == BIAS for name in missing), missing
    model.generation_config = _make_generation_config(portable.options, find_longest(network))
    with disk_errors():
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
    separate = _spell_vocabulary(portable.source) != _spell_vocabulary(portable.target)
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
    """Yield every weight under its name there."""
    order, folded = width_order(network), _fold_attentions(network)
    if isinstance(network.positions, Learned):
        for side in SIDES:
            yield f"model.{side}.embed_positions.weight", network.positions.table.detach()[:, order]
    for name, embedding in (
        ("model.shared", network.source),
        ("model.encoder.embed_tokens", network.source),
        ("model.decoder.embed_tokens", network.target),
        ("lm_head", network.output),
    ):
        if name != "model.shared" or network.source is network.target is network.output or network.sizes.norm == "pre":
            yield f"{name}.weight", cast(nn.Embedding, embedding).weight.detach()[:, order]
    if network.output_bias is not None:
        yield BIAS, network.output_bias.detach()[None]
    for place in list_places(network):
        module = cast(nn.Linear, network.get_submodule(place.ours))
        assert not isinstance(module, Norm) or module.eps == EPSILON
        affine = folded.get(place.ours) or read_affine(module)
        yield f"{place.theirs}.weight", affine.weight[place.pick(order)]
        yield f"{place.theirs}.bias", affine.bias[order] if place.writes_width else affine.bias


class LayerPair(NamedTuple):
    """A linear layer or norm there and here, and whether the width is what it writes (its rows) or reads (columns)."""

    theirs: str
    ours: str
    writes_width: bool

    def pick(self, order: Tensor) -> Any:
        """Return the index that puts a weight's width into this order."""
        return order if self.writes_width else (slice(None), order)


def list_places(network: Transformer) -> Iterator[LayerPair]:
    """List all linear layers and norms."""
    for side in SIDES:
        if isinstance(getattr(network, f"{side}_norm"), Norm):
            yield LayerPair(f"model.{side}.layer_norm", f"{side}_norm", True)
        for number in range(len(getattr(network, side))):
            ours, theirs = f"{side}.{number}", f"model.{side}.layers.{number}"
            names = ATTENTIONS[side]
            for index, (their_name, our_name) in enumerate(names.items()):
                for part, linear in PROJECTIONS.items():
                    yield LayerPair(f"{theirs}.{their_name}.{part}", f"{ours}.{our_name}.{linear}", linear == "output")
                yield LayerPair(f"{theirs}.{their_name}_layer_norm", f"{ours}.residuals.{index}.norm", True)
            yield LayerPair(f"{theirs}.fc1", f"{ours}.feed_forward.inner", False)
            yield LayerPair(f"{theirs}.fc2", f"{ours}.feed_forward.outer", True)
            yield LayerPair(f"{theirs}.final_layer_norm", f"{ours}.residuals.{len(names)}.norm", True)


def width_order(network: Transformer) -> Tensor:
    """Return the order of the width there, where sinusoids stand in halves: sines and then cosines."""
    order = torch.arange(network.sizes.width)
    return torch.cat([order[0::2], order[1::2]]) if network.sizes.positions == "sinusoidal" else order


def _fold_attentions(network: Transformer) -> dict[str, Affine]:
    """Return the projections of queries and keys that scores are folded into."""
    found = dict[str, Affine]()
    for name, module in network.named_modules():
        if isinstance(module, MultiHeadAttention):
            read = read_projections(module)
            found |= {f"{name}.query": read.query, f"{name}.key": read.key}
    return found


class Numbering(NamedTuple):
    """Their id of each of our ids, on both sides; `silent` ids there have no probability in a search."""

    source_V: Tensor
    target_V: Tensor
    silent: Sequence[int] = ()


@final
class HuggingFaceEngine:
    """A folder, loaded by Hugging Face's Auto classes. Ids there may have other numbers."""

    name = "Hugging Face"
    renormalizes = False
    ends_early = False

    def __init__(
        self,
        portable: Portable,
        folder: Path,
        numbering: Numbering | None = None,
        languages: tuple[str, str] | None = None,
    ) -> None:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self.head = find_aligning(portable)
        self.longest = find_longest(cast(Transformer, portable.network))
        named = {} if languages is None else dict(zip(("src_lang", "tgt_lang"), languages, strict=True))
        self.tokenizer = AutoTokenizer.from_pretrained(folder, **named)
        self.model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.begins = portable.target.encode("")
        same = Numbering(torch.arange(portable.source.size), torch.arange(portable.target.size))
        self.numbering = numbering or same
        self._source_ids, self._target_ids = (
            {number: index for index, number in reversed([*enumerate(number_V.tolist())])}
            for number_V in (self.numbering.source_V, self.numbering.target_V)
        )
        self._target_ids[int(self.numbering.target_V[END])] = END  # which may be what a decoder reads first, too

    @torch.no_grad()
    def log_probabilities(self, sources: Ids, targets: Ids) -> list[list[float]]:
        found: list[list[float]] = [[] for _ in sources]
        lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        for rows in batch_by_length(lengths, self._tokens):
            wanted = [targets[row] for row in rows]
            logits_BTV = self.read([sources[row] for row in rows], wanted).logits
            logits_BTV[..., list(self.numbering.silent)] = -torch.inf
            steps = pick_log_probabilities(logits_BTV, wanted, self.numbering.target_V)
            for row, step in zip(rows, steps, strict=True):
                found[row] = step
        return found

    def read(self, sources: Ids, targets: Ids, **options: Any) -> Any:
        """Return what the model says of given outputs; its logits have its own numbers."""
        return self.model(
            **self._pad(sources), decoder_input_ids=self.numbering.target_V[decoder_input(targets)], **options
        )

    @torch.no_grad()
    def search(self, sources: Ids, beam: int, limit: int, *, thorough: bool) -> Ids:
        del thorough  # without a length penalty it never ends too early
        how: dict[str, Any] = {} if beam == 1 else {"length_penalty": 0.0, "early_stopping": "never"}
        never = [int(self.numbering.target_V[PAD]), *(self.model.generation_config.suppress_tokens or [])]
        how |= {"suppress_tokens": never, "forced_eos_token_id": None}  # <pad>, and no </s> at the limit, as here
        return self.search_as(sources, num_beams=beam, max_new_tokens=limit, no_repeat_ngram_size=0, **how)

    @torch.no_grad()
    def search_as(self, sources: Ids, **how: Any) -> Ids:
        """Return outputs as `generate` searches them with these options, and otherwise with the folder's."""
        found: Ids = [[] for _ in sources]
        if self.begins:
            how["forced_bos_token_id"] = int(self.numbering.target_V[self.begins[0]])
        beam = how.get("num_beams") or self.model.generation_config.num_beams or 1
        for rows in batch_by_length([len(source) for source in sources], self._tokens // beam):
            written = self.model.generate(**self._pad([sources[row] for row in rows]), do_sample=False, **how)
            for row, numbers in zip(rows, written[:, 1:].tolist(), strict=True):
                ids = [self._target_ids[number] for number in numbers]
                found[row] = ids[: ids.index(END)] if END in ids else [index for index in ids if index != PAD]
        return found

    def encode(self, texts: list[str]) -> Ids:
        rows = [ids[:-1] for ids in self.tokenizer(texts)["input_ids"]]  # without </s>
        return [[self._source_ids[number] for number in ids] for ids in rows]

    def decode(self, outputs: Ids) -> list[str]:
        rows = [self.numbering.target_V[ids].tolist() for ids in outputs]
        return [" ".join(text.split()) for text in self.tokenizer.batch_decode(rows, skip_special_tokens=True)]

    @torch.no_grad()
    def attend(self, sources: Ids, limit: int) -> list[tuple[list[int], Tensor]]:
        self.model.set_attn_implementation("eager")
        told = []
        for source, ids in zip(sources, self.search(sources, 1, limit, thorough=False), strict=True):
            weights = self.read([source], [ids], output_attentions=True).cross_attentions[self.head.layer][0]
            told.append((ids, weights.mean(0) if self.head.head is None else weights[self.head.head]))
        self.model.set_attn_implementation("sdpa")
        return told

    @property
    def _tokens(self) -> int:
        """Return the number of tokens of a batch; their logits must fit the memory."""
        return max(64, min(TOKENS, LOGITS // len(self.numbering.target_V)))

    def _pad(self, sources: Ids) -> dict[str, Tensor]:
        source_BS, length_B = pad_sources(sources)
        mask_BS = (torch.arange(source_BS.shape[1]) < length_B[:, None]).long()
        return {"input_ids": self.numbering.source_V[source_BS], "attention_mask": mask_BS}
