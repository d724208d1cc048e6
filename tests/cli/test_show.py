"""`saccade look`: every option does what it says, or is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import saccade
from runs import make_run
from saccade.cli import app
from saccade.cli import look as commands
from saccade.cli.looking.show import LookOutput
from saccade.errors import UserError
from saccade.inspection.align import chosen_head
from saccade.inspection.insight import Head, Insight
from saccade.inspection.views import heads as head_statistics
from saccade.inspection.views.heads import HeadWeights
from saccade.inspection.views.view import ViewChoice
from saccade.tasks.base import Traits

RNN = {"kind": "rnn", "width": 14, "embedding_width": 10, "attention": "luong"}
RUNNER = CliRunner()
WIDE = {"COLUMNS": "100"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(7)
    return make_run(tmp_path_factory.mktemp("showing") / "run")


def look(run: Path, *arguments: str) -> str:
    result = RUNNER.invoke(app, ["look", str(run), *arguments], env=WIDE)
    assert result.exit_code == 0, result.output
    return result.stdout


def looked(run: Path, *arguments: str) -> dict[str, Any]:
    return json.loads(look(run, *arguments, "--json"))


@pytest.mark.parametrize("view", ["rollout", "flow"])
def test_json_holds_a_view_through_the_layers(view: str, run: Path) -> None:
    found = looked(run, "a b c", "--view", view)
    (seen,) = saccade.load(run).look(["a b c"], kinds=("cross", "encoder", "decoder"))
    assert list(found["attention"]) == ["cross"]
    wanted = ViewChoice(view).of(seen).weight_LHTS[0, 0]
    assert torch.allclose(torch.tensor(found["views"][view]["weights"]), wanted, atol=1e-4)
    assert list(looked(run, "a b c", "--view", view, "--kind", "encoder")["views"][view])[:2] == ["queries", "keys"]


def test_json_holds_norms_where_they_are_asked_for(run: Path) -> None:
    assert "norms" not in looked(run, "a b c")["attention"]["cross"]
    cross = looked(run, "a b c", "--view", "norms")["attention"]["cross"]
    assert torch.tensor(cross["norms"]).shape == torch.tensor(cross["weights"]).shape


def test_views_differ_in_the_terminal(run: Path) -> None:
    given = ("a b c d e f", "--target", "b d f a c e")
    shown = {view: look(run, *given, "--view", view) for view in ("weights", "maximum", "rollout", "flow", "norms")}
    assert len(set(shown.values())) == 5
    assert shown["weights"] == look(run, *given, "--view", "mean") == look(run, *given)
    heads = {look(run, *given, "--layer", "0", "--head", str(head)) for head in range(2)}
    assert len({*heads, shown["weights"]}) == 3


def test_pieces_and_words(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "tokenizer.kind=characters", words=["ab", "cd"])
    assert look(folder, "ab cd", "--target", "cd").splitlines()[1].split() == ["ab", "cd", "</s>"]
    assert look(folder, "ab cd", "--target", "cd", "--pieces").splitlines()[1].split() == [*"abcd", "</s>"]


def test_all_heads_in_figures(run: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.write_text("a b c\n\nd e\n" * 20, encoding="utf-8")  # more than are looked at together, and blank ones
    found = looked(run, "--heads", "--input", str(texts))["heads"]
    seen = saccade.load(run).look(["a b c", "d e"])
    wanted = head_statistics.rows(head_statistics.table([HeadWeights.of(one, "cross") for one in seen]))
    assert [(row["layer"], row["head"]) for row in found] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for row, other in zip(found, wanted, strict=True):
        assert row == pytest.approx(other, abs=2e-4)
    shown = look(run, "a b c", "--heads", "--kind", "encoder")
    assert shown.splitlines()[0].split()[:3] == ["layer", "head", "entropy"]
    assert "previous" in shown
    assert len(shown.split("\n\n")[0].splitlines()) == 5


def test_a_grid_of_all_heads_for_each_text(run: Path, tmp_path: Path) -> None:
    look(run, "a b c", "d", "--heads", "--draw", str(tmp_path / "all.svg"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all-1.svg", "all-2.svg"]
    assert (tmp_path / "all-1.svg").read_text("utf-8").count("<image") == 4 + 1


def test_the_grid_frames_the_head_that_aligns(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    chosen_head.save(folder, Head(1, 0, shift=1), aer=21.5)
    look(folder, "a b", "--heads", "--draw", str(tmp_path / "all.svg"))
    assert "#d9480f" in (tmp_path / "all.svg").read_text("utf-8")
    assert "agreement" in look(folder, "a b", "--heads")


def test_a_page_holds_everything_and_opens_where_it_is_asked_to(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    shown = look(run, "a b c", "", "d", "--layer", "-1", "--head", "1", "--pieces", "--draw", str(path))
    page = path.read_text("utf-8")
    insights, start = (
        json.loads(page.split(f'id="{name}">')[1].split("</script>")[0]) for name in ("insights", "start")
    )
    assert start == {"name": "weights", "layer": -1, "head": 1, "byWords": False}
    assert [list(one["attention"]) for one in insights] == [["cross", "encoder", "decoder"]] * 2
    assert all("norms" in one["attention"]["cross"] and list(one["views"]) == ["rollout"] for one in insights)
    assert len(shown.splitlines()) == 3
    look(run, "a b c", "--view", "flow", "--draw", str(path))
    assert '"flow":{"queries":"output"' in path.read_text("utf-8")


def test_texts_that_are_read_with_those_before_them_stay_together(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dialogue:
        """Counts the texts of each call."""

        traits = Traits("dialogue", context=1)

        def look(self, texts: list[str]) -> list[Insight]:
            parts.append(len(texts))
            return []

    parts = list[int]()
    monkeypatch.setattr("saccade.cli.look.load_run", lambda _: Dialogue())
    look(run, *["a"] * 50)
    monkeypatch.setattr(Dialogue, "traits", Traits("dialogue"))
    look(run, *["a"] * 50)
    assert parts == [50, 32, 18]


def test_a_page_of_a_model_that_is_no_transformer(tmp_path: Path) -> None:
    look(make_run(tmp_path / "rnn", model=RNN), "a b c", "--draw", str(tmp_path / "page.html"))
    assert '"views"' not in (tmp_path / "page.html").read_text("utf-8").split('id="insights">')[1].split("</script>")[0]
    with pytest.raises(UserError, match="rollout given, but this model's encoder has no attention"):
        RUNNER.invoke(app, ["look", str(tmp_path / "rnn"), "a", "--view", "rollout"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--input", "x"], "--input: given with texts"),
        (["a", "--view", "top"], "view: 'top' given; allowed: weights"),
        (["a", "--view", "mean", "--head", "1"], "head: 1 given, but mean is of all heads"),
        (["a", "--view", "flow", "--layer", "1"], "layer: 1 given, but flow goes through all layers"),
        (["a", "--json", "--layer", "1"], "--layer: given with --json"),
        (["a", "--json", "--pieces"], "--pieces: given with --json"),
        (["a", "--json", "--view", "mean"], "--view: given with --json"),
        (["a", "--heads", "--head", "1"], "--head: given with --heads"),
        (["a", "--heads", "--pieces"], "--pieces: given with --heads"),
        (["a", "--heads", "--draw", "a.html"], "--heads: given with an HTML page"),
        (["", "--heads"], "text: all are blank"),
        (["", "--draw", "a.html"], "text: all are blank"),
        (["a", "--layer", "2", "--draw", "a.html"], "layer: 2 given; allowed: 0 to 1"),
        (["a", "--draw", "a.gif"], "a picture ends in .png, .svg, .pdf, a page in .html"),
        (["a", "--kind", "pooling"], "kind: 'pooling' given, but this model has none of it"),
    ],
)
def test_what_has_no_effect_is_refused(run: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        RUNNER.invoke(app, ["look", str(run), *arguments], catch_exceptions=False)


def test_nothing_is_written_where_the_ending_is_wrong(run: Path, tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["look", str(run), "a", "--draw", str(tmp_path / "a.gif")])
    assert (result.stdout, list(tmp_path.iterdir())) == ("", [])


def test_a_file_of_texts_is_read_with_a_file_of_outputs(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "WINDOW", 2)
    for name, lines in {
        "source": "a b\n\nc d\n",
        "target": "b a\n\nd c\n",
        "short": "b a\n",
        "long": "b\n" * 4,
    }.items():
        (tmp_path / name).write_text(lines, encoding="utf-8")
    given = ("--input", str(tmp_path / "source"), "--target")
    found = look(run, *given, str(tmp_path / "target"), "--json").splitlines()
    assert [json.loads(line)["answer"]["text"] for line in found] == ["b a", "", "d c"]
    for name, message in {"short": "the targets end after 1", "long": "the texts end after 3"}.items():
        with pytest.raises(UserError, match=message):
            RUNNER.invoke(app, ["look", str(run), *given, str(tmp_path / name)], catch_exceptions=False)


def test_help_says_what_happens_without_an_option() -> None:
    shown = RUNNER.invoke(app, ["look", "--help"], env=WIDE).stdout
    assert shown.count("(default:") == 7


def test_without_weights_there_is_no_page(tmp_path: Path) -> None:
    request = LookOutput(ViewChoice(), pieces=False, picture=tmp_path / "a.html", as_json=False, is_one=True)
    with pytest.raises(UserError, match=r"without weights there is no page; allowed: .png, .gif"):
        request.page(iter([Insight("glimpse", None, {}, {}, draws_itself=True)]), title="")
