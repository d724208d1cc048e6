"""The native library's steps: each set of kernels that runs here, beside torch in float64."""

from __future__ import annotations

import copy
import multiprocessing
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from exports import SOURCE, TARGET, portable, recurrent, transformer
from saccade.data.batches import decoder_input, pad_sources
from saccade.errors import UserError
from saccade.export.native import pack
from saccade.export.native.engine import NativeEngine
from saccade.export.native.library import list_kernels
from saccade.export.onnx.runtime import OnnxEngine
from saccade.export.onnx.write import write as write_onnx
from saccade.export.proof import max_difference

KINDS: list[dict[str, Any]] = [
    {},
    {"norm": "post"},
    {"activation": "gelu"},
    {"activation": "silu"},
    {"activation": "swiglu", "norm": "post"},
    {"positions": "learned"},
    {"positions": "sinusoidal_halves", "norm": "post"},
    {"positions": "rotary"},
    {"positions": "relative", "tied": "none"},
    {"window": 3},
    {"window": 0, "positions": "relative"},
    {"score": "general"},
    {"score": "dot", "positions": "rotary", "norm": "post"},
    {"width": 128, "num_heads": 2, "hidden_width": 100},
    {"width": 96, "num_heads": 1, "hidden_width": 64},
    {"width": 160, "num_heads": 5, "hidden_width": 130, "positions": "rotary", "activation": "swiglu"},
]
RECURRENT: list[dict[str, Any]] = [
    {"attention": "none"},
    {"attention": "none", "cell": "lstm", "layers": 2, "direction": "backward"},
    {},
    {"cell": "lstm", "layers": 2},
    {"cell": "rnn", "layers": 3, "options": {"score": "general"}, "share_output": False},
    {"attention": "luong", "options": {"score": "scaled_dot"}, "direction": "forward"},
    {"attention": "luong", "cell": "lstm", "layers": 2, "options": {"score": "dot"}, "feeds_input": False},
    {"attention": "luong", "cell": "lstm", "direction": "backward"},
]
KERNELS = list_kernels()


def draw_ids(count: int, size: int, longest: int, seed: int) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(3, size) for _ in range(draw.randint(1, longest))] for _ in range(count)]


def open_packed(network: pack.Searchable, folder: Path, quantization: str = "float32", **how: Any) -> NativeEngine:
    path = folder / f"{quantization}.bin"
    pack.write(network, path, quantization)
    return NativeEngine(network, path, **how)


def score(network: Any, sources: list[list[int]], targets: list[list[int]]) -> list[list[float]]:
    """Score one pair after the other."""
    found = []
    for source, target in zip(sources, targets, strict=True):
        (step_TV,) = network.logits(network(*pad_sources([source]), decoder_input([target]))).log_softmax(-1)
        found.append([float(step_V[number]) for step_V, number in zip(step_TV, [*target, 2], strict=True)])
    return found


def flat(rows: Sequence[Sequence[float]]) -> list[float]:
    return [step for row in rows for step in row]


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@torch.inference_mode()
def test_log_probabilities_are_those_of_the_model(tmp_path: Path, kind: dict[str, Any], kernels: str) -> None:
    torch.manual_seed(3)
    network = transformer(**kind)
    sources, targets = draw_ids(9, SOURCE.size, 29, 1), draw_ids(9, TARGET.size, 25, 2)
    expected = flat(score(network.double(), sources, targets))
    network = network.float()
    for quantization, most in (("float32", 1e-5), ("int8", 0.15)):
        engine = open_packed(network, tmp_path, quantization, kernels=kernels, threads=2)
        assert max_difference(expected, flat(engine.log_probabilities(sources, targets))) < most
    exact = max_difference(expected, flat(engine.log_probabilities(sources, targets)))
    assert exact > 1e-5  # 8 bits are no 32


@torch.inference_mode()
def test_far_positions_are_exact(tmp_path: Path) -> None:
    """With angles in float32, log p differs by 1.6e-5 here."""
    torch.manual_seed(3)
    network = transformer()
    sources, targets = [[5, 6, 7]], [[4 + step * step % (TARGET.size - 4) for step in range(1500)]]
    expected = flat(score(copy.deepcopy(network).double(), sources, targets))
    write_onnx(portable(network), tmp_path, "float32")
    for engine in (open_packed(network, tmp_path), OnnxEngine(portable(network), tmp_path)):
        assert max_difference(expected, flat(engine.log_probabilities(sources, targets))) < 5e-6


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("kind", RECURRENT, ids=str)
@torch.inference_mode()
def test_log_probabilities_are_those_of_an_rnn(tmp_path: Path, kind: dict[str, Any], kernels: str) -> None:
    torch.manual_seed(3)
    network = recurrent(**kind)
    sources, targets = draw_ids(9, SOURCE.size, 29, 1), draw_ids(9, TARGET.size, 25, 2)
    expected = flat(score(network.double(), sources, targets))
    network = network.float()
    for quantization, least, most in (("float32", 0.0, 1e-5), ("int8", 1e-5, 0.6)):
        engine = open_packed(network, tmp_path, quantization, kernels=kernels, threads=2)
        assert least < max_difference(expected, flat(engine.log_probabilities(sources, targets))) < most


