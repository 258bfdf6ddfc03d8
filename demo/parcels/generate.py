"""Two hundred runs at the parcel desk, each with its mistake or without, from one seed.

`python -m demo.parcels.generate FOLDER --seed 1` writes them as `manage.py replay FOLDER` reads
them. The same seed makes the same runs.

A sender asks for something, which takes a few right calls. A mistake takes the request and gives
the calls that the agent makes instead; the kinds, and how often each comes (`CAST`), are those of a
real agent's recorded runs.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import NamedTuple

from demo import corpus
from demo.corpus import PARCELS, Row, World
from demo.parcels import tools
from demo.parcels.tools import SUNDAY, Desk


class Step(NamedTuple):
    tool: str
    args: Row


class RequestChange(NamedTuple):
    words: str
    step: Step


@dataclass(frozen=True)
class SenderRequest:
    """One sender's request. `spare` is a parcel of theirs that nobody spoke of."""

    account: str
    request: str
    right: tuple[Step, ...]
    spare: str


def sender_request(chance: Random, world: World, steps: int) -> SenderRequest:
    """A request that takes so many right calls, two at most on parcels of the sender's own."""
    account = chance.choice(list(world["accounts"]))
    spare, *parcels = chance.sample(world["accounts"][account]["parcels"], tools.PARCELS_EACH)
    if not steps:
        return SenderRequest(account, _idle(chance, parcels[0]), (), spare)
    changes = [change(chance, world, parcel) for parcel in parcels[:steps]]
    if steps > len(parcels) or chance.random() < 1 / 4:
        changes[-1 if steps <= len(parcels) else len(changes) :] = [
            new_parcel(chance, world, account)
        ]
    words = ", and then ".join(change.words for change in changes)
    return SenderRequest(
        account, f"Please {words}.", tuple(change.step for change in changes), spare
    )


def _idle(chance: Random, parcel: str) -> str:
    return chance.choice(
        [
            f"Where is {parcel} today? I only want to know.",
            f"What would express cost for {parcel}? Please do not change it yet.",
            f"My neighbour wants {parcel} for himself. Can he have it without my asking for it?",
            f"{parcel} came a day late and I am cross. I did not ask for money.",
        ]
    )


def means(chance: Random, world: World, account: str) -> str:
    """A way to pay: the sender's card or balance."""
    wallet: Row = world["accounts"][account]["wallet"]
    return chance.choice(list(wallet))


def new_parcel(chance: Random, world: World, account: str) -> RequestChange:
    to, contents = tools.recipient(chance), chance.sample(tools.THINGS, 2)
    args = {
        "account": account,
        "recipient": to,
        "service": chance.choice(list(tools.SERVICES)),
        "contents": contents,
        "pay_with": means(chance, world, account),
    }
    words = f"send {' and '.join(contents)} to {to['name']} in {to['town']}, {args['service']}"
    return RequestChange(words, Step("ship_parcel", args))


def _recall(chance: Random, world: World, parcel: str) -> RequestChange:
    return RequestChange(
        f"stop {parcel} and bring it back", Step("recall_parcel", {"parcel": parcel})
    )


def _redirect(chance: Random, world: World, parcel: str) -> RequestChange:
    to = tools.recipient(chance)
    words = f"let {parcel} go to {to['name']}, {to['street']}, {to['town']}"
    return RequestChange(words, Step("redirect_parcel", {"parcel": parcel, "recipient": to}))


def _insure(chance: Random, world: World, parcel: str) -> RequestChange:
    minor = chance.randrange(5_000, 60_000, 500)
    pay = means(chance, world, world["parcels"][parcel]["sender"])
    args = {"parcel": parcel, "minor": minor, "pay_with": pay}
    return RequestChange(f"insure {parcel} for {minor // 100} euros", Step("insure_parcel", args))


