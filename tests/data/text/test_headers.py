"""First lines that name columns."""

from __future__ import annotations

import pytest

from saccade.data.text.headers import is_header, is_odd


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (("word", "pronunciation"), True),
        (("Source_Text", "target text"), True),
        (("lemma features", "inflected_form"), True),
        (("Commands", "Actions"), True),
        (("en", "de"), True),
        (("Norwegian Bokmål", "english"), True),
        (("form", "forms"), False),  # as words to inflect have them
        (("word", "W ER1 D"), False),
        (("question", "question"), False),
        (("a source of text and words", "text"), False),
        (("", "word"), False),
    ],
)
def test_names_of_columns(first: tuple[str, str], expected: bool) -> None:
    assert is_header(first) == expected


def test_a_first_line_like_no_other_is_odd() -> None:
    phones = ["AH B", "B K", "K AH"] * 40
    assert is_odd(["klang", *phones])
    assert not is_odd(["AH K", *phones])
    assert not is_odd([*phones, "klang"])
    assert not is_odd(f"lemma{number}" for number in range(100))  # all are
    assert not is_odd(["this one is long", *phones])
    assert not is_odd(["", *phones])
    assert not is_odd(["klang", "AH K", "AH"])  # too few to tell
