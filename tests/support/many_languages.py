"""Folders of M2M100, NLLB and Pegasus as Hugging Face lays them out: random weights, their own tokenizers' files."""

from __future__ import annotations

import io
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import torch

from marian import PHRASES, list_pieces, train_spm, write_json

NLLB = ("ace_Latn", "deu_Latn", "eng_Latn", "fra_Latn", "zho_Hans")
SIZES = {"d_model": 24, "layers": 2, "heads": 3, "ffn_dim": 20}


def m2m_folder(folder: Path, **fields: Any) -> Path:
    """Write a folder of M2M100: a list of pieces, which the tokens of a hundred languages and eight others follow."""
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

    folder.mkdir(parents=True)
    names = ["<s>", "<pad>", "</s>", "<unk>", *sorted(list_pieces(_model()))]
    write_json(folder / "vocab.json", {name: number for number, name in enumerate(names)})
    special = _tokens("M2M100Tokenizer") | {
        "additional_special_tokens": [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]
    }
    write_json(folder / "special_tokens_map.json", special)
    write_json(folder / "tokenizer_config.json", {"src_lang": None, "tgt_lang": None, **special})
    return _fill(folder, len(names) + 100 + 8, fields, num_beams=5, early_stopping=True)


def nllb_folder(folder: Path, **fields: Any) -> Path:
    """Write a folder of NLLB: the pieces, the languages, <mask>, and two ids that nothing names."""
    from transformers import AutoTokenizer

    folder.mkdir(parents=True)
    (folder / "sentencepiece.bpe.model").write_bytes(_model())
    write_json(folder / "tokenizer_config.json", _tokens("NllbTokenizer"))
    write_json(folder / "config.json", {"model_type": "m2m_100"})
    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    whole = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    vocabulary = whole["model"]["vocab"]
    start = len(vocabulary) - ("<mask>" in vocabulary)
    for number, name in enumerate((*NLLB, "<mask>"), start):
        added = [token for token in whole["added_tokens"] if token["content"] == name]
        plain = {**whole["added_tokens"][0], "content": name}
        whole["added_tokens"] = [token for token in whole["added_tokens"] if token not in added]
        whole["added_tokens"].append({**(added or [plain])[0], "id": number})
        vocabulary.pop(name, None)
    write_json(folder / "tokenizer.json", whole)
    special = {"additional_special_tokens": list(NLLB), **_tokens("NllbTokenizer")}
    write_json(folder / "special_tokens_map.json", special)
    write_json(folder / "tokenizer_config.json", {"src_lang": None, "tgt_lang": None, **special})
    return _fill(folder, start + len(NLLB) + 1 + 2, {"tokenizer_class": "NllbTokenizer", **fields})


def pegasus_folder(folder: Path, **fields: Any) -> Path:
    """Write a folder of Pegasus with its own tokenizer: <unk> and all pieces after 103 ids that it was trained with."""
    from transformers import PegasusConfig, PegasusForConditionalGeneration

    folder.mkdir(parents=True)
    (folder / "spiece.model").write_bytes(_pegasus_model())
    trained = ["<mask_1>", *(f"<unk_{number}>" for number in range(2, 103))]
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "</s>", "mask_token": "<mask_2>"}
    special = {**names, "mask_token_sent": "<mask_1>", "additional_special_tokens": trained}
    write_json(folder / "special_tokens_map.json", special)
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PegasusTokenizer", "offset": 103, **special})
    sizes = _sizes(fields) | {
        "vocab_size": len(list_pieces(_pegasus_model())) + 3 + 103,
        "max_position_embeddings": 128,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": 0,
        "decoder_start_token_id": 0,
        "forced_eos_token_id": 1,
        "activation_function": "relu",
        "scale_embedding": True,
        "normalize_before": True,
        "add_final_layer_norm": True,
        "extra_pos_embeddings": 1,
        "static_position_embeddings": True,
        "model_type": "pegasus",
    }
    _save(PegasusForConditionalGeneration(PegasusConfig(**sizes)), folder, 1)
    write_json(folder / "config.json", {"architectures": ["PegasusForConditionalGeneration"], **sizes})
    generation = {"num_beams": 8, "length_penalty": 0.8, "max_length": 128, "decoder_start_token_id": 0}
    write_json(folder / "generation_config.json", {**generation, "eos_token_id": 1, "pad_token_id": 0})
    return folder


def _fill(folder: Path, size: int, fields: dict[str, Any], **generation: Any) -> Path:
    """Add what M2M100 and NLLB have in common."""
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    (folder / "sentencepiece.bpe.model").write_bytes(_model())
    config = _sizes(fields) | {
        "vocab_size": size,
        "max_position_embeddings": 64,
        "activation_function": "relu",
        "scale_embedding": True,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "encoder_layerdrop": 0.05,
        "decoder_layerdrop": 0.05,
        "model_type": "m2m_100",
    }
    known = {name: value for name, value in config.items() if name != "tokenizer_class"}
    unnamed = 8 if (folder / "vocab.json").exists() else 2
    _save(M2M100ForConditionalGeneration(M2M100Config(**known)), folder, 2, unnamed)
    write_json(folder / "config.json", {"architectures": ["M2M100ForConditionalGeneration"], **config})
    ids = {"bos_token_id": 0, "decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1, "max_length": 60}
    write_json(folder / "generation_config.json", {"_from_model_config": True, **ids, **generation})
    return folder


def _save(network: Any, folder: Path, end: int, unnamed: int = 0) -> None:
    """Give every parameter random values. Ids without names are silent; the output's norm is turned round, for a model
    with tied embeddings would else repeat what it read."""
    torch.manual_seed(1)
    for parameter in filter(lambda one: one.requires_grad, network.parameters()):
        mean = float(parameter.flatten()[0].detach()) if parameter.dim() == 1 else 0.0
        std = 0.1 if parameter.dim() == 1 else 1.3 * parameter.shape[1] ** -0.5
        torch.nn.init.normal_(parameter, mean=mean, std=std)
    network.model.shared.weight.data[end] *= 1.5
    network.model.decoder.layer_norm.weight.data *= -1
    network.model.shared.weight.data[len(network.model.shared.weight) - unnamed :] = 0
    network.save_pretrained(folder)


def _sizes(fields: dict[str, Any]) -> dict[str, Any]:
    sides: dict[str, Any] = {"d_model": SIZES["d_model"], "is_encoder_decoder": True}
    for side in ("encoder", "decoder"):
        sides |= {f"{side}_{name}": SIZES[given] for name, given in (("layers", "layers"), ("ffn_dim", "ffn_dim"))}
        sides[f"{side}_attention_heads"] = SIZES["heads"]
    return sides | fields


def _tokens(kind: str) -> dict[str, Any]:
    mask = {"__type": "AddedToken", "content": "<mask>", "lstrip": True, "normalized": True, "rstrip": False}
    ends = {"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    return {"tokenizer_class": kind, **ends, **({"mask_token": mask} if kind.startswith("Nllb") else {})}


@cache
def _model() -> bytes:
    return train_spm(_texts(), 90, "bpe")


@cache
def _pegasus_model() -> bytes:
    """Train a model whose first ids are <pad>, </s> and <unk>, as Pegasus' are."""
    import sentencepiece

    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(_texts()), model_writer=written, vocab_size=70, hard_vocab_limit=False,
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, num_threads=1, minloglevel=2,
    )  # fmt: skip
    return written.getvalue()


def _texts() -> list[str]:
    words = " ".join(PHRASES.values()).split()
    return [" ".join(random.Random(seed).choices(words, k=6)) for seed in range(160)]
