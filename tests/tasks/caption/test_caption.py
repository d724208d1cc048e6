"""What a captioner writes and how it is scored; a whole run from its config, for pictures and for feature maps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from PIL import Image
from rich.console import Console

from hand_made import GivenAttention
from saccade.data.pictures.captions import CaptionReader, CaptionSet, CaptionSource, make_shape_captions
from saccade.data.text.tokenizer import Vocabulary
from saccade.layers.image_encoder import ImageEncoder
from saccade.models.captioner import Captioner
from saccade.models.seq2seq import RecurrentSizes
from saccade.runs import train
from saccade.runs.config import check_config
from saccade.runs.load import load_run
from saccade.tasks.caption.predictor import CaptionWriter
from saccade.tasks.caption.scores import noun_attention, score

QUIET = Console(quiet=True)
SMALL: dict[str, Any] = {
    "task": "caption",
    "device": "cpu",
    "data": {"kind": "shapes", "side": 24, "train": 23, "valid": 5, "test": 7},
    "model": {"width": 16, "embedding_width": 12, "dropout": 0.1},
    "training": {"max_steps": 3, "validate_every": 2, "tokens_per_batch": 90, "average_last": 2},
}


def changed(**sections: Any) -> dict[str, Any]:
    return {**SMALL, **{name: {**SMALL.get(name, {}), **fields} for name, fields in sections.items()}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "shapes"
    train.train(check_config(changed(model={"attention": "hard"}, training={"entropy": 0.1}), "test"), folder, QUIET)
    return folder


def test_bleu_by_hand_with_several_references() -> None:
    """Words 4 of 4, pairs 3 of 3, threes 1 of 2, fours none; a reference is as long, so nothing is taken off."""
    found = score(["a dog runs fast"], [["a dog runs", "the cat runs fast"]])
    assert found["bleu1"] == pytest.approx(100.0)
    assert found["bleu2"] == pytest.approx(100 * (1.0 * 1.0) ** 0.5)
    assert found["bleu3"] == pytest.approx(100 * (1.0 * 1.0 * 0.5) ** (1 / 3))
    assert found["bleu4"] == pytest.approx(0.0)
    assert found["exact"] == 0.0


def test_brevity_and_missing_references() -> None:
    found = score(["a b", "c d"], [["a b c d", "x"], ["c d"]])
    # the references nearest in length have 1 and 2 words: nothing is taken off
    assert found["bleu1"] == pytest.approx(100.0)
    assert found["exact"] == 50.0
    short = score(["a b"], [["a b c d"]])
    assert short["bleu1"] == pytest.approx(100 * np.exp(1 - 4 / 2))


def test_bleu_of_each_order_is_that_of_sacrebleu() -> None:
    random = np.random.default_rng(3)
    texts = [" ".join(random.choice(list("abcd"), length)) for length in random.integers(5, 12, 33)]
    outputs, references = texts[:11], [[texts[11 + row], texts[22 + row]] for row in range(11)]
    found = score(outputs, references)
    for order in (1, 2, 3, 4):
        peer = sacrebleu.BLEU(tokenize="none", smooth_method="none", max_ngram_order=order, force=True)
        streams = [list(stream) for stream in zip(*references, strict=True)]
        assert found[f"bleu{order}"] == pytest.approx(peer.corpus_score(outputs, streams).score)


def test_as_many_references_as_outputs() -> None:
    with pytest.raises(ValueError, match="references: 1 given for 2 outputs"):
        score(["a", "b"], [["a"]])


class Looks(torch.nn.Module):
    """An encoder's shape and weights as given: each word looks at the cells of its own number."""

    def __init__(self, weight_BTS: torch.Tensor) -> None:
        super().__init__()
        self.weight_BTS, self.attention = weight_BTS, GivenAttention("cross")
        self.encoder = ImageEncoder(8, rows=24, columns=24)
        self.register_buffer("baseline", torch.zeros(()))

    def forward(self, *_: torch.Tensor) -> None:
        self.attention(self.weight_BTS)


