"""Masks: their booleans, their algebra, and what they tell a kernel."""

from __future__ import annotations

import pytest
import torch

from saccade import LocalP, attend, masks
from saccade.attention.masks import Mask
from saccade.training.memory import peak_memory


def drawn(mask: Mask, num_queries: int = 3, num_keys: int = 4) -> list[str]:
    return ["".join("#" if allowed else "." for allowed in row) for row in mask.dense(num_queries, num_keys).tolist()]


def packed(query_start: list[int], num_queries: int, key_start: list[int] | None = None, num_keys: int = 4) -> Mask:
    """Without `key_start`, one row of tokens that is as long for the keys."""
    keys = query_start if key_start is None else key_start
    starts = [torch.tensor(start, dtype=torch.int32) for start in (query_start, keys)]
    return masks.packed(*starts, num_queries=num_queries, num_keys=num_keys, longest=7)


def test_each_mask_by_hand() -> None:
    assert drawn(masks.causal()) == ["#...", "##..", "###."]
    assert drawn(masks.causal(offset=1)) == ["##..", "###.", "####"]
    assert drawn(masks.window(1)) == ["##..", "###.", ".###"]
    assert drawn(masks.local_m(0, step=1)) == [".#..", "..#.", "...#"]
    assert drawn(masks.where(lambda t, s: s > t)) == [".###", "..##", "...#"]
    assert drawn(masks.document(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1, 2]))) == ["#...", "#...", ".##."]
    assert drawn(packed([0, 2, 2], 3)) == ["##..", "##..", "...."]
    assert drawn(packed([0, 1, 3], 3, [0, 2, 3], 4)) == ["##..", "..#.", "..#."]
    assert masks.padding(torch.tensor([2, 0])).dense(1, 3).tolist() == [[[True, True, False]], [[False] * 3]]


def test_dense_is_always_whole() -> None:
    for mask, shape in (
        (masks.full(), (3, 4)),
        (masks.where(lambda t, s: s == 0), (3, 4)),
        (masks.padding(torch.tensor([2, 0])), (2, 3, 4)),
    ):
        assert mask.dense(3, 4).shape == shape


def test_predicted_centres_are_exact_in_half_precision() -> None:
    local, query = LocalP(8, radius=3), torch.randn(1, 5, 8)
    length = torch.tensor([3000])
    exact = local.centre(query, length)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(local.centre(query, length), exact)
    allowed = masks.around(torch.tensor([1001.0], dtype=torch.bfloat16), 3).dense(1, 1010)
    assert int(allowed.sum()) == 7


def test_masks_join() -> None:
    assert drawn(masks.causal() & masks.window(1)) == ["#...", "##..", ".##."]
    assert drawn(masks.window(0) | masks.where(lambda t, s: s == 0)) == ["#...", "##..", "#.#."]
    both = masks.causal() & masks.padding(torch.tensor([1, 3]))
    assert both.dense(3, 3).tolist()[0] == [[True, False, False]] * 3


def test_bands_are_known() -> None:
    assert masks.full().is_full
    assert masks.causal().is_causal
    assert (masks.causal() & masks.window(5)).band == (-5, 0)
    assert (masks.causal() | masks.window(5)).band == (None, 5)
    assert (masks.full() & masks.causal()).is_causal
    assert (masks.full() | masks.causal()).is_full
    assert not (masks.causal() & masks.padding(torch.tensor([3]))).is_causal
    # the hull of two bands is not a band of its own
    assert not (masks.window(0, offset=3) | masks.window(0, offset=-3)).is_band


def test_batch_axes_are_the_first_axes_of_the_query() -> None:
    length = torch.tensor([2, 5])
    query, key = torch.randn(2, 3, 7, 11), torch.randn(2, 3, 5, 11)
    together = attend(query, key, key, mask=masks.padding(length))
    for b in range(2):
        alone = attend(query[b], key[b, :, : length[b]], key[b, :, : length[b]])
        torch.testing.assert_close(together[b], alone)


def test_a_boolean_tensor_with_axes_of_one_broadcasts() -> None:
    query, key = torch.randn(2, 3, 7, 11), torch.randn(2, 3, 5, 11)
    allowed = torch.rand(2, 1, 1, 5) > 0.3
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, key, attn_mask=allowed)
    torch.testing.assert_close(attend(query, key, key, mask=allowed), expected)


def test_a_padding_mask_is_never_spread_over_queries_and_heads() -> None:
    x = torch.randn(1, 8, 6000, 4)
    mask = masks.padding(torch.tensor([5000]))

    def forward() -> None:
        with torch.no_grad():
            attend(x, x, x, mask=mask)

    forward()
    peak = peak_memory(forward, torch.device("cpu"))
    assert peak is None or peak < 6000 * 6000  # less than one byte for each pair of one head


def test_packed_documents_equal_the_documents_alone() -> None:
    lengths = [3, 5, 2]
    x = torch.randn(1, sum(lengths), 7)
    ids = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))[None]
    packed = attend(x, x, x, mask=masks.document(ids) & masks.causal())
    apart = [attend(part, part, part, mask=masks.causal()) for part in x.split(lengths, 1)]
    torch.testing.assert_close(packed, torch.cat(apart, 1))


