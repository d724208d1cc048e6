"""Texts that are spoken, from the command line: every command, and what is learned from a few tones."""

from __future__ import annotations

import base64
import io
import json
import math
import wave
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from saccade.cli import app
from saccade.data.sound.mel import read_sound
from saccade.data.sound.spoken import SpeechSet, words_of
from saccade.data.sound.vocoder import encode_wav
from saccade.errors import UserError
from saccade.models.synthesizer import Synthesizer, SynthesizerOutput
from saccade.runs.load import load_run as load
from saccade.serving.models import load_runs
from saccade.tasks.speak.loss import guided_loss
from saccade.tasks.speak.result import boundary_errors
from servers import serving

TONES = {"la": 400, "mi": 900, "so": 1600}
RATE = 4000
CONFIG: dict[str, Any] = {
    "task": "speak",
    "device": "cpu",
    "frames": {"rate": RATE, "num_mels": 16, "window": 0.04, "hop": 0.02},
    "model": {"width": 32, "prenet_width": 16, "frames_a_step": 2, "reach": 3, "prenet_dropout": 0.2},
    "training": {"max_steps": 150, "validate_every": 75, "frames_per_batch": 800, "learning_rate": 0.01},
    "decoding": {"max_seconds": 2.0, "rounds": 5},
}


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def tone(word: str, seconds: float = 0.16) -> bytes:
    time = np.arange(int(seconds * RATE)) / RATE
    return encode_wav(np.float32(0.5) * np.sin(2 * np.pi * TONES[word] * time).astype(np.float32), RATE)


def write_lists(folder: Path) -> dict[str, str]:
    """Write a sound for each word, and lists of two or three words; the files tell when each is said."""
    chance, files = np.random.default_rng(1), {}
    for word in TONES:
        (folder / f"{word}_ann_0.wav").write_bytes(tone(word))
    for name, count in {"train": 60, "valid": 12, "test": 12}.items():
        rows = [chance.choice([*TONES], size=int(chance.integers(2, 4))).tolist() for _ in range(count)]
        lines = [f"{' 0.04 '.join(f'{word}_ann_0.wav' for word in row)}\t{' '.join(row)}\n" for row in rows]
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
        files[name] = str(folder / f"{name}.tsv")
    return files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("speak")
    (folder / "speak.yaml").write_text(json.dumps({**CONFIG, "data": write_lists(folder)}), encoding="utf-8")
    found = call("train", folder / "speak.yaml", "--run", folder / "run")
    assert found.exit_code == 0, found.output
    assert "data.train: 60 sounds" in found.output
    return folder


def test_it_learns_to_read_while_it_speaks(folder: Path) -> None:
    """A frame of silence is further from the true ones than 0.8; a third of each text is a word of 160 ms."""
    found = json.loads(call("evaluate", folder / "run", folder / "test.tsv", "--json").stdout)
    assert found["num_texts"] == 12
    assert found["frame_error"] < 0.35
    assert found["alignment_error_ms"] < 80
    said = call("evaluate", folder / "run", folder / "test.tsv").stdout
    assert "words begin and end" in said


def test_several_lists_are_scored_as_one(folder: Path) -> None:
    lines = (folder / "test.tsv").read_text("utf-8").splitlines(keepends=True)
    for name, part in {"first": lines[:1], "others": lines[1:]}.items():
        (folder / f"{name}.tsv").write_text("".join(part), "utf-8")
    speaker = load(folder / "run")
    whole, parts = (
        speaker.evaluate([folder / f"{name}.tsv" for name in names]).scores for names in (["test"], ["first", "others"])
    )
    assert parts == pytest.approx(whole, rel=1e-3)


class ReadsRightly(torch.nn.Module):
    """Reads each word while it is heard, and the last one while the silence behind is heard."""

    def __init__(self, network: Synthesizer, own: SpeechSet) -> None:
        super().__init__()
        self.network, self.sizes, self.own = network, network.sizes, own

    def forward(self, ids_BS: torch.Tensor, length_B: torch.Tensor, frame_BTF: torch.Tensor) -> SynthesizerOutput:
        spoken = self.network(ids_BS, length_B, frame_BTF)
        weight_BLS = torch.zeros_like(spoken.weight_BLS)
        for row, weight_LS in enumerate(weight_BLS):
            words, times = words_of(self.own.lines[row].text), self.own.times(row) or ()
            for step in range(len(weight_LS)):
                begun = sum(start <= step * 0.04 + 1e-6 for start, _ in times)
                weight_LS[step, words[begun - 1].first] = 1
        return spoken._replace(weight_BLS=weight_BLS)


def test_the_silence_behind_belongs_to_no_word(folder: Path) -> None:
    """A step is 40 ms long, as are silences between words, which make half of the ends late; 120 ms are behind."""
    speaker = load(folder / "run")
    own = speaker.read_set(folder / "test.tsv", folder / ".data")
    found = replace(speaker, network=ReadsRightly(speaker.network, own)).measure(own, range(len(own)))
    assert found.milliseconds is not None
    assert found.milliseconds < 30


def test_a_sound_is_written_and_drawn(folder: Path) -> None:
    for ending, least in ((".wav", 1000), (".png", 5000)):
        found = call("predict", folder / "run", "la mi", "--draw", folder / "said", "--ending", ending)
        assert found.exit_code == 0, found.output
        assert (folder / "said" / f"1{ending}").stat().st_size > least
    samples, rate = read_sound(folder / "said" / "1.wav")
    (said,) = load(folder / "run").predict(["la mi"])
    assert rate == RATE
    assert len(samples) == len(said.samples)
    refused = call("predict", folder / "run", "la", "--draw", folder / "said", "--ending", ".gif").exception
    assert isinstance(refused, UserError)


