"""A bulk job: what of its shards is left to do, and who does it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from saccade.bulk.shards import InputShard, Shard, join_url, list_written, match_shards, read_text, write_whole
from saccade.bulk.work import Work, WrittenShard, answer_shard
from saccade.errors import UserError

NAME = "job.json"
Executor = Callable[[Work, Sequence[Shard]], Iterator[WrittenShard]]


class ShardPlan(NamedTuple):
    """The shards of a job, and those that are not written yet."""

    shards: list[Shard]
    left: list[Shard]


def plan(work: Work, inputs: Sequence[Sequence[InputShard]], output: str) -> ShardPlan:
    """Find out what is left to do. Output of another job, or of other files, is refused and left alone."""
    shards = match_shards(inputs, output)
    if any(shard.name == NAME for shard in shards):
        raise UserError(f"--input: a file is called {NAME}, as what is kept beside the outputs; give it another name")
    sizes = {file.url: file.size for side in inputs for file in side}
    place, key = join_url(output, NAME), work.identity()
    known = _read_known(place, key, output)
    written = list_written(output)
    done = [shard for shard in shards if shard.output in written]
    if changed := [url for shard in done for url in shard.inputs if known.get(url) != sizes[url]]:
        said = f"{changed[0]} has changed since its output was written"
        raise UserError(f"--output: {output}: {said}; give another folder, or delete the output")
    with write_whole(place) as draft:
        draft.write_text(json.dumps({"key": key, "inputs": {**known, **sizes}}), "utf-8")
    return ShardPlan(shards, [shard for shard in shards if shard.output not in written])


def _read_known(place: str, key: str, output: str) -> dict[str, int]:
    """Return the sizes of the files that a job in this folder began with."""
    text = read_text(place)
    if text is None:
        if found := list_written(output):
            raise UserError(f"--output: {output} holds other files ({min(found)}); give an empty folder, or a new one")
        return {}
    try:
        stored = json.loads(text)
        same, known = stored["key"] == key, dict[str, int](stored["inputs"])
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{place}: this file is damaged; give another folder") from None
    if not same:
        why = "written by another run, or with other options"
        raise UserError(f"--output: {output} holds output of another job, {why}; give another folder, or delete it")
    return known


def run_locally(work: Work, shards: Sequence[Shard]) -> Iterator[WrittenShard]:
    """Do the work in this process, one shard after the other."""
    answer = work.start()
    for shard in shards:
        yield answer_shard(answer, shard)
