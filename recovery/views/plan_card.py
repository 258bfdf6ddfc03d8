"""The newest plan of a case, step by step, as it stands."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from django.db.models import Count

from approvals import deciders, digests
from approvals.models import Approval, ApprovalState
from connectors import accounts, connections
from ledger import disclosure
from ledger.disclosure import HIDDEN
from recovery.casework import settling
from recovery.corrections import publishing
from recovery.engine import approved_calls, preconditions
from recovery.models import Case, CaseState, Plan, PlanState, Step, StepState
from recovery.models.plans import ABSENT, DUE_IN_TIME, IN_HAND, LIVING, TROUBLED, WAITS_FOR_PEOPLE
from recovery.run_facts.sentences import many
from recovery.views.request_context import case_url
from workspaces import formatting
from workspaces.access import may
from workspaces.models import User
from workspaces.pages import LONG_FROM, folded, tallied
from workspaces.request_cache import cached
from workspaces.templatetags.formatting import state_word

STEPS_SHOWN_MAX = 200
GOES_ON, FOR_PEOPLE = frozenset({*IN_HAND, *DUE_IN_TIME}), frozenset(WAITS_FOR_PEOPLE)
# What a step in this state says under its title.
OUTCOMES: dict[str, str] = {
    StepState.VERIFIED: "Read back: it is as it should be.",
    StepState.REPORTED: "The other side says it is done; it cannot be read back.",
    StepState.SKIPPED: "Left as it is.",
    StepState.CANCELLED: "Not done.",
}
SAID_BY_A_PERSON = "A person says it is done; it cannot be read back."

# Why it waits for a person, where the engine wrote down nothing more.
WAITS: dict[str, str] = {
    StepState.UNKNOWN: "no answer came, and nothing shows yet whether it was done",
    StepState.DRIFTED: "somebody changed its target since",
    StepState.NEEDS_HUMAN: "the desk cannot go on with it by itself",
}
TRIED: dict[str, str] = {
    "": "no answer",
    "applied": "done",
    "no_effect": "no effect",
    "unknown": "nobody knows what it did",
    ABSENT: "no answer, and it was found not to be done",
}
"""How one try ended, by its outcome."""

GOES: dict[str, str] = {
    PlanState.WAITING: "The plan is about to begin.",
    PlanState.STARTING: "The agent is told to stop; the plan begins once it has.",
    PlanState.RUNNING: "The plan runs, newest step first. This page keeps itself up to date.",
    PlanState.STOPPED: "The plan was stopped. What was sent is seen through, and nothing else.",
    StepState.NEEDS_HUMAN: "The plan waits for a person: settle the step at which it stands.",
}
"""What is waited for while a case is recovering, by the state that the card shows."""
AGREED = "Those who had to agree have agreed; the plan has not begun yet."
OVER = "The plan is over; what follows of that is being looked at."

APPROVAL_WORDS = {
    ApprovalState.WAITING: "Waits for approval",
    ApprovalState.GRANTED: "Approved, not begun yet",
    ApprovalState.USED: "Approved",
    ApprovalState.REJECTED: "Rejected",
    ApprovalState.EXPIRED: "The question expired",
    ApprovalState.WITHDRAWN: "The question was withdrawn",
}


def card(case: Case, person: User, *, sensitive: bool) -> dict[str, Any] | None:
    """The newest plan with its steps as they stand."""
    plan = case.plans.order_by("-number").first()
    if plan is None:
        return None
    living, approval = plan.state in LIVING, _question(plan)
    awaited = _awaited(case, plan)
    rows = plan.steps.prefetch_related("connection").order_by("position")
    steps = list(rows[:STEPS_SHOWN_MAX])
    # What is asked of people stands there wherever it is in the plan, with the way to its answer.
    if len(steps) == STEPS_SHOWN_MAX:
        behind = rows.filter(position__gt=steps[-1].position)
        steps += behind.filter(state__in=TROUBLED)[:STEPS_SHOWN_MAX]
    states = Counter(dict(plan.steps.values_list("state").annotate(Count("pk"))))
    left_out = states.total() - len(steps)
    is_stuck = (
        plan.state == PlanState.RUNNING
        and not GOES_ON & states.keys()
        and FOR_PEOPLE & states.keys()
    )
    state = StepState.NEEDS_HUMAN if is_stuck else plan.state
    url = case_url(case)
    stops = living and may(person, "recover", case.workspace)
    return {
        "number": plan.number,
        "digest": formatting.digest(plan.digest),
        "state": state,
        "word": (word := _word(plan, approval)),
        "goes": AGREED if word == "Approved" else _held(state, steps) or GOES.get(state, OVER),
        "is_asked": plan.state == PlanState.WAITING and not word,
        "steps": _folded([_step(case, step, sensitive=sensitive) for step in steps], plan.state),
        "outline": tallied(map(state_word, states.elements()))
        if len(states) > 1 and states.total() > LONG_FROM
        else "",
        "part": f"A part, with {many(plan.more_standing, 'more effect')} left to later plans."
        if plan.more_standing
        else "",
        "untouched": [f"and {many(left_out, 'step')} more"] if left_out > 0 else [],
        "progress_url": f"{url}progress/?until={awaited}" if awaited else "",
        "stop_url": f"{url}stop/" if stops else "",
        "approval": _approval(case, approval),
    }


def _held(state: str, steps: Sequence[Step]) -> str:
    """By which pause a plan under way is held up, where no step of it goes on meanwhile."""
    held = [one.note for one in steps if one.state == StepState.READY]
    held = [note for note in held if note.startswith(preconditions.PAUSED)]
    goes_on = any(one.state in IN_HAND for one in steps)
    is_held = held and state == PlanState.RUNNING and not goes_on
    return f"{held[0].rstrip('.')}. The plan goes on once that is lifted." if is_held else ""


def _folded(steps: list[dict[str, Any]], state: str) -> list[dict[str, Any]]:
    """Of a plan that was stopped before anything was sent all of them: it is no news to anybody."""
    is_unsent = {one["state"] for one in steps} == {StepState.CANCELLED}
    if state == PlanState.STOPPED and is_unsent and len(steps) > 1:
        steps[0]["opens_fold"] = f"{many(len(steps), 'step')}, none of them done"
        steps[-1]["closes_fold"] = True
        return steps
    return folded(steps, lambda step: step["state"] not in TROUBLED and not step["waits"], _stretch)


def _awaited(case: Case, plan: Plan) -> str:
    """What the page waits for, one after the other, or nothing. Each time it is another, the whole
    page is loaded anew.
    """
    if plan.state in LIVING:
        return "ended"
    if case.state == CaseState.RECOVERING:
        return "closed"
    return "drafted" if publishing.is_coming(case) else ""


def _stretch(steps: Sequence[dict[str, Any]]) -> str:
    states = tallied(state_word(step["state"]) for step in steps)
    return f"Steps {steps[0]['number']} to {steps[-1]['number']}: {states}"


def _step(case: Case, step: Step, *, sensitive: bool) -> dict[str, Any]:
    waits_for_person = step.state in TROUBLED
    return {
        "number": step.position,
        "title": title_of(step),
        "text": f"{step.connection.name} · {step.operation}",
        "state": step.state,
        "reversibility": step.reversibility,
        "diff": differences(step, sensitive=sensitive),
        "waits": step.note if step.state not in OUTCOMES else "",
        "outcome": _outcome(step),
        "url": f"{case_url(case)}settle/?step={step.pk}" if waits_for_person else "",
    }


def title_of(step: Step) -> str:
    return str(step.preview.get("title") or f"{step.operation} {formatting.named(step.target_id)}")


def left_to_people(step: Step) -> str:
    """That it is theirs, and whether anything of its plan goes on meanwhile."""
    goes_on = step.plan.steps.filter(state__in=GOES_ON).exists()
    others = "; others go on without it" if goes_on else ", and nothing else of its plan goes on"
    return f"The engine has left this step to a person{others}."


def waits_because(step: Step) -> str:
    """In words; empty of a step that waits for nobody any more."""
    return step.note or WAITS[step.state] if step.state in WAITS else ""


def _outcome(step: Step) -> str:
    person = (step.evidence or {}).get("person") or {}
    if step.state == StepState.REPORTED and person.get("outcome") == settling.APPLIED:
        return SAID_BY_A_PERSON
    return OUTCOMES.get(step.state, "")


def differences(step: Step, *, sensitive: bool) -> list[dict[str, Any]]:
    """What stopped the step, field by field: another target, or another call than was approved.

    Without `sensitive` values that agents or outside systems wrote are hidden.
    """
    if step.drift and step.state in WAITS_FOR_PEOPLE:
        seen = disclosure.fields(step.drift or [], sensitive=sensitive, paths=step.workspace.mask)
        return [_differs(one, "agent_wrote", "drifted", shown=True) for one in seen]
    if step.state != StepState.NEEDS_HUMAN:
        return []
    found = [
        _differs(one, "approved", "changed", shown=sensitive or _is_ours(str(one.get("field"))))
        for one in (step.evidence or {}).get("diff") or []
    ]
    return [row for one in found for row in _with_settings(step, one, sensitive=sensitive)]


def _with_settings(step: Step, row: dict[str, Any], *, sensitive: bool) -> list[dict[str, Any]]:
    """Of another digest of a connection's settings: who changed which, when, and their values; of
    another account, who changed it.
    """
    since = step.plan.submitted_at or step.plan.drafted_at
    connection, about = step.connection, (step.connection_id, since, row["was"], row["now"])
    if _is_account(str(row["field"])):
        purpose = str(row["field"]).removeprefix(approved_calls.ACCOUNT)
        told = {"observe": "reads as", "compensate": "writes as"}.get(purpose, row["field"])
        who = partial(accounts.changed_account, connection, purpose, since)
        note = cached(("account", purpose, *about), who)
        return [row | {"field": told, "note": note}]
    if row["field"] != "connection_digest":
        return [row]
    changed = partial(connections.changes_since, connection, since)
    kept = partial(connections.settings_of, connection, row["was"], row["now"])
    note, both = "; ".join(cached(("changes", *about), changed)), cached(("settings", *about), kept)
    changes = digests.changes(*({"settings": one} for one in both)) if both else []
    values = [_differs(asdict(one), "approved", "changed", shown=sensitive) for one in changes]
    return [*values, row | {"note": note}]


def _is_ours(field: str) -> bool:
    """Whether it is of the desk's own setting: a rule, a connection, a connector."""
    ours = field.startswith(("rule.", "connection", "connector", "operation"))
    return ours and not _is_account(field)