def _service(chance: Random, world: World, parcel: str) -> RequestChange:
    row = world["parcels"][parcel]
    service = chance.choice([name for name in tools.SERVICES if name != row["service"]])
    pay = means(chance, world, row["sender"])
    args = {"parcel": parcel, "service": service, "pay_with": pay}
    return RequestChange(f"let {parcel} travel {service}", Step("change_service", args))


def _pickup(chance: Random, world: World, parcel: str) -> RequestChange:
    args = {"parcel": parcel, "on": tools.day(chance), "part_of_day": "morning"}
    return RequestChange(
        f"have {parcel} fetched on {args['on']} in the morning", Step("book_pickup", args)
    )


# Of the recorded mistakes most are about bookings that were changed or cancelled.
CHANGES: tuple[Callable[[Random, World, str], RequestChange], ...] = (
    _recall, _recall, _redirect, _insure, _insure, _service, _service, _pickup,
)  # fmt: skip


def change(chance: Random, world: World, parcel: str) -> RequestChange:
    """Something to be done about one parcel."""
    return chance.choice(CHANGES)(chance, world, parcel)


Mistake = Callable[[Random, World, SenderRequest], list[Step]]
NOWHERE = "Ultima"


def unwanted(chance: Random, world: World, request: SenderRequest) -> list[Step]:
    """Something was done where nothing should have been."""
    if chance.random() < 1 / 4:
        voucher = {"account": request.account, "minor": chance.randrange(500, 5_000, 500)}
        return [Step("grant_voucher", voucher)]
    return [change(chance, world, request.spare).step]


def wrong_argument(chance: Random, world: World, request: SenderRequest) -> list[Step]:
    """The right call on the right parcel, and one argument is not what was asked for."""
    *others, last = request.right
    args, changed = last.args, dict[str, object]()
    if "recipient" in args:
        number = chance.randrange(181, 300)
        changed["recipient"] = args["recipient"] | {"street": f"{number} {tools.STREETS[0]}"}
    elif "minor" in args:
        changed["minor"] = args["minor"] * 10
    elif "service" in args:
        now = world["parcels"][args["parcel"]]["service"]
        changed["service"] = next(
            name for name in tools.SERVICES if name not in {now, args["service"]}
        )
    elif "on" in args:
        day = date.fromisoformat(args["on"]) - timedelta(days=1)
        changed["on"] = (day - timedelta(days=day.isoweekday() == SUNDAY)).isoformat()
    else:
        return wrong_record(chance, world, request)
    return [*others, Step(last.tool, args | changed)]


def wrong_record(chance: Random, world: World, request: SenderRequest) -> list[Step]:
    """The right call on another of the sender's parcels."""
    *others, last = request.right
    if "parcel" not in last.args:
        return wrong_argument(chance, world, request)
    other = last.args | {"parcel": request.spare}
    if other.get("service") == world["parcels"][request.spare]["service"]:
        return [*others, Step("redirect_parcel", _elsewhere(chance, request.spare))]
    return [*others, Step(last.tool, other)]


def other_tool(chance: Random, world: World, request: SenderRequest) -> list[Step]:
    """The last part in another way than was asked for: changed, taken back, or made anew."""
    *others, last = request.right
    parcel = last.args.get("parcel", request.spare)
    redirected = Step("redirect_parcel", _elsewhere(chance, parcel))
    anew = new_parcel(chance, world, request.account).step
    recalled = Step("recall_parcel", {"parcel": parcel})
    if last.tool == "recall_parcel":
        return [*others, redirected]
    return [*others, *chance.choice([[redirected, recalled], [recalled, anew], [recalled]])]


def done_twice(chance: Random, world: World, request: SenderRequest) -> list[Step]:
    """All that was asked for, and a part of it once more."""
    repeatable = [step for step in request.right if step.tool in {"ship_parcel", "insure_parcel"}]
    return [*request.right, repeatable[-1]] if repeatable else one_more(chance, world, request)


