"""The page of a run: it loads nothing, escapes everything, and stands whatever the log lacks."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from saccade.inspection.pages import report
from saccade.inspection.pages.samples import PageSample, render_samples

VOID = {"meta", "link", "br", "wbr"}
EVIL = "<script>alert('1')</script> & \"two\" cats"
LOG = [
    {"step": 10, "epoch": 0, "loss": 6.0, "norm": 1.0, "tokens_per_second": 900.0, "learning_rate": 1e-5},
    {"step": 20, "epoch": 0, "loss": None, "norm": None, "tokens_per_second": 1100.0},
    {"step": 30, "epoch": 1, "loss": 4.0, "valid_bleu": 31.5, "score": 31.5, "valid_chrf": 50.0, "valid_loss": 3.5},
    {"step": 40, "epoch": 1, "loss": 3.0, "valid_bleu": 29.0, "score": 29.0, "valid_perplexity": float("inf")},
]


class Page(HTMLParser):
    """Tags with their attributes, texts by tag; complains about tags that don't close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and self.open:
            self.texts.append((self.open[-1], data))

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        names = {name.replace("_", "-").strip("-"): value for name, value in wanted.items()}
        return [has for found, has in self.tags if found == tag and names.items() <= has.items()]

    def text(self, *tags: str) -> str:
        return " ".join(text for tag, text in self.texts if not tags or tag in tags)


def written(folder: Path, *, samples: Any = (), by_length: Any = (), **parts: Any) -> Page:
    parts["sections"] = [("By length", report.render_lengths(by_length)), ("Samples", render_samples(samples))]
    given: dict[str, Any] = {"title": "a run", "config": {"seed": 1}, "versions": {"torch": "2"}, "log": LOG} | parts
    report.write(folder / "report.html", **given)
    return Page((folder / "report.html").read_text("utf-8"))


def sample(**parts: Any) -> PageSample:
    given: dict[str, Any] = {
        "source": "the red cats",
        "output": "les chats rouges",
        "reference": "les chats rouges",
        "score": -0.5,
        "source_pieces": ["▁the", "▁red", "▁cat", "s"],
        "output_pieces": ["▁les", "▁chats", "▁rouges"],
        "weights": [[1, 0, 0, 0], [0, 0, 0.75, 0.25], [0, 0.9, 0.1, 0], [0, 0, 0, 1]],
    }
    return PageSample(**given | parts)


def test_it_loads_nothing(tmp_path: Path) -> None:
    page = written(tmp_path, samples=[sample()])
    for _, has in page.tags:
        assert not {"src", "srcset", "action"} & has.keys()
        assert has.get("href", "data:,") == "data:,"
    text = (tmp_path / "report.html").read_text("utf-8")
    assert not re.search(r"https?://|url\(|@import|import\(|fetch\(", text)
    (policy,) = page.all("meta", http_equiv="Content-Security-Policy")
    assert str(policy["content"]).startswith("default-src 'none'")


def test_every_text_is_escaped(tmp_path: Path) -> None:
    words = EVIL.split()
    weights = [[0.2] * len(words)] * len(words)
    one = sample(source=EVIL, output=EVIL, reference=EVIL, source_pieces=words, output_pieces=words, weights=weights)
    everything = {
        "title": EVIL,
        "config": {EVIL: [EVIL]},
        "versions": {EVIL: EVIL},
        "samples": [one, one._replace(weights=None)],
        "scores": {EVIL: EVIL, f"{EVIL}_signature": EVIL},
        "by_length": [(EVIL, 1, 2.0)],
    }
    page = written(tmp_path, **everything)
    assert len(page.all("script")) == 2
    assert page.text("h1") == EVIL
    assert page.text("dd").count(EVIL) == 4  # every text but the two that are in pieces
    assert yaml.safe_load(page.text("code").removeprefix(EVIL).lstrip()) == {EVIL: [EVIL]}


def test_the_header_names_the_best_score_and_where_it_was(tmp_path: Path) -> None:
    written(tmp_path, seconds=3725.0)
    header = (tmp_path / "report.html").read_text("utf-8").split("<header>")[1].split("</header>")[0]
    said = " ".join(re.sub("<[^>]+>", " ", header).split())
    figures = "steps 40 training time 1 h 2 min tokens a second 1,000 median"
    assert said == f"saccade a run best BLEU in validation 31.50 step 30 {figures}"


