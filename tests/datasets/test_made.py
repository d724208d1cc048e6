"""Made data: the same each time, with answers that can be learned and not guessed."""

from __future__ import annotations

import json
import math
import random
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from saccade.data.labels.labelled import LabelColumns, Text, read_labelled
from saccade.data.pictures.clips import ClipSize, read_clip
from saccade.data.pictures.images import read_images
from saccade.data.sound.mel import read_sound
from saccade.data.sound.spoken import read_spoken
from saccade.data.stories import Story, StoryColumns, read_stories
from saccade.data.tags.columns import read_columns
from saccade.data.text.corpus import Corpus
from saccade.datasets.made import bookings, clips, dialling, digits, facts, gifts, mails, reviews, speech, stories
from saccade.datasets.made.names import draw_name
from saccade.errors import UserError


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("module", [reviews, bookings, digits, dialling, gifts, stories, mails, facts, clips, speech])
def test_the_same_data_are_made_each_time(module: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (make,) = (getattr(module, name) for name in dir(module) if name.startswith("make_"))
    if module is speech:
        pytest.importorskip("espeakng_loader")
    monkeypatch.setattr(module, "SIZES", dict.fromkeys(("train", "valid", "test"), 20))
    monkeypatch.setattr(dialling, "TAKES", 9)
    monkeypatch.setattr(dialling, "PHONES", ("desk",))
    for name in ("one", "two"):
        make(tmp_path / name)
    made = contents(tmp_path / "one")
    assert made == contents(tmp_path / "two")
    assert len(made) >= 3


def test_reviews_are_judged_by_more_than_their_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "SIZES", {"train": 600, "test": 300})
    reviews.make_reviews(tmp_path)
    train, test = ([*read_labelled([tmp_path / f"{name}.tsv"], LabelColumns())] for name in ("train", "test"))
    assert not {one.text for one in train} & {one.text for one in test}
    assert max(Counter(one.label for one in test).values()) / len(test) < 0.4
    praises, blames = ({word for both in reviews.THINGS.values() for word in both[side]} for side in (0, 1))

    def guess(text: Text) -> str:
        good, bad = (bool(set(text.text.split()) & words) for words in (praises, blames))
        return "mixed" if good and bad else "positive" if good else "negative"

    assert sum(guess(one) == one.label for one in test) / len(test) < 0.5


def test_bookings_name_what_no_list_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookings, "SIZES", {"train": 800, "test": 200})
    bookings.make_bookings(tmp_path)
    train, test = (read_columns(tmp_path / f"{name}.conll") for name in ("train", "test"))
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for one in train:
        for word, tag in zip(one.words, one.tags, strict=True):
            seen[word][tag] += 1
    names = [
        (word, tag)
        for one in test
        for word, tag in zip(one.words, one.tags, strict=True)
        if tag in ("B-town", "I-house")
    ]
    listed = [word in seen and seen[word].most_common(1)[0][0] == tag for word, tag in names]
    assert sum(listed) / len(names) < 0.5


def test_digits_are_as_many_of_each_and_differ() -> None:
    picture_NYX, label_N = digits.paint_digits(300, np.random.default_rng(1))
    assert np.bincount(label_N, minlength=10).min() > 15
    assert len(np.unique(picture_NYX.reshape(300, -1), axis=0)) == 300
    mean_KYX = np.stack([picture_NYX[label_N == digit].mean(0) for digit in range(10)])
    distance_NK = np.abs(picture_NYX[:, None].astype(float) - mean_KYX).mean((2, 3))
    assert 0.3 < (distance_NK.argmin(1) == label_N).mean() < 0.95  # the digits are themselves, and not all alike


def test_digits_are_read_as_mnist_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digits, "SIZES", {"train": 30})
    digits.make_digits(tmp_path)
    images = read_images(*(str(tmp_path / f"train-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1")))
    assert images.pixel_NCYX.shape == (30, 1, digits.SIDE, digits.SIDE)


