"""How the agent goes wrong: what it does instead of what was asked for.

Each mistake takes a request and gives the calls that the agent makes. The kinds, and how often each
comes (`generate.CAST`), are those of a real agent's recorded runs.
"""

from collections.abc import Callable
from datetime import date, timedelta
from random import Random

from demo.parcels import world as worlds
from demo.parcels.requests import SenderRequest, Step, change, new_parcel
from demo.parcels.tools import SUNDAY
from demo.recorded.corpus import World
from demo.recorded.desks import Row

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
        changed["recipient"] = args["recipient"] | {"street": f"{number} {worlds.STREETS[0]}"}
    elif "minor" in args:
        changed["minor"] = args["minor"] * 10
    elif "service" in args:
        now = world["parcels"][args["parcel"]]["service"]
        changed["service"] = next(
            name for name in worlds.SERVICES if name not in {now, args["service"]}
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
    return {"parcel": parcel, "recipient": worlds.recipient(chance)}
