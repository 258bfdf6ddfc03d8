"""The replaying agent: does on the airline's database what the recorded agent did, through the SDK.

A run that ended wrong fails its verification: the last call that changed something is read back and
compared with what the customer had asked for.
"""

from typing import Any

import psycopg

import amends
from demo.airline import tables
from demo.airline.corpus import Call, RecordedRun, Row

READING = frozenset(
    {
        "get_user_details",
        "get_reservation_details",
        "search_direct_flight",
        "search_onestop_flight",
        "list_all_airports",
        "calculate",
        "think",
    }
)
RESULT_CHARACTERS_MAX = 2_000


def replay(desk: amends.Desk, database: psycopg.Connection, recorded: RecordedRun) -> None:
    """Replay one run in its own world, which is named like the run."""
    person = _person(database, recorded)
    with desk.run(
        recorded.request,
        run=recorded.run,
        on_behalf_of=person,
        model=recorded.model,
        goal="Serve the customer within the airline's policy",
        labels={"corpus": "airline"},
    ) as run:
        last = None
        for call in recorded.calls:
            action = _act(run, database, recorded.run, call)
            if call.effects or last is None:
                last = action
        verify(last or _reviewed(run), recorded)
        run.summary = "Done as asked" if recorded.correct else "Done, not as asked"


def _reviewed(run: amends.Run) -> amends.Action:
    """A run that called no tool is verified all the same: doing nothing can be wrong too."""
    with run.action("review_conversation", effect_class="read_only") as action:
        action.succeeded(result="No tool was called.")
    return action


def _person(database: psycopg.Connection, recorded: RecordedRun) -> dict[str, Any]:
    row = tables.read(database, "users", recorded.run, recorded.customer) or {}
    name = row.get("name") or {}
    words = f"{name.get('first_name', '')} {name.get('last_name', '')}".strip()
    person = {"id": recorded.customer, "name": words or recorded.customer}
    return person | ({"contact": row["email"]} if row.get("email") else {})


def _act(run: amends.Run, database: psycopg.Connection, world: str, call: Call) -> amends.Action:
    """One recorded call. Reading calls are recorded too: they tell what the agent had seen."""
    targets = [_target(world, effect.table, effect.id) for effect in call.effects]
    before = [tables.read(database, effect.table, world, effect.id) for effect in call.effects]
    known: dict[str, Any] = {"target": targets, "before": before} if targets else {}
    with run.action(
        call.tool,
        args=call.args,
        effect_class=_class_of(call.tool),
        op=f"{call.tool} {call.n}",
        **known,
    ) as action:
        if not call.ok:
            action.failed(call.result[:RESULT_CHARACTERS_MAX], outcome="no_effect")
            return action
        for effect in call.effects:
            tables.write(database, effect.table, world, effect.id, effect.after)
        after = [tables.read(database, effect.table, world, effect.id) for effect in call.effects]
        action.succeeded(
            result=call.result[:RESULT_CHARACTERS_MAX],
            effects=[
                {
                    "target": target,
                    "before": was,
                    "after": now,
                    "summary": _summary(call, effect.table, effect.id),
                    "reversibility": "exact",
                }
                for target, was, now, effect in zip(
                    targets, before, after, call.effects, strict=True
                )
            ],
        )
    return action


def _class_of(tool: str) -> Any:
    if tool in READING:
        return "read_only"
    return "draft" if tool == "transfer_to_human_agents" else "internal_update"


def _target(world: str, table: str, row_id: str) -> tuple[str, str]:
    return tables.TARGET_TYPES[table], f"{world}/{row_id}"


def _summary(call: Call, table: str, row_id: str) -> str:
    words = {
        "book_reservation": "booked",
        "cancel_reservation": "cancelled",
        "update_reservation_flights": "changed the flights of",
        "update_reservation_baggages": "changed the bags of",
        "update_reservation_passengers": "changed the passengers of",
        "send_certificate": "sent a certificate to",
    }
    verb = words.get(call.tool, "changed")
    if table == "users":
        return f"changed the account of {row_id}"
    return f"{verb} reservation {row_id}"


def verify(action: amends.Action, recorded: RecordedRun) -> None:
    """Say whether the run did what the customer had asked for; the recording knows."""
    done = [_words(call.tool, call.args) for call in recorded.calls if call.effects]
    wanted = [_words(call["tool"], call["args"]) for call in recorded.expected]
    action.verified(
        [
            {
                "name": "what the customer asked for",
                "expected": wanted or ["no change"],
                "actual": done or ["no change"],
                "ok": recorded.correct,
            }
        ]
    )


def _words(tool: str, args: Row) -> str:
    what = args.get("reservation_id") or args.get("user_id") or ""
    return f"{tool} {what}".strip()
