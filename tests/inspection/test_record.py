"""Recording: what is recorded is what was used; nothing is left behind; words are merged rightly."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from saccade import MultiHeadAttention, masks
from saccade.data.text.tokenizer import SentencePiece, train_tokenizer
from saccade.errors import UserError
from saccade.inspection.insight import Head, TextSide, merge_pieces
from saccade.inspection.record import Record, cross_weights, cross_weights_of, find_attention, recording
from saccade.models.seq2seq import RecurrentSizes, Seq2Seq
from saccade.models.transformer import BlockSizes, Transformer

SOURCE = torch.tensor([[5, 6, 7, 8, 2], [9, 4, 2, 0, 0]])
LENGTH = torch.tensor([5, 3])
READ = torch.tensor([[1, 4, 5], [1, 7, 6]])


def transformer(**sizes: object) -> Transformer:
    torch.manual_seed(1)
    block = BlockSizes(width=12, num_heads=3, hidden_width=7, **sizes)  # type: ignore[arg-type]
    model = Transformer(
        source=11, target_vocabulary=13, sizes=block, num_encoder_layers=2, num_decoder_layers=3, max_length=19
    )
    return model.eval()


def rnn(attention: str) -> Seq2Seq:
    torch.manual_seed(1)
    sizes = RecurrentSizes(width=6, embedding_width=5)
    return Seq2Seq(source=11, target_vocabulary=13, sizes=sizes, attention=attention).eval()


def num_hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@torch.no_grad()
def recorded(model: nn.Module) -> tuple[Tensor, Record]:
    with recording(model) as record:
        output = model(SOURCE, LENGTH, READ)
    return output, record


@torch.no_grad()
def cross_by_hand(model: nn.Module) -> Tensor:
    """softmax(q·k / sqrt(K)) of each decoder block, from the arguments of its attention; no weights are asked for."""
    calls: list[tuple[Any, Tensor, Any]] = []
    attentions = [block.get_submodule("cross") for block in cast(nn.ModuleList, model.get_submodule("decoder"))]
    handles = [
        attention.register_forward_pre_hook(
            lambda module, args, kwargs: calls.append((module, args[0], kwargs["memory"])), with_kwargs=True
        )
        for attention in attentions
    ]
    model(SOURCE, LENGTH, READ)
    for handle in handles:
        handle.remove()
    padded_BS = torch.arange(SOURCE.shape[1]) >= LENGTH[:, None]
    weights = []
    for attention, x_BTD, memory in calls:
        query_BHTK = attention.query(x_BTD).unflatten(-1, (attention.num_heads, -1)).transpose(1, 2)
        score_BHTS = query_BHTK @ memory.memory.squeeze(2).mT / query_BHTK.shape[-1] ** 0.5
        weights.append(score_BHTS.masked_fill(padded_BS[:, None, None], -torch.inf).softmax(-1))
    return torch.stack(weights)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative"])
def test_a_transformer_gives_every_layer_and_head_and_computes_the_same(positions: str) -> None:
    model = transformer(positions=positions)
    with torch.no_grad():
        plain = model(SOURCE, LENGTH, READ)
    output, record = recorded(model)
    torch.testing.assert_close(output, plain)
    assert record.kinds == ["cross", "encoder", "decoder"]
    assert record.weights("cross").shape == (3, 2, 3, 3, 5)
    assert record.weights("encoder").shape == (2, 2, 3, 5, 5)
    assert record.weights("decoder").shape == (3, 2, 3, 3, 3)
    torch.testing.assert_close(record.weights("cross"), cross_by_hand(model))
    torch.testing.assert_close(cross_weights(model, SOURCE, LENGTH, READ), record.weights("cross").transpose(0, 1))
    for kind in record.kinds:
        torch.testing.assert_close(record.weights(kind).sum(-1), torch.ones(record.weights(kind).shape[:-1]))
    assert record.weights("cross")[:, 1, ..., 3:].eq(0).all()  # padding weighs nothing
    assert record.weights("decoder").triu(1).eq(0).all()  # nor does the future


def test_nothing_is_left_behind_even_after_an_error() -> None:
    model = transformer()
    recorded(model)
    assert num_hooks(model) == 0
    with pytest.raises(IndexError), recording(model):
        model(SOURCE + 99, LENGTH, READ)
    assert num_hooks(model) == 0
    assert isinstance(model(SOURCE, LENGTH, READ), Tensor)


@pytest.mark.parametrize("attention", ["bahdanau", "luong"])
def test_an_rnn_is_recorded_step_by_step(attention: str) -> None:
    model = rnn(attention)
    _, record = recorded(model)
    weight_TBS, state = [], model.start(SOURCE, LENGTH)
    decoder: Any = model.decoder
    for step in range(READ.shape[1]):
        query_BD = state.hidden[0][-1]
        _, state = model.advance(state, READ[:, step : step + 1])
        query_BD = query_BD if attention == "bahdanau" else state.hidden[0][-1]
        asked = decoder.aligner(query_BD.unsqueeze(1), state.source, step, return_weights=True)
        weight_TBS.append(asked[1][:, 0])
    torch.testing.assert_close(record.weights("cross")[0, :, 0], torch.stack(weight_TBS, 1))
    assert record.weights("cross").shape == (1, 2, 1, 3, 5)


def test_a_model_without_attention_records_nothing() -> None:
    assert recorded(rnn("none"))[1].kinds == []
    assert cross_weights(rnn("none"), SOURCE, LENGTH, READ).shape == (2, 0, 0, 3, 5)


def test_a_caller_who_asks_for_weights_still_gets_them() -> None:
    attention = MultiHeadAttention(6, 2, kind="cross")
    x = torch.randn(2, 3, 6)
    with recording(attention) as record, torch.no_grad():
        answer, weight = attention(x, return_weights=True)
        torch.testing.assert_close(attention(x), answer)
    torch.testing.assert_close(record.weights("cross")[0], torch.cat([weight, weight], 2))


def test_norms_are_the_lengths_of_what_was_weighed() -> None:
    torch.manual_seed(3)
    attention = MultiHeadAttention(6, 2, kind="cross")
    query, key = torch.randn(1, 3, 6), torch.randn(1, 5, 6)
    with recording(attention, norms=True) as record, torch.no_grad():
        attention(query, key, mask=masks.padding(torch.tensor([4])))
    weight_HTS, norm_HTS = record.weights("cross")[0, 0], record.norms("cross")[0, 0]
    value_SD = attention.value(key[0])
    for head in range(2):
        part = slice(3 * head, 3 * head + 3)
        transformed_SD = value_SD[:, part] @ attention.output.weight[:, part].mT
        expected_TS = (weight_HTS[head, :, :, None] * transformed_SD).norm(dim=-1)
        torch.testing.assert_close(norm_HTS[head], expected_TS)
    with pytest.raises(ValueError, match="norms: not recorded"):
        recorded(transformer())[1].norms("cross")


class NewModel(nn.Module):
    """A model that nobody has named to `recording`: an attention of its own, and one that isn't recorded."""

    class Nearest(nn.Module):
        kind = "encoder"

        def forward(self, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
            weight_BTT = torch.eye(x_BTD.shape[1]).expand(len(x_BTD), -1, -1)
            return weight_BTT @ x_BTD, weight_BTT

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([self.Nearest(), self.Nearest()])
        self.inner = MultiHeadAttention(6, 2)

    def forward(self, x_BTD: Tensor) -> Tensor:
        for layer in self.layers:
            x_BTD, _ = layer(x_BTD)
        return self.inner(x_BTD)


def test_a_new_model_is_recorded_by_the_kinds_of_its_attentions() -> None:
    model, x_BTD = NewModel(), torch.randn(2, 3, 6)
    assert list(find_attention(model)) == ["layers.0", "layers.1"]
    with recording(model) as record:
        output = model(x_BTD)
    torch.testing.assert_close(output, model.inner(x_BTD))
    torch.testing.assert_close(record.weights("encoder"), torch.eye(3).expand(2, 2, 1, 3, 3))


def test_only_the_kinds_that_are_asked_for_are_recorded() -> None:
    model = transformer()
    with recording(model, kinds=("encoder",)) as record, torch.no_grad():
        model(SOURCE, LENGTH, READ)
    assert record.kinds == ["encoder"]
    with (
        pytest.raises(UserError, match="kinds: 'self' given; allowed: cross, copy, encoder"),
        recording(model, kinds=("self",)),
    ):
        pass


def test_pieces_make_words() -> None:
    side = TextSide.of("Größe x", ["▁Gr", "<0xC3>", "<0xB6>", "ße", "▁x", "</s>"], lambda piece: piece.startswith("▁"))
    assert side.words == ["Größe", "x", "</s>"]
    assert side.word_of_piece == [0, 0, 0, 0, 1, 2]


def test_words_of_every_tokenizer() -> None:
    tokenizer = SentencePiece.train("unigram", ["the owl sees two owls", "a bee sees"] * 20, 274, seed=1)
    pieces = tokenizer.pieces(tokenizer.encode("the owls see 東京"))
    assert TextSide.of("", pieces, tokenizer.begins_word).words[:3] == ["the", "owls", "see"]
    characters = train_tokenizer("characters", ["two owls"], 20)
    side = TextSide.of("", characters.pieces(characters.encode("two owls")), characters.begins_word)
    assert side.words == ["two", "owls"]
    assert side.word_of_piece == [0, 0, 0, 1, 1, 1, 1, 1]
    words = train_tokenizer("words", ["two owls"], 20)
    assert TextSide.of("", words.pieces(words.encode("two owls")), words.begins_word).words == ["two", "owls"]


def test_a_word_is_read_as_its_pieces_together_and_reads_as_they_do_on_average() -> None:
    queries = TextSide("", [], ["a", "b"], [0, 0, 1])
    keys = TextSide("", [], ["c", "d"], [0, 1, 1])
    weight_TS = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.9, 0.0], [0.2, 0.3, 0.5]])
    expected = torch.tensor([[0.3, 0.7], [0.2, 0.8]])
    torch.testing.assert_close(merge_pieces(weight_TS, queries, keys), expected)
    torch.testing.assert_close(merge_pieces(weight_TS.expand(2, 3, 3, 3), queries, keys), expected.expand(2, 3, 2, 2))


