"""Options have the command line's names in Python too."""

from __future__ import annotations

import pytest

from saccade.decoding import BeamOptions, choose_options
from saccade.errors import UserError


def test_beam_is_another_name_of_width() -> None:
    default = BeamOptions(width=4)
    assert choose_options(default, {"beam": 2}) == choose_options(default, {"width": 2}) != default
    with pytest.raises(UserError, match="beam and width: both given"):
        choose_options(default, {"beam": 2, "width": 2})


def test_messages_name_what_was_given_and_what_is_allowed_as_the_command_line_does() -> None:
    with pytest.raises(UserError, match=r"^beem: not an option of a beam; allowed: .*, beam, patience$"):
        choose_options(BeamOptions(), {"beem": 2})
    for name in ("beam", "width"):
        with pytest.raises(UserError, match=f"^{name}: not an option of samples; allowed: num_best, "):
            choose_options(BeamOptions(), {"sample": True, name: 2})
