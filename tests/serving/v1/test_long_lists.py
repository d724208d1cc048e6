"""Lists of a request stop at their first mistake."""

from __future__ import annotations

import time

import pytest
from pydantic import ValidationError

from saccade.serving.v1 import schemas

MANY = 3_000_000


@pytest.mark.parametrize(
    "given",
    [{"q": [0] * MANY}, {"q": ["a"] * MANY}, {"q": "a", "kinds": ["x"] * MANY}, {"q": "a", "heads": ["x"] * MANY}],
)
def test_a_long_list_makes_few_errors(given: dict[str, object]) -> None:
    request = schemas.TranslateRequest if "q" in given else schemas.LookRequest
    started = time.perf_counter()
    with pytest.raises(ValidationError) as found:
        request.model_validate(given)
    assert len(found.value.errors()) <= 3
    assert time.perf_counter() - started < 2  # it was 40 s