def _is_account(field: str) -> bool:
    """What it is called is among what its connection holds: a mail address, a customer."""
    return field.startswith(approved_calls.ACCOUNT)


def _differs(one: dict[str, Any], was: str, kind: str, *, shown: bool) -> dict[str, Any]:
    return {
        "field": one.get("field"),
        "was": one.get(was) if shown else HIDDEN,
        "now": one.get("now") if shown else HIDDEN,
        "kind": kind,
    }


def _question(plan: Plan) -> Approval | None:
    told = Approval.objects.only("state", "was", "closed_by", "closing_reason")  # no thousand calls
    return told.filter(pk=plan.approval_id).first() if plan.approval_id else None


def _word(plan: Plan, approval: Approval | None) -> str:
    """What its badge says, where the name of its state would not be true."""
    asked = approval.state if approval else ""
    if plan.state == PlanState.WAITING and asked != ApprovalState.WAITING:
        return "Approved" if approval else "Queued"
    is_unanswered = asked in {ApprovalState.EXPIRED, ApprovalState.WITHDRAWN}
    return "Not approved" if plan.state == PlanState.REJECTED and is_unanswered else ""


def _approval(case: Case, approval: Approval | None) -> dict[str, str] | None:
    if approval is None:
        return None
    words = APPROVAL_WORDS[ApprovalState(approval.state)]
    if approval.state == ApprovalState.EXPIRED:
        words = f"{words}: {deciders.why_expired(approval)}"
    if approval.state == ApprovalState.WITHDRAWN and approval.closed_by_id is None:
        words = f"{words}: {approval.closing_reason}"  # the desk's own
    return {"url": f"/w/{case.workspace.slug}/approvals/{approval.pk}/", "words": words}
