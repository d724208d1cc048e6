"""`saccade look --align`: heads that are planted are found, and files come out line by line."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner, Result

import hand_made
from hand_made import GivenAttention
from runs import WORDS, make_run
from saccade.cli import app
from saccade.cli.looking import align as align_command
from saccade.data.sound.mel import Mel
from saccade.data.sound.recordings import Sounds
from saccade.data.text.corpus import Pair
from saccade.data.text.tokenizer import Tokenizer, Vocabulary, train_tokenizer
from saccade.decoding import BeamOptions, Ensemble
from saccade.errors import UserError
from saccade.inspection.align import aligner, chosen_head
from saccade.inspection.align.aligner import Aligner, WordAttention
from saccade.inspection.align.heads import find_best_head, list_candidates, stack_candidate_weights
from saccade.inspection.align.links import SYMMETRIZERS, Gold, Links, format_pharaoh
from saccade.inspection.insight import Head
from saccade.runs.load import load_run
from saccade.tasks.translate import word_weights
from saccade.tasks.translate.predictor import Translator

LAYERS, HEADS = 3, 2
RNN = {"kind": "rnn", "width": 14, "embedding_width": 10, "attention": "luong"}
PAIRS = [Pair("a b c d e", "e d c b a"), Pair("f g", "g f"), Pair("", "a"), Pair("h", ""), Pair("c a b", "b c a")]


class Planted(nn.Module):
    """Random weights, but for one head, which looks at the source word that is the target word."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head
        self.unused = nn.Parameter(torch.zeros(1))
        self.layers = nn.ModuleList(GivenAttention("cross") for _ in range(LAYERS))

    def forward(self, source_BS: Tensor, length_B: Tensor, read_BT: Tensor) -> None:
        generator = torch.Generator().manual_seed(int(source_BS.sum() + read_BT.sum()))
        shape = (len(source_BS), LAYERS, HEADS, read_BT.shape[1], source_BS.shape[1])
        weight_BLHTS = torch.rand(shape, generator=generator)
        of_BT = read_BT if self.head.shift else read_BT.roll(-1, 1)  # what is read, or what is written next
        same_BTS = of_BT[:, :, None] == source_BS[:, None]
        weight_BLHTS[:, self.head.layer, self.head.head] = same_BTS.float()
        real_BS = torch.arange(source_BS.shape[1]) < length_B[:, None]
        for layer, weight_BHTS in zip(self.layers, weight_BLHTS.unbind(1), strict=True):
            layer(weight_BHTS * real_BS[:, None, None])


def planted(head: Head, tokenizer: Tokenizer | None = None) -> WordAttention:
    known = tokenizer or Vocabulary.train("words", [" ".join(WORDS)], 20)
    return Translator(Planted(head), known, known, BeamOptions(width=1)).word_attention()


def true_links(pair: Pair) -> Links:
    words = pair.source.split()
    return frozenset((words.index(word), target) for target, word in enumerate(pair.target.split()) if word in words)


GOLD = [Gold(true_links(pair), true_links(pair)) for pair in PAIRS]


@pytest.mark.parametrize("head", [Head(1, 0, 1), Head(2, 1, 0)])
def test_gold_finds_the_head_that_aligns(head: Head) -> None:
    found = find_best_head(aligner.score_heads(planted(head), PAIRS, GOLD))
    assert found.head == head
    assert found.scores.aer == 0
    assert list(Aligner(planted(head), head).links(PAIRS)) == [gold.sure for gold in GOLD]


def test_agreement_finds_both_heads_without_gold() -> None:
    there, back = Head(0, 1, 1), Head(2, 0, 0)
    found = aligner.find_agreement(planted(there), planted(back), PAIRS)
    assert (found.forward, found.backward, found.f1) == (there, back, 1.0)


def test_a_planted_head_reaches_most() -> None:
    found = aligner.find_coverage(planted(Head(1, 1, 0)), PAIRS)
    assert (found.head, found.share) == (Head(1, 1, 0), (5 + 2 + 0 + 0 + 3) / 11)


