"""Writes a model's graphs, and what a program needs to know of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from torch import nn

from saccade.attention.positions import Learned
from saccade.attention.scores import Location
from saccade.data.text.tokenizer import END, PAD, START, UNKNOWN, Vocabulary, tokenizer_file_name
from saccade.export.ctranslate2 import spell_vocabulary
from saccade.export.onnx import recurrent, transformer
from saccade.models.seq2seq import Seq2Seq
from saccade.models.transformer import Transformer
from saccade.tasks.base import Portable

ENCODER, DECODER, CONFIG = "encoder.onnx", "decoder.onnx", "config.json"


def refuse(portable: Portable) -> str | None:
    """Say what of a model the graphs can't say."""
    network = portable.network
    if isinstance(network, Seq2Seq):
        return recurrent.refuse(network)
    return transformer.refuse(network.sizes) if isinstance(network, Transformer) else type(network).__name__


def find_longest(network: nn.Module) -> int | None:
    """Return the number of steps that the graphs read; None: any number."""
    if isinstance(network, Transformer):
        return len(network.positions.table) if isinstance(network.positions, Learned) else None
    locations = [module.max_length for module in network.modules() if isinstance(module, Location)]
    return min(locations, default=None)


def write(portable: Portable, folder: Path, quantization: str) -> Mapping[str, object]:
    """Write both graphs, what a program needs to know of them, and the tokenizers."""
    del quantization
    network = portable.network
    if isinstance(network, Seq2Seq):
        graphs, shape = (recurrent.make_encoder(network), recurrent.make_decoder(network)), {"layers": 1, "heads": 1}
    else:
        assert isinstance(network, Transformer)
        graphs = transformer.make_encoder(network), transformer.make_decoder(network)
        shape = {"layers": len(network.decoder), "heads": network.sizes.num_heads}
    for name, graph in zip((ENCODER, DECODER), graphs, strict=True):
        (folder / name).write_bytes(graph)
    config = {
        **shape,
        "pad": PAD,
        "start": START,
        "end": END,
        "unknown": UNKNOWN,
        "longest": find_longest(network),
        "source": spell_vocabulary(portable.source),
        "target": spell_vocabulary(portable.target),
    }
    (folder / CONFIG).write_text(json.dumps(config, ensure_ascii=False), "utf-8")
    for side, tokenizer in (("source", portable.source), ("target", portable.target)):
        kind = tokenizer.kind if isinstance(tokenizer, Vocabulary) else "sentencepiece"
        tokenizer.save(folder / tokenizer_file_name(kind, f"tokenizer.{side}"))
    return {"longest": find_longest(network)}
