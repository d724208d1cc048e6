"""How Ray is called, with another in its place: who gets which file, and what becomes of those that are lost."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from saccade.bulk import ray_cluster
from saccade.bulk.shards import Shard, find_inputs, match_shards
from saccade.bulk.work import Answer, Counts, WrittenShard
from saccade.errors import UserError

NUM_FILES = 5


class Lost(Exception):
    """The process of an actor has ended."""


@dataclass
class Called:
    """A method of an actor that runs when its result is asked for."""

    run: Any

    def remote(self, *arguments: Any) -> Any:
        return lambda: self.run(*arguments)


@dataclass
class PretendedRay:
    """As much of Ray as is used; `losses` has how often the process dies that is at a file.

    A process that has ended answers nothing any more.
    """

    cpus: int = 4
    losses: Counter[str] = field(default_factory=Counter)
    said: list[Any] = field(default_factory=list)

    def init(self, **options: Any) -> None:
        self.said.append(options)

    def kill(self, actor: Any) -> None:
        self.said.append(("killed", actor))

    def shutdown(self) -> None:
        self.said.append("shutdown")

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": self.cpus}

    def remote(self, **options: Any) -> Any:
        self.said.append(options)

        def wrap(kind: Any) -> Any:
            def make(*arguments: Any) -> Any:
                self.said.append("actor")
                actor, has_ended = kind(*arguments), False

                def answer(shard: Shard) -> Any:
                    nonlocal has_ended
                    if has_ended:
                        raise Lost("it is not there")
                    if self.losses[shard.name]:
                        self.losses[shard.name] -= 1
                        has_ended = True
                        raise Lost("it has ended")
                    return actor.answer(shard)

                return ModuleWith(answer=Called(answer))

            return ModuleWith(remote=make)

        return wrap

    def wait(self, refs: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        assert num_returns == 1
        return [refs[-1]], refs[:-1]  # the last that was begun is the first that ends

    def get(self, ref: Any) -> Any:
        return ref()


class ModuleWith(ModuleType):
    """A module with these members."""

    def __init__(self, **members: Any) -> None:
        super().__init__("made")
        vars(self).update(members)


@dataclass(frozen=True)
class Upper:
    """Work: lines in capitals; a line `bad` is the user's mistake."""

    def start(self) -> Answer:
        def answer(paths: list[Path], counts: Counts) -> Iterator[str]:
            del counts
            for line in paths[0].read_text("utf-8").splitlines():
                if line == "bad":
                    raise UserError("a bad line")
                yield line.upper()

        return answer

    def identity(self) -> str:
        return "upper"


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> PretendedRay:
    found = PretendedRay()
    names = ("init", "shutdown", "cluster_resources", "remote", "wait", "get", "kill")
    monkeypatch.setitem(sys.modules, "ray", ModuleWith(**{name: getattr(found, name) for name in names}))
    monkeypatch.setitem(sys.modules, "ray.exceptions", ModuleWith(RayActorError=Lost))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return found


@pytest.fixture
def shards(tmp_path: Path) -> list[Shard]:
    (tmp_path / "in").mkdir()
    for number in range(NUM_FILES):
        (tmp_path / "in" / f"{number}.txt").write_text(f"a{number}\nb\n", encoding="utf-8")
    return match_shards([find_inputs("--input", str(tmp_path / "in"))], str(tmp_path / "out"))


def run(shards: Sequence[Shard], workers: int | None = 2, address: str | None = None) -> list[WrittenShard]:
    options: dict[str, Any] = {"address": address, "workers": workers, "threads": 2, "wants_gpu": True}
    return list(ray_cluster.run_on_ray(Upper(), shards, **options))


def test_every_file_is_answered_once_though_processes_end(
    ray: PretendedRay, shards: list[Shard], tmp_path: Path
) -> None:
    ray.losses = Counter({"0.txt": 2, "4.txt": 1})
    found = run(shards)
    assert sorted(one.shard.name for one in found) == [f"{number}.txt" for number in range(NUM_FILES)]
    assert sum(one.counts.num_lines for one in found) == 2 * NUM_FILES
    assert (tmp_path / "out" / "4.txt").read_text("utf-8") == "A4\nB\n"
    assert ray.said.count("actor") == 2 + 3
    assert ray.said[-1] == "shutdown"
    assert {"num_cpus": 2, "num_gpus": 0} in ray.said


def test_a_file_at_which_processes_end_stops_the_job(ray: PretendedRay, shards: list[Shard]) -> None:
    ray.losses = Counter({"3.txt": 3})
    with pytest.raises(UserError, match=r"3\.txt: 3 processes ended while they answered it; is there enough memory\?"):
        run(shards)
    assert ray.said[-1] == "shutdown"


def test_a_mistake_is_told_as_it_is(ray: PretendedRay, shards: list[Shard], tmp_path: Path) -> None:
    (tmp_path / "in" / "1.txt").write_text("a\nbad\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"^a bad line$"):
        run(shards)
    assert not (tmp_path / "out" / "1.txt").exists()
    assert ray.said[-1] == "shutdown"


@pytest.mark.parametrize(("cpus", "workers", "actors"), [(4, None, 2), (1, None, 1), (64, None, 5), (64, 3, 3)])
def test_as_many_processes_as_fit(
    ray: PretendedRay, shards: list[Shard], cpus: int, workers: int | None, actors: int
) -> None:
    ray.cpus = cpus
    run(shards, workers)
    assert ray.said.count("actor") == actors


def test_a_cluster_is_joined_and_a_new_one_is_small(
    ray: PretendedRay, shards: list[Shard], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(shards[:1])
    run(shards[:1], address="ray://head:10001")
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    run(shards[:1])
    here, far, named = (one for one in ray.said if isinstance(one, dict) and "address" in one)
    assert here["include_dashboard"] is False
    assert (far["address"], named["address"]) == ("ray://head:10001", None)  # which Ray finds by itself
    assert "include_dashboard" not in {*far, *named}


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize(
    ("given", "mode"),
    [({}, None), ({"RAY_AUTH_TOKEN": "secret"}, "token"), ({"RAY_AUTH_MODE": "disabled"}, "disabled")],
)
def test_a_cluster_that_asks_for_a_token_gets_it(
    given: dict[str, str], mode: str | None, shards: list[Shard], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # so that what a call sets is taken back
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    run(shards[:1])
    assert os.environ.get("RAY_AUTH_MODE") == mode
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("secret", encoding="utf-8")
    run(shards[:1])
    assert os.environ["RAY_AUTH_MODE"] == (mode or "token")
