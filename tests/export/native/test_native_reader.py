"""Text encoders in the native library: each kind of them, on each set of kernels, beside torch in float64."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import nn

from exports import classifier, documents, encoder, sentences, tagger, texts
from saccade.errors import UserError
from saccade.export.choice import AUTO, EngineChoice
from saccade.export.engine import use_engine
from saccade.export.native import pack
from saccade.export.native.chain import NativeChain
from saccade.export.native.library import list_kernels
from saccade.export.native.reader import Encoder, NativeReader, find_encoders, refuse_network, replace_encoders
from saccade.inspection.record import recording
from saccade.layers.crf import LinearChain
from saccade.layers.pooling import AttentionPooling
from saccade.models.classifier import DocumentReader
from saccade.models.text_encoder import BagEncoder, RecurrentTextEncoder, TransformerTextEncoder
from saccade.models.transformer import BlockSizes, Dropouts
from saccade.tasks.classify.predictor import Classifier
from saccade.tasks.tag.predictor import Tagger

WIDTH = 24
SIZES = BlockSizes(WIDTH, 3, 40, dropouts=Dropouts(0.0))
BLOCKS: list[dict[str, Any]] = [
    {},
    {"norm": "post", "activation": "gelu"},
    {"activation": "swiglu", "positions": "rotary"},
    {"positions": "learned", "norm": "post"},
    {"positions": "relative", "score": "general"},
    {"window": 2},
]
CELLS: list[dict[str, Any]] = [
    {"cell": "gru"},
    {"cell": "lstm", "num_layers": 2},
    {"cell": "rnn", "direction": "forward"},
    {"cell": "lstm", "direction": "backward", "num_layers": 3},
]
LENGTHS = torch.tensor([7, 1, 23, 5])


def blocks(input_width: int, **changed: Any) -> TransformerTextEncoder:
    return TransformerTextEncoder(input_width, SIZES._replace(**changed), max_length=64)


def cells(input_width: int, **given: Any) -> RecurrentTextEncoder:
    return RecurrentTextEncoder(input_width, WIDTH, **given)


def read_with(reading: Encoder, folder: Path, quantization: str = "float32", **how: Any) -> NativeReader:
    path = folder / f"{quantization}.bin"
    pack.write(reading, path, quantization)
    return NativeReader(reading, path, **how)


def differ(reader: NativeReader, exact: Encoder, x_BSD: torch.Tensor, length_B: torch.Tensor) -> float:
    real_BS = torch.arange(x_BSD.shape[1]) < length_B[:, None]
    ours, theirs = exact(x_BSD.double(), length_B), reader(x_BSD, length_B)
    assert not theirs.memory_BSD[~real_BS].any()
    apart = (ours.memory_BSD[real_BS] - theirs.memory_BSD[real_BS]).abs().max()
    return float(torch.maximum(apart, (ours.last_BD - theirs.last_BD).abs().max()))


@pytest.mark.parametrize("kernels", list_kernels())
@pytest.mark.parametrize("input_width", [WIDTH, 37])
@pytest.mark.parametrize("kind", [*BLOCKS, *CELLS], ids=str)
@torch.inference_mode()
def test_vectors_are_those_of_the_encoder(tmp_path: Path, kind: dict[str, Any], input_width: int, kernels: str) -> None:
    torch.manual_seed(3)
    reading = (cells if "cell" in kind else blocks)(input_width, **kind)
    for weight in reading.parameters():
        weight.add_(torch.randn_like(weight) * 0.1)  # biases and norms that are not as they began
    x_BSD, exact = torch.randn(4, 23, input_width), copy.deepcopy(reading).double()
    for quantization, least, most in (("float32", 0, 1e-5), ("int8", 1e-5, 0.3)):
        reader = read_with(reading, tmp_path, quantization, kernels=kernels, threads=2)
        assert least <= differ(reader, exact, x_BSD, LENGTHS) < most


@torch.inference_mode()
def test_many_texts_are_read_as_each_by_itself(tmp_path: Path) -> None:
    """More steps than are read together; company and threads change no bit."""
    torch.manual_seed(3)
    for reading in (blocks(37), cells(37, cell="gru", num_layers=2)):
        length_B = torch.arange(1, 62)
        x_BSD = torch.randn(61, 61, 37)
        whole = read_with(reading, tmp_path, threads=3)(x_BSD, length_B)
        alone = read_with(reading, tmp_path, threads=1)
        for row in (0, 33, 60):
            own = alone(x_BSD[row : row + 1, : row + 1], length_B[row : row + 1])
            assert torch.equal(own.memory_BSD[0], whole.memory_BSD[row, : row + 1])
            assert torch.equal(own.last_BD[0], whole.last_BD[row])


def test_the_encoder_itself_reads_where_more_is_asked(tmp_path: Path) -> None:
    """Gradients, recorded attention, other precisions, empty texts and more steps than there are positions."""
    torch.manual_seed(3)
    reader = read_with(blocks(WIDTH, positions="learned").eval(), tmp_path)
    x_BSD = torch.randn(4, 23, WIDTH, requires_grad=True)
    reader(x_BSD, LENGTHS).memory_BSD.sum().backward()
    assert x_BSD.grad is not None
    with torch.no_grad():
        with recording(reader, kinds=("encoder",)) as record:
            reader(x_BSD, LENGTHS)
        assert record.weights("encoder").shape == (2, 4, 3, 23, 23)
        assert not reader._can_read(x_BSD.double(), LENGTHS)
        assert not reader._can_read(x_BSD, LENGTHS - 1)
        assert reader._can_read(x_BSD, LENGTHS)
        with pytest.raises(ValueError, match="learned positions end at 64"):
            reader(torch.randn(1, 65, WIDTH), torch.tensor([65]))


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The library stays where it was built; packed models lie in a folder of the test."""
    folder = tmp_path / "packed"
    monkeypatch.setattr(pack, "cache_folder", lambda: folder)
    return folder / "packed"


