"""Facts: what happened to one person's things, from the ledger and the steps, in plain sentences.

The same ledger gives the same facts. Their canonical JSON is what the published event vouches for,
so nothing here may hold what the person is not meant to see: no prompts, no intent, no internal ids
but those of the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from amends.protocol.masking import holds_mask
from amends.protocol.vocabulary import WITHOUT_EFFECT
from approvals.models import ApprovalState, Decision
from ledger import disclosure
from ledger.models import Action, ActionState, Compensated, Effect
from recovery.models import Case, Plan, Step, StepState
from recovery.models.steps import DONE, LEFT
from recovery.run_facts.runs import RunFacts
from recovery.run_facts.sentences import (
    capitalised,
    changed_fields,
    clean,
    listed,
    plural,
    singular,
)
from recovery.triage.detectors import KINDS
from recovery.triage.headlines import verb
from workspaces import formatting

# Who reviewed a recovery, by role: what the affected person may know of it.


def reviewers(case: Case) -> dict[str, Any]:
    """How many people approved what ran, in which roles, and whether it was read back."""
    plans = list(Plan.objects.filter(case=case, started_at__isnull=False).order_by("number"))
    decisions = Decision.objects.filter(
        approval__plan_id__in=[plan.pk for plan in plans],
        approval__workspace=case.workspace_id,
        approval__state=ApprovalState.USED,
        granted=True,
    ).select_related("requirement__team")
    roles = {
        one.requirement.team.name
        for one in decisions
        if one.requirement is not None and one.requirement.team is not None
    }
    steps = Step.objects.filter(plan__in=plans).exclude(state__in=LEFT)
    ended = list(steps.values_list("state", flat=True))
    return {
        "approvers": len({one.person_id for one in decisions}),
        "roles": sorted(roles),
        "by_person": any(plan.drafted_by_id for plan in plans),
        "automatic": bool(plans) and all(plan.automatic for plan in plans),
        "read_back": bool(ended) and all(state == StepState.VERIFIED for state in ended),
    }


VERSION = 1
ITEMS_MAX = 500
UNCHANGED_MAX = 50
FIELDS_TOLD_MAX = 3
VALUE_CHARACTERS_MAX = 60
MAILS = frozenset({"mail", "email", "e-mail"})

WORDS = {
    "restored": "Restored",
    "compensated": "Compensated",
    "corrected": "Corrected",
    "repaired": "Record repaired; could not be undone",
    "unchanged": "Unchanged",
    "left": "Left as it is",
    "not_undone": "Could not be restored",
}


@dataclass(frozen=True, slots=True)
class Person:
    """Whom a correction is for."""

    id: str
    name: str
    contact: str


Theirs = list[tuple[Action, Effect | None]]
"""Effects on what is one person's; None of an irreversible call whose effect nobody told."""


WITHOUT_REASON = "This should not have happened."


def people(facts: RunFacts) -> dict[str, tuple[Person, Theirs]]:
    """Everybody affected by the run, each with the effects on what is theirs."""
    found: dict[str, tuple[Person, Theirs]] = {}
    untold = {one.action.pk for one in facts.irreversible() if one.effect is None}
    for action in facts.actions:
        effects: Sequence[Effect | None] = facts.effects.get(action.pk, ())
        for effect in [None] if action.pk in untold else effects:
            affects = effect.affects if effect else None
            person = person_of(affects or facts.run.on_behalf_of)
            if person is not None:
                found.setdefault(person.id, (person, []))[1].append((action, effect))
    return found


def person_of(affected: Any) -> Person | None:
    if not isinstance(affected, dict) or not affected.get("id"):
        return None
    contact = affected.get("contact")
    return Person(
        id=str(affected["id"])[:120],
        name=clean(str(affected.get("name") or ""))[:200],
        contact=str(contact)[:320] if isinstance(contact, str) else "",
    )


def facts_for(case: Case, run: RunFacts, person: Person, theirs: Theirs) -> dict[str, Any]:
    """What this person is told, as JSON."""
    steps = steps_of(case, [effect.pk for _, effect in theirs if effect])
    items = [
        item(
            action,
            effect,
            steps.get(effect.pk),
            lasting=run.is_irreversible(action, effect),
            kind=run.judgement(action).compensation or "",
        )
        if effect
        else untold_item(action)
        for action, effect in theirs[:ITEMS_MAX]
    ]
    own = run.run.customer == person.id
    return {
        "version": VERSION,
        "items": items,
        "unchanged": _untouched(run) if own else [],
        "why": why(case),
        "reviewed": reviewed(case),
        "record": {"run": run.run.run, "workspace": run.run.workspace.slug},
    }


def steps_of(case: Case, effects: Sequence[int]) -> dict[int, Step]:
    """The last step that ended well for each effect."""
    ended = Step.objects.filter(plan__case=case, effect__in=effects, state__in=DONE)
    return {step.effect_id: step for step in ended.select_related("plan").order_by("pk")}


