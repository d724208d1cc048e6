"""An RNN encoder-decoder for the native library: its sizes and its matrices, in the order of csrc/model.c."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn

from saccade.attention.normalizers import Softmax
from saccade.attention.scores import Additive, Dot, General, ScaledDot
from saccade.export.projections import Affine, read_affine
from saccade.layers.recurrent.layers import Recurrent
from saccade.models.seq2seq import BahdanauDecoder, LuongDecoder, PlainDecoder, Seq2Seq
from saccade.models.text_encoder import RecurrentTextEncoder

KIND_OF_READERS = 6  # csrc/native.h has it, too
CELLS = ("RNN_TANH", "GRU", "LSTM")
SCORES = (type(None), Dot, ScaledDot, General, Additive)


def refuse(network: Seq2Seq) -> str | None:
    """Say what of an RNN the library can't run; None if it can run all."""
    if isinstance(network.decoder, PlainDecoder):
        return None
    aligner = network.decoder.aligner
    if not isinstance(aligner.score, SCORES):
        return f"an RNN whose score is {type(aligner.score).__name__} (it has dot, scaled_dot, general and additive)"
    if not isinstance(aligner.normalizer, Softmax):
        return f"an RNN whose normalizer is {type(aligner.normalizer).__name__} (it has softmax)"
    if aligner.radius is not None or aligner.local is not None:
        return "an RNN with local attention"
    return None


def list_sizes(network: Seq2Seq) -> dict[str, int]:
    """Return the sizes of the file's header that an RNN has; vectors are as wide as embeddings."""
    cells, decoder = network.decoder.layers.cells, network.decoder
    score = None if isinstance(decoder, PlainDecoder) else decoder.aligner.score
    kind = 1 if isinstance(decoder, PlainDecoder) else 2 if isinstance(decoder, BahdanauDecoder) else 3
    encoder = network.encoder
    return {
        "width": network.target.embedding_dim,
        "num_heads": 1,
        "hidden": cells.hidden_size,
        "num_encoder": encoder.layers.cells.num_layers,
        "num_decoder": cells.num_layers,
        "window": -1,
        "kind": kind + (isinstance(decoder, LuongDecoder) and decoder.fed_width > 0),
        "cell": CELLS.index(cells.mode),
        "direction": 2 if encoder.layers.cells.bidirectional else int(encoder.from_the_end),
        "score": SCORES.index(type(score)),
    }


def list_reader(encoder: RecurrentTextEncoder) -> dict[str, int]:
    """Return the sizes of the header that the encoder of a classifier or a tagger has."""
    cells = encoder.layers.layers.cells
    return {
        "width": cells.input_size,
        "input": cells.input_size,
        "num_heads": 1,
        "hidden": encoder.width,
        "num_encoder": cells.num_layers,
        "window": -1,
        "kind": KIND_OF_READERS,
        "cell": CELLS.index(cells.mode),
        "direction": 2 if cells.bidirectional else int(encoder.layers.from_the_end),
    }


def list_matrices(network: Seq2Seq) -> Iterator[Affine | Tensor]:
    """Yield matrices with their biases, and the vector of an additive score."""
    decoder = network.decoder
    yield from list_cells(network.encoder.layers)
    if isinstance(decoder, BahdanauDecoder):
        yield read_affine(decoder.bridge)
    if not isinstance(decoder, PlainDecoder):
        score = decoder.aligner.score
        if isinstance(score, General):
            yield _without_bias(score.W)
        elif isinstance(score, Additive):
            yield Affine(score.U.detach().float(), score.b.detach().float())
            yield _without_bias(score.W)
            yield score.v.detach().float()
    yield from list_cells(decoder.layers)
    yield read_affine(decoder.combine if isinstance(decoder, LuongDecoder) else decoder.readout)


def list_cells(layers: Recurrent) -> Iterator[Affine]:
    """Yield W, b and U, b of each layer and direction."""
    for input_weight, hidden_weight, input_bias, hidden_bias in cast(list[list[Tensor]], layers.cells.all_weights):
        yield Affine(input_weight.detach().float(), input_bias.detach().float())
        yield Affine(hidden_weight.detach().float(), hidden_bias.detach().float())


def _without_bias(weight: nn.Parameter | Tensor) -> Affine:
    return Affine(weight.detach().float(), torch.zeros(len(weight)))