BITS: list[Callable[[], pack.Searchable]] = [
    lambda: transformer(width=128, num_heads=4, hidden_width=200, positions="rotary", activation="swiglu"),
    lambda: recurrent(layers=2),
    lambda: recurrent("luong", cell="lstm", options={"score": "general"}),
]


@pytest.mark.parametrize("make", BITS)
@pytest.mark.parametrize("quantization", ["float32", "int8"])
@torch.inference_mode()
def test_a_sentence_depends_on_nothing_else(
    tmp_path: Path, quantization: str, make: Callable[[], pack.Searchable]
) -> None:
    """Its numbers are the same bits alone or in a batch, with any number of threads, and with any vector kernels."""
    torch.manual_seed(4)
    network = make()
    sources, targets = draw_ids(23, SOURCE.size, 40, 1), draw_ids(23, TARGET.size, 30, 2)
    engines = [
        open_packed(network, tmp_path, quantization, kernels=kernels, threads=threads)
        for kernels in KERNELS
        for threads in (1, 2, 3)
        if kernels != "plain"
    ]
    expected = engines[0].log_probabilities(sources, targets)
    alone = [engines[0].log_probabilities([one], [other])[0] for one, other in zip(sources, targets, strict=True)]
    assert alone == expected
    for engine in engines[1:]:
        assert engine.log_probabilities(sources, targets) == expected


@pytest.mark.parametrize("make", [transformer, recurrent, partial(recurrent, "luong", cell="lstm")])
@torch.inference_mode()
def test_a_state_may_be_advanced_again(tmp_path: Path, make: Callable[[], Any]) -> None:
    """Rows that are taken twice, or left, keep their own past."""
    torch.manual_seed(5)
    network = make()
    engine = open_packed(network, tmp_path)
    given = pad_sources([[4, 5, 6], [7, 8]])
    _, state = engine.advance(engine.start(*given), torch.tensor([[1, 4], [1, 5]]))
    rows = state.rows(torch.tensor([1, 0, 1]))
    first, _ = engine.advance(rows, torch.tensor([[4], [5], [6]]))
    again, _ = engine.advance(state, torch.tensor([[7], [6]]))
    last, _ = engine.advance(rows, torch.tensor([[4], [5], [6]]))
    assert torch.equal(first, last)
    _, theirs = network.advance(network.start(*given), torch.tensor([[1, 4], [1, 5]]))
    expected, _ = network.advance(theirs.rows(torch.tensor([1, 0, 1])), torch.tensor([[4], [5], [6]]))
    assert torch.allclose(first, expected, atol=1e-5)
    assert torch.allclose(again, network.advance(theirs, torch.tensor([[7], [6]]))[0], atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Python 3.12: a process with threads forks
def test_a_process_that_forks_has_threads_of_its_own(tmp_path: Path) -> None:
    network = transformer()
    engine = open_packed(network, tmp_path, threads=2)
    sources, targets = draw_ids(5, SOURCE.size, 9, 1), draw_ids(5, TARGET.size, 9, 2)
    expected = engine.log_probabilities(sources, targets)
    told = multiprocessing.get_context("fork").Pool(1)
    with told as pool:
        found = pool.apply_async(engine.log_probabilities, (sources, targets)).get(60)
    assert found == expected == engine.log_probabilities(sources, targets)


def test_ids_beyond_the_tables_are_refused(tmp_path: Path) -> None:
    engine = open_packed(transformer(positions="learned"), tmp_path)
    for ids in ([99], [-1], []):
        with pytest.raises(ValueError, match=r"source: .* given; ids are from 0 to 14"):
            engine.check_ids([ids])
    state = engine.start(*pad_sources([[4]]))
    with pytest.raises(ValueError, match="target: ids from 1 to 11 given; allowed: below 11"):
        engine.advance(state, torch.tensor([[1, 11]]))
    with pytest.raises(ValueError, match="positions: 65 steps given; learned positions end at 64"):
        engine.advance(state, torch.full((1, 65), 4))
    with pytest.raises(ValueError, match="source: 65 steps given"):
        engine.start(torch.full((1, 65), 4), torch.tensor([65]))


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ({"score": "additive"}, "model.score: additive is no dot product"),
        ({"score": "general", "positions": "rotary"}, "general with rotary"),
        ({"normalizer": "entmax15"}, "entmax15 is no softmax"),
    ],
)
def test_what_it_cannot_run_has_a_reason(kind: dict[str, Any], why: str) -> None:
    assert why in str(pack.refuse(transformer(**kind)))


