"""The types of requests: lists stop at their first mistake, and nothing is taken for another type."""

from __future__ import annotations

import time

import pytest
from pydantic import ValidationError

from saccade.serving.v1 import schemas

MANY = 3_000_000


@pytest.mark.parametrize(
    "given",
    [
        {"q": [0] * MANY},
        {"q": ["a"] * MANY},
        {"q": "a", "kinds": ["x"] * MANY},
        {"q": "a", "heads": ["x"] * MANY},
        {"q": "a", **{f"unknown {number}": 0 for number in range(MANY // 10)}},
    ],
    ids=["numbers", "texts", "kinds", "heads", "fields"],
)
def test_a_long_list_makes_few_errors(given: dict[str, object]) -> None:
    request = schemas.TranslateRequest if "q" in given else schemas.LookRequest
    started = time.process_time()
    with pytest.raises(ValidationError) as found:
        request.model_validate(given)
    assert len(found.value.errors()) <= 3
    assert time.process_time() - started < 2  # it was 40 s


@pytest.mark.parametrize(
    "given",
    [{"split": 0}, {"alignment": "yes"}, {"beam": "3"}, {"beam": True}, {"beam": 2.5}, {"num_best": float("inf")}],
)
def test_a_value_of_another_type_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        schemas.TranslateRequest.model_validate({"q": "a", **given})


def test_a_whole_number_is_one_however_it_is_written() -> None:
    assert schemas.TranslateRequest.model_validate({"q": "a", "beam": 3.0, "length_penalty": 1}).beam == 3
