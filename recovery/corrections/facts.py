"""Facts: what happened to one person's things, from the ledger and the steps, in plain sentences.

The same ledger gives the same facts. Their canonical JSON is what the published event vouches for,
so nothing here may hold what the person is not meant to see: no prompts, no intent, no internal ids
but those of the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any, NamedTuple

from django.utils import translation
from django.utils.translation import gettext_noop

from amends.protocol.masking import holds_mask
from amends.protocol.vocabulary import WITHOUT_EFFECT
from ledger import disclosure
from ledger.models import Action, ActionState, Compensated, Effect
from recovery.corrections import approvers, recorded_values, sentences, wording
from recovery.models import Case, CaseOutcome, Step, StepState
from recovery.run_facts.runs import RunFacts, steps_of
from recovery.run_facts.sentences import MAILS, capitalised, changed_fields, shortened
from recovery.triage.detectors import KINDS
from recovery.triage.headlines import verb
from workspaces import formatting
from workspaces.models import Team
from workspaces.pages import language_of_tag

VERSION = 2
ITEMS_MAX = 500
UNCHANGED_MAX = 50
REQUEST_CHARACTERS_MAX = 500
SUMMARY_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class CorrectionRecipient:
    """Whom a correction is for."""

    id: str
    name: str
    contact: str
    language: str = ""
    """One of LANGUAGES, or empty where none of them is known to be theirs."""


Theirs = list[tuple[Action, Effect | None]]
"""Effects on what is one person's; None of an irreversible call whose effect nobody told."""


class CorrectionItem(NamedTuple):
    """One thing that is told. Where it stands for several effects of one target in a row, `effect`
    goes from the state before the first to that after the last, by way of `between`; `action` did
    the first, and `last` the last.
    """

    action: Action
    effect: Effect | None
    last: Action
    is_net: bool = False
    between: Any = None

    @property
    def is_back(self) -> bool:
        """Whether it was changed and changed back by the same work."""
        return self.is_net and self.effect is not None and self.effect.before == self.effect.after


class Others(NamedTuple):
    """Changes of one person's things that are counted and not listed, and how many were undone."""

    changes: int
    undone: int


NO_OTHERS = Others(0, 0)
WITHOUT_REASON = gettext_noop("This should not have happened.")


def people(
    facts: RunFacts, internal: Sequence[str] = ()
) -> dict[str, tuple[CorrectionRecipient, Theirs]]:
    """Everybody affected by the run, each with the effects on what is theirs.

    `internal` are globs of kinds of targets that are bookkeeping (counters, sessions): no news.
    """
    found: dict[str, tuple[CorrectionRecipient, Theirs]] = {}
    untold = facts.untold()
    for action in facts.actions:
        effects: Sequence[Effect | None] = facts.effects.get(action.pk, ())
        for effect in [None] if action.pk in untold else effects:
            if effect and any(fnmatchcase(effect.target_type, glob) for glob in internal):
                continue
            affects = effect.affects if effect else None
            person = person_of(affects or facts.run.on_behalf_of)
            if person is not None:
                found.setdefault(person.id, (person, []))[1].append((action, effect))
    return found


def person_of(affected: Any) -> CorrectionRecipient | None:
    if not isinstance(affected, dict) or not affected.get("id"):
        return None
    contact = affected.get("contact")
    return CorrectionRecipient(
        id=str(affected["id"])[:120],
        name=formatting.plain(str(affected.get("name") or ""))[:200],
        contact=str(contact)[:320] if isinstance(contact, str) else "",
        language=language_of_tag(affected.get("language")),
    )


