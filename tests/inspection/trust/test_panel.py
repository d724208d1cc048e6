"""The panel as it is shown: every figure there, narrow windows and long texts, files that are whole."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
import torch
from rich.cells import cell_len
from rich.console import Console

import hand_made
from saccade.errors import UserError
from saccade.inspection.trust import panel as trust_panel
from saccade.inspection.trust.evidence import examine
from saccade.inspection.trust.subjects import ClassifierSubject
from saccade.inspection.trust.verdict import TrustFigures

TEXT = "the cat sat on a happy mat"


@pytest.fixture(scope="module")
def panel() -> TrustFigures:
    return TrustFigures.of(examine(ClassifierSubject(hand_made.bag(sharpness=20.0)), [hand_made.case(TEXT)]))


def shown(panel: TrustFigures, width: int) -> list[str]:
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(trust_panel.in_terminal(panel, console=console))
    return captured.get().splitlines()


def test_every_figure_is_in_the_terminal(panel: TrustFigures) -> None:
    lines = shown(panel, 100)
    cells = [re.split(r"\s{2,}", line.strip()) for line in lines]
    rows = {name: values for name, *values in cells}
    assert [row for row in rows if row in TEXT.split()] == TEXT.split()
    assert rows["happy"] == ["100", "100", "100"]
    assert rows["attention"] == ["1.00", "1.00"]
    assert rows["uniform weights"] == ["0.00", "0.00"]
    assert rows["gradient x input"] == ["1.00"]
    assert rows["random, best 5%"] == [f"{panel.steps.floor[name]:.2f}" for name in ("gradient", "erasure")]
    assert rows["uniform"] == [f"{panel.moved['uniform'].distance:.2f}", "-0.43", "100%"]
    assert any(f"attention (cost {panel.cost('attention'):.2f})" in line for line in lines)
    assert " ".join(" ".join(lines).split()).endswith(panel.verdict.sentence)


@pytest.mark.parametrize("width", [40, 80, 160])
def test_it_fits_the_window(panel: TrustFigures, width: int) -> None:
    lines = shown(panel, width)
    assert max(map(cell_len, lines)) <= width
    assert sum("└" in line for line in lines) == {40: 4, 80: 2, 160: 1}[width]
    assert "…" not in "".join(lines)


def test_all_curves_have_one_scale(panel: TrustFigures) -> None:
    labels = [line.split("│")[0].strip() for line in shown(panel, 40) if "│" in line]
    assert [label for label in labels if label] == ["-0.02", "-0.69"] * 4


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "html"])
def test_files_are_whole(panel: TrustFigures, ending: str, tmp_path: Path) -> None:
    path = tmp_path / "deep" / f"panel.{ending}"
    trust_panel.to_file(panel, path, title="of " + "many words " * 40)
    assert path.stat().st_size > 5000
    assert [found.name for found in path.parent.iterdir()] == [path.name]


def test_a_dollar_is_no_equation(panel: TrustFigures, tmp_path: Path) -> None:
    assert panel.alone is not None
    dollars = replace(panel, alone=panel.alone._replace(words=["$\\frac", "$5", *panel.alone.words[2:]]))
    trust_panel.to_file(dollars, tmp_path / "panel.svg", title="from $5 to $\\frac$")
    assert (tmp_path / "panel.svg").exists()


def test_other_endings_are_refused() -> None:
    with pytest.raises(UserError, match=r"a.gif: a panel ends in .png, .svg, .pdf or .html"):
        trust_panel.check_ending(Path("a.gif"))


def test_the_page_says_it_all_and_loads_nothing(panel: TrustFigures, tmp_path: Path) -> None:
    trust_panel.to_file(panel, path := tmp_path / "panel.html", title="<b>")
    page = path.read_text("utf-8")
    assert '<h1 dir="auto">&lt;b&gt;</h1>' in page
    assert panel.verdict.sentence in unescape(page)
    assert '<th scope="row" dir="auto">happy</th><td class="number">100</td>' in page
    assert page.count('<path class="line-') == 8  # four curves, four in the legend
    assert "default-src 'none'" in page
    assert "http" not in page.replace("http-equiv", "")


def test_the_head_that_tells_most_is_named(panel: TrustFigures) -> None:
    heads = replace(panel.steps, heads_LH=torch.tensor([[0.1, 0.2, 0.7], [0.3, 0.4, 0.5]]))
    lines = shown(replace(panel, steps=heads, whole=heads), 80)
    assert [line.split() for line in lines if "layer" in line] == [["layer", "0,", "head", "2", "0.70"]]
    assert not any("layer" in line for line in shown(panel, 80))


def test_a_test_set_has_no_words_to_list(tmp_path: Path) -> None:
    cases = [hand_made.case(TEXT), hand_made.case("a happy cat")]
    several = TrustFigures.of(examine(ClassifierSubject(hand_made.bag(sharpness=20.0)), cases))
    assert "What each word is worth" not in " ".join(shown(several, 80))
    assert "text" not in several.plain()
    trust_panel.to_file(several, tmp_path / "panel.png", title="two")
    assert (tmp_path / "panel.png").exists()