@pytest.mark.parametrize("kind", ["gru", "transformer"])
def test_classifiers_answer_as_torch_does(cached: Path, kind: str) -> None:
    torch.manual_seed(3)
    ours = classifier(read := encoder(kind), AttentionPooling(read.width))
    native = use_engine(ours, EngineChoice("native"))
    assert isinstance(native, Classifier)
    assert (ours.engine, native.engine) == ("torch", "native")
    assert len(list(cached.glob("*.bin"))) == len(list(cached.glob("*.checked"))) == 1
    for one, other in zip(ours.predict(texts()), native.predict(texts()), strict=True):
        assert other.label == one.label
        assert other.probabilities == pytest.approx(one.probabilities, abs=1e-5)
    (seen,) = native.look(["a b c"], kinds=("pooling",))
    assert seen.answer.line() == native.predict(["a b c"])[0].line()
    assert classifier_parts(native) == [NativeReader]


@pytest.mark.usefixtures("cached")
def test_documents_have_two_encoders() -> None:
    torch.manual_seed(3)
    reader = DocumentReader(over := encoder("lstm", 14), AttentionPooling(over.width))
    ours = classifier(read := encoder("gru"), AttentionPooling(read.width), document=reader, max_sentences=9)
    native = cast(Classifier, use_engine(ours, EngineChoice("native", "int8")))
    assert classifier_parts(native) == [NativeReader, NativeReader]
    found = zip(ours.predict(documents()), native.predict(documents()), strict=True)
    assert sum(one.label == other.label for one, other in found) >= len(documents()) - 2  # 8 bits


def classifier_parts(found: Classifier) -> list[type]:
    return [type(module) for module in found.network.modules() if isinstance(module, NativeReader)]


