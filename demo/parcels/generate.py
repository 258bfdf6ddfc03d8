"""Two hundred runs at the parcel desk, each with its mistake or without, from one seed.

`python -m demo.parcels.generate FOLDER --seed 1` writes them as `manage.py replay FOLDER` reads
them. The same seed makes the same runs.
"""

import argparse
from pathlib import Path
from random import Random
from typing import NamedTuple

from demo.parcels import mistakes, world
from demo.parcels.requests import SenderRequest, Step, sender_request
from demo.parcels.tools import Desk
from demo.recorded import corpus
from demo.recorded.corpus import World
from demo.recorded.desks import PARCELS, Row

SEED = 1  # twelve of its wrong runs write a row more than once, as twelve of the airline's do
REFUSALS_MAX = 3
TRIES_MAX = 50


class Part(NamedTuple):
    """So many runs of a kind, of which the first `refusals` begin with calls that are refused.

    `mistake` is "" where all is right; `steps` is how many right calls the request takes, at least
    and at most.
    """

    runs: int
    mistake: str
    does: mistakes.Mistake
    steps: tuple[int, int]
    refusals: int = 0


CAST = (
    Part(21, "unwanted", mistakes.unwanted, (0, 0), refusals=4),
    Part(14, "wrong argument", mistakes.wrong_argument, (1, 2), refusals=6),
    Part(10, "wrong record", mistakes.wrong_record, (1, 2), refusals=3),
    Part(16, "other tool", mistakes.other_tool, (1, 2), refusals=6),
    Part(4, "done twice", mistakes.done_twice, (1, 2)),
    Part(5, "one more", mistakes.one_more, (1, 2)),
    Part(14, "stopped half-way", mistakes.stopped_half_way, (2, 3), refusals=6),
    Part(2, "told otherwise", mistakes.as_asked, (1, 1), refusals=1),
    Part(28, "forgotten", mistakes.forgotten, (1, 3), refusals=1),
    Part(2, "told otherwise", mistakes.as_asked, (0, 0)),
    Part(27, "", mistakes.as_asked, (1, 3), refusals=5),
    Part(57, "", mistakes.as_asked, (0, 0), refusals=4),
)
"""Runs by kind: as many as there are of each among the airline's, which a real agent made."""


def write(folder: Path, *, seed: int = SEED) -> None:
    """Write the recording into `folder`, which exists."""
    chance = Random(seed)
    before = world.make(chance)
    cast = [(part, number < part.refusals) for part in CAST for number in range(part.runs)]
    chance.shuffle(cast)
    runs = [
        _run(chance, before, f"parcel-{number:03}", part, refuses=refuses)
        for number, (part, refuses) in enumerate(cast)
    ]
    corpus.save(folder, before, runs)


def _run(chance: Random, before: World, name: str, part: Part, *, refuses: bool) -> Row:
    """One run, drawn again until all its calls but the meant refusals are taken."""
    for _ in range(TRIES_MAX):
        asked = sender_request(chance, before, chance.randint(*part.steps))
        steps = part.does(chance, before, asked)
        if _taken(before, asked.right) and _taken(before, steps) and _fits(part, asked, steps):
            break
    else:
        raise RuntimeError(f"No run with the mistake “{part.mistake}” came about")
    return {
        "run": name,
        "agent": PARCELS.agent,
        "model": "invented",
        "customer": asked.account,
        "request": f"Hello, this is {before['accounts'][asked.account]['name']}. {asked.request}",
        "correct": not part.mistake,
        "mistake": part.mistake,
        "expected": [step._asdict() for step in asked.right],
        "calls": _calls(chance, before, asked, steps, refuses=refuses),
    }


def _taken(before: World, steps: list[Step] | tuple[Step, ...]) -> bool:
    desk = Desk(dict(before))
    return all(desk.call(step.tool, **step.args) for step in steps)


def _fits(part: Part, asked: SenderRequest, steps: list[Step]) -> bool:
    """A mistake differs from what was asked for, except where only the words were wrong."""
    return (steps == list(asked.right)) == (part.does is mistakes.as_asked)


def _calls(
    chance: Random, before: World, asked: SenderRequest, steps: list[Step], *, refuses: bool
) -> list[Row]:
    desk = Desk(dict(before))
    if steps or refuses or chance.random() < 3 / 4:  # some runs are talk alone
        if chance.random() < 1 / 2:
            desk.call("find_account", account=asked.account)
        else:
            desk.call("where_is", parcel=asked.spare)
    if refuses:
        tried = next(iter(steps or asked.right), None) or Step(
            "recall_parcel", {"parcel": asked.spare}
        )
        for _ in range(chance.randint(1, REFUSALS_MAX)):
            again = mistakes.refused(chance, before, tried)
            desk.call(again.tool, **again.args)
    for step in steps:
        desk.call(step.tool, **step.args)
    if not steps and chance.random() < 1 / 3:
        desk.call("hand_to_colleague", reason="I cannot help with this here.")
    return desk.calls


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes recorded runs of an invented parcel desk.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    write(given.folder, seed=given.seed)
    print(f"Written. To replay: .venv/bin/python manage.py replay {given.folder}")


if __name__ == "__main__":
    main()