def test_a_shifted_head_gives_a_word_the_weights_of_the_step_that_reads_it() -> None:
    weight_LHTS = torch.rand(2, 3, 5, 7)
    torch.testing.assert_close(Head(1, 2).of(weight_LHTS), weight_LHTS[1, 2])
    shifted = Head(0, 1, shift=1).of(weight_LHTS)
    torch.testing.assert_close(shifted[:-1], weight_LHTS[0, 1, 1:])
    assert shifted.shape == (5, 7)
    torch.testing.assert_close(Head(1).of(weight_LHTS), weight_LHTS[1].mean(0))


@pytest.mark.parametrize("model", [transformer(), transformer(norm="post"), rnn("bahdanau"), rnn("luong")])
def test_one_layer_is_read_as_among_all(model: nn.Module) -> None:
    for layer, weight_BHTS in enumerate(cross_weights(model, SOURCE, LENGTH, READ).unbind(1)):
        torch.testing.assert_close(cross_weights_of(layer, model, SOURCE, LENGTH, READ), weight_BHTS)
    assert not num_hooks(model)


def test_what_comes_after_a_layer_is_not_computed() -> None:
    model, called = transformer(), list[str]()
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda *_, name=name: called.append(name))
    cross_weights_of(1, model, SOURCE, LENGTH, READ)
    assert "decoder.1.own" in called
    assert not [name for name in called if name.startswith(("decoder.2.own", "decoder.1.feed_forward"))]
