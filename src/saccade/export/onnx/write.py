"""Writes a model's graphs, and what a program needs to know of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from saccade.attention.positions import Learned
from saccade.attention.scores import Location
from saccade.data.text.tokenizer import END, PAD, START, UNKNOWN, Tokenizer, tokenizer_file_name
from saccade.export.ctranslate2 import spell_vocabulary
from saccade.export.onnx import captioner, recurrent, transformer
from saccade.export.onnx.classifier import make_classifier
from saccade.export.onnx.tagger import make_tagger
from saccade.layers.clip_encoder import ClipEncoder
from saccade.models.captioner import Captioner
from saccade.models.classifier import TextClassifier
from saccade.models.seq2seq import Seq2Seq
from saccade.models.tagger import TagNetwork
from saccade.models.transformer import Transformer
from saccade.tasks.base import Portable, PortablePass

ENCODER, DECODER, MODEL, CONFIG = "encoder.onnx", "decoder.onnx", "model.onnx", "config.json"
GRAPHS: dict[type[nn.Module], Mapping[str, Callable[[Any], bytes]]] = {
    Transformer: {ENCODER: transformer.make_encoder, DECODER: transformer.make_decoder},
    Seq2Seq: {ENCODER: recurrent.make_encoder, DECODER: recurrent.make_decoder},
    Captioner: {ENCODER: captioner.make_encoder, DECODER: captioner.make_decoder},
    TextClassifier: {MODEL: make_classifier},
    TagNetwork: {MODEL: make_tagger},
}


def refuse(portable: Portable | PortablePass) -> str | None:
    """Say what of a model the graphs can't say."""
    network = portable.network
    if isinstance(network, Transformer | Seq2Seq) and not isinstance(network.source, nn.Embedding):
        return "input: sound (a program without torch would have to make the same features of it)"
    return None if type(network) in GRAPHS else type(network).__name__


def find_longest(network: nn.Module) -> int | None:
    """Return the number of steps that the graphs read; None: any number."""
    limits = [module.max_length for module in network.modules() if isinstance(module, Location)]
    limits += [len(module.table) for module in network.modules() if isinstance(module, Learned)]
    return min(limits, default=None)


def write(portable: Portable | PortablePass, folder: Path, quantization: str) -> Mapping[str, object]:
    """Write the graphs, what a program needs to know of them, and the tokenizers."""
    network = portable.network
    for name, make in GRAPHS[type(network)].items():
        (folder / name).write_bytes(make(network))
        if quantization == "int8":
            _quantize(folder / name)
    tokenizers, facts = _read(portable)
    longest = find_longest(network)
    names = {side: spell_vocabulary(tokenizer) for side, tokenizer in tokenizers.items()}
    ids = {"pad": PAD, "start": START, "end": END, "unknown": UNKNOWN}
    config = {**facts, **ids, "longest": longest, **names}
    (folder / CONFIG).write_text(json.dumps(config, ensure_ascii=False), "utf-8")
    for side, tokenizer in tokenizers.items():
        kind = getattr(tokenizer, "kind", "sentencepiece")
        tokenizer.save(folder / tokenizer_file_name(kind, f"tokenizer.{side}"))
    return {"longest": longest}


def _quantize(path: Path) -> None:
    """Store the matrices of a graph as bytes, a scale for each column; what they are multiplied by is rounded, too."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(path).graph
    matrices = {stored.name for stored in graph.initializer if len(stored.dims) == 2}  # those of heads have no scales
    chosen = [node.name for node in graph.node if node.op_type == "MatMul" and node.input[1] in matrices]
    logging.disable(logging.WARNING)  # it asks for a preparation that these graphs don't need
    try:
        quantize_dynamic(
            path,
            path,
            op_types_to_quantize=["MatMul"],
            nodes_to_quantize=chosen,
            per_channel=True,
            weight_type=QuantType.QInt8,
        )
    finally:
        logging.disable(logging.NOTSET)


def _read(portable: Portable | PortablePass) -> tuple[Mapping[str, Tokenizer], Mapping[str, Any]]:
    """Return the tokenizers by their sides, and what is said of the model."""
    if not isinstance(portable, Portable):
        return portable.tokenizers, portable.facts
    network, sides = portable.network, {"target": portable.target}
    if isinstance(network, Captioner):
        rows, columns = network.encoder.shape
        frames = {"frames": network.encoder.num_frames} if isinstance(network.encoder, ClipEncoder) else {}
        return sides, {"reads": "numbers", "rows": rows, "columns": columns, **frames}
    heads = (len(network.decoder), network.sizes.num_heads) if isinstance(network, Transformer) else (1, 1)
    return {"source": portable.source, **sides}, {"layers": heads[0], "heads": heads[1]}