def item(
    action: Action, effect: Effect, step: Step | None, *, lasting: bool = False, kind: str = ""
) -> dict[str, Any]:
    """One effect: what changed, and what was done about it; `lasting` cannot be undone, and `kind`
    is what the policy calls its undo.
    """
    outcome = outcome_of(effect, step, lasting=lasting)
    return {
        "id": f"{action.action}.{effect.position}",
        "target": {"type": effect.target_type, "id": effect.target_id},
        "outcome": outcome,
        "word": WORDS[outcome],
        "what": what(action, effect, step),
        "did": did(effect, outcome, step, kind=kind),
        "changed_at": action.finished_at.isoformat() if action.finished_at else None,
        "undone_at": step.moved_at.isoformat() if step else None,
        "read_back": step is not None and step.state == StepState.VERIFIED,
    }


def untold_item(action: Action) -> dict[str, Any]:
    """An irreversible call that happened, and of which nobody told what it did."""
    target = next(iter(_targets(action)), ("", ""))
    return {
        "id": action.action,
        "target": {"type": target[0], "id": target[1]},
        "outcome": "not_undone",
        "word": WORDS["not_undone"],
        "what": _done(action, friendly(*target) if any(target) else "you"),
        "did": "It cannot be taken back.",
        "changed_at": action.finished_at.isoformat() if action.finished_at else None,
        "undone_at": None,
        "read_back": False,
    }


def outcome_of(effect: Effect, step: Step | None, *, lasting: bool = False) -> str:
    """Only what was verified and exact counts as restored, and nothing that cannot be undone."""
    if effect.compensated == Compensated.CORRECTED:
        return "corrected"
    if effect.compensated == Compensated.REPAIRED:
        return "repaired"
    if effect.compensated == Compensated.COMPENSATED:
        exact = step is not None and step.reversibility == "exact" and not lasting
        verified = step is not None and step.state == StepState.VERIFIED
        return "restored" if exact and verified else "compensated"
    return "not_undone" if lasting or effect.reversibility == "irreversible" else "left"


def what(action: Action, effect: Effect, step: Step | None = None) -> str:
    """`The priority of ticket T-182 was changed from “normal” to “high”.`"""
    target = friendly(effect.target_type, effect.target_id)
    how = verb(effect, action)
    if how == "created":
        return f"{capitalised(target)}{_over(effect, step)} was made."
    if how == "deleted":
        return f"{capitalised(target)} was removed."
    if how != "changed":
        sent = effect.target_type in MAILS
        return f"{capitalised(target)} was sent." if sent else _done(action, target)
    fields = changed_fields(effect.before, effect.after)
    if not fields or len(fields) > FIELDS_TOLD_MAX:
        return f"{capitalised(target)} was changed."
    if len(fields) == 1:
        return f"The {field_words(fields[0])} of {target} was changed{_values(effect, fields[0])}."
    return f"{capitalised(listed([field_words(one) for one in fields]))} of {target} were changed."


def _done(action: Action, target: str) -> str:
    """`“Send parcel” was done for order 7.`: of a tool's name the part that says what it does."""
    name = action.tool.rpartition(".")[2].replace("_", " ")
    return f"{formatting.quoted(capitalised(name))} was done for {target}."


def _over(effect: Effect, step: Step | None) -> str:
    """` of $1 286.00`: what was paid back, where the record says that it was all of it."""
    moved = _moved(step)
    recorded = effect.after.values() if isinstance(effect.after, dict) else ()
    amounts = [one for one in recorded if isinstance(one, int) and not isinstance(one, bool)]
    if moved is None or int(moved["amount_minor"]) not in amounts:
        return ""
    return f" of {_amount(moved)}"


def _moved(step: Step | None) -> dict[str, Any] | None:
    moved = (step.preview or {}).get("money") if step else None
    return moved if isinstance(moved, dict) and moved.get("amount_minor") else None


def _amount(moved: dict[str, Any]) -> str:
    return formatting.money(int(moved["amount_minor"]), str(moved.get("currency", "")))


def did(effect: Effect, outcome: str, step: Step | None, *, kind: str = "") -> str:
    """What was done about it."""
    if outcome in {"corrected", "repaired", "not_undone"} and effect.target_type in MAILS:
        sent = " A correction was sent." if outcome == "corrected" else ""
        return f"A mail cannot be unsent.{sent}"
    has_note = outcome == "restored" and step is not None and bool((step.args or {}).get("note"))
    noted = " A note on it says so." if has_note else ""
    if kind == "ARCHIVE" and outcome == "compensated":
        return "It was put away."
    return _undone(effect, outcome, step) + noted


