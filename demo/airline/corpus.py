"""The recorded runs, `runs.jsonl.gz`, and the world that each began from, `world.json.gz`."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class NoCorpus(Exception):
    """We stopped because the folder holds no recorded runs; the message says what is missing."""


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
    run: str
    customer: str
    model: str
    agent: str
    request: str
    correct: bool
    expected: tuple[Row, ...]
    calls: tuple[Call, ...]

    @property
    def touched(self) -> set[tuple[str, str]]:
        return {(effect.table, effect.id) for call in self.calls for effect in call.effects}


@dataclass(frozen=True)
class Corpus:
    """`world`: table → id → row, as it stood before each run."""

    world: dict[str, dict[str, Row]]
    runs: tuple[RecordedRun, ...]


def load(folder: Path, *, limit: int | None = None) -> Corpus:
    """Read the corpus in `folder`; raises `NoCorpus` where a file is missing."""
    for name in ("runs.jsonl.gz", "world.json.gz"):
        if not (folder / name).is_file():
            raise NoCorpus(f"{folder} has no {name}")
    with gzip.open(folder / "world.json.gz", "rt") as file:
        world = json.load(file)
    return Corpus(world=world, runs=tuple(_runs(folder, limit)))


def _runs(folder: Path, limit: int | None) -> Iterator[RecordedRun]:
    with gzip.open(folder / "runs.jsonl.gz", "rt") as file:
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
    )
