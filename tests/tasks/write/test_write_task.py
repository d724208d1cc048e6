"""Language models as a user runs them: they learn, resume, write, are scored and looked at; mistakes in one line."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any, final

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from saccade.cli import app
from saccade.data.stream import TextWindow, make_stream
from saccade.data.text.tokenizer import END, SentencePiece
from saccade.decoding import SamplingOptions
from saccade.errors import UserError
from saccade.runs import config as config_file
from saccade.runs import train
from saccade.runs.load import load_run
from saccade.tasks.texts import LongTextWarning
from saccade.tasks.write.measure import Penalties, Rows, score_stream, write_loss
from saccade.tasks.write.predictor import Writer
from saccade.tasks.write.task import examine, make_network, prepare

CONSOLE = Console(quiet=True)
LINES = ["a b c d", "b c d e f", "c d e", "a c e", "f e d c b a"] * 5
SMALL: dict[str, Any] = {"width": 8, "num_heads": 2, "hidden_width": 12, "num_layers": 1}
RNN: dict[str, Any] = {"kind": "recurrent", "width": 12, "embedding_width": 6}
MODELS: dict[str, dict[str, Any]] = {
    "transformer": SMALL,
    "lstm": RNN,
    "variational": {
        **RNN,
        "num_layers": 2,
        "variational": True,
        "weight_dropout": 0.3,
        "hidden_dropout": 0.1,
        "vocabulary_dropout": 0.2,
        "tied": True,
    },
    "key_value": {**RNN, "attention": "key_value", "span": 3},
    "lstmn": {**RNN, "cell": "lstmn", "span": 3},
}


def config_of(folder: Path, kind: str = "transformer", **sections: Any) -> Any:
    (folder / "text.txt").write_text("\n".join(LINES), encoding="utf-8")
    content: dict[str, Any] = {
        "task": "write",
        "device": "cpu",
        "data": {"train": str(folder / "text.txt"), "context": 7, **sections.pop("data", {})},
        "tokenizer": {"kind": "words", **sections.pop("tokenizer", {})},
        "model": {**MODELS[kind], **sections.pop("model", {})},
        "training": {
            "max_steps": 4,
            "batch_size": 3,
            "precision": "float32",
            "schedule": "constant",
            **sections.pop("training", {}),
        },
        **sections,
    }
    return config_file.check_config(content, "write.yaml")


def writer_of(*folders: Path) -> Any:
    return load_run(*folders)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("write")
    train.train(config_of(folder, training={"max_steps": 60, "learning_rate": 0.02}), folder / "run", CONSOLE)
    return folder / "run"


@pytest.mark.parametrize("model", MODELS)
def test_a_resumed_run_is_the_uninterrupted_one(model: str, tmp_path: Path) -> None:
    """The state of an RNN goes on too: the third step begins in the middle of an epoch."""
    dropout = {"dropout": 0.2}
    for steps in (3, 8):
        train.train(
            config_of(tmp_path, model, model=dropout, training={"max_steps": steps}), tmp_path / "parts", CONSOLE
        )
    train.train(config_of(tmp_path, model, model=dropout, training={"max_steps": 8}), tmp_path / "whole", CONSOLE)
    parts, once = (writer_of(tmp_path / name).network.state_dict() for name in ("parts", "whole"))
    assert all(torch.equal(parts[name], once[name]) for name in once)


@pytest.mark.parametrize("model", MODELS)
def test_a_text_is_scored_as_it_is_read_token_by_token(model: str, tmp_path: Path) -> None:
    """With rows as long as the text, the loss is the chain rule's."""
    train.train(config_of(tmp_path, model, data={"context": 200}), tmp_path / "run", CONSOLE)
    writer = writer_of(tmp_path / "run")
    (tmp_path / "test.txt").write_text("a b\nc d e z\n", encoding="utf-8")
    found = writer.evaluate([tmp_path / "test.txt"])
    ids = [1, *writer.tokenizer.encode("a b"), 2, *writer.tokenizer.encode("c d e z"), 2]
    read = [1 if index == 2 else index for index in ids[:-1]]
    with torch.inference_mode():
        vectors, _ = writer.network.advance(writer.network.begin(1), torch.tensor([read]))
        step_TV = writer.network.logits(vectors[0]).log_softmax(-1)
    nats = -float(step_TV.gather(1, torch.tensor(ids[1:])[:, None]).sum())
    assert found.scores["loss"] == pytest.approx(nats / 8, rel=1e-5)
    assert found.scores["perplexity"] == pytest.approx(math.exp(nats / 8), rel=1e-4)
    assert found.scores["nats_per_character"] == pytest.approx(nats / (4 + 8), rel=1e-5)
    assert found.scores["bits_per_character"] == pytest.approx(nats / (4 + 8) / math.log(2), rel=1e-5)
    assert (found.scores["num_tokens"], found.scores["num_unknown"], found.scores["num_documents"]) == (8, 1, 2)
    assert found.lines[0].startswith("perplexity of a token")
    assert found.lines[-1] == "1 tokens are unknown, and scored as <unk>"


