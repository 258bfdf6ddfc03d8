"""Reading back: where a rule asks for `CONNECTOR`, the desk itself looks whether a call did what it
says, and tells the ledger with `action.verified`.

It reads over the twin's connection, with the credential that cannot write, and compares with the
recorded `after`. Only a call of which every target was read is as it says; what cannot be read
after a few tries is given up, and the run becomes a case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from amends.protocol.vocabulary import WITHOUT_EFFECT, EventType
from approvals.policy import Policy, class_of
from connectors import calls
from connectors.contract import CannotRead, Observation, Refused
from ledger import desk_events
from ledger.models import Action, ActionState, Compensated, Run, Verified
from recovery.engine.outbound_calls import target_of
from recovery.engine.preconditions import seconds_until_shown
from recovery.engine.steps import let_triage_look
from recovery.models import Readback, ReadbackState
from recovery.planning import drifts
from recovery.planning.drafting import DraftStep, connections_of, draft_steps
from recovery.run_facts.runs import RunFacts, facts_of
from recovery.run_facts.sentences import target_words
from workspaces.clock import database_time
from workspaces.periodic import each

TRIES_MAX = 4
TRY_SECONDS = 5.0
"""Before the second try; each further one waits four times as long."""

BATCH = 50
CHECKS_MAX = 50
DETAIL_CHARACTERS_MAX = 400


def want(facts: RunFacts) -> None:
    """Note which calls are to be read back; triage calls it, and most policies want none."""
    if not wants_any(facts.policy):
        return
    fresh = [
        Readback(action=action, due_at=facts.now)
        for action in facts.actions
        if action.state == ActionState.SUCCEEDED
        and action.verified == Verified.NOT_YET
        and action.compensated == Compensated.NONE
        and action.pk not in facts.unread
        and facts.effects.get(action.pk)
        and facts.judgement(action).verify == "CONNECTOR"
    ]
    Readback.objects.bulk_create(fresh, ignore_conflicts=True)


def wants_any(policy: Policy) -> bool:
    return policy.verify == "CONNECTOR" or any(
        one.verify == "CONNECTOR" for one in (*policy.rules, *policy.always)
    )


def sweep() -> int:
    """Read back what is due; the number of calls that were read."""
    now = database_time()
    by_run: dict[int, list[Readback]] = defaultdict(list)
    for one in due().select_related("action").order_by("due_at")[:BATCH]:
        pause = timedelta(seconds=TRY_SECONDS * 4**one.tries)
        taken = Readback.objects.filter(pk=one.pk, tries=one.tries, state=ReadbackState.WAITING)
        if taken.update(tries=F("tries") + 1, due_at=now + pause):
            one.tries += 1
            by_run[one.action.run_id].append(one)
    return each(by_run.items(), lambda found: _read(*found))


def due() -> QuerySet[Readback]:
    """Calls whose effects are to be read back now."""
    return Readback.objects.filter(state=ReadbackState.WAITING, due_at__lte=Now())


def _read(run_id: int, rows: Sequence[Readback]) -> int:
    run = Run.objects.select_related("workspace", "agent").get(pk=run_id)
    facts = facts_of(run)
    looks = {action.pk for action in facts.actions if _only_reads(facts, action)}
    written = _drafted(facts, {action.pk for action in facts.actions} - looks)
    looked = _drafted(facts, looks)
    steps = [*written, *looked]
    since = _seen_since(facts, looks)
    newest = [*_newest(written), *(one for one in _newest(looked) if one.effect.pk in since)]
    wanted = {row.action_id for row in rows}
    mine = [one for one in newest if one.action.pk in wanted and _can_be_held_against(one)]
    found = drifts.observe(mine)
    checks: dict[int, list[dict[str, Any]]] = defaultdict(list)
    known = {one.effect.pk for one in steps} - {one.effect.pk for one in newest}
    last = _last_of_each(facts, looks)
    early: dict[int, float] = {}
    for one in mine:
        seen = _checks(one, found[id(one)]) if id(one) in found else []
        is_wrong = any(not check["ok"] for check in seen)
        if is_wrong and (wait := seconds_until_shown(one.action, one.operation)) > 0:
            early[one.action.pk] = max(wait, early.get(one.action.pk, 0.0))
        elif seen and (not is_wrong or one.effect.pk in last):
            checks[one.action.pk] += seen
            known.add(one.effect.pk)
    # What is wrong for certain waits for no other target.
    early = {pk: wait for pk, wait in early.items() if all(one["ok"] for one in checks[pk])}
    unread = {action.pk for action, effect in facts.standing() if effect.pk not in known}
    rewritten = {one.action.pk for one in steps} - {one.action.pk for one in newest}
    for row in rows:
        if row.action_id in early:
            _look_later(row, early[row.action_id])
    return sum(
        _settle(
            run, row, checks.get(row.action_id), rewritten, is_whole=row.action_id not in unread
        )
        for row in rows
        if row.action_id not in early
    )


def _look_later(row: Readback, seconds: float) -> None:
    """What the call did may not show yet; the look does not count among its tries."""
    due_at = database_time() + timedelta(seconds=seconds)
    Readback.objects.filter(pk=row.pk).update(due_at=due_at, tries=F("tries") - 1)


def _only_reads(facts: RunFacts, action: Action) -> bool:
    """Whoever claims to only read is taken at their word: what they tell of a target they saw."""
    claimed = replace(facts.tool_call(action), trusted=True)
    return class_of(facts.policy, claimed) in WITHOUT_EFFECT


def _drafted(facts: RunFacts, actions: Collection[int]) -> list[DraftStep]:
    """The steps of these actions alone: what a look saw takes no write's place in a chain."""
    effects = {pk: told for pk, told in facts.effects.items() if pk in actions}
    facts = replace(facts, effects=effects)
    return draft_steps(facts, connections_of([facts.run.workspace_id])).steps


