"""Sound to text from config to outputs: what is asked, read, measured and drawn; killed runs go on exactly."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from saccade.cli import app
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs import train
from saccade.runs.load import load_run
from saccade.tasks.translate import hearing, sound
from saccade.tasks.translate.corpora import held_out_corpora
from sounds import tone, write_wav, write_words

RUNNER = CliRunner()
RNN = {"kind": "rnn", "width": 10, "embedding_width": 12, "num_layers": 1}
TRANSFORMER = {"size": "tiny", "width": 12, "num_heads": 2, "hidden_width": 16, "num_layers": 1}


def write_lists(folder: Path) -> None:
    """Twelve strings of two or three words to train on, four to validate."""
    words = write_words(folder / "sounds", 3)
    rows = [(words[n], words[(5 * n + 2) % 15], words[(7 * n + 1) % 15]) for n in range(16)[:15]]
    lines = [
        f"{' 0.05 '.join(f'sounds/{file.name}' for file, _ in row[: 2 + n % 2])}\t"
        f"{' '.join(word for _, word in row[: 2 + n % 2])}\n"
        for n, row in enumerate(rows)
    ]
    (folder / "train.tsv").write_text("".join(lines[:11]), encoding="utf-8")
    (folder / "valid.tsv").write_text("".join(lines[11:]), encoding="utf-8")


def content(folder: Path, model: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    return {
        "input": "features",
        "data": {"train": {"source": f"{folder}/train.tsv"}, "valid": {"source": f"{folder}/valid.tsv"}},
        "features": {"rate": 8000, "num_mels": 11, "tempo": 0.1},
        "tokenizer": {"kind": "words", "vocabulary_size": 20},
        "model": model or RNN,
        "training": {"max_steps": 2, "validate_every": 2, "tokens_per_batch": 300, "metric": "wer"},
        "device": "cpu",
        **sections,
    }


def trained(folder: Path, model: dict[str, Any] | None = None, name: str = "run", **sections: Any) -> Path:
    config = config_file.check_config(content(folder, model, **sections), "test")
    train.train(config, folder / name, Console(quiet=True))
    return folder / name


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hearing")
    write_lists(folder)
    trained(folder)
    return folder


@pytest.mark.parametrize("model", [TRANSFORMER, {**RNN, "attention": "luong"}], ids=["transformer", "luong"])
@pytest.mark.parametrize("subsampling", ["convolutions", "pyramid"])
def test_every_model_hears(model: dict[str, Any], subsampling: str, tmp_path: Path) -> None:
    write_lists(tmp_path)
    folder = trained(tmp_path, model, features={"rate": 8000, "num_mels": 11, "subsampling": subsampling})
    assert (folder / "tokenizer.target.json").exists()
    assert not list(folder.glob("tokenizer.source.*"))
    (found,) = load_run(folder).predict([f"{tmp_path}/sounds/low0.wav 0.1 {tmp_path}/sounds/high1.wav"])
    assert found.text == " ".join(found.pieces)
    row = json.loads((folder / "log.jsonl").read_text("utf-8").splitlines()[-1])
    assert row["score"] == -row["valid_wer"] <= 0
    page = (folder / "report.html").read_text("utf-8")
    assert (
        page.index("Where it looked") < page.index("Worst outputs") < page.index("said: ", page.index("Worst outputs"))
    )


def test_batch_mates_change_nothing_and_weights_come_with_seconds(place: Path) -> None:
    model = load_run(place / "run")
    names = [f"{place}/sounds/{word}{n}.wav" for word in ("low", "thin") for n in range(3)]
    sources = [names[0], f"{names[0]} 0.2 {names[4]}", "", f"{names[1]} {names[2]} {names[3]}"]
    together = model.predict(sources, attention=True)
    for source, found in zip(sources, together, strict=True):
        (alone,) = model.predict([source], attention=True)
        assert alone.text == found.text
        assert alone.score == pytest.approx(found.score, abs=1e-5)
    found = together[1]
    frames_SF = model.source.encode(sources[1])
    assert found.heard is not None
    np.testing.assert_array_equal(found.heard.frames_SF, frames_SF)
    assert found.attention.shape == (len(found.log_probabilities), (len(frames_SF) + 3) // 4)
    assert found.source_pieces[:3] == ["0.00", "0.04", "0.08"]
    assert len(found.source_pieces) == found.attention.shape[1]
    assert together[2].text == ""
    assert json.dumps(found.plain())
    assert "heard" not in found.plain()


def test_what_is_stored_is_what_is_read_anew(place: Path) -> None:
    config = config_file.load_config(place / "run" / "config.yaml")
    (valid,) = held_out_corpora(config, "data.valid")
    stored = sound.recordings(valid, config.features.mel, place / ".data", Console(quiet=True))
    source = load_run(place / "run").source
    pair = next(iter(valid.pairs()))
    anew = next(load_run(place / "run").pairs(valid))
    assert anew.source.startswith(f"{place}/sounds/")
    np.testing.assert_array_equal(source.encode(anew.source), replace(source, stored=stored).encode(pair.source))
    np.testing.assert_array_equal(source.encode(anew.source), stored.load(stored.encode(pair.source)))


def test_one_sound_and_a_folder_of_sounds_are_read(place: Path, tmp_path: Path) -> None:
    run, names = str(place / "run"), ["a.wav", "b c.WAV"]
    for name, word in zip(names, ("low0", "high1"), strict=True):
        (tmp_path / name).write_bytes((place / f"sounds/{word}.wav").read_bytes())
    one = RUNNER.invoke(app, ["predict", run, "--input", str(tmp_path / "b c.WAV")]).stdout.strip()
    assert one == load_run(place / "run").predict([str(place / "sounds/high1.wav")])[0].text
    lines = RUNNER.invoke(app, ["predict", run, "--input", str(tmp_path)]).stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == [str(tmp_path / name) for name in names]
    assert lines[1].split("\t")[1] == one
    told = RUNNER.invoke(app, ["predict", run, "--input", str(tmp_path), "--json"]).stdout.splitlines()
    assert [json.loads(line)["name"] for line in told] == [str(tmp_path / name) for name in names]


def test_the_command_line_predicts_evaluates_and_draws(place: Path, tmp_path: Path) -> None:
    run, names = str(place / "run"), place / "names.txt.gz"
    names.write_bytes(gzip.compress(b"sounds/low0.wav\n\nsounds/high1.wav 0.1 sounds/low0.wav\n"))  # from where it lies
    done = RUNNER.invoke(app, ["predict", run, "--input", str(names), "--attention", "--draw", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 3
    assert (tmp_path / "3.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(RUNNER.invoke(app, ["evaluate", run, str(place / "valid.tsv"), "--json"]).stdout)
    assert {"wer", "bleu", "chrf", "exact", "monotonic", "by_length"} <= set(found)
    assert sum(row["num_pairs"] for row in found["by_length"]) == found["num_pairs"] == 4
    shown = RUNNER.invoke(app, ["evaluate", run, str(place / "valid.tsv")]).stdout
    assert f"word error {found['wer']:.2f}%" in shown
    assert "words that look later than the word before" in shown


def test_without_attention_nothing_is_aligned(place: Path) -> None:
    folder = trained(place, {**RNN, "attention": "none"}, name="plain")
    assert "monotonic" not in load_run(folder).evaluate([place / "valid.tsv"]).scores
    page = (folder / "report.html").read_text("utf-8")
    assert "Where it looked" not in page
    assert "The outputs that share least" in page  # without attention, as words alone


def test_an_ensemble_of_equals_is_the_run_and_frames_must_agree(place: Path) -> None:
    source = [f"{place}/sounds/low0.wav 0.1 {place}/sounds/thin1.wav"]
    twice = load_run(place / "run", place / "run").predict(source)
    assert twice[0].text == load_run(place / "run").predict(source)[0].text
    other = trained(place, name="other", features={"rate": 8000, "num_mels": 13})
    with pytest.raises(UserError, match=r"other: its source tokenizer differs"):
        load_run(place / "run", other)


def test_errors_by_length_by_hand() -> None:
    references = ["one two", "one two three", "four five"]
    outputs = ["one", "one two three", "four five"]
    assert hearing.errors_by_length(outputs, references) == [(2, 2, 25.0), (3, 1, 0.0)]
    assert hearing.LengthErrors(2, 2, 25.0) == (2, 2, 25.0)


def test_memory_holds_a_window_of_sounds(place: Path) -> None:
    model, read = load_run(place / "run"), 0

    def sources() -> Any:
        nonlocal read
        for _ in range(200):
            read += 1
            yield f"{place}/sounds/low0.wav"

    next(model.stream(sources(), width=1))
    assert read == 64


def test_long_sounds_are_cut_with_a_warning(place: Path) -> None:
    model = replace(load_run(place / "run"), max_source_length=20)
    with pytest.warns(UserWarning, match=r"source 1 has \d+ frames; only the first 20 are read"):
        (found,) = model.predict([f"{place}/sounds/low0.wav 1 {place}/sounds/low1.wav"], attention=True)
    assert found.attention.shape[1] == 5


def test_a_run_that_was_stopped_goes_on_exactly(place: Path) -> None:
    def last(name: str, *stops: int) -> bytes:
        for stop in stops:
            steps = {"max_steps": stop, "schedule": "constant"}  # the same however long it trains
            folder = trained(place, name=name, training={**content(place)["training"], **steps})
        return (folder / "checkpoints" / f"step-{stops[-1]:09}.safetensors").read_bytes()

    assert last("whole", 8) == last("stopped", 4, 8)


def refused(folder: Path, list_text: str) -> str:
    (folder / "train.tsv").write_text(list_text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        trained(folder, name="bad")
    assert not (folder / "bad").exists()
    return str(caught.value).replace(str(folder), "")


def test_mistakes_in_lists_and_files_are_named(tmp_path: Path) -> None:
    write_lists(tmp_path)
    ok = "sounds/low0.wav\tlow\n"
    assert refused(tmp_path, ok + "sounds/none.wav\tlow\n") == "/train.tsv:2: there is no file at /sounds/none.wav"
    assert refused(tmp_path, ok + "seven\tlow\n").startswith("/train.tsv:2: 'seven' is neither a sound file")
    assert refused(tmp_path, "sounds/low0.wav low\n").startswith("/train.tsv:1: the line has 1 column")
    assert refused(tmp_path, "") == "/train.tsv: it is empty; there must be at least one line"
    (tmp_path / "sounds" / "bad.wav").write_bytes(b"RIFF")
    assert refused(tmp_path, "sounds/bad.wav\tlow\n").startswith("/sounds/bad.wav: this is not a WAV file (")
    assert refused(tmp_path, "sounds/low0.wav 40\tlow\n").startswith("data: nothing is left to train on")
    (tmp_path / "valid.tsv").write_text("sounds/none.wav\tlow\n", encoding="utf-8")  # seen before anything else
    assert refused(tmp_path, "seven\tlow\n") == "/valid.tsv:1: there is no file at /sounds/none.wav"


def test_mistakes_in_what_is_asked_are_named(place: Path, tmp_path: Path) -> None:
    model = load_run(place / "run")
    with pytest.raises(UserError, match=r"there is no file at none\.wav"):
        model.predict(["none.wav"])
    names = tmp_path / "names.txt"
    names.write_text("\nlow\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"names\.txt:2: 'low' is neither a sound file"):
        list(model.read(names))
    names.write_text(f"{place}/sounds/low0.wav\nnone.wav\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"names\.txt:2: there is no file at .*none\.wav"):
        list(model.read(names))
    (tmp_path / "pairs.tsv").write_text("low\tlow\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"pairs\.tsv:1: 'low' is neither a sound file"):
        model.evaluate([tmp_path / "pairs.tsv"])


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    write_lists(tmp_path)
    write_wav(tmp_path / "sounds" / "long.wav", tone(440.0, 3.2))
    with (tmp_path / "train.tsv").open("a", encoding="utf-8") as lines:
        lines.write("sounds/long.wav\tlow\n")
    text = io.StringIO()
    config = config_file.check_config(
        content(tmp_path) | {"data": {**content(tmp_path)["data"], "max_length": 300}}, "test"
    )
    train.train(config, tmp_path / "run", Console(file=text, width=200))
    assert (
        f"11 pairs (left out: 1 too long (source), the first at {tmp_path}/train.tsv:12) to train on" in text.getvalue()
    )
    assert "<unk> among the words of the sources" not in text.getvalue()  # these are files, not words


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": "text"}, "features: given, but it has no effect with input: text"),
        ({"input": "sound"}, "input: 'sound' given; input should be 'text' or 'features'"),
        ({"features": {"num_mel": 40}}, r"features\.num_mel: unknown \(did you mean num_mels\?\)"),
        ({"features": {"num_mels": 200}}, r"features\.num_mels: 200 given; .*less than or equal to 128"),
        ({"features": {"subsampling": "pooling"}}, r"features\.subsampling: 'pooling' given"),
        ({"tokenizer": {"shared": True}}, r"tokenizer\.shared: true given; with input: features only targets"),
        ({"tokenizer": {"sampling": 0.1}}, r"tokenizer\.sampling: 0\.1 given; with input: features it must be 0"),
        ({"training": {"tokens_per_batch": "auto"}}, r"tokens_per_batch: 'auto' given; with input: features"),
        ({"model": {**RNN, "score": "location"}}, r"data\.max_length: 3000 given; .* so it must be below 2048"),
        ({"model": {**RNN, "tied": "three"}}, r"model\.tied: 'three' given; it needs one vocabulary"),
    ],
)
def test_configs_that_cannot_be(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        config_file.check_config(content(tmp_path) | changes, "test")


def test_sound_has_its_own_defaults(tmp_path: Path) -> None:
    given = content(tmp_path)
    del given["features"], given["tokenizer"]
    found = config_file.check_config(given, "test")
    assert (found.data.max_length.source, found.tokenizer.shared, found.features.num_mels) == (3000, False, 80)
    text = config_file.check_config({"data": given["data"]}, "test")
    assert (text.data.max_length.source, text.tokenizer.shared, text.features) == ("auto", "auto", None)
