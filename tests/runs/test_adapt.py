"""Runs that begin with another run: what they take from it, what trains, and that they need it no more."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import saccade
from runs import WORDS, make_run
from saccade.attention import MultiHeadAttention
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.training import adaptation, checkpoints

pytestmark = pytest.mark.usefixtures("no_reports")
NEW_WORDS = ["a", "b", "c", "x", "y"]
QUICK = {"max_steps": 4, "validate_every": 2, "save_every": 2, "metric": "loss", "tokens_per_batch": 41}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return make_run(tmp_path / "base", "tokenizer.vocabulary_size=12", "tokenizer.shared=true")


def content(base: Path, **training: Any) -> dict[str, Any]:
    text = base.parent / "new.txt"
    text.write_text("".join(f"{word} {other}\n" for word in NEW_WORDS for other in NEW_WORDS), encoding="utf-8")
    sides = {"source": str(text), "target": str(text)}
    return {"from": str(base), "data": {"train": sides, "valid": sides}, "training": {**QUICK, **training}}


def weights(run: Path) -> dict[str, Tensor]:
    return checkpoints.read_weights(run / "model.safetensors")


def changed(run: Path, base: Path) -> set[str]:
    """The names of weights that are not those of the base."""
    one, other = weights(run), weights(base)
    assert one.keys() == other.keys()
    return {name for name in one if not torch.equal(one[name], other[name])}


def adapt(given: Mapping[str, Any], folder: Path, **changes: Any) -> Path:
    named = {name.replace("__", "."): value for name, value in changes.items()}
    return saccade.train(given, named, folder=folder, quiet=True).folder


def test_model_vocabulary_and_weights_are_those_of_the_other_run(base: Path) -> None:
    run = adapt(content(base, max_steps=1, learning_rate=1e-12), base.parent / "run", model__dropout=0.3)
    config, earlier = (config_file.load_config(folder / "config.yaml") for folder in (run, base))
    assert config.base == str(base)
    assert config.model == earlier.model.model_copy(update={"dropout": 0.3})
    assert config.tokenizer.kind == earlier.tokenizer.kind
    assert (run / "tokenizer.source.json").read_bytes() == (base / "tokenizer.source.json").read_bytes()
    for name, weight in weights(base).items():
        torch.testing.assert_close(weights(run)[name], weight, atol=1e-9, rtol=0)
    assert json.loads((run / "summary.json").read_text("utf-8"))["trained"] == sum(
        map(torch.numel, weights(run).values())
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.width": 32}, r"model\.width: 32 given, but .*base, which this run begins with, has 16; leave it out"),
        ({"model.kind": "rnn"}, r"model\.kind: 'rnn' given, but .* has 'transformer'"),
        ({"tokenizer.kind": "bpe"}, r"tokenizer\.kind: 'bpe' given, but .* has 'words'; .*tokenizer\.grow"),
        ({"task": "tag"}, r"task: 'tag' given, but .*base is a run of the task translate"),
        ({"model.widht": 3}, r"model\.widht: unknown \(did you mean width\?\)"),
        ({"from": "nowhere"}, r"from: nowhere: this is not a run folder"),
        ({"from": ""}, r"from: '' given; value should have at least 1 item"),
        ({"fron": "nowhere"}, r"fron: unknown \(did you mean from\?\)"),
        ({"training.freeze": ["encodr"]}, r"'encodr' given; allowed for this model: decoder, embeddings, encoder, "),
        ({"training.freeze": ["encoder", "decoder", "embeddings"]}, r"training\.freeze: .* leaves nothing to train"),
        ({"training.lora": 16}, r"training\.lora: 16 given; a rank must be below .* 16"),
        ({"training.lora": 2, "training.precision": "float8"}, r"training\.lora: 2 given; it does not go with"),
        ({"from": None, "tokenizer.grow": 5}, r"tokenizer\.grow: 5 given; only the vocabulary of from: RUN can grow"),
        ({"from": None, "data.old_share": 0.5}, r"data\.old_share: 0\.5 given; without from: RUN"),
        ({"data.old": {"train": [{"source": "a.tsv"}]}}, r"data\.old: given; it has no effect with old_share: 0"),
    ],
)
def test_what_cannot_be_is_refused(base: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        saccade.train(content(base), changes, folder=base.parent / "run", quiet=True)
    assert not (base.parent / "run").exists()


def test_a_run_does_not_begin_with_itself_nor_with_one_that_never_learned(base: Path) -> None:
    with pytest.raises(UserError, match="which is the run's own folder"):
        adapt(content(base), base)
    (base / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"from: .*: there is no model\.safetensors"):
        adapt(content(base), base.parent / "run")


def test_frozen_parts_stay_as_they_are(base: Path) -> None:
    run = adapt(content(base, freeze=["encoder", "embeddings"], weight_decay=0.5, ema=0.5), base.parent / "run")
    moved = changed(run, base)
    assert moved
    assert all(name.startswith(("decoder.", "decoder_norm.")) for name in moved)


def test_adapters_alone_train_and_are_merged_into_the_saved_model(base: Path) -> None:
    run = adapt(content(base, lora=3, learning_rate=0.01), base.parent / "run")
    projections = {
        *(f"encoder.{layer}.attention.{name}" for layer in range(2) for name in ("query", "key", "value", "output")),
        *(
            f"decoder.{layer}.{kind}.{name}"
            for layer in range(2)
            for kind in ("own", "cross")
            for name in ("query", "key", "value", "output")
        ),
        *(
            f"{side}.{n}.feed_forward.{name}"
            for side in ("encoder", "decoder")
            for n in range(2)
            for name in ("inner", "outer")
        ),
    }
    assert changed(run, base) == {f"{name}.weight" for name in projections}
    for name in changed(run, base):
        assert torch.linalg.matrix_rank(weights(run)[name] - weights(base)[name], atol=1e-5) <= 3
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    sizes = [weights(base)[f"{name}.weight"].shape for name in projections]
    assert summary["trained"] == sum(3 * sum(size) for size in sizes)
    assert summary["parameters"] == sum(map(torch.numel, weights(base).values()))
    assert saccade.load(run).predict(["a b"])[0].line() is not None


def test_adapters_begin_as_the_model_and_are_what_the_checkpoint_says(base: Path) -> None:
    run = adapt(content(base, lora=3, learning_rate=0.01, ema=0.0), base.parent / "run")
    found = checkpoints.list_checkpoints(run / "checkpoints")
    state = checkpoints.read_weights(found[-1])
    name = "encoder.0.attention.query"
    first, last = state[f"model.{name}.parametrizations.weight.original"], f"model.{name}.parametrizations.weight.0"
    assert torch.equal(first, weights(base)[f"{name}.weight"])
    progress = json.loads((run / "log.jsonl").read_text("utf-8").splitlines()[-1])
    if progress["step"] == 4:
        merged = first + state[f"{last}.up_FR"] @ state[f"{last}.down_RD"]
        torch.testing.assert_close(weights(run)[f"{name}.weight"], merged)


def test_a_model_without_such_layers_has_no_adapters(tmp_path: Path) -> None:
    base = make_run(tmp_path / "base", model={"kind": "rnn", "width": 6, "embedding_width": 5})
    with pytest.raises(UserError, match=r"training\.lora: 2 given, but this model has no multi-head attention"):
        adapt(content(base, lora=2), tmp_path / "run")


def test_new_words_begin_as_the_old_token_and_old_words_stay(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = content(base, max_steps=1, learning_rate=1e-12, lora=2)
    run = adapt(given, base.parent / "run", tokenizer__grow=7)
    before, after = weights(base)["target.weight"], weights(run)["target.weight"]
    assert len(after) == len(before) + 2  # x and y
    torch.testing.assert_close(after, before[[*range(len(before)), 3, 3]], atol=1e-9, rtol=0)
    symbols = json.loads((run / "tokenizer.target.json").read_text("utf-8"))["symbols"]
    assert sorted(symbols[-2:]) == ["x", "y"]
    assert changed_rows(run, base) == set(), "the learning rate is next to nothing"
    saccade.train(content(base, lora=2, learning_rate=0.1), {"tokenizer.grow": 7}, folder=base.parent / "quick")
    assert "rows of target.weight: 12 kept, 2 begin as means of these" in capsys.readouterr().out
    quick = base.parent / "quick"
    assert changed_rows(quick, base), "what is new trains beside adapters"


def changed_rows(run: Path, base: Path) -> set[int]:
    before, after = weights(base)["target.weight"], weights(run)["target.weight"]
    return {row for row in range(len(before)) if not torch.allclose(before[row], after[row], atol=1e-6)}


def test_old_texts_have_their_share_and_must_be_there(base: Path) -> None:
    text = base.with_suffix(".txt")
    text.write_text("".join(f"{word} {other}\n" for word in WORDS for other in WORDS), encoding="utf-8")
    run = adapt(content(base), base.parent / "run", data__old_share=0.2)
    config = config_file.load_config(run / "config.yaml")
    assert [corpus.source for corpus in config.data.old.train] == [str(text)]
    text.unlink()
    with pytest.raises(UserError, match=r"data\.old_share: 0\.2 given, but not all old texts are there .*base\.txt"):
        adapt(content(base), base.parent / "other", data__old_share=0.2)


@pytest.mark.parametrize("changes", [{}, {"training__lora": 2, "tokenizer__grow": 7, "data__old_share": 0.2}])
def test_a_run_goes_on_exactly_when_the_other_one_has_changed_or_gone(
    base: Path, changes: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    given = content(base, average_last=2, ema=0.5)
    whole = adapt(given, base.parent / "whole", **changes)

    def stop(event: Any) -> None:
        if event.step == 3:
            event.stop()

    run = saccade.train(
        given,
        {name.replace("__", "."): one for name, one in changes.items()},
        folder=base.parent / "run",
        callbacks=[stop],
        quiet=True,
    ).folder
    checkpoints.save_weights(base / "model.safetensors", nn.Linear(2, 3))
    assert not checkpoints.list_checkpoints(run / "checkpoints")[-1].name.endswith("000000004.safetensors")
    named = {name.replace("__", "."): one for name, one in changes.items()}
    saccade.train(given, {**named, "training.max_steps": 3}, folder=run)
    assert "has other weights now than when this run began with it" in capsys.readouterr().out.replace("\n", " ")
    shutil.rmtree(base)
    facts = (run / "base.json").rename(run / "elsewhere")
    with pytest.raises(UserError, match=r"from: .*: this is not a run folder"):
        adapt(given, run, **changes)
    facts.rename(run / "base.json")
    adapt(given, run, **changes)
    averaged = checkpoints.read_weights(checkpoints.list_checkpoints(run / "validated")[-1])
    assert any(name.endswith("up_FR") for name in averaged) == ("training__lora" in changes)
    for name in ("model.safetensors", "checkpoints/step-000000004.safetensors"):
        assert (run / name).read_bytes() == (whole / name).read_bytes()


def test_a_run_that_was_killed_before_its_first_checkpoint_needs_the_other_one_no_more(base: Path) -> None:
    given = content(base, lora=2, save_every=100)
    whole = adapt(given, base.parent / "whole", tokenizer__grow=7)

    def die(event: Any) -> None:
        if event.step == 1:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        saccade.train(given, {"tokenizer.grow": 7}, folder=base.parent / "run", callbacks=[die], quiet=True)
    shutil.rmtree(base)
    run = adapt(given, base.parent / "run", tokenizer__grow=7)
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_the_saved_config_trains_the_same_run(base: Path) -> None:
    run = adapt(content(base, lora=2), base.parent / "run", tokenizer__grow=3, data__old_share=0.2)
    again = saccade.train(run / "config.yaml", folder=base.parent / "again", quiet=True).folder
    assert (run / "model.safetensors").read_bytes() == (again / "model.safetensors").read_bytes()
    assert (run / "config.yaml").read_bytes() == (again / "config.yaml").read_bytes()


def labelled(folder: Path, labels: str) -> dict[str, Any]:
    path = folder / f"{labels}.tsv"
    path.write_text("".join(f"{label}\tword {label} {n}\n" for n in range(5) for label in labels), encoding="utf-8")
    data = {"train": str(path), "valid": str(path), "columns": {"label": 0, "text": 1}}
    return {"task": "classify", "data": data, "training": {"max_steps": 2, "validate_every": 2}}


def test_labels_that_both_have_keep_their_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {
        "kind": "transformer",
        "width": 8,
        "num_heads": 2,
        "hidden_width": 12,
        "embedding_width": 7,
        "num_layers": 1,
    }
    base = saccade.train({**labelled(tmp_path, "abc"), "model": sizes}, folder=tmp_path / "base", quiet=True).folder
    changes = {"from": base, "training.lora": 2, "training.learning_rate": 1e-12}
    capsys.readouterr()
    run = saccade.train(labelled(tmp_path, "bcde"), changes, folder=tmp_path / "run").folder
    said = capsys.readouterr().out
    assert "rows of output.weight: 2 kept, 2 new" in said
    before, after = (weights(folder)["output.weight"] for folder in (base, run))
    torch.testing.assert_close(after[:2], before[1:], atol=1e-9, rtol=0)
    assert (after[2:] != 0).any()
    changes["training.learning_rate"] = 0.1
    quick = saccade.train(labelled(tmp_path, "bcde"), changes, folder=tmp_path / "quick", quiet=True).folder
    assert {"output.weight", "output.bias"} < changed_names(quick, run)
    assert "embedding.weight" not in changed_names(quick, run)
    found = saccade.load(quick).predict(["word b 1"])[0]
    assert found.plain()["label"] in "bcde"


def changed_names(run: Path, other: Path) -> set[str]:
    one, two = weights(run), weights(other)
    return {name for name in one if not torch.allclose(one[name], two[name], atol=1e-6)}


def test_tags_that_both_have_keep_their_rows_and_their_chain(tmp_path: Path) -> None:
    def tagged(name: str, kinds: str) -> dict[str, Any]:
        (tmp_path / name).write_text("".join(f"w{kind} B-{kind}\nv O\n\n" for kind in kinds) * 3, encoding="utf-8")
        data = {"train": str(tmp_path / name), "valid": str(tmp_path / name)}
        return {"task": "tag", "data": data, "training": {"max_steps": 2, "validate_every": 2}}

    sizes = {"width": 4, "word_width": 3, "character_width": 4, "spelling": "bio"}
    base = saccade.train({**tagged("one", "XY"), "model": sizes}, folder=tmp_path / "base", quiet=True).folder
    changes = {"from": base, "training.learning_rate": 1e-12}
    run = saccade.train(tagged("two", "YZ"), changes, folder=tmp_path / "run", quiet=True).folder
    tags = [json.loads((folder / "tokenizer.words.json").read_text("utf-8"))["tags"] for folder in (base, run)]
    kept = [tag for tag in tags[1] if tag in tags[0]]
    assert "B-Y" in kept
    rows = [[own.index(tag) for tag in kept] for own in tags]
    edges = [[*row, len(own)] for row, own in zip(rows, tags, strict=True)]
    before, after = (weights(folder) for folder in (base, run))
    torch.testing.assert_close(after["output.weight"][rows[1]], before["output.weight"][rows[0]], atol=1e-9, rtol=0)
    chains = [one["chain.transition"][edge][:, edge] for one, edge in zip((before, after), edges, strict=True)]
    assert chains[0].any()
    torch.testing.assert_close(chains[1], chains[0], atol=1e-9, rtol=0)


def test_rows_are_means_along_each_axis() -> None:
    layer, weight = nn.Linear(2, 3), torch.arange(1.0, 13).view(4, 3)
    before = layer.weight.clone()
    rows = [[0, 2], [], [3]], [[1], [0, 2]]
    new = adaptation.inherit_weights(layer, {"weight": weight, "bias": layer.bias * 2}, {"weight": rows}, "there")
    assert new == ["weight"]
    assert layer.weight[0].tolist() == [5.0, 5.0]  # the means of 2 and 8, and of 1, 3, 7 and 9
    assert torch.equal(layer.weight[1], before[1])
    assert layer.weight[2].tolist() == [11.0, 11.0]
    with pytest.raises(UserError, match="weight is 4 x 3 in there, but 3 x 2 with this config"):
        adaptation.inherit_weights(layer, {"weight": weight, "bias": layer.bias}, {}, "there")
    with pytest.raises(UserError, match="only one of them has bias"):
        adaptation.inherit_weights(layer, {"weight": weight}, {}, "there")


def test_classes_that_both_have_keep_their_rows(tmp_path: Path) -> None:
    def pictured(name: str, classes: str) -> dict[str, Any]:
        for label in classes:
            (tmp_path / name / label).mkdir(parents=True)
            for number in range(4):
                pixels = np.full((12, 12), 40 * number + ord(label), np.uint8)
                Image.fromarray(pixels).save(tmp_path / name / label / f"{number}.png")
        files = {"images": str(tmp_path / name)}
        training = {"max_steps": 2, "validate_every": 2, "batch_size": 4, "learning_rate": 1e-12}
        return {"task": "glimpse", "data": {"train": files, "valid": files, "resize": 12}, "training": training}

    sizes = {"patch": 4, "num_glimpses": 2, "width": 8, "glimpse_width": 8}
    base = saccade.train({**pictured("one", "abc"), "model": sizes}, folder=tmp_path / "base", quiet=True).folder
    run = saccade.train(pictured("two", "bd"), {"from": base}, folder=tmp_path / "run", quiet=True).folder
    before, after = (weights(folder)["action.weight"] for folder in (base, run))
    torch.testing.assert_close(after[0], before[1], atol=1e-9, rtol=0)
    assert not torch.allclose(after[1], before[2], atol=1e-6)


@torch.no_grad()
def test_a_copy_in_half_precision_adds_its_own_adapters() -> None:
    """As when outputs are searched for on a CUDA device, between two losses of a validation."""
    network = nn.Sequential(MultiHeadAttention(12, 3))
    assert adaptation.add_adapters(network, 2, seed=1) == 4
    attention = network[0]
    assert isinstance(attention, MultiHeadAttention)
    for parameter in attention.parameters():
        parameter.add_(0.5)
    with adaptation.adding_once(network):
        other = copy.deepcopy(attention)
        for parameter in other.parameters():
            parameter.data = parameter.data.bfloat16()
        assert other.query.weight.dtype == torch.bfloat16
        assert attention.query.weight.dtype == torch.float32
        assert attention.query.weight is attention.query.weight
        torch.testing.assert_close(other.query.weight.float(), attention.query.weight, atol=0.02, rtol=0.02)
    assert attention.query.weight is not attention.query.weight
