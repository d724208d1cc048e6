"""The words of a corpus that translate each other."""

from __future__ import annotations

from saccade.data.text.corpus import Pair
from saccade.data.text.word_pairs import Link, learn_word_pairs

NAMES = {"red": "rot", "blue": "blau", "house": "haus", "dog": "hund", "tree": "baum", "car": "auto", "runs": "rennt"}
WORDS = list(NAMES)
PAIRS = [
    Pair(f"the {one} {other} now", f"{NAMES[other]} jetzt das {NAMES[one]}") for one in WORDS for other in WORDS
] * 2 + [Pair(f"w{number}", f"v{number}") for number in range(300)] * 4


def test_words_that_come_together_are_found_whatever_their_order() -> None:
    found = learn_word_pairs(PAIRS)
    assert all(
        max(NAMES.values(), key=lambda word: found.weights.get((name, word), 0.0)) == NAMES[name] for name in NAMES
    )  #
    links = found.link(["the", "Red", "dog", "now"], ["hund", "jetzt", "das", "rot"])
    assert {Link(1, 3), Link(2, 0)} <= set(links)


def test_a_word_has_one_link_at_most() -> None:
    links = learn_word_pairs(PAIRS).link(["red", "red"], ["rot"])
    assert links == [Link(0, 0)]


def test_words_that_are_too_common_or_too_rare_have_none() -> None:
    found = learn_word_pairs([*PAIRS, Pair("once", "einmal")])
    assert all("einmal" not in both and "the" not in both for both in found.weights)


def test_the_commonest_form_of_a_word() -> None:
    forms = [Pair("big", "gro\u00dfe"), Pair("big", "gro\u00dfe"), Pair("big", "gro\u00dfe")] + [
        Pair("big", "gro\u00dfes")
    ] * 2
    others = [Pair(f"w{number}", f"v{number}") for number in range(200)] * 2
    found = learn_word_pairs(forms + others)
    assert found.find_common_form("big", "gro\u00dfes") == "gro\u00dfe"
    assert found.find_common_form("Big", "Gro\u00dfes") == "Gro\u00dfe"
    assert found.find_common_form("w1", "anders") == "anders"