@pytest.mark.parametrize("kind", ["bpe", "characters"])
def test_pieces_are_merged_into_white_space_words(kind: str) -> None:
    """Whatever the script, and where a text holds the very sign that SentencePiece writes for a space."""
    words = ["weil", "mir", "gong", "haus", "東京都", "にて", "x▁y▁z"]
    tokenizer = train_tokenizer(kind, [" ".join(words).replace("▁", "_")] * 9, 291)
    pair = Pair(" ".join(words), " ".join(reversed(words)))
    assert len(tokenizer.encode(pair.source)) > 2 * len(words)  # several pieces a word
    (found,) = Aligner(planted(Head(0, 0, 1), tokenizer), Head(0, 0, 1)).links([pair])
    assert found == {(index, len(words) - 1 - index) for index in range(len(words))}


def test_weights_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    translator = load_run(make_run(tmp_path / "run"))
    together = list(translator.word_attention().weights(PAIRS, stack_candidate_weights))
    monkeypatch.setattr(word_weights, "WINDOW", 2)
    monkeypatch.setattr(word_weights, "CELLS", 1)
    for one, alone in zip(together, translator.word_attention().weights(PAIRS, stack_candidate_weights), strict=True):
        torch.testing.assert_close(one[:, :-1], alone[:, :-1])
    assert [tuple(one.shape[1:]) for one in together] == [(6, 6), (3, 3), (2, 1), (1, 2), (4, 4)]


@pytest.mark.parametrize("head", [Head(0, 1), Head(1, 0, 1), Head(1, None), Head(0, None, 1)])
def test_one_head_is_read_as_among_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, head: Head) -> None:
    """In windows of a few pairs too, which end early where pairs are long."""
    attention = load_run(make_run(tmp_path / "run")).word_attention()
    number = list_candidates(*attention.num_layers_and_heads()).index(head)
    wanted = [weight_CTS[number, :-1] for weight_CTS in attention.weights(PAIRS, stack_candidate_weights)]
    for most in (1 << 22, 40):
        monkeypatch.setattr(word_weights, "MOST_CELLS", most)
        found = list(attention.head_weights(PAIRS, head))
        for one, own in zip(wanted, found, strict=True):
            torch.testing.assert_close(one, own[:-1])


def test_long_pairs_make_short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_weights, "MOST_CELLS", 36)  # the first pair's: 5 words and </s> on both sides
    read = iter(PAIRS)
    next(Aligner(planted(Head(0, 0)), Head(0, 0)).links(read))
    assert list(read) == PAIRS[1:]


def test_no_more_than_a_window_is_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_weights, "HEAD_WINDOW", 3)
    read = 0

    def endless() -> Iterator[Pair]:
        nonlocal read
        for pair in itertools.cycle(PAIRS):
            read += 1
            yield pair

    found = Aligner(planted(Head(0, 0)), Head(0, 0)).links(endless())
    assert [next(found) for _ in range(4)] == [gold.sure for gold in GOLD[:4]]
    assert read == 6


def test_what_is_too_long_is_aligned_as_far_as_it_is_read() -> None:
    head = Head(1, 1, 1)
    known = Vocabulary.train("words", [" ".join(WORDS)], 20)
    translator = Translator(Planted(head), known, known, BeamOptions(), max_source_length=3)
    with pytest.warns(UserWarning, match="line 1 has 5 tokens; only the first 3 are aligned"):
        (found,) = Aligner(translator.word_attention(), head).links([Pair("a b c d e", "a b c d e")])
    assert found == {(0, 0), (1, 1), (2, 2)}


def test_both_sides_in_one_file(tmp_path: Path) -> None:
    text = "a  b ||| b\r\n||| c\n"
    with pytest.raises(UserError, match=r"both\.txt:2: not 'source \|\|\| target'; for two files give --target too"):
        list(aligner.read_pairs(written(tmp_path / "both.txt", text), None))
    path = tmp_path / "both.txt.gz"
    path.write_bytes(gzip.compress(b"a  b ||| b\r\n ||| c\n"))
    assert list(aligner.read_pairs(path, None)) == [Pair("a b", "b"), Pair("", "c")]
    assert list(aligner.read_pairs(written(tmp_path / "both.tsv", "a b\tb\n"), None)) == [Pair("a b", "b")]


