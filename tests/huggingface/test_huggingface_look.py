"""Models of Hugging Face, looked into: their own weights and probabilities, in the views of ours."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import saccade
from marian import opus_folder
from saccade.errors import UserError
from saccade.imports.write import import_folder
from saccade.inspection.insight import Insight
from saccade.inspection.views.heads import HeadWeights, measure
from saccade.inspection.views.view import ViewChoice
from tiny_models import make

TEXT = "the old [MASK] sleeps in a house."
KINDS = ("BertModel", "BertForMaskedLM", "BertForSequenceClassification", "GPT2Model", "GPT2LMHeadModel")


def look(kind: str, text: str = TEXT, **how: Any) -> tuple[Insight, Any, Any]:
    model, tokenizer = make(kind)
    return saccade.look(model, text, tokenizer=tokenizer, **how), model, tokenizer


def text_of(kind: str) -> str:
    return TEXT if kind.startswith("Bert") else TEXT.replace("[MASK]", "cat")


@pytest.mark.parametrize("kind", KINDS)
def test_the_weights_are_the_models_own(kind: str) -> None:
    seen, model, tokenizer = look(kind, text_of(kind))
    with torch.no_grad():
        found = model(**tokenizer(text_of(kind), return_tensors="pt"), output_attentions=True)
    (name,) = seen.maps
    assert name == ("decoder" if kind.startswith("GPT2") else "encoder")
    torch.testing.assert_close(seen.map(name).weight_LHTS, torch.cat(found.attentions), rtol=0, atol=1e-6)
    assert seen.map(name).weight_LHTS[0, 0].max() > 0.3


def test_the_tokenizer_is_found_where_the_model_is(tmp_path: Path) -> None:
    model, tokenizer = make("GPT2LMHeadModel")
    with pytest.raises(UserError, match="tokenizer: not given, and there is none beside this model"):
        saccade.look(model, "the cat")
    model.save_pretrained(tmp_path)
    model = type(model).from_pretrained(tmp_path, attn_implementation="eager")
    with pytest.raises(UserError, match=f"there is none in {tmp_path}; give the model's own"):
        saccade.look(model, "the cat")
    tokenizer.save_pretrained(tmp_path)
    seen, given = saccade.look(model, "the cat"), saccade.look(model, "the cat", tokenizer=tokenizer)
    assert seen.answer == given.answer


def test_a_writer_has_three_kinds_of_weights() -> None:
    seen, model, tokenizer = look("T5ForConditionalGeneration", "the cat sleeps", target="the old dog .")
    given = tokenizer("the cat sleeps", return_tensors="pt")
    with torch.no_grad():
        found = model(**given, labels=tokenizer("the old dog .", return_tensors="pt").input_ids, output_attentions=True)
    for name, weights in (
        ("cross", found.cross_attentions),
        ("encoder", found.encoder_attentions),
        ("decoder", found.decoder_attentions),
    ):
        torch.testing.assert_close(seen.map(name).weight_LHTS, torch.cat(weights), rtol=0, atol=1e-6)
    assert sum(seen.answer.log_probabilities) / len(seen.answer.pieces) == pytest.approx(-float(found.loss), abs=1e-5)
    assert seen.sides["output"].words == ["the", "old", "dog", ".", "</s>"]
    assert seen.sides["read"].pieces == ["<pad>", *seen.sides["output"].pieces[:-1]]


def test_a_writer_writes_as_generate_does() -> None:
    how = {"max_new_tokens": 7, "num_beams": 3}
    seen, model, tokenizer = look("T5ForConditionalGeneration", "the cat sleeps", generate=how)
    written = model.generate(**tokenizer("the cat sleeps", return_tensors="pt"), **how)[0]
    assert seen.sides["output"].pieces == tokenizer.convert_ids_to_tokens(written[1:])
    assert seen.answer.text == tokenizer.decode(written, skip_special_tokens=True)


def test_gaps_are_filled_with_the_likeliest_pieces() -> None:
    seen, model, tokenizer = look("BertForMaskedLM")
    given = tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        step_V = model(**given).logits[0, 3].log_softmax(-1)
    assert given.input_ids[0, 3] == tokenizer.mask_token_id
    assert seen.answer.pieces == tokenizer.convert_ids_to_tokens([int(step_V.argmax())])
    assert seen.answer.log_probabilities == pytest.approx([float(step_V.max())], abs=1e-5)
    given_one = saccade.look(model, TEXT, tokenizer=tokenizer, target="cat")
    assert given_one.answer.text == "the old cat sleeps in a house."
    assert given_one.answer.log_probabilities == pytest.approx([float(step_V[tokenizer.vocab["cat"]])], abs=1e-5)


def test_a_label_has_its_name_and_probability() -> None:
    seen, model, tokenizer = look("BertForSequenceClassification")
    with torch.no_grad():
        share_V = model(**tokenizer(TEXT, return_tensors="pt")).logits[0].softmax(-1)
    assert seen.answer.text == ["bad", "good"][int(share_V.argmax())]
    assert math.exp(seen.answer.log_probabilities[0]) == pytest.approx(float(share_V.max()), abs=1e-5)
    assert saccade.look(model, TEXT, tokenizer=tokenizer, target="bad").answer.text == "bad"


def test_a_text_goes_on_with_the_likeliest_piece_or_a_given_one() -> None:
    seen, model, tokenizer = look("GPT2LMHeadModel", "the old cat")
    with torch.no_grad():
        ids = tokenizer("the old cat and a dog", return_tensors="pt").input_ids
        step_TV = model(ids).logits[0].log_softmax(-1)
    start = len(tokenizer("the old cat").input_ids)
    assert seen.answer.log_probabilities == pytest.approx([float(step_TV[start - 1].max())], abs=1e-5)
    told = saccade.look(model, "the old cat", tokenizer=tokenizer, target="and a dog")
    wanted = [float(step_TV[at - 1, ids[0, at]]) for at in range(start, ids.shape[1])]
    assert told.answer.log_probabilities == pytest.approx(wanted, abs=1e-5)
    assert told.sides["source"].words == ["the", "old", "cat", "and", "a"]  # what told the last piece
    more = saccade.look(model, "the old cat", tokenizer=tokenizer, generate={"max_new_tokens": 4, "do_sample": False})
    assert len(more.answer.pieces) == 4


@pytest.mark.parametrize(
    ("kind", "text", "words", "pieces"),
    [
        ("BertModel", "the catsee.", ["[CLS]", "the", "catsee", ".", "[SEP]"], ["cat", "##s", "##e"]),
        ("GPT2Model", "a café  in\n\nthe house", ["a", "café", "in", "the", "house"], ["a", "▁ca", "f"]),
        ("T5ForConditionalGeneration", "the dogs", ["the", "dogs", "</s>"], ["▁the", "▁dog", "s"]),
    ],
)
def test_pieces_make_words(kind: str, text: str, words: list[str], pieces: list[str]) -> None:
    side = look(kind, text, **({"generate": {"max_new_tokens": 3}} if kind.startswith("T5") else {}))[0].sides["source"]
    assert side.words == words
    start = side.pieces.index(pieces[0])
    assert side.pieces[start : start + 3] == pieces
    assert len(side.word_of_piece) == len(side.pieces)
    assert max(side.word_of_piece) == len(words) - 1


def test_rollout_of_a_text_that_reads_itself() -> None:
    """Ã = 0.5 A + 0.5 I, multiplied through the layers (Abnar & Zuidema 2020, section 3)."""
    for kind in ("BertModel", "GPT2Model"):
        seen, _, _ = look(kind, text_of(kind))
        first_TT, second_TT = (0.5 * one.mean(0) + 0.5 * torch.eye(one.shape[-1]) for one in seen.map().weight_LHTS)
        torch.testing.assert_close(ViewChoice("rollout").of(seen).weight_LHTS[0, 0], second_TT @ first_TT)
        flow_TT = ViewChoice("flow").of(seen).weight_LHTS[0, 0]
        torch.testing.assert_close(flow_TT.sum(-1), torch.ones(len(flow_TT)))
        assert kind != "GPT2Model" or flow_TT.triu(1).count_nonzero() == 0


def test_heads_of_a_text_that_reads_itself_know_their_neighbours() -> None:
    seen, _, _ = look("GPT2Model", "the old cat sleeps")
    found, weight_LHTT = measure(HeadWeights.of(seen, "decoder")), seen.map().weight_LHTS
    torch.testing.assert_close(found["same"][..., 2], weight_LHTT[..., 2, 2])
    torch.testing.assert_close(found["previous"].sum(-1), weight_LHTT.diagonal(-1, -2, -1).sum(-1))


def test_show_draws_in_the_terminal_and_to_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen, model, tokenizer = look("BertForMaskedLM")
    saccade.show(seen)
    printed = capsys.readouterr().out
    assert "sleeps" in printed
    assert "[CLS]" in printed
    saccade.show(seen, heads=True)
    assert "entropy" in capsys.readouterr().out
    saccade.show([seen, saccade.look(model, "a dog", tokenizer=tokenizer)], tmp_path / "look.html", title="BERT")
    page = (tmp_path / "look.html").read_text("utf-8")
    assert "<title>BERT" in page
    assert '"rollout":' in page
    assert '"word_of_piece"' in page
    saccade.show(seen, tmp_path / "one.png", view="maximum", pieces=True)
    saccade.show(seen, tmp_path / "heads.png", heads=True)
    assert (tmp_path / "one.png").read_bytes()[:4] == (tmp_path / "heads.png").read_bytes()[:4] == b"\x89PNG"
    assert json.loads(json.dumps(seen.plain()))["answer"]["pieces"] == seen.answer.pieces


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"view": "weight"}, "view: 'weight' given; allowed: weights, mean"),
        ({"view": "norms"}, "norms given, but they were not recorded"),
        ({"kind": "cross"}, "kind: 'cross' given; allowed: encoder"),
        ({"layer": 2}, "layer: 2 given; allowed: 0 to 1"),
        ({"heads": True, "layer": 1}, "heads: given with a view, a layer"),
        ({"to": "look.txt"}, "look.txt: a picture ends in .png"),
        ({"title": "BERT"}, "title: given without a page"),
    ],
)
def test_a_view_that_is_not_there_is_refused(how: dict[str, Any], message: str) -> None:
    seen, _, _ = look("BertModel")
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        saccade.show(seen, **how)


def test_a_model_without_weights_is_told_how_to_load_it() -> None:
    model, tokenizer = make("BertModel", attn_implementation="sdpa")
    with pytest.raises(UserError) as caught:
        saccade.look(model, TEXT, tokenizer=tokenizer)
    assert str(caught.value) == (
        "model: BertModel computes attention with sdpa, which returns no weights; "
        "load it with from_pretrained(..., attn_implementation='eager')"
    )


@pytest.mark.parametrize(
    ("kind", "text", "how", "message"),
    [
        ("BertModel", " \n", {}, "text: it is blank"),
        ("BertModel", "a " * 41, {}, "text: it has 43 pieces; at most 40 can be looked at"),
        ("BertModel", "a", {"target": "b"}, "target: given, but BertModel answers nothing"),
        ("BertModel", "a", {"generate": {}}, "generate: given, but BertModel writes nothing"),
        ("BertModel", "a", {"tokenizer": 3}, "tokenizer: int given"),
        ("BertModel", ["a"], {}, "text: list given; it looks at one text"),
        ("BertForMaskedLM", TEXT, {"target": "old cat"}, "target: 'old cat' has 2 pieces; the text has 1 of"),
        ("BertForSequenceClassification", "a", {"target": "fine"}, "target: 'fine' given; allowed: bad, good"),
        ("GPT2LMHeadModel", "a", {"target": " "}, "target: it is blank"),
        ("T5Model", "a", {}, "model: T5Model has no head that writes; load it with AutoModelForSeq2SeqLM"),
    ],
)
def test_mistakes_are_told(kind: str, text: Any, how: dict[str, Any], message: str) -> None:
    model, tokenizer = make(kind)
    with pytest.raises(UserError) as caught:
        saccade.look(model, text, **{"tokenizer": tokenizer, **how})
    assert message in str(caught.value)


def test_what_is_no_model_of_theirs_is_refused() -> None:
    with pytest.raises(UserError, match="model: Linear given; allowed: a model of Hugging Face"):
        saccade.look(torch.nn.Linear(2, 3), "a", tokenizer=None)


def test_dropout_is_off_while_looking_and_on_again_after() -> None:
    model, tokenizer = make("BertModel")
    first = saccade.look(model, TEXT, tokenizer=tokenizer).map().weight_LHTS
    model.train()
    torch.testing.assert_close(saccade.look(model, TEXT, tokenizer=tokenizer).map().weight_LHTS, first)
    assert model.training


def test_their_library_is_not_loaded_by_ours() -> None:
    program = "import saccade, sys; saccade.look, saccade.trust, saccade.show; assert 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "huggingface.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    for part in make("BertForMaskedLM"):
        part.save_pretrained("my-bert")
    exec(program, {})
    assert "[CLS]" in capsys.readouterr().out
    assert "<title>my-bert" in Path("trust.html").read_text("utf-8")
    assert {path.name for path in tmp_path.iterdir()} == {"my-bert", "look.html", "rollout.png", "trust.html"}


def test_a_marian_model_is_a_writer(tmp_path: Path) -> None:
    """As its folder is loaded: its own weights, its own text, and those of a run that was imported from there."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    folder = opus_folder(tmp_path / "opus", end_bias=2.0, scale=1.5)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager").eval()
    tokenizer, text = AutoTokenizer.from_pretrained(folder), "der alte Hund und die kleine Katze"
    seen = saccade.look(model, text, tokenizer=tokenizer, target="the old dog")
    read, answer = tokenizer(text, return_tensors="pt"), tokenizer(text_target="the old dog", return_tensors="pt")
    with torch.no_grad():
        found = model(**read, labels=answer.input_ids, output_attentions=True)
    for name in ("cross", "encoder", "decoder"):
        theirs = torch.cat(getattr(found, f"{name}_attentions"))
        torch.testing.assert_close(seen.map(name).weight_LHTS, theirs, rtol=0, atol=1e-6)
    assert sum(seen.answer.log_probabilities) == pytest.approx(-4 * float(found.loss), abs=1e-4)
    assert seen.sides["source"].words == [*text.split(), "</s>"]
    assert seen.sides["output"].words == ["the", "old", "dog", "</s>"]
    assert seen.sides["read"].pieces[0] == "<pad>"

    written = saccade.look(model, text, tokenizer=tokenizer, generate={"num_beams": 4, "max_new_tokens": 9})
    by_itself = model.generate(**read, num_beams=4, max_new_tokens=9)[0]
    assert written.answer.text == tokenizer.decode(by_itself, skip_special_tokens=True)

    import_folder(folder, tmp_path / "run", most=2, say=lambda what: None)
    kinds = ("cross", "encoder", "decoder")
    (ours,) = saccade.load(tmp_path / "run").look([text], targets=["the old dog"], kinds=kinds)
    for name in ("cross", "encoder", "decoder"):
        torch.testing.assert_close(ours.map(name).weight_LHTS, seen.map(name).weight_LHTS, rtol=0, atol=2e-6)
    assert ours.sides["source"].words == seen.sides["source"].words