@pytest.mark.parametrize(
    ("network", "why"),
    [
        (partial(recurrent, options={"score": "cosine"}), "an RNN whose score is Cosine"),
        (partial(recurrent, options={"normalizer": "sparsemax"}), "an RNN whose normalizer is Sparsemax"),
        (partial(recurrent, options={"scope": "local_p"}), "an RNN with local attention"),
        (partial(recurrent, "luong", options={"scope": "local_m"}), "an RNN with local attention"),
        (nn.Linear, "a Linear (it runs Transformers and RNNs that read and write texts)"),
    ],
)
def test_which_rnns_it_cannot_run(network: Callable[..., nn.Module], why: str) -> None:
    sizes = (2, 3) if network is nn.Linear else ()
    assert why in str(pack.refuse(network(*sizes)))


def damage(data: bytearray, how: str) -> bytes:
    if how == "cut":
        return bytes(data[:-64])
    if how == "short":
        return bytes(data[:40])
    if how == "more":
        return bytes(data + bytes(64))
    if how == "other":
        return b"PK" + bytes(data[2:])
    at = {"flipped": len(data) // 2, "version": 8, "width": 8 + 3 * 8 + 1, "heads": 8 + 4 * 8, "layers": 8 + 7 * 8}[how]
    data[at] ^= 0x41
    return bytes(data)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("cut", "it was cut short, or something was added"),
        ("short", "it is too short"),
        ("more", "it was cut short, or something was added"),
        ("other", "it is no packed model"),
        ("flipped", "its bytes are not those that were written"),
        ("version", "it was packed by another version"),
        ("width", "its sizes"),
        ("heads", "its sizes"),
        ("layers", "its sizes don't fit its length"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, how: str, why: str) -> None:
    network, path = transformer(), tmp_path / "packed.bin"
    pack.write(network, path, "int8")
    path.write_bytes(damage(bytearray(path.read_bytes()), how))
    with pytest.raises(UserError, match=f"packed.bin: this packed model can't be used, .*{why}"):
        NativeEngine(network, path)


@pytest.mark.parametrize("make", [transformer, recurrent])
def test_every_header_is_read_without_harm(tmp_path: Path, make: Callable[[], pack.Searchable]) -> None:
    """Whatever number stands in the header, the file is refused or read within its bounds."""
    network, path = make(), tmp_path / "packed.bin"
    pack.write(network, path, "int8")
    whole, draw = path.read_bytes(), random.Random(5)
    for field in range(3, 23):
        for number in (-1, 0, 1, 63, 2**31, 2**62, draw.getrandbits(63)):
            data = bytearray(whole)
            data[8 + 8 * field : 16 + 8 * field] = number.to_bytes(8, "little", signed=True)
            path.write_bytes(data)
            if data == whole:
                continue
            with suppress(UserError):
                NativeEngine(network, path)


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    network = transformer()
    with torch.no_grad():
        network.target.weight[5, 3] = torch.nan
    with pytest.raises(UserError, match="some of its weights are not numbers"):
        pack.write(network, tmp_path / "packed.bin", "float32")


def test_a_model_is_packed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path))
    network = transformer()
    first = pack.pack(network, "int8")
    written = first.stat().st_ino
    assert pack.pack(network, "int8") == first
    assert first.stat().st_ino == written
    assert pack.pack(network, "float32") != first
    twin = transformer(score="dot")  # its weights are packed as others
    twin.load_state_dict(network.state_dict())
    assert pack.pack(twin, "int8") != first
    with torch.no_grad():
        network.target.weight[4, 0] += 1
    assert pack.pack(network, "int8") != first
    for number in range(pack.MOST_KEPT + 3):
        with torch.no_grad():
            network.target.weight[4, 0] = number
        pack.pack(network, "int8")
    assert len(list((tmp_path / "packed").glob("*.bin"))) == pack.MOST_KEPT


@torch.inference_mode()
def test_the_model_that_is_proved_is_the_one_that_is_packed(tmp_path: Path) -> None:
    """A wrong weight is seen: the comparison above is one that can fail."""
    network = transformer()
    engine = open_packed(network, tmp_path)
    model = portable(network)
    cast(Tensor, network.decoder_norm.weight)[0] += 1
    sources, targets = draw_ids(3, SOURCE.size, 9, 1), draw_ids(3, TARGET.size, 9, 2)
    ours = flat(score(model.network, sources, targets))
    assert max_difference(ours, flat(engine.log_probabilities(sources, targets))) > 1e-3