def test_an_rnn_is_scored_alike_whatever_the_window(tmp_path: Path) -> None:
    train.train(config_of(tmp_path, "key_value"), tmp_path / "run", CONSOLE)
    writer = writer_of(tmp_path / "run")
    path = tmp_path / "text.txt"
    (one, other) = (
        Writer(**{**vars(writer), "rows": writer.rows._replace(steps=steps)}).evaluate([path]) for steps in (3, 200)
    )
    assert one.scores["loss"] == pytest.approx(other.scores["loss"], rel=1e-5)


def test_an_overlap_gives_each_token_more_to_see(run: Path) -> None:
    writer, path = writer_of(run), run.parent / "text.txt"
    counts = {}
    for overlap in (0.0, 0.9):
        found = Writer(**{**vars(writer), "rows": writer.rows._replace(overlap=overlap)}).evaluate([path])
        counts[overlap] = (found.scores["num_tokens"], found.scores["loss"])
    assert counts[0.0][0] == counts[0.9][0] == 130
    assert counts[0.0][1] != pytest.approx(counts[0.9][1], rel=1e-4)


@pytest.mark.parametrize("kind", ["transformer", "lstm"])
@pytest.mark.parametrize("overlap", [0.0, 0.3, 0.9])
def test_every_token_is_scored_once(kind: str, overlap: float, tmp_path: Path) -> None:
    """A model that knows nothing gives every token 1 / V, however the text is cut."""
    train.train(config_of(tmp_path, kind), tmp_path / "run", CONSOLE)
    writer = writer_of(tmp_path / "run")
    for parameter in writer.network.parameters():
        torch.nn.init.zeros_(parameter)
    stream = make_stream(LINES, writer.tokenizer.encode, "lines")
    found = score_stream(writer.network, stream, Rows(3, overlap, num_readers=7))  # 130 tokens in 7 parts
    assert found.nats == pytest.approx(130 * math.log(writer.tokenizer.size), rel=1e-5)


@final
class Script(torch.nn.Module):
    """A model that writes some ids and no others."""

    context = None

    def __init__(self, ids: list[int], size: int) -> None:
        super().__init__()
        self.embedding, self.ids = torch.nn.Embedding(size, 2), ids

    def begin(self, num_rows: int) -> int:
        return num_rows - 1  # one: the first step

    def advance(self, state: int, read_BT: torch.Tensor) -> tuple[torch.Tensor, int]:
        return torch.full((*read_BT.shape, 1), state), state + 1

    def logits(self, vectors: torch.Tensor) -> torch.Tensor:
        steps = [self.ids[int(step)] for step in vectors.flatten()]
        return torch.nn.functional.one_hot(torch.tensor(steps), self.embedding.num_embeddings) * 99.0


def test_half_a_letter_is_not_told() -> None:
    """é is two tokens here: bytes."""
    tokenizer = SentencePiece.train("bpe", ["a b c"] * 9, 280, seed=1)
    ids = [*tokenizer.encode("a é b"), END]
    script: Any = Script(ids, tokenizer.size)
    options = SamplingOptions(max_length=20, max_length_extra=20)
    writer = Writer((script,), tokenizer, options, Rows(7, 0.5), "lines", "perplexity")
    told = list[str]()
    assert writer.follow("", told.append, beam=1).text == "a é b"
    assert "".join(told) == "a é b"
    assert not any("\ufffd" in part for part in told)
    assert len(told) > 2