def facts_for(
    case: Case,
    run: RunFacts,
    person: CorrectionRecipient,
    theirs: Theirs,
    others: Others = NO_OTHERS,
) -> dict[str, Any]:
    """What this person is told, as JSON; in English, with what other languages are made of.
    `others` are changes of theirs that were only counted.
    """
    steps = steps_of(run.run.pk, [effect.pk for _, effect in theirs if effect])
    theirs = [(call, effect and as_it_stands(effect, steps)) for call, effect in theirs]
    own = run.run.customer == person.id
    asked = approvers.of_calls({action.pk: action for action, _ in theirs}.values())
    with translation.override("en"):
        whole = _net(theirs)
        net, cut = whole[:ITEMS_MAX], whole[ITEMS_MAX:]
        over = sum(one.effect.compensated == Compensated.COMPENSATED for one in cut if one.effect)
        others = Others(others.changes + len(cut), others.undone + over)
        items = [
            item(
                one,
                one.effect,
                steps.get(one.effect.pk),
                lasting=run.is_irreversible(one.action, one.effect),
                kind=run.judgement(one.action).compensation or "",
                own=own,
            )
            if one.effect
            else untold_item(one.action)
            for one in net
        ]
        items = [
            told | approvers.told(asked.get(one.action.pk), own=own)
            for told, one in zip(items, net, strict=True)
        ]
        items = [
            _by_hand(told) if _is_by_hand(case, one.last) else told
            for told, one in zip(items, net, strict=True)
        ]
        agent = run.run.agent.name if run.run.agent else ""
        return {
            "version": VERSION,
            "items": [one | {"agent": agent} for one in items],
            **(
                {"more": {"count": others.changes, "undone": others.undone}}
                if others.changes
                else {}
            ),
            "unchanged": _untouched(run) if own and not run.whole else [],
            "request": shortened(
                disclosure.without_secrets(run.run.request), REQUEST_CHARACTERS_MAX
            )
            if own
            else "",
            "request_state": _request_state(case, items, others),
            "why": why(case),
            "reviewed": approvers.of_recovery(case),
            "record": {"run": run.run.run, "workspace": run.run.workspace.slug},
        }


def _request_state(case: Case, items: Sequence[dict[str, Any]], others: Others = NO_OTHERS) -> str:
    """What became of what the person had asked for: resumed, not_done, not_as_asked, partly,
    stands. What cannot be taken back was left by nobody's choice: that it is there says nothing of
    what was asked for.
    """
    if case.outcome == CaseOutcome.RESUMED:
        return "resumed"
    if not items or any(one.get("act") == "by_hand" for one in items):
        return ""  # what was put right by hand may be what was asked for, or not
    undone = others.undone + sum(one["outcome"] in sentences.UNDONE for one in items)
    if not undone:
        return "stands"
    if undone == len(items) + others.changes:
        return "not_done"
    is_left = others.undone < others.changes or any(one["outcome"] == "left" for one in items)
    return "partly" if is_left else "not_as_asked"


def _net(theirs: Theirs) -> list[CorrectionItem]:
    """The same with several changes of one target told as one, from what was first to what is last.

    Only where each begins with what the one before it left, and the same was done about all.
    """
    by_target: dict[tuple[str, str], list[Effect]] = {}
    for _, effect in theirs:
        if effect is not None:
            by_target.setdefault((effect.target_type, effect.target_id), []).append(effect)
    told: list[CorrectionItem] = []
    calls = {effect.pk: action for action, effect in theirs if effect is not None}
    for action, effect in theirs:
        chain = by_target[effect.target_type, effect.target_id] if effect else []
        if effect is None or not _is_chain(chain):
            told.append(CorrectionItem(action, effect, action))
        elif effect is chain[0]:
            net = copy(effect)
            net.after, net.summary = chain[-1].after, ""
            last = calls[chain[-1].pk]
            told.append(CorrectionItem(action, net, last, is_net=True, between=effect.after))
    return told


def _is_chain(effects: Sequence[Effect]) -> bool:
    if len(effects) < 2 or len({one.compensated for one in effects}) > 1:  # noqa: PLR2004
        return False
    return all(
        one.has_after and two.has_before and one.after == two.before
        for one, two in pairwise(effects)
    )


def as_it_stands(effect: Effect, steps: dict[int, Step]) -> Effect:
    """The effect; as one that stands, and without its step, where its undo was itself undone."""
    step = steps.get(effect.pk)
    if step is None or not step.is_undone_again:
        return effect
    del steps[effect.pk]
    stands = copy(effect)
    stands.compensated = Compensated.NONE
    return stands


