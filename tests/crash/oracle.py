"""The seven invariants of docs/faults.md, asked of the database and the outside journal."""

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any

from django.db import connection
from django.db.models import Exists, OuterRef

from amends.protocol.proofs import LogKey as Known
from amends.protocol.proofs import NotProven, verify
from bench.sizing import is_consistent
from ledger import audit, proofs, sealer
from ledger.models import Event, LogKey, TreeHead
from recovery.engine import steps
from recovery.models import Plan, PlanState, Step
from recovery.models.plans import ENDED
from tests.outside.world import World
from workspaces.models import Workspace

AT_REST = {"verified", "reported", "skipped", "cancelled", "drifted", "needs_human"}
OF_PEOPLE = {"drifted", "needs_human"}
"""Only a person moves a step on from here."""

ENDS = ("plan.stopped", "plan.rejected", "plan.superseded")
"""With each of them steps are cancelled, in its transaction and just before it."""

PROVEN_MAX = 500
"""Of a longer log so many entries are proven one by one, evenly spread; the audit reads more."""

HEALED = {"restore", "refund", "refund_unseen", "slowly", "conditional"}
"""Operations with a native key or a probe, which need nobody."""


def until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for it, or fail and say for what."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"After {seconds:g} seconds still not so: {what}")
        time.sleep(0.1)


def rest(plans: Iterable[Plan], seconds: float = 120.0) -> None:
    """Wait until nothing of the plans waits for a machine, or fail and say what does."""
    known = list(plans)
    try:
        until(lambda: at_rest(known), seconds, "every step at rest")
    except AssertionError as late:
        left = Step.objects.filter(plan__in=known).exclude(state__in=AT_REST)
        steps_left = left.values_list("plan", "position", "state", "tries", "wake_at", "note")
        told = [
            *map(str, steps_left),
            *(f"plan {plan.pk} has not ended" for plan in endless(known)),
        ]
        raise AssertionError("\n".join([str(late), *told])) from late


def at_rest(plans: Iterable[Plan]) -> bool:
    """Whether nothing of the plans waits for a machine: neither a step, nor the end of a plan."""
    moving = Step.objects.filter(plan__in=list(plans)).exclude(state__in=AT_REST)
    return not moving.exists() and not endless(plans)


def endless(plans: Iterable[Plan]) -> list[Plan]:
    """Plans that run, or were stopped, with no step left to do, and have not ended."""
    known = Plan.objects.filter(pk__in=[plan.pk for plan in plans], ended_at=None)
    running = known.filter(state__in=[PlanState.RUNNING, PlanState.STOPPED])
    left = Step.objects.filter(plan=OuterRef("pk")).exclude(state__in=ENDED)
    return list(running.exclude(Exists(left)).select_related("case__run"))


def violations(
    plans: Iterable[Plan],
    world: World,
    *,
    lost_until: int = 0,
    for_people: Collection[str] = (),
    changed: Collection[str] = (),
) -> list[str]:
    """What of the invariants does not hold; empty is good.

    The intents of the first `lost_until` effects were forgotten by a database that went back. The
    keys in `for_people` belong to steps that only people can settle; the targets in `changed` were
    changed by others, so that their steps may have drifted.
    """
    journal = world.journal()
    found = [*_unannounced(journal[lost_until:]), *_more_than_asked(journal)]
    found += [f"I2 {plan.case.run.run}: its plan has not ended" for plan in endless(plans)]
    for plan in plans:
        known = list(plan.steps.select_related("plan", "effect").order_by("position"))
        found += [
            broken
            for step in known
            for broken in _of_step(step, journal)
            if not (broken.startswith("I6") and (step.key in for_people or _was(step, changed)))
        ]
        found += _order(known, journal)
        found += [broken for step in known for broken in told(step)]
    return found + log(plans, went_back=bool(lost_until))


def _was(step: Step, changed: Collection[str]) -> bool:
    """Whether it drifted because somebody did change its target."""
    return step.state == "drifted" and step.target_id in changed


# When the first intent under each key was committed. An event is never written anew, so the row's
# own transaction is the one that told of the intent, and moved the step to it.
COMMITTED_SQL = """
SELECT data ->> 'sent_under', min(pg_xact_commit_timestamp(xmin)) FROM ledger_event
WHERE type = 'step.intended' GROUP BY 1"""


def _unannounced(journal: list[dict[str, Any]]) -> Iterable[str]:
    """I4: effects that nobody had said he would make, when the outside world wrote them down."""
    with connection.cursor() as cursor:
        cursor.execute(COMMITTED_SQL)
        committed = dict(cursor.fetchall())
    for line in journal:
        name, moment = f"{line['verb']} {line['thing']}", committed.get(line["key"])
        if moment is None:
            yield f"I4 {name}: an effect without an intent"
        elif line["at"] < moment.timestamp():
            early = moment.timestamp() - line["at"]
            yield f"I4 {name}: an effect {early:f} seconds before its intent was committed"


def _more_than_asked(journal: list[dict[str, Any]]) -> Iterable[str]:
    """I1, whatever key it was done under: on each target one effect for each step that there is,
    and for each further try that a person authorised; and on nobody else's target any."""
    asked: Counter[str] = Counter()
    for target, generation in Step.objects.values_list("target_id", "generation"):
        asked[target] += generation
    for thing, count in Counter(line["thing"] for line in journal).items():
        if count > asked[thing]:
            yield f"I1 {thing}: {count} effects, where {asked[thing]} were asked for"