def test_a_key_has_the_two_tones_of_its_row_and_column() -> None:
    random = np.random.default_rng(3)
    for key, place in dialling.PLACES.items():
        power = np.abs(np.fft.rfft(dialling._press(key, 1, random), dialling.RATE))  # a bin for each hertz

        def loudest(tones: tuple[int, ...], power: NDArray[np.float64] = power) -> int:
            return int(np.argmax([power[tone - 10 : tone + 10].max() for tone in tones]))

        assert (loudest(dialling.ROWS), loudest(dialling.COLUMNS)) == place


def test_numbers_are_dialled_on_one_telephone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialling, "TAKES", 9)
    monkeypatch.setattr(dialling, "PHONES", ("desk", "wall"))
    monkeypatch.setattr(dialling, "SIZES", dict.fromkeys(("train", "valid", "test"), 5))
    dialling.make_dialling(tmp_path)
    for pair in Corpus(str(tmp_path / "test.tsv")).pairs():
        names = [part for part in pair.source.split() if part.endswith(".wav")]
        assert len({name.split("_")[1] for name in names}) == 1
        assert len(names) == len(pair.target.split())
        _, rate = read_sound(tmp_path / names[0])
        assert rate == dialling.RATE


def retell(story: Story) -> str:
    """Answer a question by following everybody and everything through the story."""
    place: dict[str, str] = {}
    holder: dict[str, str] = {}
    visited: dict[str, list[str]] = defaultdict(list)
    for words in (sentence.rstrip(".").split() for sentence in story.sentences):
        person, last = words[0], words[-1]
        if last in stories.PLACES:
            place[person] = last
            for thing in (thing for thing, owner in holder.items() if owner == person):
                visited[thing].append(last)
        elif " ".join(words[1:-2]) in stories.TAKES:
            holder[last] = person
            visited[last] += [place[person]] * (not visited[last])
        else:
            del holder[last]
    asked = story.question.rstrip("?").split()
    if "before" in asked:
        places = visited[asked[3]]
        return places[places.index(asked[-1]) - 1]
    return place[asked[-1]] if asked[-1] in place else visited[asked[-1]][-1]


def test_answers_of_stories_follow_from_their_facts_and_not_from_one_word(tmp_path: Path) -> None:
    dice = random.Random(5)
    for kind, most in {"one fact": 1, "two facts": 2, "three facts": 4}.items():
        drawn = [one for one in (stories.draw_story(dice, kind) for _ in range(150)) if one is not None]
        (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in drawn), "utf-8")
        found = list(read_stories([tmp_path / "a.jsonl"], StoryColumns()))
        assert [retell(one) for one in found] == [one.answer for one in found]
        assert all(1 <= len(one.facts) <= most for one in found)
        told = [" ".join(one.sentences[fact] for fact in one.facts) for one in found]
        assert all(one.answer in text for one, text in zip(found, told, strict=True))
        assert max(Counter(one.answer for one in found).values()) < len(found) / 3


def test_a_story_of_gifts_is_as_likely_as_it_says_and_ends_as_it_must() -> None:
    """Its chances are counted by hand for stories of two gifts."""
    dice = random.Random(3)
    drawn = [gifts.draw_story(dice) for _ in range(2000)]
    for story in drawn[:50]:
        owners = dict[str, str]()
        for sentence in story.text.split(" . "):
            words = sentence.removesuffix(" .").split()
            if words[0] == "now":
                assert owners[words[-1]] == words[1], story.text
            else:
                owners[words[-1]] = words[2] if words[1] == "gives" else words[0]
    assert {one.text.count("gives") for one in drawn} == {2, 3, 4}
    two = [one for one in drawn if one.text.count("gives") == 2]
    # two gifts: after the first one, one of two people gives; who has both things chooses between them
    free = math.log(8 * 7 * 6 * 8 * 7 * 6 * 6**3 * 3)
    wanted = {round(free + math.log(3 * 1 * 2 * 2 * own * 2), 9) for own in (1, 2)}
    assert {round(one.nats, 9) for one in two} == wanted


