"""Clips of moving shapes, each with a sentence: "the red circle stops then the blue square leaves". For captions.

One or two things happen, one after the other, and the frames in which one sees each are known: so it can be measured
whether a model looks there when it writes the verb. What stands still or moves all the time is in clips of every kind.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from saccade.data.pictures.shapes import COLOURS, SHAPES, cover
from saccade.files import replace_file

SIZES = {"train": 8000, "valid": 300, "test": 1000}
SIDE = 32
FRAMES = (12, 16)  # the fewest and the most
DURATION = 120  # of a frame, in milliseconds
RADII = (SIDE / 11, SIDE / 8.5)
SPEEDS = (1.2, 1.7)  # pixels a frame
EDGE, GAP = 0.5, 1.5  # pixels between a thing and the edge, and between two things
GROWTH = 1.5
LEVELS = 16  # of a colour at the edge of a thing: all colours of a clip have room in a GIF, which keeps them exactly
TRIES = 30  # ways that are tried for a thing before another clip is begun
MOVED = {"starts": False, "stops": True, "turns": True, "enters": True, "leaves": True}  # before it happened
THEN = {  # what else may happen to the same thing
    "starts": ("stops", "turns", "leaves", "grows", "shrinks"),
    "stops": ("starts", "grows", "shrinks"),
    "turns": ("stops", "leaves", "grows", "shrinks"),
    "enters": ("stops", "turns", "grows", "shrinks"),
    "leaves": (),
    "grows": ("starts", "stops", "turns", "leaves", "shrinks"),
    "shrinks": ("starts", "stops", "turns", "leaves", "grows"),
}
Numbers = NDArray[np.float64]


class Act(NamedTuple):
    """An action on a thing, and the first and the last frame in which one sees it."""

    thing: int
    verb: str
    first: int
    last: int


class Motion(NamedTuple):
    """The centre [F, (row, column)] and the radius [F] of a thing in each frame."""

    place_F2: Numbers
    radius_F: Numbers


@final
class Clip(NamedTuple):
    """Frames as numbers of colours, the colours, the sentence, and of each verb: its place in it, first and last frame.

    Places and frames count from 0.
    """

    index_FYX: NDArray[np.uint8]
    colour_N3: NDArray[np.uint8]
    sentence: str
    spans: list[tuple[int, int, int]]


def make_clips(folder: Path) -> None:
    """Write animated GIFs, and for each set its captions and the frames of their verbs."""
    for seed, (name, size) in enumerate(SIZES.items()):
        captions, spans = list[str](), list[str]()
        for number, clip in enumerate(paint_clips(size, seed=seed)):
            file = f"{number:05}.gif"
            write_gif(folder / name / file, clip)
            captions.append(f"{file}\t0\t{clip.sentence}\n")
            spans += [f"{file}\t{word + 1}\t{first + 1}\t{last + 1}\n" for word, first, last in clip.spans]
        for ending, lines in (("tsv", captions), ("spans.tsv", spans)):
            with replace_file(folder / f"{name}.{ending}") as draft:
                draft.write_text("".join(lines), "utf-8")


def write_gif(path: Path, clip: Clip) -> None:
    """Write a clip as an animated GIF that is shown again and again."""
    from PIL import Image

    frames = [Image.fromarray(index_YX, "P") for index_YX in clip.index_FYX]
    for frame in frames:
        frame.putpalette(clip.colour_N3.tobytes())
    path.parent.mkdir(parents=True, exist_ok=True)
    frames[0].save(path, "gif", save_all=True, append_images=frames[1:], duration=DURATION, loop=0)


def paint_clips(count: int, *, seed: int) -> list[Clip]:
    """Paint `count` random clips, the same for the same seed."""
    random = np.random.default_rng([seed, 7])
    return [_paint_clip(random) for _ in range(count)]


def _paint_clip(random: np.random.Generator) -> Clip:
    colours, shapes = random.permutation(len(COLOURS))[:3], random.integers(len(SHAPES), size=3)
    plan, found = _plan(random), None
    while found is None:
        num_frames = int(random.integers(FRAMES[0], FRAMES[1] + 1))
        found = _stage(plan, num_frames, random)
    acts, ways = found
    ground_C = np.full(3, random.uniform(5, 45))
    index_FYX, palette = np.zeros((num_frames, SIDE, SIDE), np.uint8), [ground_C]
    for way, colour, shape in zip(ways, colours, shapes, strict=False):
        paint_C = np.array([*COLOURS.values()][colour]) + random.uniform(-15, 15, 3)
        level_FYX = np.rint(LEVELS * cover(np.full(num_frames, shape), way.place_F2, way.radius_F, SIDE))
        index_FYX = np.where(level_FYX, len(palette) - 1 + level_FYX, index_FYX).astype(np.uint8)
        palette += [ground_C + level / LEVELS * (paint_C - ground_C) for level in range(1, LEVELS + 1)]
    names = [f"the {[*COLOURS][colour]} {SHAPES[shape]}" for colour, shape in zip(colours, shapes, strict=True)]
    sentence, spans = _tell(acts, names)
    return Clip(index_FYX, np.clip(palette, 0, 255).astype(np.uint8), sentence, spans)


def _plan(random: np.random.Generator) -> list[tuple[int, str]]:
    """Choose what happens: one thing, or two, to the same thing or to another."""
    first = str(random.choice([*THEN]))
    if random.random() < 0.2:
        return [(0, first)]
    if THEN[first] and random.random() < 0.4:
        return [(0, first), (0, str(random.choice(THEN[first])))]
    return [(0, first), (1, str(random.choice([*THEN])))]


def _stage(
    plan: Sequence[tuple[int, str]], num_frames: int, random: np.random.Generator
) -> tuple[list[Act], list[Motion]] | None:
    """Find ways on which it happens in this order and no thing meets another; None: this time there are none."""
    num_things = int(random.integers(max(2, len({thing for thing, _ in plan})), 4))
    times = _times([verb for _, verb in plan], num_frames, random)
    acts, ways = list[Act](), list[Motion]()
    for thing in range(num_things):
        own = [(verb, time) for (who, verb), time in zip(plan, times, strict=True) if who == thing]
        for _ in range(TRIES):
            if (found := _go(own, num_frames, random)) is None or any(_meet(found[0], other) for other in ways):
                continue
            ways.append(found[0])
            acts += [Act(thing, verb, *span) for (verb, _), span in zip(own, found[1], strict=True)]
            break
        else:
            return None
    acts.sort(key=lambda act: act.first)
    in_order = all(one.last < other.first for one, other in itertools.pairwise(acts))
    return (acts, ways) if in_order else None


def _times(verbs: Sequence[str], num_frames: int, random: np.random.Generator) -> list[int]:
    """Choose when things happen: with room for each, though one that crosses the edge may take more."""
    while True:
        times = [int(random.integers(2, num_frames - 2)) for _ in verbs]
        before = [4 if verb == "enters" else 2 for verb in verbs]
        behind = [4 if verb == "leaves" else 2 for verb in verbs]
        ends = [0, *(time + room - 1 for time, room in zip(times, behind, strict=True))]
        if ends[-1] < num_frames and all(
            time - room + 1 > end for time, room, end in zip(times, before, ends, strict=False)
        ):
            return times


def _go(
    own: Sequence[tuple[str, int]], num_frames: int, random: np.random.Generator
) -> tuple[Motion, list[tuple[int, int]]] | None:
    """Choose a thing's way, and the frames in which one sees what happens to it; None where the way has no room."""
    radius_F = _radii(dict(own), num_frames, random)
    step_F2 = _steps(own, num_frames, random) * random.uniform(*SPEEDS)
    way_F2 = np.cumsum(step_F2, axis=0)  # from the first frame on
    room = (radius_F + EDGE)[:, None]
    low_F2, high_F2, is_inside_F = room - way_F2, SIDE - room - way_F2, np.full(num_frames, True)
    spans = [(time - 1, time + 1) for _, time in own]
    crosses = next((number for number, (verb, _) in enumerate(own) if verb in ("leaves", "enters")), None)
    if crosses is None:
        lowest_2, highest_2 = low_F2.max(0), high_F2.min(0)
    else:
        leaves, time = own[crosses][0] == "leaves", own[crosses][1]
        outward_2 = step_F2[time + 1] if leaves else -step_F2[time]
        axis = int(np.abs(outward_2).argmax())
        beyond = random.uniform(0.2, 1) * outward_2[axis]  # the edge, in the first or last frame in which it is cut
        lowest_2, highest_2 = low_F2.max(0), high_F2.min(0)
        touching = (high_F2 if outward_2[axis] > 0 else low_F2)[time, axis] + np.sign(beyond) * EDGE
        lowest_2[axis] = highest_2[axis] = touching + beyond
        is_inside_F = np.arange(num_frames) < time if leaves else np.arange(num_frames) > time
        outside_F = np.sign(beyond) * (lowest_2[axis] + way_F2[:, axis] - SIDE / 2) >= SIDE / 2 + radius_F
        gone = np.flatnonzero(outside_F)
        if not len(gone):
            return None
        spans[crosses] = (time, int(gone[0])) if leaves else (int(gone[-1]), time)
    if (lowest_2 > highest_2).any():
        return None
    start_2 = random.uniform(lowest_2, highest_2)
    if ((start_2 < low_F2) | (start_2 > high_F2))[is_inside_F].any():
        return None
    return Motion(start_2 + way_F2, radius_F), spans