def written(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    torch.manual_seed(5)
    folder = tmp_path_factory.mktemp("align")
    return [make_run(folder / "there"), make_run(folder / "back")]


@pytest.fixture(autouse=True)
def forgotten(runs: list[Path]) -> None:
    for run in runs:
        (run / chosen_head.NAME).unlink(missing_ok=True)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    sides = ("\n".join(side) + "\n" for side in zip(*PAIRS, strict=True))
    source, target = (str(written(tmp_path / f"{name}.txt", text)) for name, text in zip("st", sides, strict=True))
    return ["--align", "--input", source, "--target", target]


def attention(run: Path) -> WordAttention:
    found: WordAttention = load_run(run).word_attention()
    return found


def look(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["look", *map(str, arguments)])


def test_links_come_line_by_line(runs: list[Path], files: list[str], tmp_path: Path) -> None:
    chosen_head.save(runs[0], Head(1, 0, 1))
    wanted = [format_pharaoh(links) for links in Aligner(attention(runs[0]), Head(1, 0, 1)).links(PAIRS)]
    assert look(runs[0], *files).stdout.splitlines() == wanted
    assert look(runs[0], *files, "--output", tmp_path / "out" / "links.txt").stdout == ""
    assert (tmp_path / "out" / "links.txt").read_text("utf-8").splitlines() == wanted
    rows = [json.loads(line)["links"] for line in look(runs[0], *files, "--json").stdout.splitlines()]
    assert [" ".join(f"{source}-{target}" for source, target in row) for row in rows] == wanted
    assert [len(row) for row in rows] == [5, 2, 0, 0, 3]


def test_without_anything_to_choose_by_the_widest_reach_is_taken_and_said(runs: list[Path], files: list[str]) -> None:
    found = look(runs[0], *files)
    chosen = aligner.find_coverage(attention(runs[0]), PAIRS)
    links = Aligner(attention(runs[0]), chosen.head).links(PAIRS)
    assert found.stdout.splitlines() == [format_pharaoh(one) for one in links]
    assert f"its links reach most source words ({chosen.share:.0%} of 5 pairs)" in found.stderr
    assert not (runs[0] / chosen_head.NAME).exists()


def test_gold_chooses_keeps_and_shows(runs: list[Path], files: list[str], tmp_path: Path) -> None:
    wanted = Head(0, None, 1)
    lines = "".join(f"{format_pharaoh(links)}\n" for links in Aligner(attention(runs[0]), wanted).links(PAIRS))
    gold = written(tmp_path / "gold.txt", lines)
    found = json.loads(look(runs[0], *files, "--gold", gold, "--reverse", runs[1], "--json").stdout)
    there, back = found["runs"]
    assert there["best"] == {**wanted._asdict(), "aer": 0, "precision": 1, "recall": 1}
    assert len(there["heads"]) == len(back["heads"]) == 2 * 2 * 3
    assert back["best"]["aer"] == min(head["aer"] for head in back["heads"])
    assert list(found["together"]) == list(SYMMETRIZERS)
    assert [load_run(run).aligning for run in runs] == [
        Head(*(one["best"][name] for name in Head._fields)) for one in (there, back)
    ]
    assert json.loads((runs[0] / chosen_head.NAME).read_text("utf-8"))["chosen_by"] == "gold"
    shown = look(runs[0], *files, "--gold", gold)
    assert "Best: layer 0, the mean of its heads, at the step that reads the word; AER 0.0" in shown.stdout
    assert "writes" in shown.stdout


def test_agreement_chooses_once_and_both_are_joined(runs: list[Path], files: list[str]) -> None:
    first = look(runs[0], *files, "--reverse", runs[1], "--symmetrize", "union")
    assert "They agree most: F1" in first.stderr
    there, back = (Aligner(attention(run), cast(Head, chosen_head.load(run))) for run in runs)
    both = list(aligner.link_jointly(there, back, PAIRS))
    assert first.stdout.splitlines() == [format_pharaoh(one | other) for one, other in both]
    again = look(runs[0], *files, "--reverse", runs[1])
    assert "agree" not in again.stderr
    assert again.stdout.splitlines() == [format_pharaoh(SYMMETRIZERS["grow-diag-final-and"](*links)) for links in both]


def test_joint_links_are_those_of_the_product(runs: list[Path]) -> None:
    there, back = Aligner(attention(runs[0]), Head(1, 1)), Aligner(attention(runs[1]), Head(0, None, 1))
    both = list(aligner.link_jointly(there, back, PAIRS))
    one, other = both[0], both[1]
    assert [len(links) for links in (*one, *other)] == [5, 5, 2, 2]
    assert both[2:4] == [(frozenset(), frozenset())] * 2
    weight_TS, weight_ST = next(there.weights(PAIRS)), next(back.weights(aligner.swap(PAIRS)))
    for target, source in itertools.product(range(5), repeat=2):
        value = weight_TS[target, source] * weight_ST[source, target]
        in_row = [weight_TS[target, s] * weight_ST[s, target] for s in range(5)]
        in_column = [weight_TS[t, source] * weight_ST[source, t] for t in range(5)]
        assert ((source, target) in one[0]) == (value == max(in_row))
        assert ((source, target) in one[1]) == (value == max(in_column))


def test_a_recurrent_model_aligns_too(tmp_path: Path, files: list[str]) -> None:
    found = look(make_run(tmp_path / "rnn", model=RNN), *files)
    assert [len(line.split()) for line in found.stdout.splitlines()] == [5, 2, 0, 0, 3]
    assert "rnn: layer 0, " in found.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--align",), "--input: none given"),
        (("--align", "--input", "x", "--layer", 1), "--layer: given with --align, which has no use for it"),
        (("--align", "--input", "x", "a text"), "text: given with --align"),
        (("a text", "--gold", "x"), "--gold: given without --align"),
        (("--align", "--input", "x", "--symmetrize", "union"), "--symmetrize: given without --reverse"),
        (
            ("--align", "--input", "x", "--reverse", "x", "--symmetrize", "grow"),
            "--symmetrize: 'grow' given; allowed: intersection, union, grow-diag,",
        ),
        (("--align", "--input", "no.txt"), "there is no file at no.txt"),
    ],
)
def test_mistakes(runs: list[Path], arguments: tuple[object, ...], message: str) -> None:
    found = look(runs[0], *arguments)
    assert isinstance(found.exception, UserError)
    assert message in str(found.exception)


