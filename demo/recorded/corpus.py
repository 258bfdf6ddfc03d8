"""A recording: the runs, `runs.jsonl.gz`, and the world that each began from, `world.json.gz`."""

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from demo.recorded.desks import Row, ServiceDesk, desk_of

RUNS, WORLD = "runs.jsonl.gz", "world.json.gz"
COMPRESSION = 1  # quick: a recording that is made is read once


class NoCorpus(Exception):
    """We stopped because the folder holds no recorded runs; the message says what is missing."""


World = dict[str, dict[str, Row]]
"""Table → id → row."""


@dataclass(frozen=True)
class Effect:
    table: str
    id: str
    before: Row | None
    after: Row


@dataclass(frozen=True)
class Call:
    n: int
    tool: str
    args: Row
    ok: bool
    result: str
    effects: tuple[Effect, ...]


@dataclass(frozen=True)
class RecordedRun:
    """`expected` are the calls that would have been right, each its `tool` and `args`.

    `mistake` is the kind of mistake that was made, where who made the recording knows it.
    """

    run: str
    customer: str
    model: str
    agent: str
    request: str
    correct: bool
    expected: tuple[Row, ...]
    calls: tuple[Call, ...]
    mistake: str = ""

    @property
    def touched(self) -> set[tuple[str, str]]:
        return set(self.left)

    @property
    def left(self) -> dict[tuple[str, str], Row]:
        """The touched rows as the run left them, by table and id."""
        return {
            (effect.table, effect.id): effect.after
            for call in self.calls
            for effect in call.effects
        }


@dataclass(frozen=True)
class Corpus:
    """`world` is as it stood before each run."""

    desk: ServiceDesk
    world: World
    runs: tuple[RecordedRun, ...]


def save(folder: Path, world: World, runs: Iterable[Row]) -> None:
    """Write a recording; a run is a JSON object, as `_run` reads it."""
    with gzip.open(folder / WORLD, "wt", compresslevel=COMPRESSION) as file:
        json.dump(world, file)
    with gzip.open(folder / RUNS, "wt", compresslevel=COMPRESSION) as file:
        file.writelines(json.dumps(run) + "\n" for run in runs)


def load(folder: Path, *, limit: int | None = None) -> Corpus:
    """Read the recording in `folder`, or its first `limit` runs.

    Raises `NoCorpus` where a file is missing or empty, `UnknownDesk` where no description fits.
    """
    for name in (RUNS, WORLD):
        if not (folder / name).is_file():
            raise NoCorpus(f"{folder} has no {name}")
    with gzip.open(folder / WORLD, "rt") as file:
        world = json.load(file)
    runs = tuple(_runs(folder, limit))
    if not runs:
        raise NoCorpus(f"{folder / RUNS} holds no run")
    return Corpus(desk=desk_of(runs[0].agent), world=world, runs=runs)


def _runs(folder: Path, limit: int | None) -> Iterator[RecordedRun]:
    with gzip.open(folder / RUNS, "rt") as file:
        for number, line in enumerate(file):
            if limit is not None and number >= limit:
                return
            yield _run(json.loads(line))


def _run(said: Row) -> RecordedRun:
    return RecordedRun(
        run=said["run"],
        customer=said["customer"],
        model=said["model"],
        agent=said["agent"],
        request=said["request"],
        correct=said["correct"],
        expected=tuple(said["expected"]),
        calls=tuple(
            Call(
                n=call["n"],
                tool=call["tool"],
                args=call["args"],
                ok=call["ok"],
                result=call["result"],
                effects=tuple(Effect(**effect) for effect in call["effects"]),
            )
            for call in said["calls"]
        ),
        mistake=said.get("mistake", ""),
    )