def _radii(verbs: dict[str, int], num_frames: int, random: np.random.Generator) -> Numbers:
    """Return the radius in each frame; it grows or shrinks within three frames."""
    radius, frame_F = random.uniform(*RADII), np.arange(num_frames)
    share_F = np.zeros(num_frames)
    for verb, sign in (("grows", 1), ("shrinks", -1)):
        if verb in verbs:
            share_F += sign * np.clip((frame_F - verbs[verb] + 1) / 2, 0, 1)
    larger_F = share_F - share_F.min()
    return radius * (1 + (GROWTH - 1) * larger_F)


def _steps(own: Sequence[tuple[str, int]], num_frames: int, random: np.random.Generator) -> Numbers:
    """Return the direction [F, 2] in which a thing comes to each frame, or zeros."""
    is_moving = next((MOVED[verb] for verb, _ in own if verb in MOVED), random.random() < 0.5)
    angle, times = random.uniform(0, 2 * math.pi), {time: verb for verb, time in own}
    step_F2 = np.zeros((num_frames, 2))
    for frame in range(1, num_frames):
        if (verb := times.get(frame - 1)) in ("starts", "stops"):
            is_moving = verb == "starts"
        if verb == "turns":
            angle += random.choice((-1, 1)) * random.uniform(math.pi * 0.4, math.pi * 0.8)
        step_F2[frame] = is_moving * np.array([math.sin(angle), math.cos(angle)])
    return step_F2


def _meet(one: Motion, other: Motion) -> bool:
    """Return whether two things come too near to each other."""
    apart_F = np.linalg.norm(one.place_F2 - other.place_F2, axis=1)
    return bool((apart_F < one.radius_F + other.radius_F + GAP).any())


def _tell(acts: Sequence[Act], names: Sequence[str]) -> tuple[str, list[tuple[int, int, int]]]:
    """Return the sentence, and where its verbs stand with their frames; a thing is named once."""
    words, spans, named = list[str](), list[tuple[int, int, int]](), -1
    for act in acts:
        words += ["then"] if words else []
        words += names[act.thing].split() if act.thing != named else []
        spans.append((len(words), act.first, act.last))
        words.append(act.verb)
        named = act.thing
    return " ".join(words), spans
