"""Views: worked by hand, and held to what must be true of them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from torch import Tensor

from saccade.errors import UserError
from saccade.inspection.insight import Head, Insight, Map, TextSide
from saccade.inspection.views import flow, rollout
from saccade.inspection.views.view import VIEWS, ViewChoice, is_through, kind_of, to_shares, with_views

LAYERS, HEADS, STEPS, LENGTH = 3, 2, 5, 7


def drawn(*shape: int, causal: bool = False) -> Tensor:
    """Rows that sum to 1."""
    weights = torch.rand(shape, dtype=torch.float64) ** 4
    weights = weights.tril() if causal else weights
    return weights / weights.sum(-1, keepdim=True)


@pytest.fixture
def weights() -> dict[str, Tensor]:
    return {
        "cross": drawn(LAYERS, HEADS, STEPS, LENGTH),
        "encoder": drawn(LAYERS, HEADS, LENGTH, LENGTH),
        "decoder": drawn(LAYERS, HEADS, STEPS, STEPS, causal=True),
    }


@pytest.fixture
def seen(weights: dict[str, Tensor]) -> Insight:
    sides = {
        "output": TextSide("", list("vwxyz"), ["vw", "xyz"], [0, 0, 1, 1, 1]),
        "read": TextSide("", list("svwxy"), list("svwxy"), [0, 1, 2, 3, 4]),
        "source": TextSide("", list("abcdefg"), ["abc", "defg"], [0, 0, 0, 1, 1, 1, 1]),
    }
    ends = {"cross": ("output", "source"), "encoder": ("source", "source"), "decoder": ("output", "read")}
    maps = {kind: Map(*ends[kind], weight, weight * 3) for kind, weight in weights.items()}
    return Insight("translate", None, sides, maps)


def test_rollout_of_two_layers_by_hand() -> None:
    first, second = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]]), torch.tensor([[[0.0, 1.0], [0.0, 1.0]]])
    # 0.5 A + 0.5 I: [[1, 0], [.25, .75]] and [[.5, .5], [0, 1]]
    assert rollout.rollout(torch.stack([first])).tolist() == [[1.0, 0.0], [0.25, 0.75]]
    assert rollout.rollout(torch.stack([first, second])).tolist() == [[0.625, 0.375], [0.25, 0.75]]


def test_heads_are_averaged_before_they_are_multiplied() -> None:
    both = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]]])
    assert rollout.rollout(both).tolist() == [[0.75, 0.25], [0.25, 0.75]]


def test_a_decoder_by_hand() -> None:
    own = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]]]])
    cross = torch.tensor([[[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]]])
    encoder = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    found = rollout.decoder_rollout(own, cross, encoder)
    assert found.read_TT.tolist() == [[0.5, 0.0], [0.125, 0.375]]
    assert found.source_TS.tolist() == [[0.25, 0.25, 0.0], [0.0, 0.0, 0.5]]


def test_all_of_an_output_rests_on_what_it_read_and_the_source(weights: dict[str, Tensor]) -> None:
    encoder_SS = rollout.rollout(weights["encoder"])
    read_TT, source_TS = rollout.decoder_rollout(weights["decoder"], weights["cross"], encoder_SS)
    assert torch.allclose(encoder_SS.sum(1), torch.ones(LENGTH, dtype=torch.float64))
    assert torch.allclose(read_TT.sum(1) + source_TS.sum(1), torch.ones(STEPS, dtype=torch.float64))
    assert torch.equal(read_TT, read_TT.tril())  # nothing that comes later
    assert torch.allclose(read_TT.sum(1), torch.full((STEPS,), 0.5**LAYERS, dtype=torch.float64))


def test_flow_by_hand() -> None:
    layer = torch.tensor([[[[0.0, 1.0], [0.0, 1.0]]]])
    assert flow.encoder(layer).tolist() == [[0.5, 0.5], [0.0, 1.0]]
    # two layers: from the upper 0 through both nodes of the middle to the lower 1: min(.5, .5) + min(.5, 1)
    assert flow.encoder(torch.cat([layer, layer])).tolist() == [[0.5, 1.0], [0.0, 1.0]]


def graph_of(weights: dict[str, Tensor], *, with_decoder: bool) -> Any:
    """The same graph, node by node, for networkx."""
    graph = nx.DiGraph()
    encoder = [rollout.through_residual(layer).numpy() for layer in weights["encoder"]]
    for layer, query, key in itertools.product(range(LAYERS), range(LENGTH), range(LENGTH)):
        graph.add_edge(("e", layer + 1, query), ("e", layer, key), capacity=encoder[layer][query, key])
    if with_decoder:
        for layer, query in itertools.product(range(LAYERS), range(STEPS)):
            own, cross = rollout.through_residual(weights["decoder"][layer]), weights["cross"][layer].mean(0)
            graph.add_edge(("d", layer + 1, query), ("m", layer, query), capacity=0.5)
            for key in range(STEPS):
                graph.add_edge(("m", layer, query), ("d", layer, key), capacity=float(own[query, key]))
            for key in range(LENGTH):
                capacity = 0.5 * float(cross[query, key])
                graph.add_edge(("d", layer + 1, query), ("e", LAYERS, key), capacity=capacity)
    return graph


def flows(graph: Any, top: str, count: int, bottom: str, length: int) -> Tensor:
    return torch.tensor(
        [
            [nx.maximum_flow_value(graph, (top, LAYERS, query), (bottom, 0, key)) for key in range(length)]
            for query in range(count)
        ]
    )


def test_flow_is_networkx_s(weights: dict[str, Tensor]) -> None:
    found = flow.encoder(weights["encoder"])
    wanted = flows(graph_of(weights, with_decoder=False), "e", LENGTH, "e", LENGTH)
    assert torch.allclose(found, wanted.float(), atol=1e-6)


@pytest.mark.parametrize(("to", "bottom", "length"), [("cross", "e", LENGTH), ("decoder", "d", STEPS)])
def test_flow_through_a_decoder_is_networkx_s(to: str, bottom: str, length: int, weights: dict[str, Tensor]) -> None:
    found = flow.decoder(weights["decoder"], weights["cross"], weights["encoder"], to=to)
    wanted = flows(graph_of(weights, with_decoder=True), "d", STEPS, bottom, length)
    assert torch.allclose(found, wanted.float(), atol=1e-6)


def test_a_label_s_flow_and_rollout_go_through_its_pooling(weights: dict[str, Tensor]) -> None:
    pooling_HTS = torch.zeros(HEADS, 1, LENGTH, dtype=torch.float64)
    pooling_HTS[:, 0, 4] = 1
    side = TextSide("", list("abcdefg"), list("abcdefg"), list(range(LENGTH)))
    maps = {
        "encoder": Map("source", "source", weights["encoder"]),
        "pooling": Map("label", "source", pooling_HTS[None]),
    }
    seen = Insight("classify", None, {"source": side, "label": TextSide("", ["x"], ["x"], [0])}, maps)
    assert kind_of(seen) == "pooling"
    assert torch.equal(ViewChoice("rollout").of(seen).weight_LHTS[0, 0, 0], rollout.rollout(weights["encoder"])[4])
    flowed = flow.encoder(weights["encoder"])[4]
    assert torch.allclose(ViewChoice("flow").of(seen).weight_LHTS[0, 0, 0], flowed / flowed.sum())


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("kind", ["cross", "encoder", "decoder"])
def test_every_view_of_every_kind_has_the_kind_s_sides(name: str, kind: str, seen: Insight) -> None:
    found = ViewChoice(name, kind).of(seen)
    assert (found.queries, found.keys) == (seen.maps[kind].queries, seen.maps[kind].keys)
    assert found.weight_LHTS.shape == (1, 1, *seen.maps[kind].weight_LHTS.shape[2:])
    total_T = found.weight_LHTS.sum(-1)
    if name == "maximum":
        assert (total_T >= 1 - 1e-6).all()
    elif name == "rollout" and kind != "encoder":
        assert (total_T < 1).all()
    else:
        assert torch.allclose(total_T.double(), torch.ones_like(total_T).double(), atol=1e-6)


def test_which_layer_and_head(seen: Insight) -> None:
    weight_LHTS = seen.maps["cross"].weight_LHTS
    chosen = {
        ViewChoice(): weight_LHTS[-1].mean(0),
        ViewChoice(layer=1): weight_LHTS[1].mean(0),
        ViewChoice(head=1): weight_LHTS[-1, 1],
        ViewChoice(layer=-2, head=-2): weight_LHTS[1, 0],
        ViewChoice("mean", layer=0): weight_LHTS[0].mean(0),
        ViewChoice("maximum", layer=0): torch.from_numpy(np.max(weight_LHTS[0].numpy(), 0)),
    }
    for view, wanted in chosen.items():
        assert torch.equal(view.of(seen).weight_LHTS[0, 0], wanted), view


def test_the_head_that_aligns_is_shown_first_with_its_shift(seen: Insight) -> None:
    known = replace(seen, aligning=Head(1, 0, shift=1))
    rows = seen.maps["cross"].weight_LHTS[1, 0]
    assert torch.equal(ViewChoice().of(known).weight_LHTS[0, 0], torch.cat([rows[1:], rows[-1:]]))
    assert torch.equal(ViewChoice("mean").of(known).weight_LHTS, ViewChoice("mean").of(seen).weight_LHTS)
    assert torch.equal(
        ViewChoice(kind="encoder").of(known).weight_LHTS, ViewChoice(kind="encoder").of(seen).weight_LHTS
    )


def test_norms_are_shares_of_each_row() -> None:
    assert to_shares(torch.tensor([[1.0, 3.0], [0.0, 0.0]])).tolist() == [[0.25, 0.75], [0.0, 0.0]]


def test_what_has_no_effect_is_refused(seen: Insight) -> None:
    for view, message in (
        (ViewChoice("top"), "view: 'top' given; allowed: weights, mean"),
        (ViewChoice("mean", head=0), "head: 0 given, but mean is of all heads"),
        (ViewChoice("rollout", layer=1), "layer: 1 given, but rollout goes through all layers"),
        (ViewChoice(layer=3), "layer: 3 given; allowed: 0 to 2, or -1"),
        (ViewChoice(head=-3), "head: -3 given; allowed: 0 to 1"),
        (ViewChoice(kind="pooling"), "kind: 'pooling' given; allowed: cross, encoder, decoder"),
    ):
        with pytest.raises(UserError, match=message):
            view.of(seen)


def test_what_was_not_recorded_is_said(seen: Insight) -> None:
    bare = replace(seen, maps={"cross": seen.maps["cross"]._replace(norm_LHTS=None)})
    assert is_through(seen, "cross")
    assert not is_through(bare, "cross")
    with pytest.raises(UserError, match="flow given, but this model's encoder has no attention"):
        ViewChoice("flow").of(bare)
    with pytest.raises(UserError, match="norms given, but they were not recorded"):
        ViewChoice("norms").of(bare)


def test_an_insight_holds_its_views_in_json(seen: Insight) -> None:
    class Answer:
        def line(self) -> str:
            return "x"

        def plain(self) -> dict[str, Any]:
            return {"text": "vw xyz"}

    plain = with_views(replace(seen, answer=Answer()), ["rollout", "flow"]).plain()["views"]
    for name in ("rollout", "flow"):
        assert (plain[name]["queries"], plain[name]["keys"]) == ("output", "source")
        assert np.array(plain[name]["weights"]).shape == (STEPS, LENGTH)