def _can_be_held_against(one: DraftStep) -> bool:
    """Whether its target can be read, and somebody told how the agent left it."""
    return one.operation.observes and bool(one.step.fingerprint)


def _newest(steps: Sequence[DraftStep]) -> list[DraftStep]:
    """Of each target the newest step: an older write can no longer be seen."""
    seen: dict[tuple[str, str], DraftStep] = {}
    for one in steps:
        seen.setdefault(one.place, one)
    return list(seen.values())


def _last_of_each(facts: RunFacts, looks: Collection[int]) -> set[int]:
    """Of each target the effect of the call that changed it last, though no step undoes it: what
    an earlier one wrote may differ since.
    """
    last: dict[tuple[str, str], int] = {}
    for action, effect in facts.standing():
        if action.pk not in looks:
            last.setdefault((effect.target_type, effect.target_id), effect.pk)
    return set(last.values())


def _seen_since(facts: RunFacts, looks: Collection[int]) -> set[int]:
    """What looks tell of targets that no call has changed after them."""
    changed: set[tuple[str, str]] = set()
    found: set[int] = set()
    for action, effect in facts.standing():
        place = (effect.target_type, effect.target_id)
        if action.pk not in looks:
            changed.add(place)
        elif place not in changed:
            found.add(effect.pk)
    return found


def _checks(one: DraftStep, observation: Observation) -> list[dict[str, Any]]:
    """What was found, field by field where it differs."""
    step = one.step
    target = target_of(step)
    name = target_words(target.type, target.id)
    try:
        differences = calls.drifted(
            step.connection, step.operation, step.args, target, observation, expected=step.expected
        )
    except (CannotRead, Refused):
        return []
    if not differences:
        return [{"name": f"{name} is as it was written", "ok": True}]
    return [
        {
            "name": f"{name}: {difference.field or 'the whole'}",
            "expected": difference.expected,
            "actual": difference.actual,
            "ok": False,
        }
        for difference in differences[:CHECKS_MAX]
    ]


@transaction.atomic
def _settle(
    run: Run,
    row: Readback,
    checks: list[dict[str, Any]] | None,
    rewritten: set[int],
    *,
    is_whole: bool,
) -> int:
    """One target that is wrong says enough; that all are right says who has read all."""
    action: Action = row.action
    is_ok = all(check["ok"] for check in checks or ())
    if checks and (is_whole or not is_ok):
        data = {"ok": is_ok, "checks": checks}
        desk_events.record(
            run.workspace,
            EventType.ACTION_VERIFIED,
            run=run.run,
            action=action.action,
            data=data,
            part="readback",
        )
        _end(row, ReadbackState.READ)
        return 1
    if action.pk in rewritten:
        _end(
            row, ReadbackState.REWRITTEN
        )  # the same run wrote over it, and that is what is read back
    elif row.tries >= TRIES_MAX:
        few = "Some of its targets" if checks else "Its targets"
        _end(row, ReadbackState.GIVEN_UP, f"{few} could not be read over any connection.")
        let_triage_look(run)
    return 0


def _end(row: Readback, state: ReadbackState, detail: str = "") -> None:
    Readback.objects.filter(pk=row.pk).update(state=state, detail=detail[:DETAIL_CHARACTERS_MAX])