def test_a_head_that_the_model_has_not_and_a_run_with_itself_are_refused(runs: list[Path], files: list[str]) -> None:
    chosen_head.save(runs[0], Head(2, 0, 1))
    found = look(runs[0], *files)
    assert "aligning.json: layer 2, head 0, at the step that reads the word: this model has none" in str(
        found.exception
    )
    assert "the run itself" in str(look(runs[0], *files, "--reverse", runs[0]).exception)


def test_what_has_no_heads_is_refused(runs: list[Path], tmp_path: Path) -> None:
    plain = make_run(tmp_path / "plain", model={**RNN, "attention": "none"})
    with pytest.raises(UserError, match="this model has no attention"):
        list(Aligner(attention(plain), Head(0)).links(PAIRS))
    both = load_run(*runs[:1])
    ensemble = Translator(Ensemble([both.model]), both.source, both.target, both.options)
    with pytest.raises(UserError, match="an ensemble has no heads of its own"):
        list(Aligner(ensemble.word_attention(), Head(0)).links(PAIRS))
    with pytest.raises(UserError, match="no source words"):
        Translator(nn.Module(), Sounds(Mel(), 4), both.target, both.options).word_attention()


def test_a_run_of_another_task_is_refused(runs: list[Path], files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(align_command, "load_run", lambda folder: hand_made.classifier(hand_made.bag(sharpness=1.0)))
    assert "no source words" in str(look(runs[0], *files).exception)