def test_texts_are_spoken_alike_alone_and_together(folder: Path) -> None:
    speaker = load(folder / "run")
    (alone,), (other, nothing) = speaker.predict(["LA  mi"]), speaker.predict(["la mi", ""])
    assert alone.text == "la mi"
    for one, two in ((alone.frames_TF, other.frames_TF), (alone.weight_LS.numpy(), other.weight_LS.numpy())):
        np.testing.assert_allclose(one, two, atol=1e-4)
    assert nothing.plain()["seconds"] == 0
    found = json.loads(call("predict", folder / "run", "la mi", "--json").stdout)
    with wave.open(io.BytesIO(base64.b64decode(found["wav"]))) as file:
        assert (file.getframerate(), file.getnframes()) == (RATE, len(alone.samples))
    assert [word["word"] for word in found["words"]] == ["la", "mi"]


def test_look_shows_what_each_step_read(folder: Path) -> None:
    (found,) = load(folder / "run").look(["la mi"], norms=True)
    seen = found.map("cross")
    assert seen.weight_LHTS.shape == (1, 1, len(found.sides["output"].words), 5)
    torch.testing.assert_close(seen.weight_LHTS[0, 0], found.answer.weight_LS)
    assert found.sides["source"].words == ["la", "mi"]
    shown = call("look", folder / "run", "la mi")
    assert shown.exit_code == 0, shown.output
    assert "0.0 s" in shown.stdout
    for name in ("look.html", "look.png"):
        drawn = call("look", folder / "run", "la mi", "--draw", folder / name)
        assert drawn.exit_code == 0, drawn.output
        assert (folder / name).stat().st_size > 1000


def test_a_report_can_be_heard(folder: Path) -> None:
    assert (folder / "run" / "report.html").read_text("utf-8").count("<audio controls") == 4


def test_a_server_speaks(folder: Path) -> None:
    with serving(load_runs([folder / "run"])) as site:
        first, second = site.post("/v1/speak", q=["la mi", ""]).json()["answers"]
        assert base64.b64decode(first["wav"]).startswith(b"RIFF")
        assert second["seconds"] == 0
        assert site.post("/v1/look", text="la").json()["sides"]["source"]["words"] == ["la"]
        refused = site.post("/v1/speak", q="quartz")
        assert refused.status_code == 400
        assert "which no training text has" in refused.json()["error"]


@pytest.mark.usefixtures("quick_start")
def test_a_killed_training_ends_with_the_same_weights(folder: Path) -> None:
    short = ("training.max_steps=8", "training.save_every=3", "training.warmup_steps=2")
    found = call("train", folder / "speak.yaml", *short, "--verify-resume", "--kills", 1)
    assert found.exit_code == 0, found.output
    assert "the same" in found.output


def test_voices_are_read_from_the_names_of_sounds(folder: Path) -> None:
    short = ("training.max_steps=2", "training.validate_every=2", "data.voice=_([a-z]+)_")
    found = call("train", folder / "speak.yaml", *short, "--run", folder / "voices")
    assert found.exit_code == 0, found.output
    (said,) = load(folder / "voices").predict(["ann: la mi"])
    assert [word for word, _ in said.words()] == ["la", "mi"]


def test_new_voices_begin_with_the_run_of_another_one(folder: Path) -> None:
    """Letters of both runs keep their embeddings, and it hears the new texts better than one that begins anew."""
    found = {}
    for name, base in (("anew", ()), ("begun", (f"from={folder / 'run'}",))):
        short = ("training.max_steps=2", "training.validate_every=2", "data.voice=_([a-z]+)_", *base)
        told = call("train", folder / "speak.yaml", *short, "--run", folder / name)
        assert told.exit_code == 0, told.output
        found[name] = json.loads(call("evaluate", folder / name, folder / "test.tsv", "--json").stdout)
    assert "rows of embedding.weight: 11 kept, 2 new" in told.output
    assert found["begun"]["frame_error"] < 0.9 * found["anew"]["frame_error"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("model.score=mean", "it has no keys that could hear of earlier weights"),
        ("data.voice=ann", "it needs a group"),
        ("data.voice=(bob)", "data.voice '(bob)' finds nothing in '"),
        ("data.train=nothing.tsv", "there is no file at nothing.tsv"),
        ("data.max_frames=3", "every sound is longer than data.max_frames, 3"),
        ("frames.num_mels=4", "frames.num_mels"),
    ],
)
def test_mistakes_in_a_config(changed: str, message: str, folder: Path, tmp_path: Path) -> None:
    refused = call("train", folder / "speak.yaml", changed, "--run", tmp_path / "run").exception
    assert isinstance(refused, UserError), refused
    assert message in str(refused)
    assert not (tmp_path / "run").exists()


def test_guided_attention_by_hand() -> None:
    """Two steps over two characters: on the diagonal nothing is lost, off it 1 - exp(-0.25 / 2 g²)."""
    steps, length = torch.tensor([2]), torch.tensor([2])
    assert guided_loss(torch.eye(2)[None], steps, length, 0.2) == 0
    off = guided_loss(torch.eye(2).flip(0)[None], steps, length, 0.2)
    assert float(off) == pytest.approx(2 * (1 - math.exp(-0.25 / 0.08)))
    padded = torch.zeros(1, 3, 4)
    padded[0, 2, 3] = 1  # a step behind the end
    assert guided_loss(padded, steps, length, 0.2) == 0


def test_errors_of_boundaries_by_hand() -> None:
    """A word that is not read is as far off as it is long, on both sides."""
    errors = boundary_errors([(0.0, 0.5), None], ((0.1, 0.5), (0.5, 0.8)))
    assert errors == pytest.approx([0.1, 0.0, 0.3, 0.3])
