"""One model for all toolkits, written as the config of each peer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

# What lies in the folder that a peer is run in.
CONFIG, OUTPUT = "peer.yaml", "peer"
SOURCE_PIECES, TARGET_PIECES = "train.pieces.de", "train.pieces.en"
VOCABULARY = "vocabulary.txt"
SENTENCEPIECE_MODEL = "pieces.model"
SPECIAL = ("<unk>", "<pad>", "<s>", "</s>")


@final
@dataclass(frozen=True)
class ToolkitJob:
    """The model that all toolkits train: its sizes, and the length of the training."""

    steps: int
    report_every: int
    width: int = 128
    num_heads: int = 4
    hidden_width: int = 256
    num_layers: int = 2
    dropout: float = 0.1
    label_smoothing: float = 0.1
    tokens_per_batch: int = 2048
    vocabulary_size: int = 6000
    learning_rate: float = 5e-4
    warmup_steps: int = 100  # of the learning rate
    adam_betas: tuple[float, float] = (0.9, 0.998)
    clip_norm: float = 1.0
    max_length: int = 60
    seed: int = 1


def opennmt_py(job: ToolkitJob) -> dict[str, Any]:
    """Write OpenNMT-py's config, one flat table; its dropout acts on residuals, activations and embeddings."""
    return {
        "data": {"corpus": {"path_src": SOURCE_PIECES, "path_tgt": TARGET_PIECES}},
        "src_vocab": VOCABULARY,
        "tgt_vocab": VOCABULARY,
        "share_vocab": True,
        "save_model": f"{OUTPUT}/model",
        "save_checkpoint_steps": job.steps,
        "valid_steps": job.steps,
        "train_steps": job.steps,
        "report_every": job.report_every,
        "seed": job.seed,
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "self_attn_type": "scaled-dot",
        "position_encoding": True,
        "enc_layers": job.num_layers,
        "dec_layers": job.num_layers,
        "heads": job.num_heads,
        "hidden_size": job.width,
        "word_vec_size": job.width,
        "transformer_ff": job.hidden_width,
        "dropout": job.dropout,
        "attention_dropout": job.dropout,
        "share_embeddings": True,
        "share_decoder_embeddings": True,
        "world_size": 1,
        **_shared_by_opennmt(job),
    }


def eole(job: ToolkitJob) -> dict[str, Any]:
    """Write Eole's config, which has OpenNMT-py's keys in sections."""
    return {
        "data": {"corpus": {"path_src": SOURCE_PIECES, "path_tgt": TARGET_PIECES}},
        "src_vocab": VOCABULARY,
        "tgt_vocab": VOCABULARY,
        "src_vocab_size": job.vocabulary_size,
        "tgt_vocab_size": job.vocabulary_size,
        "share_vocab": True,
        "overwrite": True,
        "report_every": job.report_every,
        "seed": job.seed,
        "training": {
            "model_path": OUTPUT,
            "train_steps": job.steps,
            "valid_steps": job.steps,
            "save_checkpoint_steps": job.steps,
            "world_size": 1,
            "gpu_ranks": [],
            "compute_dtype": "fp32",
            "dropout": [job.dropout],
            "attention_dropout": [job.dropout],
            **_shared_by_opennmt(job),
        },
        "model": {
            "architecture": "transformer",
            "layers": job.num_layers,
            "heads": job.num_heads,
            "hidden_size": job.width,
            "transformer_ff": job.hidden_width,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "embeddings": {"word_vec_size": job.width, "position_encoding_type": "SinusoidalInterleaved"},
        },
    }


def _shared_by_opennmt(job: ToolkitJob) -> dict[str, Any]:
    return {
        "batch_type": "tokens",
        "batch_size": job.tokens_per_batch,
        "normalization": "tokens",
        "bucket_size": 32768,  # all of Multi30k: batches of like lengths
        "num_workers": 0,
        "optim": "adam",
        "adam_beta1": job.adam_betas[0],
        "adam_beta2": job.adam_betas[1],
        "decay_method": "noam",
        "warmup_steps": job.warmup_steps,
        "learning_rate": 2.0,
        "max_grad_norm": job.clip_norm,
        "label_smoothing": job.label_smoothing,
    }


def joeynmt(job: ToolkitJob) -> dict[str, Any]:
    """Write JoeyNMT's config; JoeyNMT reads raw text and tokenizes it with our SentencePiece model."""
    pieces = {
        "max_length": job.max_length,
        "level": "bpe",
        "voc_file": VOCABULARY,
        "tokenizer_type": "sentencepiece",
        "tokenizer_cfg": {"model_file": SENTENCEPIECE_MODEL, "pretokenizer": "none"},
    }
    half = {
        "type": "transformer",
        "num_layers": job.num_layers,
        "num_heads": job.num_heads,
        "hidden_size": job.width,
        "ff_size": job.hidden_width,
        "dropout": job.dropout,
        "layer_norm": "pre",
        "embeddings": {"embedding_dim": job.width, "scale": True, "dropout": job.dropout},
    }
    names = dict(zip(("unk_token", "pad_token", "bos_token", "eos_token"), SPECIAL, strict=True))
    places = {"unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3}
    return {
        "name": "bench",
        "model_dir": OUTPUT,
        "use_cuda": False,
        "fp16": False,
        "random_seed": job.seed,
        "data": {
            "train": "train",
            "dev": "few",
            "dataset_type": "plain",
            "src": {"lang": "de", **pieces},
            "trg": {"lang": "en", **pieces},
            "special_symbols": {**names, **places},
        },
        "testing": {"beam_size": 1, "batch_size": 64, "batch_type": "sentence", "eval_metrics": ["bleu"]},
        "training": {
            "optimizer": "adam",
            "adam_betas": list(job.adam_betas),
            "learning_rate": job.learning_rate,
            "learning_rate_warmup": job.warmup_steps,
            "scheduling": "warmupinversesquareroot",
            "clip_grad_norm": job.clip_norm,
            "label_smoothing": job.label_smoothing,
            "loss": "crossentropy",
            "batch_size": job.tokens_per_batch,
            "batch_type": "token",
            "normalization": "tokens",
            "epochs": 1000,
            "updates": job.steps,
            "validation_freq": 1_000_000,
            "logging_freq": job.report_every,
            "early_stopping_metric": "bleu",
            "shuffle": True,
            "overwrite": True,
            "print_valid_sents": [0],
        },
        "model": {
            "initializer": "xavier_uniform",
            "bias_initializer": "zeros",
            "embed_initializer": "xavier_uniform",
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": half,
            "decoder": half,
        },
    }
