"""Folders of Marian models as OPUS-MT lays them out: random weights, real SentencePiece models, their config files."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

PHRASES = {
    "source": "der alte Hund und die kleine Katze schlafen im Haus , aber der Baum steht allein .",
    "target": "the old dog and the little cat sleep in the house , but the tree stands alone .",
}
SIZES = {"d_model": 24, "encoder_layers": 2, "decoder_layers": 2, "heads": 3, "ffn_dim": 20}


@cache
def spm(side: str, size: int = 60, kind: str = "unigram") -> bytes:
    """Train a SentencePiece model as OPUS-MT does: <unk>, <s> and </s> are its first ids, and bytes are not spelled."""
    texts = [" ".join(random.Random(seed).choices(PHRASES[side].split(), k=6)) for seed in range(80)]
    return train_spm(texts, size, kind)


def train_spm(texts: Sequence[str], size: int, kind: str) -> bytes:
    import sentencepiece

    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=written,
        model_type=kind,
        vocab_size=size,
        hard_vocab_limit=False,
        character_coverage=1.0,
        normalization_rule_name="nmt_nfkc",
        num_threads=1,
        minloglevel=2,
    )
    return written.getvalue()


def list_pieces(model: bytes) -> list[str]:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(number) for number in range(processor.vocab_size())][3:]


def joint_vocabulary(*models: bytes, languages: Sequence[str] = (), size: int = 0) -> dict[str, int]:
    """Number the pieces of all models as OPUS-MT does: </s> and <unk> first, <pad> last; it may be filled up."""
    pieces = dict.fromkeys(piece for model in models for piece in list_pieces(model))
    pieces |= dict.fromkeys(f"~filler {number}" for number in range(size - len(pieces) - len(languages) - 3))
    return {name: number for number, name in enumerate(["</s>", "<unk>", *languages, *sorted(pieces), "<pad>"])}


def opus_folder(
    folder: Path,
    *,
    models: tuple[bytes, bytes] | None = None,
    languages: Sequence[str] = (),
    separate: bool = False,
    size: int = 0,
    sizes: dict[str, Any] | None = None,
    end_bias: float = 0.0,
    scale: float = 1.0,
    network: Any = None,
    **fields: Any,
) -> Path:
    """Write a folder. A joint vocabulary has at least `size` pieces; `end_bias` makes outputs end, `scale` makes all
    weights larger; fields are of config.json."""
    from transformers import MarianConfig, MarianMTModel

    both = models or (spm("source"), spm("target"))
    lists = [joint_vocabulary(*both, languages=languages, size=size)] * 2
    if separate:
        lists = [joint_vocabulary(one, size=max(map(len, map(joint_vocabulary, both)))) for one in both]
    pad, sizes = len(lists[0]) - 1, {**SIZES, **(sizes or {})}
    config = _config(lists, sizes, separate) | fields
    torch.manual_seed(1)
    network = network or MarianMTModel(MarianConfig(**config))
    _randomize(network, scale, end_bias)
    for embedding in (network.model.encoder.embed_tokens, network.model.decoder.embed_tokens):
        embedding.weight.data[-1] = 0  # the row of <pad>
    network.save_pretrained(folder)
    for side, model in zip(("source", "target"), both, strict=True):
        (folder / f"{side}.spm").write_bytes(model)
    write_json(folder / "vocab.json", lists[0])
    if separate:
        write_json(folder / "target_vocab.json", lists[1])
    write_json(folder / "config.json", {"architectures": ["MarianMTModel"], **config})
    write_json(folder / "generation_config.json", _generation(pad))
    more = {"separate_vocabs": True, "tokenizer_class": "MarianTokenizer"} if separate else {}
    write_json(folder / "tokenizer_config.json", {"target_lang": "en", "source_lang": "de", **more})
    return folder


def _config(lists: Sequence[dict[str, int]], sizes: dict[str, Any], separate: bool) -> dict[str, Any]:
    """Return the fields of OPUS-MT's config.json."""
    pad = len(lists[0]) - 1
    sides = {
        f"{side}_{name}": sizes[given]
        for side in ("encoder", "decoder")
        for name, given in (("attention_heads", "heads"), ("ffn_dim", "ffn_dim"), ("layers", f"{side}_layers"))
    }
    shared = {"share_encoder_decoder_embeddings": not separate, "tie_word_embeddings": not separate}
    return {
        **sides,
        **shared,
        "_num_labels": 3,
        "activation_dropout": 0.0,
        "activation_function": "swish",
        "add_bias_logits": False,
        "add_final_layer_norm": False,
        "attention_dropout": 0.0,
        "bos_token_id": 0,
        "classif_dropout": 0.0,
        "d_model": sizes["d_model"],
        "decoder_layerdrop": 0.0,
        "decoder_start_token_id": pad,
        "decoder_vocab_size": len(lists[1]),
        "dropout": 0.1,
        "encoder_layerdrop": 0.0,
        "eos_token_id": 0,
        "init_std": 0.02,
        "is_encoder_decoder": True,
        "max_position_embeddings": 512,
        "model_type": "marian",
        "normalize_before": False,
        "normalize_embedding": False,
        "num_hidden_layers": sizes["encoder_layers"],
        "pad_token_id": pad,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "use_cache": True,
        "vocab_size": len(lists[0]),
    }


def _generation(pad: int) -> dict[str, Any]:
    return {
        "_from_model_config": True,
        "bad_words_ids": [[pad]],
        "bos_token_id": 0,
        "decoder_start_token_id": pad,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "max_length": 512,
        "num_beams": 4,
        "pad_token_id": pad,
        "renormalize_logits": True,
        "transformers_version": "4.32.0.dev0",
    }


def _randomize(network: Any, scale: float, end_bias: float) -> None:
    """Give every parameter random values, biases and norms too."""
    for parameter in network.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, mean=float(parameter.flatten()[0].detach()), std=0.1)
        else:
            torch.nn.init.normal_(parameter, std=scale * parameter.shape[1] ** -0.5)
    torch.nn.init.normal_(network.final_logits_bias, std=0.1)
    network.final_logits_bias[0, 0] = end_bias


@torch.no_grad()
def end_near(folder: Path, texts: Sequence[str], *, length: int, slope: float, bias: float = 0.0) -> None:
    """Let a folder's outputs end near a length: fit the row of </s> to the positions that outputs have reached."""
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    read = tokenizer(texts, return_tensors="pt", padding=True)
    model.final_logits_bias[0, 0] = -50.0
    written = model.generate(**read, num_beams=1, max_new_tokens=2 * length, do_sample=False)[:, :-1]
    vectors_BTD = model.model(**read, decoder_input_ids=written).last_hidden_state
    best_BT = (model.lm_head(vectors_BTD) + model.final_logits_bias).amax(-1)
    x_ND = vectors_BTD.flatten(0, 1).double()
    y_N = (torch.arange(written.shape[1]).expand(len(texts), -1) - length).flatten().double()
    row_D = torch.linalg.solve(x_ND.T @ x_ND + 10.0 * torch.eye(x_ND.shape[1], dtype=torch.float64), x_ND.T @ y_N)
    weights = load_file(folder / "model.safetensors")
    weights["model.shared.weight"][0] = slope * row_D.float()
    weights["final_logits_bias"][0, 0] = best_BT.mean() + bias
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2), "utf-8")
