"""Links between words: read, written, scored, and two directions made one, all against cases worked by hand."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.errors import UserError
from saccade.inspection.align.gold import read_gold
from saccade.inspection.align.links import (
    SYMMETRIZERS,
    AlignmentScores,
    Gold,
    Links,
    format_pharaoh,
    reverse,
    score_links,
)


def links(line: str) -> Links:
    """Pharaoh's line as links."""
    return frozenset((int(source), int(target)) for source, target in (word.split("-") for word in line.split()))


SOME = st.frozensets(st.tuples(st.integers(0, 6), st.integers(0, 4)), max_size=13)
MANY = st.lists(st.sets(st.integers(0, 6), max_size=2), min_size=5, max_size=5).map(
    lambda sources: frozenset((source, target) for target, some in enumerate(sources) for source in some)
)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("intersection", "1-1"),
        ("union", "0-0 1-0 1-1 2-2 2-3 4-3 4-4 5-0 6-6"),
        # around 1-1: 1-0 (target 0 is free), then 0-0 (source 0), 2-2 at the corner; around 2-2: 2-3; 4-3 is far off
        ("grow-diag", "0-0 1-0 1-1 2-2 2-3"),
        # of the forward links 4-3 (source 4), then 4-4 (target 4); 5-0 (source 5); of the backward ones 6-6
        ("grow-diag-final", "0-0 1-0 1-1 2-2 2-3 4-3 4-4 5-0 6-6"),
        # both words free: 4-4 (4-3 has target 3 covered by then), 6-6
        ("grow-diag-final-and", "0-0 1-0 1-1 2-2 2-3 4-4 6-6"),
    ],
)
def test_two_directions_by_hand(name: str, wanted: str) -> None:
    forward, backward = links("1-1 1-0 2-2 2-3 4-3 4-4"), links("0-0 1-1 5-0 6-6")
    assert SYMMETRIZERS[name](forward, backward) == links(wanted)


def koehn(forward: Links, backward: Links, final: str) -> Links:
    """The published pseudo-code, word by word: e is the target's, f the source's (Koehn 2005, IWSLT)."""
    union, aligned = forward | backward, set(forward & backward)
    steps = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))

    def covered(f: int, e: int) -> tuple[bool, bool]:
        return any(source == f for source, _ in aligned), any(target == e for _, target in aligned)

    added = True
    while added:
        added = False
        for e, f in itertools.product(range(5), range(7)):
            if (f, e) in aligned:
                for new_e, new_f in ((e + down, f + right) for down, right in steps):
                    if (new_f, new_e) in union and not all(covered(new_f, new_e)):
                        aligned.add((new_f, new_e))
                        added = True
    test = {"": lambda words: False, "final": lambda words: not all(words), "and": lambda words: not any(words)}[final]
    for direction, e, f in itertools.product((forward, backward), range(5), range(7)):
        if (f, e) in direction and test(covered(f, e)):
            aligned.add((f, e))
    return frozenset(aligned)


@given(MANY, MANY)
def test_growing_is_the_published_pseudo_code(forward: Links, backward: Links) -> None:
    for name, final in (("grow-diag", ""), ("grow-diag-final", "final"), ("grow-diag-final-and", "and")):
        assert SYMMETRIZERS[name](forward, backward) == koehn(forward, backward, final)


def test_growing_goes_by_target_word() -> None:
    """3-0 is visited first and takes 2-0 while source 2 is free; from 1-3, 2-2 still finds target 2 free."""
    forward, backward = links("0-1 1-3 2-2 3-0"), links("0-1 1-3 2-0 3-0")
    assert SYMMETRIZERS["grow-diag"](forward, backward) == links("0-1 1-3 2-0 2-2 3-0")
    # by source word, 1-3 would take 2-2, and 2-0 would link no word that is free
    turned = SYMMETRIZERS["grow-diag"](reverse(forward), reverse(backward))
    assert reverse(turned) == links("0-1 1-3 2-2 3-0")


def test_a_link_that_was_just_added_grows_in_the_same_round() -> None:
    chain = "0-0 1-1 2-2 3-3 4-4"
    assert SYMMETRIZERS["grow-diag"](links(chain), links("2-2")) == links(chain)


def test_final_takes_the_forward_links_first() -> None:
    forward, backward = links("0-0 3-5"), links("0-0 4-5")
    assert SYMMETRIZERS["grow-diag-final-and"](forward, backward) == links("0-0 3-5")
    assert SYMMETRIZERS["grow-diag-final-and"](backward, forward) == links("0-0 4-5")


@given(SOME, SOME)
def test_symmetrised_links_lie_between_intersection_and_union(forward: Links, backward: Links) -> None:
    found = {name: method(forward, backward) for name, method in SYMMETRIZERS.items()}
    order = ("intersection", "grow-diag", "grow-diag-final-and", "grow-diag-final", "union")
    assert all(found[order[0]] <= found[name] <= found[order[-1]] for name in order)
    assert found["grow-diag"] <= found["grow-diag-final-and"]
    assert found["grow-diag"] <= found["grow-diag-final"]