def test_the_curves_hold_the_values_that_were_logged(tmp_path: Path) -> None:
    charts = written(tmp_path).all("svg", _class="chart")
    lines = {line["name"]: line["points"] for chart in charts for line in json.loads(str(chart["data-lines"]))}
    assert [(x, y) for *_, x, y in lines["BLEU"]] == [(30, 31.5), (40, 29)]
    assert [(x, y) for *_, x, y in lines["validation"]] == [(30, 3.5)]
    assert [x for *_, x, _ in lines["training"]] == [10, 30, 40]
    assert [y for *_, x, y in lines["learning rate"]] == [1e-5]
    assert "BLEU from 31.5 to 29, best 31.5 at step 30" in str(charts[1]["aria-label"])


def test_figures_of_a_kind_of_spans_keep_its_name(tmp_path: Path) -> None:
    page = written(tmp_path, scores={"test": {"f1": 90.0, "f1_LOC": 80.0}})
    assert "test F1 test F1 of LOC" in page.text("th")


def test_only_the_score_that_chose_the_model_has_its_best_marked(tmp_path: Path) -> None:
    rows = [{"step": 5, "valid_chrf": 80.0, "valid_bleu": 31.0, "score": 31.0}, {"step": 9, "valid_chrf": 81.0}]
    (chart,) = written(tmp_path, log=rows).all("svg", _class="chart")
    assert "chrF from 80 to 81; BLEU from 31 to 31, best 31 at step 5" in str(chart["aria-label"])
    page = (tmp_path / "report.html").read_text("utf-8")
    assert re.findall(r"<title>(.*?: best.*?)</title>", page) == ["BLEU: best 31 at 5"]


def test_perplexity_alone_gives_the_validation_loss(tmp_path: Path) -> None:
    (chart,) = written(tmp_path, log=[{"step": 5, "valid_perplexity": 1.0}]).all("svg", _class="chart")
    assert "validation from 0 to 0" in str(chart["aria-label"])


@pytest.mark.parametrize(
    "log",
    [
        [],
        [{}],
        [{"step": None, "loss": 1.0}],
        [{"step": 1}],
        [{"loss": "x", "step": 1}],
        [{"loss": True, "step": 1}],
        [{"loss": float("nan"), "step": 1, "tokens_per_second": float("inf"), "score": float("nan")}],
        [{"step": 3, "loss": 0}],
    ],
)
def test_a_log_may_lack_anything(log: list[dict[str, Any]], tmp_path: Path) -> None:
    page = written(tmp_path, log=log, config={}, versions={})
    has_curves = any(row.get("loss") == 0 for row in log)
    assert ("Nothing is logged yet." in page.text("p")) != has_curves
    assert "NaN" not in page.text()


def test_weights_are_a_table_with_a_name_for_each_row_and_column(tmp_path: Path) -> None:
    page = written(tmp_path, samples=[sample()])
    assert len(page.all("th", scope="col", data_column="3")) == 1
    assert "</s>" in page.text("th")  # the fourth row has no piece
    cells = [str(has["style"]) for has in page.all("td") if "style" in has]
    assert cells[4:8] == ["--w:0.00", "--w:0.00", "--w:0.75", "--w:0.25"]
    assert len(cells) == 16


def test_pieces_that_spell_the_text_can_light_up(tmp_path: Path) -> None:
    spelled = written(tmp_path, samples=[sample()])
    assert len(spelled.all("span", data_column="2")) == len(spelled.all("span", data_row="2")) == 1
    text = (tmp_path / "report.html").read_text("utf-8")
    (source,) = re.findall(r"<dt>Source</dt><dd[^>]*>(.*?)</dd>", text)
    assert re.sub("<[^>]+>", "", source) == "the red cats"
    words = written(tmp_path, samples=[sample(output_pieces=["les", "chats", "rouges"])])
    assert len(words.all("span", data_row="2")) == 1
    other = written(tmp_path, samples=[sample(output_pieces=["les", "<0xE2>", "rouges"])])
    assert other.all("span", data_row="2") == []
    assert "les chats rouges" in other.text("dd")