@pytest.mark.parametrize("options", [{}, {"kind": "transformer", "documents": True}], ids=str)
def test_taggers_answer_as_torch_does(cached: Path, options: dict[str, Any]) -> None:
    torch.manual_seed(3)
    ours = tagger(**options)
    native = cast(Tagger, use_engine(ours, AUTO))
    assert native.engine == "native"
    assert len(list(cached.glob("*.bin"))) == 1 + ("documents" in options)
    for one, other in zip(ours.predict(sentences()), native.predict(sentences()), strict=True):
        assert other.tags == one.tags
        assert other.log_probability == pytest.approx(one.log_probability, abs=1e-4)


@torch.no_grad()
def test_paths_are_those_of_the_chain() -> None:
    torch.manual_seed(3)
    table = (torch.rand(12, 12) > 0.3).tolist()
    chain = LinearChain(11, allowed=table)
    chain.transition.normal_()
    emission_BTV, native = torch.randn(4, 23, 11) * 3, NativeChain(chain)
    tag_BT, score_B = chain.best(emission_BTV, LENGTHS)
    found_BT, found_B = native.best(emission_BTV, LENGTHS)
    assert torch.equal(tag_BT, found_BT)
    assert torch.equal(score_B, found_B)
    exact_B = chain.double().log_partition(emission_BTV.double(), LENGTHS)
    chain.float()
    assert torch.allclose(native.log_partition(emission_BTV, LENGTHS).double(), exact_B, atol=1e-5)
    assert torch.allclose(
        native.log_probability(emission_BTV, tag_BT, LENGTHS),
        chain.log_probability(emission_BTV, tag_BT, LENGTHS),
        atol=1e-4,
    )
    assert torch.equal(native.marginals(emission_BTV, LENGTHS), chain.marginals(emission_BTV, LENGTHS))
    with torch.enable_grad():
        assert native.log_partition(emission_BTV.requires_grad_(), LENGTHS).requires_grad


def test_what_it_can_not_do_is_refused() -> None:
    ours = classifier(BagEncoder(read := 16), AttentionPooling(read))
    assert use_engine(ours, AUTO) is ours
    with pytest.raises(UserError, match="native can't run this model: a model without a recurrent or self-attentive"):
        use_engine(ours, EngineChoice("native"))
    with pytest.raises(UserError, match="shortlist: given, but this model writes no text"):
        use_engine(tagger(), EngineChoice("native", shortlist=Path("some")))
    with pytest.raises(UserError, match="models of this task are run by torch alone"):
        use_engine(tagger(), EngineChoice("onnx"))


@pytest.mark.usefixtures("cached")
def test_a_wrong_library_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(reader: NativeReader, row_NI: torch.Tensor, length_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(len(row_NI), reader.width), torch.zeros(len(length_B), reader.width)

    monkeypatch.setattr(NativeReader, "_read", wrong)
    with pytest.raises(UserError, match=r"vectors differ by 1\.0e"):
        use_engine(tagger(), EngineChoice("native"))
    with pytest.warns(UserWarning, match="auto takes torch, which is slower"):
        assert use_engine(ours := tagger(), AUTO) is ours


def test_encoders_are_found_and_replaced_in_a_copy(tmp_path: Path) -> None:
    torch.manual_seed(3)
    network = nn.ModuleDict({"encoder": cells(5), "inner": nn.ModuleDict({"encoder": blocks(WIDTH)})})
    other = replace_encoders(network, lambda found: read_with(found, tmp_path))
    assert [place.name for place in find_encoders(network)] == ["encoder", "encoder"]
    readers = [module for module in other.modules() if isinstance(module, NativeReader)]
    assert [type(reader.encoder) for reader in readers] == [RecurrentTextEncoder, TransformerTextEncoder]
    assert [reader.input_width for reader in readers] == [5, WIDTH]
    assert refuse_network(network) is None
    assert "without a recurrent or self-attentive encoder" in str(refuse_network(nn.ModuleList([BagEncoder(5)])))
    assert "entmax" in str(refuse_network(nn.ModuleList([blocks(WIDTH, normalizer="entmax15")])))