def told(step: Step) -> Iterable[str]:
    """I5 and I7: the ledger has every move of the step, and names who made those of people."""
    name = f"{step.plan.case.run.run} step {step.position}"
    seen = None
    ends = list(Event.objects.filter(run=steps.run_of(step.plan), type__in=ENDS).order_by("place"))
    for event in Event.objects.filter(
        run=steps.run_of(step.plan), action=steps.action_of(step), type__startswith="step."
    ).order_by("place"):
        was, now = (event.data or {}).get("was"), event.type.removeprefix("step.")
        if now == "no_effect":  # what became of a try, and no move
            continue
        if seen is not None and was != seen:
            yield f"I5 {name}: a move from {seen} to {was} is not told"
        of_people = was in OF_PEOPLE or now == "skipped"
        if now == "cancelled":
            yield from _cancelled_as(event, ends, name)
        elif of_people and not _person(event):
            yield f"I7 {name}: {was} to {now} by nobody"
        seen = now
    if seen != step.state:
        yield f"I5 {name}: it stands {step.state}, and {seen} is what was told last"


def _cancelled_as(event: Event, ends: list[Event], name: str) -> Iterable[str]:
    """I7: whoever ended the plan, a person or the desk itself, cancelled its steps, and gave the
    same reason; what was not cancelled with it, the engine cancels in a plan that was stopped.
    """
    why = (event.data or {}).get("note")
    later = (one for one in ends if one.place > event.place and one.data["reason"] == why)
    end = next(later, None)
    if end is not None and _person(end) != _person(event):
        who = _person(event) or "nobody"
        yield f"I7 {name}: cancelled by {who}, and its plan was ended by {_person(end) or 'nobody'}"
    elif end is None and not any(
        one.place < event.place and one.type == "plan.stopped" for one in ends
    ):
        yield f"I7 {name}: cancelled, and its plan goes on"


def _person(event: Event) -> str:
    """Who it was by; of the desk itself, nobody."""
    return event.actor if event.actor_kind == "person" else ""


def log(plans: Iterable[Plan], *, went_back: bool = False) -> list[str]:
    """I5: everything is sealed, every proof of it holds, and a log that went back is said to."""
    workspace = next(iter(plans)).workspace
    events = Event.objects.filter(workspace=workspace).order_by("place")
    ids = list(events.values_list("event_id", flat=True))  # others may come while we look
    sealer.seal_all()
    found = [
        f"I5 {one.name}: {one.words}"
        for one in audit.audit(workspace)
        if one.ok == (went_back and one.name == audit.ONE_LOG)
    ]
    found += _not_included(workspace, ids[:: 1 + len(ids) // PROVEN_MAX])
    return [*found, *_not_grown(workspace)]


def _not_included(workspace: Workspace, events: Iterable[str]) -> Iterable[str]:
    """Whether events are in the log, as whoever holds only the log's keys and the SDK can see."""
    logs = LogKey.objects.filter(workspace=workspace)
    known = [Known.of(one.origin, bytes(one.public_key)) for one in logs]
    for event in events:
        download = proofs.download_of(workspace, event)
        if download is None:
            yield f"I5 {event} is not in the log"
            continue
        try:
            verify(json.dumps(download), known)
        except NotProven as why:
            yield f"I5 {event}: {why}"


def _not_grown(workspace: Workspace) -> Iterable[str]:
    """Every head of the log is a beginning of the newest."""
    newest = proofs.newest_head(workspace)
    if newest is None:
        return
    for head in TreeHead.objects.filter(workspace=workspace, origin=newest.origin):
        proof = proofs.consistency(workspace, head.size, newest.size)
        roots = bytes(head.root), bytes(newest.root)
        if not is_consistent(head.size, newest.size, proof, *roots):
            yield f"I5 the head of {head.size} entries is no beginning of {newest.size}"


def _of_step(step: Step, journal: list[dict[str, Any]]) -> Iterable[str]:
    effects = [line for line in journal if line["key"] == step.key]
    name = f"{step.plan.case.run.run} step {step.position} ({step.state})"
    if len(effects) > 1:
        yield f"I1 {name}: {len(effects)} effects"
    for line in effects:
        if (line["thing"], line["fields"]) != (step.target_id, step.effect.before or {}):
            yield f"I1 {name}: not what was approved, but {line['thing']} to {line['fields']}"
    if effects and not _is_known(step):
        yield f"I4 {name}: an effect of which the ledger does not tell"
    if step.state not in AT_REST:
        yield f"I2 {name}: stuck"
    if step.state in {"verified", "reported"} and not effects and not _found_so(step):
        yield f"I4 {name}: without an effect or a read"
    if step.state in OF_PEOPLE and step.operation in HEALED:
        yield f"I6 {name}: {step.note}"


def _is_known(step: Step) -> bool:
    """Whether it was ever said that the effect is there (sent and answered, found, or met), of this
    step or of one of another plan that undoes the same."""
    same = Step.objects.filter(workspace=step.workspace_id, key=step.key).select_related("plan")
    return any(
        one.is_lost
        or Event.objects.filter(
            run=steps.run_of(one.plan),
            action=steps.action_of(one),
            type__in=["step.applied", "step.verified"],
        ).exists()
        for one in same
    )


def _found_so(step: Step) -> bool:
    said = Event.objects.filter(
        run=steps.run_of(step.plan), action=steps.action_of(step), type="step.verified"
    )
    return any((event.data or {}).get("already") for event in said)


def _order(known: list[Step], journal: list[dict[str, Any]]) -> Iterable[str]:
    places = {line["key"]: place for place, line in reversed(list(enumerate(journal)))}
    done = [places[step.key] for step in known if step.key in places]
    if done != sorted(done):
        yield f"I3 {known[0].plan.case.run.run}: effects out of order"
