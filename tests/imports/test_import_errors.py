"""Every mistake in a folder is one line that names the file and the field; nothing is executed, nothing is written."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from marian import opus_folder, write_json
from saccade.cli import app
from saccade.errors import UserError
from saccade.imports import write


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return opus_folder(tmp_path_factory.mktemp("whole") / "opus")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    made = tmp_path / "opus"
    made.mkdir()
    for path in whole.iterdir():
        (made / path.name).write_bytes(path.read_bytes())
    return made


def bring(folder: Path) -> None:
    write.import_folder(folder, folder.with_name("run"), most=2, say=lambda what: None)


def change(path: Path, **fields: Any) -> None:
    write_json(path, {**json.loads(path.read_text("utf-8")), **fields})


def refuse(folder: Path, message: str) -> None:
    with pytest.raises(UserError) as caught:
        bring(folder)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not folder.with_name("run").exists()


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("config.json", {"model_type": "bert"}, 'config.json: model_type: "bert" given; allowed: "marian", "pegasus"'),
        ("config.json", {"model_type": None}, "config.json: model_type: null given"),
        ("config.json", {"d_model": "24"}, 'config.json: d_model: "24" given; allowed: a whole number'),
        ("config.json", {"d_model": 23}, "config.json: d_model: 23 given; allowed: an even multiple of encoder_att"),
        ("config.json", {"encoder_layers": 0}, "config.json: encoder_layers: 0 given; allowed: 1 to 1,048,576"),
        (
            "config.json",
            {"encoder_layers": 3},
            "config.json: encoder_layers: 3 given; allowed: 2, as the folder's weights have",
        ),
        ("config.json", {"decoder_layers": 1}, "decoder_layers: 1 given; allowed: 2"),
        ("config.json", {"vocab_size": 10**13}, "vocab_size: 10000000000000 given; allowed: 1 to 1,048,576"),
        ("config.json", {"encoder_ffn_dim": 10**6, "decoder_ffn_dim": 10**6}, "20 x 24 given; allowed: 1000000 x 24"),
        ("config.json", {"max_position_embeddings": 2}, "max_position_embeddings: 2 given; allowed: 8 to 1,048,576"),
        ("config.json", {"dropout": 7.5}, "config.json: dropout: 7.5 given; allowed: 0 or more, less than 1"),
        ("config.json", {"decoder_ffn_dim": 21}, "config.json: decoder_ffn_dim: 21 given; allowed: 20"),
        ("config.json", {"activation_function": "tanh"}, 'activation_function: "tanh" given; allowed: "swish"'),
        ("config.json", {"scale_embedding": False}, "config.json: scale_embedding: false given; allowed: true"),
        ("config.json", {"normalize_before": True}, "config.json: normalize_before: true given; allowed: null, false"),
        ("config.json", {"eos_token_id": 3}, "config.json: eos_token_id: 3 given; allowed: 0, the id of </s>"),
        ("config.json", {"pad_token_id": 900}, "config.json: pad_token_id: 900 given; allowed: 0 to"),
        ("config.json", {"vocab_size": 20}, "vocab.json:"),
        ("config.json", {"vocab_size": 300}, "model.safetensors: model.shared.weight:"),
        (
            "generation_config.json",
            {"do_sample": True},
            "generation_config.json: do_sample: true given; allowed: null, ",
        ),
        ("generation_config.json", {"num_beams": "4"}, 'generation_config.json: num_beams: "4" given'),
        ("generation_config.json", {"num_beams": 0}, "generation_config.json: num_beams: 0 given; allowed: 1 to"),
        ("generation_config.json", {"max_length": -1}, "generation_config.json: max_length: -1 given"),
        ("generation_config.json", {"bad_words_ids": [[1, 2]]}, "bad_words_ids: [[1, 2]] given; allowed: lists of one"),
        (
            "generation_config.json",
            {"bad_words_ids": [[7]], "renormalize_logits": False},
            "7 only with renormalize_logits: true",
        ),
        ("tokenizer_config.json", {"unk_token": "<what>"}, "vocab.json: <what>: missing"),
        ("tokenizer_config.json", {"separate_vocabs": True}, "target_vocab.json: there is no such file"),
        ("vocab.json", {"▁der": 1}, "vocab.json: ▁der: 1 given, which is '<unk>' too"),
        ("vocab.json", {"▁der": "x"}, 'vocab.json: ▁der: "x" given; allowed: a whole number'),
    ],
)
def test_a_wrong_field_is_named(folder: Path, name: str, fields: dict[str, Any], message: str) -> None:
    change(folder / name, **fields)
    refuse(folder, message)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "source.spm", "target.spm", "vocab.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refuse(folder, f"{folder / name}: there is no such file")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.json", "config.json: this is not JSON"),
        ("vocab.json", "vocab.json: this is not JSON"),
        ("model.safetensors", "model.safetensors: it can't be read"),
        ("source.spm", "source.spm: this is no SentencePiece model"),
    ],
)
def test_a_damaged_file_is_named(folder: Path, name: str, message: str) -> None:
    (folder / name).write_bytes(b"\x7fnothing of the kind")
    refuse(folder, message)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("model.encoder.layers.0.fc1.weight", torch.ones(3, 24), "fc1.weight: 3 x 24 given; allowed: 20 x 24"),
        ("model.shared.weight", None, "not all of it is a number"),
        ("model.encoder.layers.0.fc1.bias", torch.ones(20, dtype=torch.int8), "fc1.bias: int8 given; allowed: float32"),
        ("model.encoder.lora.weight", torch.ones(2, 2), "model.encoder.lora.weight: unknown"),
        ("lm_head.weight", None, "lm_head.weight: other numbers given; allowed: the same as model.shared.weight"),
    ],
)
def test_a_wrong_tensor_is_named(folder: Path, name: str, value: torch.Tensor | None, message: str) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    if value is None:
        value = weights["model.shared.weight"].clone()
        value[5] = 0.5 if name == "lm_head.weight" else torch.nan
    save_file({**weights, name: value}, path, {"format": "pt"})
    refuse(folder, message)


def test_a_pickle_is_not_opened(folder: Path, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "exploded",)

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    refuse(folder, "pytorch_model.bin: reading this file could run a program that is hidden in it; convert it: python")
    assert not (tmp_path / "exploded").exists()


def test_the_line_that_converts_a_pickle_works(whole: Path, folder: Path) -> None:
    import subprocess
    import sys

    torch.save(load_file(whole / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError) as caught:
        bring(folder)
    program = str(caught.value).split('python -c "')[1].removesuffix('"')
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, capture_output=True)
    bring(folder)


def test_weights_in_several_files_are_read(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    path.unlink()
    parts: dict[str, dict[str, torch.Tensor]] = {
        "model-00001-of-00002.safetensors": {},
        "model-00002-of-00002.safetensors": {},
    }
    for number, (name, tensor) in enumerate(weights.items()):
        [*parts.values()][number % 2][name] = tensor
    for name, part in parts.items():
        save_file(part, folder / name, {"format": "pt"})
    places = {name: file for file, part in parts.items() for name in part}
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": places})
    bring(folder)


def test_half_precision_and_stored_sinusoids_are_read(folder: Path) -> None:
    from transformers import MarianMTModel

    path = folder / "model.safetensors"
    table = MarianMTModel.from_pretrained(folder).model.encoder.embed_positions.weight.detach().clone()
    weights = {f"model.{side}.embed_positions.weight": table.clone() for side in ("encoder", "decoder")}
    halves = {name: tensor.half() for name, tensor in load_file(path).items()}
    save_file({**halves, **weights}, path, {"format": "pt"})
    bring(folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "run"], "nowhere: there is no such folder"),
        (["opus", "opus"], "opus: it is there already"),
        (["opus", "run", "--target", "x"], "--target: given without --input"),
    ],
)
def test_mistakes_of_a_call_are_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(folder.parent)
    done = CliRunner().invoke(app, ["import", *arguments])
    assert isinstance(done.exception, UserError)
    assert message in str(done.exception)


def test_what_is_no_folder_of_a_model_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "demo.argosmodel").touch()
    with pytest.raises(UserError, match=r"demo\.argosmodel: this is a file; allowed: a folder"):
        bring(tmp_path / "demo.argosmodel")
    (folder / "config.json").write_text("{}", "utf-8")
    with pytest.raises(UserError, match=r'config\.json: model_type: missing; allowed: "marian", "pegasus", "m2m_100"'):
        bring(folder)