def test_the_share_of_a_noun_on_its_thing() -> None:
    mask_N2YX = np.zeros((1, 2, 24, 24), bool)
    mask_N2YX[0, 0, 0, 0] = mask_N2YX[0, 1, 5, 23] = True  # cells 0 and 11 of 6 x 6
    sentence = "a small red circle above a large blue cross"
    picture = np.zeros((1, 3, 24, 24), np.uint8)
    told = CaptionSet(["one"], [[sentence]], picture, mask_N2YX=mask_N2YX)
    weight_BTS = torch.zeros(1, 10, 36)
    weight_BTS[0, 3, 0], weight_BTS[0, 3, 7] = 0.25, 0.75
    weight_BTS[0, 8, 11] = 0.5
    tokenizer = Vocabulary.train("words", [sentence], 100)
    model: Any = Looks(weight_BTS)
    assert noun_attention(model, tokenizer, told).tolist() == [[0.25, 0.5]]


def test_a_run_from_its_config(run: Path) -> None:
    writer = load_run(run)
    seen = make_shape_captions(3, side=24, seed=9)
    found = writer.predict([seen.item(row) for row in range(3)])
    assert [one.name for one in found] == seen.names
    one = found[0]
    assert one.line() == one.text == " ".join(one.words)
    assert one.attention.shape == (len(one.log_probabilities), 6, 6)
    assert np.allclose(one.attention.sum((1, 2)), 1)
    assert json.loads(json.dumps(one.plain()))["attention"][0][0][0] in (0.0, 1.0)  # hard: one place
    again = next(writer.stream([seen.source[0]], attention=False))
    assert again.text == one.text
    assert again.attention is None
    best = next(writer.stream_best([seen.source[0]], width=3, num_best=3))
    assert len(best) == 3
    assert best[0].score >= best[1].score >= best[2].score
    (first,) = writer.predict([seen.source[0]], num_best=3, attention=False)
    assert [first.text, *(other.text for other in first.others)] == [one.text for one in best]
    assert len(json.loads(json.dumps(first.plain()))["others"]) == 2
    assert [len(other.attention) for other in best] == [len(other.log_probabilities) for other in best]
    report = (run / "report.html").read_text("utf-8")
    assert "data:image/png" in report
    assert "Worst outputs</h2>" in report
    row = json.loads((run / "log.jsonl").read_text("utf-8").splitlines()[-1])
    assert {"score", "valid_bleu4", "valid_exact", "valid_noun_attention", "valid_loss"} <= set(row)


def test_it_reads_draws_and_evaluates(run: Path, tmp_path: Path) -> None:
    writer = load_run(run)
    for name in ("a.png", "b.jpg"):
        Image.new("RGB", (30, 20), (200, 40, 40)).save(tmp_path / name)
    found = writer.predict(writer.read(tmp_path))
    assert [Path(one.name).name for one in found] == ["a.png", "b.jpg"]
    found[0].draw(tmp_path / "drawn.png")
    with Image.open(tmp_path / "drawn.png") as drawn:
        assert drawn.width > 200
    assert writer.predict([tmp_path / "a.png"], width=1)[0].name.endswith("a.png")
    assert len(writer.predict([tmp_path / "a.png"], sample=True, seed=3)) == 1
    (tmp_path / "captions.tsv").write_text("a.png\t0\ta red circle\nb.jpg\t0\ta cross\n", "utf-8")
    scores = writer.evaluate([tmp_path / "captions.tsv", tmp_path]).scores
    assert scores["num_pictures"] == 2
    judged = writer.judge(make_shape_captions(5, side=24, seed=2))
    assert "noun_attention" in judged.scores
    assert any("BLEU-4" in line for line in judged.lines)


def test_mistakes_of_prediction_are_named(run: Path, tmp_path: Path) -> None:
    writer = load_run(run)
    with pytest.raises(ValueError, match="--input: missing"):
        writer.read(None)
    with pytest.raises(ValueError, match="--input: there is nothing at"):
        writer.read(tmp_path / "none.png")
    with pytest.raises(ValueError, match="input: 3 x 8 x 8 given; this model reads 3 x 24 x 24"):
        writer.predict([np.zeros((3, 8, 8), np.uint8)])
    with pytest.raises(ValueError, match="temperature: not an option of a beam; it goes with sample"):
        writer.predict([], temperature=3.0)
    with pytest.raises(ValueError, match=r"evaluate: .*a.tsv given; it needs a captions file and its pictures"):
        writer.evaluate([tmp_path / "a.tsv"])
    with pytest.raises(ValueError, match="draw: this caption was made with attention=False"):
        writer.predict([CaptionSource("", np.zeros((3, 24, 24), np.uint8))], attention=False)[0].draw(
            tmp_path / "x.png"
        )