def test_subjects_of_mails_are_copied_from_them_and_answers_from_their_texts() -> None:
    dice = random.Random(4)
    for mail, subject in (mails.draw_mail(dice) for _ in range(500)):
        new = [word for word in subject.split() if word[0].isdigit() or word in mail.split()]
        assert len(new) >= 3, subject
        assert set(re.findall(r"\d+", subject)) <= set(re.findall(r"\d+", mail))
    for text, answer in (facts.draw_question(dice) for _ in range(500)):
        question, told = text.split(" ? ", 1)
        assert answer in told, text
        assert answer not in question
        assert told.count(" .") == 6  # sentences


def test_nearly_all_names_of_a_test_set_are_new() -> None:
    dice = random.Random(5)
    seen, new = ({draw_name(dice) for _ in range(count)} for count in (50_000, 500))
    assert len(new - seen) / len(new) > 0.8


def test_clips_are_read_as_they_were_painted(tmp_path: Path) -> None:
    for number, clip in enumerate(clips.paint_clips(40, seed=3)):
        path = tmp_path / f"{number}.gif"
        clips.write_gif(path, clip)
        found = read_clip(path, ClipSize(clips.SIDE, clips.FRAMES[1]))
        assert np.array_equal(found, clip.colour_N3[clip.index_FYX].transpose(0, 3, 1, 2)), path


def test_what_happens_in_a_clip_is_seen_in_its_span() -> None:
    """The two verbs stand where their spans say; a thing that enters isn't there before, one that leaves not after."""
    made = clips.paint_clips(150, seed=4)
    assert {verb for clip in made for verb in clip.sentence.split()} >= set(clips.THEN)
    for clip in made:
        words, ends = clip.sentence.split(), [0]
        for word, first, last in clip.spans:
            assert words[word] in clips.THEN
            assert ends[-1] <= first < last < len(clip.index_FYX)
            ends.append(last + 1)
        colours = {level // clips.LEVELS for level in np.unique(clip.index_FYX[clip.index_FYX > 0] - 1).tolist()}
        assert len(colours) >= 2
        word, first, last = clip.spans[0]
        is_there = [bool(np.isin(index_YX, range(1, clips.LEVELS + 1)).any()) for index_YX in clip.index_FYX]
        if words[word] == "enters":
            assert not any(is_there[: first + 1])
            assert all(is_there[last:]) or clip.sentence.endswith("leaves")
        elif len(clip.spans) == 1 and words[word] == "leaves":
            assert all(is_there[:first])
            assert not any(is_there[last:])


def test_no_one_frame_tells_what_happens() -> None:
    """All verbs are about as frequent, and a clip is as long with each."""
    made = clips.paint_clips(600, seed=5)
    counts = Counter(clip.sentence.split()[word] for clip in made for word, _, _ in clip.spans)
    assert max(counts.values()) < 2 * min(counts.values())


def test_speech_has_the_time_of_every_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words follow each other; no string is in two lists; each takes a tenth of a second to 0.8."""
    pytest.importorskip("espeakng_loader")
    monkeypatch.setattr(speech, "SIZES", {"train": 20, "valid": 5, "test": 5})
    speech.make_speech(tmp_path)
    lists = [read_spoken(tmp_path / f"{name}.tsv") for name in ("train", "valid", "test")]
    lines = [line for one in lists for line in one]
    assert len({line.text for line in lines}) == 30
    for line in lines:
        samples, rate = read_sound(tmp_path / line.sound)
        assert line.times is not None
        assert len(line.times) == len(line.text.split())
        assert line.times[0][0] < 0.03
        assert line.times[-1][1] == pytest.approx(len(samples) / rate, abs=0.01)
        assert all(0.1 < end - start < 0.8 for start, end in line.times)


def test_without_espeak_a_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(UserError, match=r"pip install 'saccade\[speech\]'"):
        speech.make_speech(tmp_path)
    assert not any(tmp_path.iterdir())
