"""The replaying agent: does on the desk's database what the recorded agent did, through the SDK.

A run that ended wrong fails its verification: the last call that changed something is read back and
compared with what the customer had asked for.
"""

from typing import Any

import psycopg

import amends
from demo.recorded import corpus
from demo.recorded.corpus import Call, Effect, RecordedRun
from demo.recorded.desks import Row, ServiceDesk

RESULT_CHARACTERS_MAX = 2_000


def replay(
    client: amends.Desk, database: psycopg.Connection, desk: ServiceDesk, recorded: RecordedRun
) -> None:
    """Replay one run in its own world, which is named like the run."""
    with client.run(
        recorded.request,
        run=recorded.run,
        on_behalf_of=_person(database, desk, recorded),
        model=recorded.model,
        goal=desk.goal,
        labels={"corpus": desk.slug},
    ) as run:
        last = None
        for call in recorded.calls:
            action = _act(run, database, desk, recorded.run, call)
            if call.effects or last is None:
                last = action
        verify(last or _reviewed(run), desk, recorded)
        run.summary = "Done as asked" if recorded.correct else "Done, not as asked"


def _reviewed(run: amends.Run) -> amends.Action:
    """A run that called no tool is verified all the same: doing nothing can be wrong too."""
    with run.action("review_conversation", effect_class="read_only") as action:
        action.succeeded(result="No tool was called.")
    return action


def _person(
    database: psycopg.Connection, desk: ServiceDesk, recorded: RecordedRun
) -> dict[str, Any]:
    row = corpus.read(database, desk.customers, recorded.run, recorded.customer) or {}
    person = {"id": recorded.customer, "name": desk.name_of(row) or recorded.customer}
    return person | ({"contact": row["email"]} if row.get("email") else {})


def _act(
    run: amends.Run, database: psycopg.Connection, desk: ServiceDesk, world: str, call: Call
) -> amends.Action:
    """One recorded call. Reading calls are recorded too: they tell what the agent had seen."""

    def target(effect: Effect) -> tuple[str, str]:
        return desk.tables[effect.table].target_type, f"{world}/{effect.id}"

    def now(effect: Effect) -> Row | None:
        return corpus.read(database, effect.table, world, effect.id)

    before = list(map(now, call.effects))
    known: dict[str, Any] = (
        {"target": list(map(target, call.effects)), "before": before} if call.effects else {}
    )
    with run.action(
        call.tool,
        args=call.args,
        effect_class=desk.class_of(call.tool),
        op=f"{call.tool} {call.n}",
        **known,
    ) as action:
        if not call.ok:
            action.failed(call.result[:RESULT_CHARACTERS_MAX], outcome="no_effect")
            return action
        for effect in call.effects:
            corpus.write(database, desk, world, (effect.table, effect.id), effect.after)
        action.succeeded(
            result=call.result[:RESULT_CHARACTERS_MAX],
            effects=[
                {
                    "target": target(effect),
                    "before": was,
                    "after": now(effect),
                    "summary": desk.summary(call.tool, effect.table, effect.id),
                    "reversibility": "exact",
                }
                for was, effect in zip(before, call.effects, strict=True)
            ],
        )
    return action


def verify(action: amends.Action, desk: ServiceDesk, recorded: RecordedRun) -> None:
    """Say whether the run did what the customer had asked for; the recording knows."""
    done = [_words(desk, call.tool, call.args) for call in recorded.calls if call.effects]
    wanted = [_words(desk, call["tool"], call["args"]) for call in recorded.expected]
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


def _words(desk: ServiceDesk, tool: str, args: Row) -> str:
    what = next((args[name] for name in desk.subjects if args.get(name)), "")
    return f"{tool} {what}".strip()
