"""A part that is held out: how much, the same one always, and equal texts together."""

from __future__ import annotations

import random

import pytest

from saccade.data.held_out import Amount, find_limit, hash_key, hold_out
from saccade.errors import UserError

KEYS = [f"text {number}" for number in range(2000)]


def held(keys: list[str], amount: Amount) -> set[str]:
    chosen = hold_out([[key] for key in keys], str, amount)
    return {key for key, is_held in zip(keys, chosen, strict=True) if is_held}


def test_a_share_is_about_as_much_and_a_count_is_exact() -> None:
    assert len(held(KEYS, Amount(share=0.1))) == pytest.approx(200, abs=40)
    assert len(held(KEYS, Amount(count=123))) == 123


@pytest.mark.parametrize("amount", [Amount(share=0.1), Amount(count=200)])
def test_order_and_repetition_change_nothing(amount: Amount) -> None:
    shuffled = random.Random(3).sample(KEYS, len(KEYS))
    assert held(shuffled, amount) == held(KEYS, amount)
    twice = hold_out([[key] for key in [*KEYS, *KEYS]], str, Amount(share=0.1))
    assert twice[: len(KEYS)] == twice[len(KEYS) :]


def test_texts_to_come_leave_a_share_as_it_is() -> None:
    assert held(KEYS[:1000], Amount(share=0.1)) == held(KEYS, Amount(share=0.1)) & set(KEYS[:1000])


def test_a_group_stays_together_and_counts_as_many() -> None:
    groups = [KEYS[start : start + 10] for start in range(0, 200, 10)]
    assert sum(hold_out(groups, str, Amount(count=25))) == 3
    least = sorted(map(hash_key, KEYS))[24]
    assert find_limit(Amount(count=25), KEYS) == least + 1


@pytest.mark.parametrize(
    ("keys", "amount", "message"),
    [
        (KEYS[:3], Amount(count=3), "data.valid: 3 given; data.train has 3, and some must be left to train on"),
        (["one"] * 5, Amount(count=2), "data.valid: 2 given; of 5 it leaves none to train on"),
        (KEYS[:3], Amount(share=1e-9), "data.valid: 1e-09 given; of 3 it leaves none for validation; allowed: a count"),
    ],
)
def test_an_amount_that_leaves_nothing_is_refused(keys: list[str], amount: Amount, message: str) -> None:
    with pytest.raises(UserError, match=message):
        held(keys, amount)