def item(
    change: CorrectionItem,
    effect: Effect,
    step: Step | None,
    *,
    lasting: bool = False,
    kind: str = "",
    own: bool = True,
) -> dict[str, Any]:
    """One effect: what changed, and what was done about it; `lasting` cannot be undone, `kind` is
    what the policy calls its undo, and `own` where the person is the one who had asked for it.
    """
    action = change.action
    outcome = "as_before" if change.is_back else outcome_of(effect, step, lasting=lasting)
    found = {
        "id": f"{action.action}.{effect.position}",
        "target": {"type": effect.target_type, "id": effect.target_id},
        "outcome": outcome,
        "act": act_of(outcome, effect, step, kind=kind),
        "told": _told(change, effect, outcome, step, own=own),
        "changed_at": action.finished_at.isoformat() if action.finished_at else None,
        "undone_at": step.moved_at.isoformat() if step else None,
        "undone_by": _undone_by(step),
        "read_back": step is not None and step.state == StepState.VERIFIED,
    }
    return found | _in_words(found)


def untold_item(action: Action) -> dict[str, Any]:
    """An irreversible call that happened, and of which nobody told what it did."""
    target = next(iter(_targets(action)), ("", ""))
    found = {
        "id": action.action,
        "target": {"type": target[0], "id": target[1]},
        "outcome": "not_undone",
        "act": "not_undone",
        "told": {"how": "done", "tool": _tool_words(action)},
        "changed_at": action.finished_at.isoformat() if action.finished_at else None,
        "undone_at": None,
        "read_back": False,
    }
    return found | _in_words(found)


def _is_by_hand(case: Case, action: Action) -> bool:
    """Whether people said, after it was done, that all was put right by hand."""
    if case.by_hand_at is None:  # as by a desk before this one
        return case.outcome == CaseOutcome.ALREADY_HANDLED
    return action.finished_at is None or action.finished_at <= case.by_hand_at


def _by_hand(told: dict[str, Any]) -> dict[str, Any]:
    """An item of a case that somebody put right outside the desk, as its operators say."""
    if told["act"] != "left":
        return told
    found = told | {"act": "by_hand"}
    return found | _in_words(found)