def test_texts_go_on(run: Path) -> None:
    writer = writer_of(run)
    one, other, empty = writer.predict(["a b", "a  b c", ""], beam=1)
    assert one.whole == f"a b{one.text}"
    assert one.pieces[: len(one.text.split())] == one.text.split()
    assert one.score == pytest.approx(sum(one.log_probabilities), rel=1e-5)
    assert other.prompt == "a  b c"
    assert empty.text == empty.whole
    assert one.ended == (one.pieces[-1] == "</s>")
    (long,) = writer.predict(["a"], beam=1, min_length=29, max_length=30)  # beyond the context of 7
    assert 28 <= len(long.text.split()) <= 30
    assert long.cut in (None, "length", "loop")


def test_samples_and_beams(run: Path) -> None:
    writer = writer_of(run)
    several = writer.predict_best(["a"], num_best=4, seed=3)[0]
    assert len({one.text for one in several}) > 1
    assert writer.predict(["a"], seed=5)[0].text == writer.predict(["b", "a"], seed=5)[1].text
    assert writer.predict(["a"], temperature=0.01, seed=9)[0].text == writer.predict(["a"], beam=1)[0].text
    best = writer.predict(["a"], beam=3, num_best=2)[0]
    assert best.score >= best.others[0].score
    assert json.loads(json.dumps(best.plain()))["others"][0]["whole"].startswith("a")
    with pytest.raises(UserError, match="temperature: not an option of a beam; it goes with sample"):
        writer.predict(["a"], beam=2, temperature=0.5)


@pytest.mark.parametrize("kind", ["words", "characters", "unigram", "bpe"])
def test_what_is_told_is_what_is_written(kind: str, tmp_path: Path) -> None:
    size = {} if kind in ("words", "characters") else {"vocabulary_size": 280}
    train.train(config_of(tmp_path, tokenizer={"kind": kind, **size}), tmp_path / "run", CONSOLE)
    writer = writer_of(tmp_path / "run")
    for options in ({}, {"beam": 1}, {"beam": 2}, {"num_best": 2}):
        told = list[str]()
        found = writer.follow("a b", told.append, max_length=12, **options)
        assert "".join(told) == found.text
        assert found == writer.predict(["a b"], max_length=12, **options)[0]
        assert len(told) > 1 or len(options) > 0 or len(found.pieces) < 3


def test_weights_of_a_text_that_was_written_and_of_one_that_is_given(run: Path) -> None:
    writer = writer_of(run)
    (found,) = writer.predict(["a b"], attention=True, max_length=4)
    assert found.attention is not None
    assert found.attention.shape == (len(found.pieces), 2 + len(found.pieces))
    assert found.read is not None
    assert found.read[:3] == ["<s>", "a", "b"]
    (seen,) = writer.look(["a b"], targets=["c d"], norms=True)
    assert seen.answer.text == " c d"
    assert seen.sides["read"].pieces == ["<s>", "a", "b", "c"]
    weight_TS = seen.map().weight_LHTS[0, 0]
    torch.testing.assert_close(weight_TS.sum(-1), torch.ones(4))
    assert torch.equal(weight_TS, weight_TS.tril())
    (whole,) = writer.look(["a b c d"])
    torch.testing.assert_close(whole.map().weight_LHTS, seen.map().weight_LHTS)
    assert whole.answer.perplexity == pytest.approx(math.exp(-sum(whole.answer.log_probabilities) / 4))
    for text, message in (("", "it is blank"), ("a " * 8, "8 tokens given; at most 7 can be looked at")):
        with pytest.raises(UserError, match=message):
            writer.look([text])


def test_an_rnn_shows_what_it_read_of_its_last_states(tmp_path: Path) -> None:
    train.train(config_of(tmp_path, "lstmn"), tmp_path / "run", CONSOLE)
    (seen,) = writer_of(tmp_path / "run").look(["a b c d e f"])
    weight_TS = seen.map().weight_LHTS[0, 0]
    assert weight_TS.shape == (6, 6)
    allowed_TS = torch.ones(6, 6).tril(-1) - torch.ones(6, 6).tril(-4)
    assert torch.equal(weight_TS > 0, allowed_TS > 0)
    train.train(config_of(tmp_path, "lstm"), tmp_path / "plain", CONSOLE)
    plain = writer_of(tmp_path / "plain")
    assert plain.traits.kinds == ()
    with pytest.raises(UserError, match="this model has no attention to look at"):
        plain.look(["a"])[0].map()