def _undone(effect: Effect, outcome: str, step: Step | None) -> str:
    moved = _moved(step)
    if moved is not None:
        return f"{_amount(moved)} was paid back."
    if outcome == "restored" and effect.has_before and effect.before is None:
        return "It was removed again."
    fields = changed_fields(effect.before, effect.after)
    if outcome == "restored" and len(fields) == 1:
        before = (effect.before or {}).get(fields[0])
        if _is_plain(before) and not holds_mask(before):
            return f"It was put back to {_said(before)}."
    return {
        "restored": "It was put back to how it was before.",
        "compensated": "It was cancelled.",
        "corrected": "It cannot be taken back. A correction was sent.",
        "repaired": "Our record was put right. What was done outside cannot be taken back.",
        "not_undone": "It cannot be taken back.",
    }.get(outcome, "It was left as it is.")


def friendly(target_type: str, target_id: str) -> str:
    """`ticket T-182`: of an id with a path in it the last part, which people know it by."""
    short = target_id.rstrip("/").rpartition("/")[2] or target_id
    to = "to " if target_type in MAILS else ""
    kind = (
        singular(target_type)
        if formatting.is_identifier(target_type)
        else formatting.quoted(target_type)
    )
    return f"{kind} {to}{formatting.named(short)}".strip() or "something"


def field_words(name: str) -> str:
    return clean(name.replace("_", " ")) or "content"


def _values(effect: Effect, field: str) -> str:
    before, after = ((side or {}).get(field) for side in (effect.before, effect.after))
    if any(holds_mask(one) or not _is_plain(one) for one in (before, after)):
        return ""
    return f" from {_said(before)} to {_said(after)}"


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and len(str(value)) <= VALUE_CHARACTERS_MAX


def _said(value: Any) -> str:
    return formatting.quoted(value) if isinstance(value, str) else str(value)


MAY_HAVE_HAPPENED = frozenset({ActionState.SUCCEEDED, ActionState.UNKNOWN, ActionState.RUNNING})


def _untouched(run: RunFacts) -> list[dict[str, Any]]:
    """What was looked at and not changed; of what succeeded untold nobody can say that."""
    touched = {
        (effect.target_type, effect.target_id)
        for effects in run.effects.values()
        for effect in effects
    }
    happened = {one.action.pk for one in run.irreversible()}
    seen: dict[tuple[str, str], None] = {}
    for action in run.actions:
        if action.pk in happened:
            continue
        came_to_nothing = action.state not in MAY_HAVE_HAPPENED and not run.effects.get(action.pk)
        if came_to_nothing or run.class_of(action) in WITHOUT_EFFECT:
            seen |= dict.fromkeys(_targets(action))
    return [
        {
            "id": f"unchanged.{kind}.{name}",
            "target": {"type": kind, "id": name},
            "what": capitalised(_not_done(kind, name)),
            "word": WORDS["unchanged"],
        }
        for kind, name in [one for one in seen if one not in touched][:UNCHANGED_MAX]
    ]


def _not_done(kind: str, name: str) -> str:
    target = friendly(kind, name)
    return f"no {target} was sent." if kind in MAILS else f"{target} was not touched."


def _targets(action: Action) -> Iterable[tuple[str, str]]:
    for target in action.targets or []:
        if isinstance(target, dict) and target.get("id"):
            yield str(target.get("type", "")), str(target["id"])


def why(case: Case) -> str:
    """Why it was corrected, without a word of blame or of machinery."""
    codes = [str(one.get("code")) for one in case.evidence if isinstance(one, dict)]
    found = [*codes, *case.reasons]
    # What went wrong says more than what became of putting it right.
    kinds = [KINDS[code] for code in found]
    telling = [kind for kind in kinds if not kind.is_about_repair] or kinds
    return telling[0].person if telling else WITHOUT_REASON


def reviewed(case: Case) -> dict[str, Any]:
    """Whether and by whom it was reviewed: roles, never names."""

    return reviewers(case)


def without_values(facts: dict[str, Any]) -> dict[str, Any]:
    """The same for whoever is not shown payloads: what is told of, and nothing of what it held."""
    items = [
        item
        | {
            "what": capitalised(friendly(item["target"]["type"], item["target"]["id"])),
            "did": disclosure.HIDDEN,
        }
        for item in facts["items"]
    ]
    return facts | {"items": items}


def review_words(facts: dict[str, Any]) -> str:
    """`2 people reviewed this before it was done (finance, leads). A computer check read …`

    Only where all of it is restored is it as it was before.
    """
    reviewed = facts["reviewed"]
    count, roles = int(reviewed.get("approvers", 0)), reviewed.get("roles") or []
    parts = []
    if count:
        who = f" ({listed(roles)})" if roles else ""
        what_ = "reviewed this before it was done"
        parts.append(f"{capitalised(plural(count, 'person', 'people'))} {what_}{who}.")
    elif reviewed.get("automatic"):
        parts.append("It was put right automatically, by a rule that people had approved.")
    elif reviewed.get("by_person"):
        parts.append("A member of staff looked at it and had it put right.")
    else:
        parts.append("A member of staff has looked at it.")
    if reviewed.get("read_back"):
        exact = all(one["outcome"] == "restored" for one in facts["items"])
        found = "it is as it was before" if exact else "what we did about it was done"
        parts.append(f"A computer check read it back afterwards: {found}.")
    return " ".join(parts)