def _in_words(found: dict[str, Any]) -> dict[str, str]:
    return {
        "word": sentences.word(found),
        "what": sentences.what(found),
        "did": sentences.did(found),
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


def act_of(outcome: str, effect: Effect, step: Step | None, *, kind: str = "") -> str:
    """What was done about it: put back, deleted, refunded, cancelled, each a word of its own.

    Money is refunded where operation or policy say so: any other moves it in a direction that
    nobody has told, and what it took from somebody must not be promised to them.
    """
    was_made = effect.has_before and effect.before is None
    exists = ((step.preview or {}).get("must_be_true") or {}).get("exists") if step else None
    if outcome not in {"restored", "compensated"}:
        act = outcome
    elif step is not None and recorded_values.moved(step) is not None:
        act = (
            "refunded"
            if kind == "REFUND" or recorded_values.is_refund(step.operation)
            else "taken_back"
        )
    elif outcome == "restored":
        act = "deleted" if was_made else "put_back"
    elif kind == "ARCHIVE":
        act = "put_away"
    elif was_made:
        act = "deleted" if exists is False else "cancelled"
    else:
        act = "made_again" if effect.has_after and effect.after is None else "undone"
    return act


def _told(
    change: CorrectionItem, effect: Effect, outcome: str, step: Step | None, *, own: bool
) -> dict[str, Any]:
    """What the sentences are made of. The agent's own summary is told to whoever asked alone, for
    it may name others.
    """
    moved = recorded_values.moved(step)
    after = change.between if change.is_back else effect.after
    fields = changed_fields(effect.before, after)
    found: dict[str, Any] = {
        "how": _how(change, effect),
        "tool": _tool_words(change.action),
        "fields": fields[: wording.NAMED_MAX + 1],
        "noted": outcome == "restored" and step is not None and "note" in (step.args or {}),
        "summary": _summary(effect) if own else "",
        "amount": ""
        if moved is None
        else formatting.money(int(moved["amount_minor"]), str(moved.get("currency", ""))),
        "is_all": moved is not None and recorded_values.is_all(effect, moved),
        **recorded_values.from_what_to_what(effect.before, after, fields),
    }
    before = effect.before.get(fields[0]) if len(fields) == 1 and effect.before else None
    is_told = sentences.is_plain(before) and not holds_mask(before)
    is_lost = is_told and recorded_values.is_unit_lost(effect.before, fields[0])
    if outcome == "restored" and is_told and not is_lost:
        found["back_to"] = recorded_values.as_told(effect.before, fields[0])
    if found["how"] == "sent":
        found |= _mail(change.action, effect)
    elif found["how"] in {"created", "deleted"} and not (found["amount"] or change.is_back):
        found |= recorded_values.recorded(
            effect.after if found["how"] == "created" else effect.before
        )
    return found


def _how(change: CorrectionItem, effect: Effect) -> str:
    if change.is_back:
        return "came_and_went" if effect.before is None else "back"
    how = verb(effect, change.action)
    if (
        how == "changed"
        and effect.has_before
        and effect.has_after
        and effect.before == effect.after
    ):
        how = "done"  # what the call did is not in this record: it is as it was
    if effect.target_type in MAILS and how not in {"changed", "deleted"}:
        return "sent"
    return how if how in {"created", "deleted", "changed"} else "done"


def _mail(action: Action, effect: Effect) -> dict[str, str]:
    """Subject and recipient of a mail, where its record says them."""
    subject = next(
        (
            str(one["subject"])
            for one in (effect.after, action.args)
            if isinstance(one, dict) and isinstance(one.get("subject"), str)
        ),
        "",
    )
    if not subject or holds_mask([subject, effect.target_id]):
        return {}
    return {
        "subject": subject[:SUMMARY_CHARACTERS_MAX],
        "recipient": formatting.named(effect.target_id),
    }


def _summary(effect: Effect) -> str:
    if holds_mask(effect.summary):
        return ""
    return shortened(disclosure.without_secrets(effect.summary), SUMMARY_CHARACTERS_MAX)


def _tool_words(action: Action) -> str:
    """`send parcel`: of a tool's name the part that says what it does."""
    return action.tool.rpartition(".")[2].replace("_", " ")


def _undone_by(step: Step | None) -> dict[str, Any]:
    """Who had it undone: a rule, or people, by the teams they are in and never by name."""
    if step is None:
        return {}
    if step.plan.automatic:
        return {"automatic": True}
    person = step.plan.drafted_by
    if person is None:
        return {}
    teams = Team.objects.filter(workspace=step.workspace_id, group__user=person)
    return {"automatic": False, "roles": sorted(teams.values_list("name", flat=True))[:3]}


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
        is_told = bool(run.effects.get(action.pk))
        came_to_nothing = action.state not in MAY_HAVE_HAPPENED and not is_told
        only_read = came_to_nothing or run.class_of(action) in WITHOUT_EFFECT
        if only_read and action.pk not in happened:
            seen |= dict.fromkeys(_targets(action))
        elif not is_told:  # another call may have read the same
            touched.update(_targets(action))
    unchanged = [
        {"id": f"unchanged.{kind}.{name}", "target": {"type": kind, "id": name}, "act": "unchanged"}
        for kind, name in [one for one in seen if one not in touched][:UNCHANGED_MAX]
    ]
    return [
        one | {"what": sentences.untouched(one), "word": sentences.word(one)} for one in unchanged
    ]


def _targets(action: Action) -> Iterable[tuple[str, str]]:
    for target in action.targets or []:
        if isinstance(target, dict) and target.get("id"):
            yield str(target.get("type", "")), str(target["id"])


def why(case: Case) -> str:
    """Why it was corrected, without a word of blame or of machinery."""
    codes = [str(one.get("code")) for one in case.evidence if isinstance(one, dict)]
    found = [*codes, *case.reasons]
    # What went wrong says more than what became of putting it right.
    kinds = [KINDS[code] for code in found if code in KINDS]
    telling = [kind for kind in kinds if not kind.is_about_repair] or kinds
    return telling[0].person if telling else WITHOUT_REASON


HELD_BACK = frozenset({"told", "asked", "approved"})
"""What an item says of values."""


def without_values(facts: dict[str, Any]) -> dict[str, Any]:
    """The same for whoever is not shown payloads: what is told of, and nothing of what it held."""
    items = [
        {name: value for name, value in item.items() if name not in HELD_BACK}
        | {
            "what": capitalised(sentences.thing(item["target"]["type"], item["target"]["id"])),
            "did": disclosure.HIDDEN,
        }
        for item in facts["items"]
    ]
    return facts | {"items": items}