def test_an_ensemble_is_the_mean_of_its_members(run: Path, tmp_path: Path) -> None:
    train.train(config_of(tmp_path, seed=7), tmp_path / "run", CONSOLE)
    one, other = writer_of(run), writer_of(tmp_path / "run")
    both = writer_of(run, tmp_path / "run")
    (found,) = both.predict(["a b"], beam=1, max_length=1)
    with torch.inference_mode():
        steps = []
        for writer in (one, other):
            ids = torch.tensor([[1, *writer.tokenizer.encode("a b")]])
            vectors, _ = writer.network.advance(writer.network.begin(1), ids)
            steps.append(writer.network.logits(vectors[0, -1]).softmax(-1))
    assert found.log_probabilities[0] == pytest.approx(math.log(float((sum(steps) / 2).max())), abs=1e-4)
    with pytest.raises(UserError, match="an ensemble only writes"):
        both.evaluate([run.parent / "text.txt"])
    with pytest.raises(UserError, match="an ensemble has no attention of its own"):
        both.look(["a"])
    train.train(config_of(tmp_path, tokenizer={"vocabulary_size": 7}), tmp_path / "small", CONSOLE)
    with pytest.raises(UserError, match="its tokenizer differs"):
        writer_of(run, tmp_path / "small")


def test_long_beginnings_are_said(run: Path) -> None:
    with pytest.warns(LongTextWarning, match="text 2 has 9 tokens; the model sees the last 7"):
        writer_of(run).predict(["a", "a " * 9], max_length=2)


def test_what_is_said_and_reported(run: Path, tmp_path: Path) -> None:
    said = Console(record=True, width=200, file=io.StringIO())
    data = {"valid": 2, "test": str(tmp_path / "test.txt")}
    (tmp_path / "test.txt").write_text("a b z\n", encoding="utf-8")
    prepare(config_of(tmp_path, data=data), tmp_path, said)
    assert said.export_text().splitlines() == [
        "The vocabulary has 10 tokens.",
        "data.valid: the end of data.train (2)",
        "data.train: 23 documents (lines): 119 tokens, 119 words, 192 characters",
        "data.valid: 2 documents (lines): 11 tokens, 11 words, 18 characters",
        "data.test: 1 documents (lines): 4 tokens, 4 words, 6 characters",
        "data.test: 1 tokens (25.0%) are <unk>",
    ]
    config = config_file.load_config(run / "config.yaml")
    part = examine(config, writer_of(run))
    assert part.name == "valid"
    assert next(iter(part.scores)) == "perplexity"
    report = (run / "report.html").read_text("utf-8")
    assert "Samples" in report
    assert "perplexity" in report