def test_long_texts_keep_the_page_small(tmp_path: Path) -> None:
    pieces = ["x"] * 500
    page = written(
        tmp_path, samples=[sample(source_pieces=pieces, output_pieces=pieces, weights=[[0.002] * 500] * 500)]
    )
    assert len([has for has in page.all("td") if "style" in has]) == 60 * 60
    assert "the first 60 pieces" in page.text("span")


def test_odd_weights_do_no_harm(tmp_path: Path) -> None:
    odd = [float("nan"), 2.0, -1.0, 0.5]
    page = written(tmp_path, samples=[sample(weights=[odd]), sample(weights=[]), sample(weights=[[]])])
    assert [has["style"] for has in page.all("td") if "style" in has] == [
        f"--w:{x}" for x in ("0.00", "1.00", "0.00", "0.50")
    ]


def test_texts_find_their_own_direction(tmp_path: Path) -> None:
    page = written(tmp_path, samples=[sample(source="القطة تنام", weights=None)])
    assert "القطة تنام" in page.text("dd")
    assert all(has.get("dir") == "auto" for has in page.all("dd")[-3:])


def test_scores_stand_beside_their_signatures(tmp_path: Path) -> None:
    scores = {"test": {"bleu": 41.618, "bleu_signature": "tok:none|v:2", "num_pairs": 1000, "interval": [40.0, 43.0]}}
    text = " ".join(written(tmp_path, scores=scores).text("th", "td", "code").split())
    assert "test BLEU 41.62 tok:none| v:2" in text
    assert "test pairs 1,000" in text
    assert "test interval 40.00 to 43.00" in text


def test_lengths_are_bars_up_to_the_best(tmp_path: Path) -> None:
    page = written(tmp_path, by_length=[("1-10", 7, 20.0), ("11-20", 3, 40.0), ("21-30", 0, None)])
    assert [has["style"] for has in page.all("span", _class="bar")] == ["--w:0.500", "--w:1.000"]
    assert "–" in page.text("td")


def test_the_config_is_yaml_again(tmp_path: Path) -> None:
    config = {"data": {"train": Path("a/train.en")}, "training": {"adam_betas": (0.9, 0.98)}, "name": "naïve: #1"}
    page = written(tmp_path, config=config)
    expected = {"data": {"train": "a/train.en"}, "training": {"adam_betas": [0.9, 0.98]}, "name": "naïve: #1"}
    assert yaml.safe_load(page.text("code")) == expected


def test_headings_and_tables_can_be_found_by_ear(tmp_path: Path) -> None:
    page = written(tmp_path, samples=[sample()], scores={"bleu": 1.0}, by_length=[("1-10", 7, 20.0)])
    assert [text for tag, text in page.texts if tag == "h2"] == [
        "Curves",
        "Scores",
        "By length",
        "Samples",
        "How it was made",
    ]
    assert len(page.all("table")) == len(page.all("caption")) == 4
    assert all(has.get("aria-label") for has in page.all("svg", role="img"))
    assert all("aria-hidden" in has or "role" in has or "x" in has for has in page.all("svg"))


def test_a_failed_write_leaves_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("old", "utf-8")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="No space"):
        written(tmp_path)
    assert path.read_text("utf-8") == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["report.html"]


def test_it_counts_parameters_and_the_examples_of_each_set(tmp_path: Path) -> None:
    sets = [
        {"name": "data.train", "num_used": 1200, "left_out": {"blank": 3, "too long": 12}},
        {"name": "valid", "num_used": 7, "left_out": {}},
    ]
    page = written(tmp_path, parameters=1234567, data=sets)
    assert "1,234,567" in page.text("dd")
    assert "1,200 3 blank, 12 too long 7 none" in page.text("td")
    assert "train valid" in page.text("th")


def test_it_has_the_colours_of_the_page(tmp_path: Path) -> None:
    """One style sheet, no copy: the report defines no colour of its own."""
    written(tmp_path)
    theme, own = ((report.STATIC / name).read_text("utf-8") for name in ("theme.css", "report.css"))
    assert theme in (tmp_path / "report.html").read_text("utf-8")
    assert not re.search(r"--\w+: *(#|\d+ \d+ \d+)", own)