def one_more(chance: Random, world: World, request: SenderRequest) -> list[Step]:
    """All that was asked for, and something that was not."""
    return [*request.right, change(chance, world, request.spare).step]


def stopped_half_way(chance: Random, world: World, request: SenderRequest) -> list[Step]:
    """The first of several calls, and not the last."""
    return list(request.right[:-1])


def forgotten(chance: Random, world: World, request: SenderRequest) -> list[Step]:
    """Nothing was done of what was asked for."""
    return []


def as_asked(chance: Random, world: World, request: SenderRequest) -> list[Step]:
    """All that was asked for; where that is a mistake, the agent told the sender otherwise."""
    return list(request.right)


def refused(chance: Random, world: World, step: Step) -> Step:
    """The same call as the tool does not take it: the agent's first try."""
    args = step.args
    if "pay_with" in args:
        return Step(step.tool, args | {"pay_with": f"card-{chance.randrange(900, 999)}"})
    if "recipient" in args:
        return Step(step.tool, args | {"recipient": args["recipient"] | {"town": NOWHERE}})
    if "on" in args:
        day = date.fromisoformat(args["on"])
        sunday = day + timedelta(days=SUNDAY - day.isoweekday())
        return Step(step.tool, args | {"on": sunday.isoformat()})
    subject = "parcel" if "parcel" in args else "account"
    return Step(step.tool, args | {subject: f"{args[subject]}X"})


def _elsewhere(chance: Random, parcel: str) -> Row:
    return {"parcel": parcel, "recipient": tools.recipient(chance)}


SEED = 1  # twelve of its wrong runs write a row more than once, as twelve of the airline's do
REFUSALS_MAX = 3
TRIES_MAX = 50


class RunMix(NamedTuple):
    """So many runs of a kind, of which the first `refusals` begin with calls that are refused.

    `mistake` is "" where all is right; `steps` is how many right calls the request takes, at least
    and at most.
    """

    runs: int
    mistake: str
    does: Mistake
    steps: tuple[int, int]
    refusals: int = 0


CAST = (
    RunMix(21, "unwanted", unwanted, (0, 0), refusals=4),
    RunMix(14, "wrong argument", wrong_argument, (1, 2), refusals=6),
    RunMix(10, "wrong record", wrong_record, (1, 2), refusals=3),
    RunMix(16, "other tool", other_tool, (1, 2), refusals=6),
    RunMix(4, "done twice", done_twice, (1, 2)),
    RunMix(5, "one more", one_more, (1, 2)),
    RunMix(14, "stopped half-way", stopped_half_way, (2, 3), refusals=6),
    RunMix(2, "told otherwise", as_asked, (1, 1), refusals=1),
    RunMix(28, "forgotten", forgotten, (1, 3), refusals=1),
    RunMix(2, "told otherwise", as_asked, (0, 0)),
    RunMix(27, "", as_asked, (1, 3), refusals=5),
    RunMix(57, "", as_asked, (0, 0), refusals=4),
)
"""Runs by kind: as many as there are of each among the airline's, which a real agent made."""


def write(folder: Path, *, seed: int = SEED) -> None:
    """Write the recording into `folder`, which exists."""
    chance = Random(seed)
    before = tools.make(chance)
    cast = [(part, number < part.refusals) for part in CAST for number in range(part.runs)]
    chance.shuffle(cast)
    runs = [
        _run(chance, before, f"parcel-{number:03}", part, refuses=refuses)
        for number, (part, refuses) in enumerate(cast)
    ]
    corpus.save(folder, before, runs)


def _run(chance: Random, before: World, name: str, part: RunMix, *, refuses: bool) -> Row:
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


def _fits(part: RunMix, asked: SenderRequest, steps: list[Step]) -> bool:
    """A mistake differs from what was asked for, except where only the words were wrong."""
    return (steps == list(asked.right)) == (part.does is as_asked)


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
            again = refused(chance, before, tried)
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