def test_packed_sentences_equal_the_sentences_alone() -> None:
    lengths, padding = [3, 5, 2], 3
    start = torch.tensor([0, 3, 8, 10, 10, 10])
    x = torch.randn(1, sum(lengths) + padding, 7)
    mask = masks.packed(start, num_queries=x.shape[1], longest=5)
    for band in (masks.full(), masks.causal(), masks.window(1)):
        together = attend(x, x, x, mask=mask & band)
        apart = [attend(part, part, part, mask=band) for part in x[:, :-padding].split(lengths, 1)]
        torch.testing.assert_close(together[:, :-padding], torch.cat(apart, 1))
        assert (together[:, -padding:] == 0).all()


def test_packing_is_known_as_long_as_it_and_a_band_are_all() -> None:
    mask = masks.packed(torch.tensor([0, 2, 5]), num_queries=5, longest=3)
    assert mask.packing is not None
    assert mask.packing.longest == 3
    assert (mask & masks.causal() & masks.window(2)).packing is mask.packing
    assert (masks.full() & mask).packing is mask.packing
    assert (masks.causal() & mask).band == (None, 0)
    assert mask.group_heads(2).packing is mask.packing
    for other in (mask & masks.where(lambda t, s: s > t), mask & mask, mask | masks.causal(), mask.shift(1, 1)):
        assert other.packing is None
    assert (mask | masks.full()).is_full
    assert not mask.is_band


def test_local_p_looks_around_the_predicted_centre() -> None:
    local = LocalP(4, radius=3)
    length = torch.tensor([20, 10])
    query = torch.randn(2, 5, 4)
    centre = local.centre(query, length)
    assert centre.shape == (2, 5)
    assert (centre > 0).all()
    assert (centre < length[:, None]).all()
    _, weights = attend(
        query, torch.randn(2, 20, 4), torch.randn(2, 20, 4), mask=local(query, length), return_weights=True
    )
    outside = (torch.arange(20) - centre[..., None]).abs() > 3
    assert (weights[outside] == 0).all()
    assert (weights.sum(-1) < 1).all()  # the Gaussian is not normalised again (Luong 2015, equation 10)


def test_a_mask_knows_the_local_p_it_was_joined_with() -> None:
    centre, padding = torch.rand(2, 4, 5), masks.padding(torch.tensor([3, 7]))
    local = masks.around(centre, 2)
    for joined in (padding & local, local & padding & masks.full()):
        assert joined.local is not None
        assert joined.local.centre is centre
        assert joined.local.radius == 2
        assert joined.local.others.dense(5, 7, num_axes=1).equal(padding.dense(5, 7))
    grouped = (local & padding).group_heads(2).local
    assert grouped is not None
    assert grouped.centre.shape == (2, 2, 2, 5)
    for other in (local & local, local.shift(1, 1), masks.causal() & padding):
        assert other.local is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: masks.window(-1), r"radius: -1 given; it must be a whole number, 0 or more"),
        (lambda: masks.window(1.5), r"radius: 1.5 given"),  # type: ignore[arg-type]
        (lambda: masks.causal() and masks.full(), r"mask: a mask is neither true nor false; join masks with &"),
        (lambda: masks.document(torch.tensor(3)), r"query_id: a single number given"),
        (lambda: packed([0], 3), r"query_start: shape \[1\] given; it must be \[sentences \+ 1\]"),
        (lambda: packed([0, 2], 3, [0, 1, 2]), r"key_start: 3 numbers given; query_start has 2"),
        (
            lambda: masks.packed(torch.rand(3), num_queries=5, longest=3),
            r"query_start: a tensor of torch.float32 given",
        ),
        (lambda: masks.packed(torch.arange(3), num_queries=5, longest=0), r"longest: 0 given"),
        (
            lambda: masks.packed(torch.arange(3), torch.arange(3), num_queries=5, longest=2),
            r"num_keys: missing; key_start needs it",
        ),
        (lambda: masks.dense([[True]]), r"mask: list given"),  # type: ignore[arg-type]
        (lambda: masks.around(torch.rand(2, 3), 0), r"radius: 0 given; it must be 1 or more"),
        (lambda: masks.padding(torch.rand(2)), r"length: a tensor of torch.float32 given; it must hold integers"),
        (lambda: masks.document(torch.rand(2)), r"query_id: a tensor of torch.float32 given"),
        (lambda: masks.dense(torch.ones(2, 2)), r"mask: torch.float32 of shape \[2, 2\] given; .* torch.bool"),
        (
            lambda: masks.padding(torch.tensor([1, 2])) & masks.padding(torch.tensor([1, 2, 3])),
            r"mask: batch axes \[2\]",
        ),
        (lambda: masks.dense(torch.ones(2, 3) > 0) & masks.dense(torch.ones(2, 5) > 0), r"mask: .* for 3 and 5 keys"),
        (lambda: masks.around(torch.rand(3), 1) | masks.causal(), r"mask: local_p .* with & only"),
        (lambda: masks.causal() & (torch.ones(2, 2) > 0), r"mask: Tensor joined with a mask; wrap a boolean tensor"),  # type: ignore[operator]
        (lambda: masks.causal() | None, r"mask: NoneType joined with a mask"),  # type: ignore[operator]
        (lambda: masks.padding([3, 4]), r"length: list given; it must be a tensor of integers"),  # type: ignore[arg-type]
    ],
)
def test_mistakes_are_named(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