@given(SOME, SOME)
def test_after_final_no_word_that_has_a_link_in_the_union_is_without(forward: Links, backward: Links) -> None:
    found = SYMMETRIZERS["grow-diag-final"](forward, backward)
    for side in (0, 1):
        assert {link[side] for link in found} == {link[side] for link in forward | backward}


@given(SOME)
def test_agreeing_directions_change_nothing(some: Links) -> None:
    assert all(method(some, some) == some for method in SYMMETRIZERS.values())


def test_scores_by_hand() -> None:
    gold = [Gold(links("0-0 1-1"), links("0-0 1-1 1-2")), Gold(links("2-3"), links("2-3"))]
    # 4 links, 3 sure; 2 of them are found; 3 links are possible
    found = score_links([links("0-0 1-2 3-3"), links("2-3")], gold)
    assert found == AlignmentScores(4, 3, 2, 3)
    assert found.precision == 3 / 4
    assert found.recall == 2 / 3
    assert found.aer == 1 - (2 + 3) / (4 + 3)


def test_scores_of_nothing() -> None:
    empty = Gold(frozenset(), frozenset())
    assert (
        score_links([], []).plain()
        == score_links([frozenset()], [empty]).plain()
        == {"aer": 0, "precision": 1, "recall": 1}
    )
    assert score_links([frozenset()], [Gold(links("0-0"), links("0-0"))]).aer == 1


@given(st.lists(st.tuples(SOME, SOME, SOME), min_size=1, max_size=5))
def test_gold_and_links_may_be_turned_round_together(sentences: list[tuple[Links, Links, Links]]) -> None:
    gold = [Gold(sure, sure | possible) for _, sure, possible in sentences]
    found = [one for one, _, _ in sentences]
    assert score_links(map(reverse, found), [one.reverse() for one in gold]) == score_links(found, gold)
    assert score_links([one.sure for one in gold], gold).aer == 0


@given(SOME)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, some: Links) -> None:
    path = tmp_path_factory.mktemp("links") / "some.txt"
    path.write_text(f"{format_pharaoh(some)}\n", "utf-8")
    assert read_gold(path, [(7, 5)]) == [Gold(some, some)]
    assert format_pharaoh(some).split() == [f"{source}-{target}" for source, target in sorted(some)]


def written(tmp_path: Path, text: str, name: str = "gold.txt") -> Path:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


GOLD = [Gold(links("0-0 1-3"), links("0-0 1-3 2-1")), Gold(frozenset(), frozenset()), Gold(links(""), links("4-2"))]
SIZES = [(3, 5), (1, 1), (5, 3)]


@pytest.mark.parametrize("name", ["gold.txt", "gold.txt.gz"])
@pytest.mark.parametrize(
    "text",
    [
        "0-0 1-3 2?1\n\n4p2\n",
        "\ufeff2p1  1-3\t0-0\r\n\r\n4?2",
        "1 1 1 S\n1 2 4\n1 3 2 P\n3 5 3 P\n",
        "0003 5 3 P 0.7\n\n0001 3 2 P 1\n0001 2 4 S\n0001 1 1\n2 0 1 S\n2 1 0\n",
    ],
    ids=["pharaoh", "pharaoh, other signs", "naacl", "naacl, other order, confidence, no word"],
)
def test_both_formats(tmp_path: Path, text: str, name: str) -> None:
    assert read_gold(written(tmp_path, text, name), SIZES) == GOLD


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-0\n0:0\n\n", r"gold\.txt:2: '0:0' is no link; allowed: 0-0 \(sure\), 0\?0 or 0p0 \(possible\)"),
        ("0-0\n", r"gold\.txt: 1 lines; there must be 3"),
        ("0-0\n\n\n\n", r"gold\.txt: 4 lines; there must be 3"),
        ("\n0-1\n\n", r"gold\.txt:2: a link to target word 1, counted from 0, given; sentence 2 has 1"),
        ("3-0\n\n\n", r"gold\.txt:1: a link to source word 3, counted from 0, given; sentence 1 has 3"),
        ("1 1 1\n1 1\n", r"gold\.txt:2: '1 1' is no link; allowed: sentence source target \[S\|P\], from 1 on"),
        ("1 1 1\n4 1 1 S\n", r"gold\.txt:2: sentence 4 given; there are 3, counted from 1"),
        ("0 1 1\n", r"gold\.txt:1: sentence 0 given; there are 3"),
        ("1 1 6 P\n", r"gold\.txt:1: a link to target word 5, counted from 0, given; sentence 1 has 5"),
        (f"{10**12}-0\n\n\n", r"gold\.txt:1: '1000000000000-0' is no link"),
    ],
)
def test_mistakes_have_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_gold(written(tmp_path, text), SIZES)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no file at .*none\.txt"):
        read_gold(tmp_path / "none.txt", SIZES)
