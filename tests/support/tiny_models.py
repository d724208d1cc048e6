"""Tiny models of Hugging Face with random weights, and tokenizers for them, made without any file."""

from __future__ import annotations

import string
from typing import Any, cast

import torch

from marian import list_pieces, spm

WORDS = ["the", "old", "cat", "sleeps", "in", "a", "house", "and", "dog", "sees", "her"]


def word_pieces() -> Any:
    """Return a tokenizer of BERT's kind: whole words, and letters that go on (##a)."""
    from transformers import BertTokenizer

    letters = [sign + letter for letter in string.ascii_lowercase + "." for sign in ("", "##")]
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters]
    return BertTokenizer(vocab={name: number for number, name in enumerate(dict.fromkeys(names))})


def byte_pieces() -> Any:
    """Return a tokenizer of GPT-2's kind: all bytes, and words with their space (Ġcat)."""
    from transformers import GPT2Tokenizer
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    merges, names = list[tuple[str, str]](), list(bytes_to_unicode().values())
    for word in WORDS:
        made = "Ġ"
        for letter in word:
            merges.append((made, letter))
            made += letter
    names += ["".join(merge) for merge in merges]
    names = [*dict.fromkeys([*names, "<|endoftext|>"])]
    vocabulary = {name: number for number, name in enumerate(names)}
    return cast(Any, GPT2Tokenizer)(vocab=vocabulary, merges=list(dict.fromkeys(merges)))


def scored_pieces() -> Any:
    """Return a tokenizer of T5's kind: pieces with scores."""
    from transformers import T5Tokenizer

    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((name, -3.0) for name in list_pieces(spm("target")))]
    return T5Tokenizer(vocab=pieces, extra_ids=2)


def make(kind: str, **more: Any) -> tuple[Any, Any]:
    """Return a model with random weights, and its tokenizer. All its attentions differ from uniform weights."""
    import transformers

    torch.manual_seed(1)
    fields: dict[str, Any] = {"attn_implementation": "eager", **more}
    if kind.startswith("Bert"):
        tokenizer = word_pieces()
        sizes: dict[str, Any] = {
            "hidden_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "intermediate_size": 20,
        }
        labels: Any = (
            {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}} if "Sequence" in kind else {}
        )
        config: Any = transformers.BertConfig(
            vocab_size=len(tokenizer), max_position_embeddings=40, **sizes, **labels, **fields
        )
    elif kind.startswith("GPT2"):
        tokenizer = byte_pieces()
        end = tokenizer.eos_token_id
        config = transformers.GPT2Config(
            vocab_size=len(tokenizer), n_positions=40, n_embd=24, n_layer=2, n_head=3,
            bos_token_id=end, eos_token_id=end, **fields,
        )  # fmt: skip
    else:
        tokenizer = scored_pieces()
        config = cast(Any, transformers.T5Config)(
            vocab_size=len(tokenizer), d_model=24, d_kv=8, d_ff=20, num_layers=2, num_heads=3,
            decoder_start_token_id=0, pad_token_id=0, eos_token_id=1, dropout_rate=0.1, **fields,
        )  # fmt: skip
    model = getattr(transformers, kind)(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=1.5 * parameter.shape[1] ** -0.5)
    return model.eval(), tokenizer