def test_a_run_on_feature_maps(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    files = {}
    for name, count in (("train", 7), ("valid", 3)):
        lines = [f"{row}.jpg\t{number}\ta dog number {row}\n" for row in range(count) for number in range(2)]
        (tmp_path / f"{name}.tsv").write_text("".join(lines), "utf-8")
        np.save(tmp_path / f"{name}.npy", random.integers(-9, 9, (5, count, 4), np.int8))
        files[name] = {"captions": str(tmp_path / f"{name}.tsv"), "features": str(tmp_path / f"{name}.npy")}
    plain = {**SMALL, "data": {"kind": "features", "axes": "CNS", "scale": 0.5, **files}}
    config = check_config({**plain, "model": {**SMALL["model"], "feature_dropout": 0.1}}, "test")
    train.train(config, tmp_path / "run", QUIET)
    writer = load_run(tmp_path / "run")
    encoder = writer.model.encoder
    flat = 0.5 * np.load(tmp_path / "train.npy").reshape(5, -1)
    assert np.allclose(encoder.mean_C.cpu(), flat.mean(1), atol=1e-5)
    assert np.allclose(encoder.deviation_C.cpu(), flat.std(1), atol=1e-5)
    found = writer.predict(writer.read(tmp_path / "valid.npy"))
    assert [one.attention.shape[1:] for one in found] == [(2, 2)] * 3
    found[0].draw(tmp_path / "places.png")
    assert writer.evaluate([tmp_path / "valid.tsv", tmp_path / "valid.npy"]).scores["num_pictures"] == 3
    with pytest.raises(ValueError, match="evaluate: nothing given; it needs a captions file"):
        writer.evaluate([])


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"data": {"side": 30}}, "data.side: 30 given"),
        ({"data": {"sides": 30}}, r"data.sides: unknown \(did you mean side\?\)"),
        ({"model": {"normalizer": "hard"}}, "normalizer: 'hard' given; attention: hard says so"),
        ({"model": {"attention": "hard", "normalizer": "sparsemax"}}, "'sparsemax' given; hard attention samples"),
        (
            {"model": {"feature_dropout": 0.1}},
            "model.feature_dropout: 0.1 given; it has no effect with data.kind: shapes",
        ),
        ({"training": {"entropy": 0.1}}, "training.entropy: 0.1 given; it has no effect with model.attention: soft"),
        ({"data": {"kind": "films"}}, "films"),
    ],
)
def test_mistakes_of_a_config_are_named(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_config(changed(**sections), "test")


def test_unknown_words_are_not_written() -> None:
    tokenizer = Vocabulary.train("words", ["a"], 100)
    sizes = RecurrentSizes(8, 6, cell="lstm")
    model = Captioner(ImageEncoder(8, rows=8, columns=8), vocabulary=tokenizer.size, sizes=sizes).eval()
    with torch.no_grad():
        model.output.weight.zero_()  # all alike: ties go to the first id that may be written
    options = check_config(SMALL, "test").decoding.options()
    writer = CaptionWriter(model, tokenizer, options, CaptionReader(side=8))
    assert "<unk>" not in writer.predict([np.zeros((3, 8, 8), np.uint8)], width=3, min_length=2)[0].text


def test_a_run_on_pictures_of_a_folder(tmp_path: Path) -> None:
    for row in range(5):
        Image.new("RGB", (20 + row, 12), (40 * row, 0, 90)).save(tmp_path / f"{row}.png")
    lines = [f"{row}.png\t0\tnumber {row}\n" for row in range(5)]
    (tmp_path / "captions.tsv").write_text("".join(lines), "utf-8")
    files = {"captions": str(tmp_path / "captions.tsv"), "pictures": str(tmp_path)}
    short = {"max_length": 4}  # the report draws a place for each word
    plain = {**SMALL, "decoding": short, "data": {"kind": "pictures", "side": 16, "train": files, "valid": files}}
    train.train(check_config(plain, "test"), tmp_path / "run", QUIET)
    writer = load_run(tmp_path / "run")
    assert writer.predict([tmp_path / "3.png"])[0].attention.shape[1:] == (4, 4)
    assert writer.evaluate([tmp_path / "captions.tsv", tmp_path]).scores["num_pictures"] == 5
    (tmp_path / "captions.tsv").write_text("9.png\t0\tnone\n", "utf-8")
    with pytest.raises(ValueError, match=r"there is no file at .*9.png"):
        writer.evaluate([tmp_path / "captions.tsv", tmp_path])