def test_line_breaks_are_letters(tmp_path: Path) -> None:
    (tmp_path / "play.txt").write_text("A:\nbc\n\n" * 20, encoding="utf-8")
    data = {"train": str(tmp_path / "play.txt"), "documents": "files", "context": 16}
    training = {"max_steps": 200, "learning_rate": 0.01, "batch_size": 8}
    sections: dict[str, Any] = {"tokenizer": {"kind": "characters"}, "model": {"width": 16, "positions": "relative"}}
    config = config_of(tmp_path, data=data, training=training, **sections)
    assert config.metric == "nats_per_character"
    train.train(config, tmp_path / "run", CONSOLE)
    writer = writer_of(tmp_path / "run")
    (found,) = writer.predict(["A:\n"], beam=1, max_length=10)
    assert found.whole == "A:\nbc\n\nA:\nbc\n"
    assert writer.evaluate([tmp_path / "play.txt"]).lines[0].startswith("nats a character")


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"cell": "lstm"}}, r"model\.cell: unknown"),
        ({"model": {"score": "location"}, "data": {"context": 600}}, r"data\.context: 600 given; the location score"),
        ({"training": {"metric": "bleu"}}, r"training\.metric: 'bleu' given"),
        ({"data": {"documents": "books"}}, r"data\.documents: 'books' given"),
        ({"tokenizer": {"kind": "unigram", "vocabulary_size": 3}}, r"tokenizer\.vocabulary_size: 3 given"),
    ],
)
def test_wrong_configs_are_refused(sections: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        config_of(tmp_path, **sections)


def test_an_rnn_has_no_overlap(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.overlap: 0\.1 given; an RNN reads a text in one go"):
        config_of(tmp_path, "lstm", data={"overlap": 0.1})


def test_an_rnn_is_penalised_for_the_size_and_the_change_of_its_states(tmp_path: Path) -> None:
    """AR and TAR of Merity (2018), by hand, a token's share of the mean for each token."""
    network = make_network(config_of(tmp_path, "lstm"), 29).eval()
    read_BT = torch.arange(4, 25).view(3, 7)
    batch = TextWindow(read_BT, read_BT + 1, torch.tensor(0), torch.tensor(True))
    plain, likelihood = write_loss(network, batch)
    loss, shown = write_loss(network, batch, penalties=Penalties(size=500.0, change=250.0))
    h_BTD = network(batch).detach().double().numpy()
    size, change = (h_BTD**2).mean(), ((h_BTD[:, 1:] - h_BTD[:, :-1]) ** 2).mean()
    assert float((loss - plain).detach()) == pytest.approx(21 * (500 * size + 250 * change), rel=1e-4)
    assert float(shown) == float(likelihood)


@pytest.mark.parametrize("name", ["size_penalty", "change_penalty"])
def test_a_transformer_has_no_penalties_of_its_states(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"training\.{name}: 1\.5 given; it has no effect with model\.kind: trans"):
        config_of(tmp_path, training={name: 1.5})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 13, "attention": "key_value"}, "width: 13 given; attention: key_value cuts it into 2 equal parts"),
        ({"width": 12, "attention": "ngram", "span": 5}, "attention: ngram cuts it into 5 equal parts"),
        (
            {"tied": True, "embedding_width": 13},
            "embedding_width: 13 given; tied to the output it must be at most 12",
        ),
        ({"hidden_dropout": 0.1}, "hidden_dropout: 0.1 given; it has no effect with num_layers: 1"),
        ({"cell": "lstmn", "attention": "states"}, "attention: 'states' given; cell: lstmn attends by itself"),
        ({"cell": "lstmn", "variational": True}, "variational: True given; cell: lstmn has dropout alone"),
        ({"cell": "lstmn", "weight_dropout": 0.5}, "weight_dropout: 0.5 given; cell: lstmn has dropout alone"),
        ({"span": 3}, "span: 3 given; it has no effect with attention: none"),
        ({"score": "dot"}, "score: 'dot' given; it has no effect"),
        (
            {"attention": "states", "score": "location", "span": 600},
            "span: 600 given; the location score has a row for each of 512",
        ),
    ],
)
def test_wrong_rnns_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        config_of(tmp_path, "lstm", model=changes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "data.train: there is no file at"),
        (b"", "has no text; every line is blank"),
        (b" \n\n", "has no text; every line is blank"),
        (b"a\n\xff\n", ":2: this is not UTF-8"),
        (b"PK\x03\x04", "this is a zip archive"),
    ],
)
def test_wrong_files_are_refused(content: bytes | None, message: str, tmp_path: Path) -> None:
    config = config_of(tmp_path)
    (tmp_path / "text.txt").unlink()
    if content is not None:
        (tmp_path / "text.txt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        prepare(config, tmp_path / "run", CONSOLE)
    assert not (tmp_path / "run").exists()


def test_the_command_line_writes_scores_and_looks(run: Path) -> None:
    def invoke(*arguments: object, stdin: bytes = b"") -> str:
        done = CliRunner().invoke(app, [str(one) for one in arguments], input=stdin)
        assert done.exit_code == 0, done.exception
        return done.stdout

    alone = invoke("predict", run, "a b", "--beam", 1)
    assert alone.startswith("a b ")
    assert (
        invoke("predict", run, stdin=b"a b\n")
        == invoke("predict", run, "a b")
        == invoke("predict", run, "a b", "--stream")
    )
    assert json.loads(invoke("predict", run, "a", "--json", "--top-k", 1))["prompt"] == "a"
    assert "<s>" in invoke("predict", run, "a b", "--attention", "--max-length", 4)
    assert "perplexity of a token" in invoke("evaluate", run, run.parent / "text.txt")
    assert "<s>" in invoke("look", run, "a b c d")
    assert invoke("look", run, "a b c d", "--heads").startswith("layer head")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", "--stream", "--json"), "--stream: given with --json"),
        (("a", "--input", "b"), "--input: given with texts"),
        (("a", "--key-terms", "2"), "--key-terms: given, but this model's task has no use for it"),
        (("a", "--temperature", "0"), "temperature: 0.0 given; it must be above 0"),
    ],
)
def test_wrong_calls_are_refused(arguments: tuple[str, ...], message: str, run: Path) -> None:
    refused = CliRunner().invoke(app, ["predict", str(run), *arguments]).exception
    assert isinstance(refused, UserError), refused
    assert message in str(refused)
