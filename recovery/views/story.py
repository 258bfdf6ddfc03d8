"""The story of a run, read back from the ledger alone: what was asked, done, and how it went."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.urls import reverse
from django.utils.html import format_html

from amends.protocol.masking import holds_mask
from amends.protocol.vocabulary import EventType
from approvals import call_context, card_context
from approvals.models import Approval
from ledger import desk_events
from ledger.api import traces_of
from ledger.disclosure import HIDDEN
from ledger.models import (
    UNNAMED,
    Action,
    ActionState,
    Attempt,
    Checkpoint,
    Compensated,
    Effect,
    Event,
    Reversibility,
    weakest,
)
from ledger.replaying import UNDONE, told_words, too_large
from ledger.settlements import Settlement, settlements_of
from ledger.snapshots import is_ref
from recovery.corrections import recorded_values, sentences, wording
from recovery.corrections.facts import act_of, outcome_of
from recovery.models import Case, CaseOutcome, Step
from recovery.run_facts.records import Records
from recovery.run_facts.runs import RunFacts, steps_of
from recovery.run_facts.sentences import (
    capitalised,
    many,
    plural,
    seen_words,
    target_words,
    without_addresses,
)
from recovery.triage.headlines import money_of
from workspaces import clock, formatting
from workspaces.pages import LONG_FROM, folded, is_number, tallied

# Effects in one line each, wherever the effects of a case are listed.

IN_DOUBT = frozenset({ActionState.UNKNOWN, ActionState.RUNNING})
STANDS = "stands"
OVER = frozenset({Compensated.COMPENSATED, Compensated.CORRECTED})


def lines(facts: RunFacts, shown: Sequence[tuple[Action, Effect | None]]) -> list[dict[str, Any]]:
    """Effects, each in a line: what was changed, where, until when it can be undone, and whether it
    stands or what was done about it, in the words that the affected person reads.
    """
    settled = [effect.pk for _, effect in shown if effect and effect.compensated in OVER]
    ended = steps_of(facts.run.pk, settled) if settled else {}
    records = Records(facts.run.workspace, facts.policy)
    return [
        _line(facts, action, effect, ended)
        | {"link": records.of_effect(action, effect) if effect else None}
        for action, effect in shown
    ]


def _line(
    facts: RunFacts, action: Action, effect: Effect | None, ended: Mapping[int, Step]
) -> dict[str, Any]:
    """Of an action whose outcome is unknown nothing is claimed; `effect` is None of one that
    happened and of which nobody told what it did.
    """
    if effect is None:
        return {
            "summary": title(action, None), "target": "nobody told what it did", "until": "",
            "reversibility": Reversibility.IRREVERSIBLE, "standing": "cannot be undone",
            "is_over": False,
        }  # fmt: skip
    lasting, is_again = facts.is_irreversible(action, effect), False
    standing = "nobody knows whether it stands" if action.state in IN_DOUBT else "did not happen"
    if effect.compensated in OVER:
        step = ended.get(effect.pk)
        outcome = outcome_of(effect, step, lasting=lasting)
        # Of what is as it was before, the policy is asked only where its undo moved money.
        asks = outcome == "compensated" or recorded_values.moved(step) is not None
        kind = facts.judgement(action).compensation or "" if asks else ""
        act = act_of(outcome, effect, step, kind=kind)
        standing = sentences.WORDS[act].lower()
        if lasting and effect.compensated == Compensated.COMPENSATED:
            standing += " as far as possible"
        if is_again := step is not None and step.is_undone_again:
            standing = "was undone, and the undo was undone: it stands again"
    elif effect.compensated != Compensated.NONE:
        standing = UNDONE[effect.compensated].lower()
    elif action.state == ActionState.SUCCEEDED:
        standing = STANDS
    return {
        "summary": title(action, effect),
        "target": _target(effect) if effect.summary else "",  # else the summary has named it
        "reversibility": facts.reversibility_of(action, effect),
        "until": _until(effect),
        "standing": standing,
        "is_over": effect.compensated in OVER and not is_again,
    }


def in_short(lines: Sequence[dict[str, Any]]) -> str:
    """How many lie in a fold, and how they stand."""
    ways = [line["standing"] for line in lines]
    return f"{len(lines)} more: {'all stand' if {*ways} == {STANDS} else tallied(ways)}"


def _target(effect: Effect) -> str:
    return f"{formatting.named(effect.target_type)} {formatting.named(effect.target_id)}"


def title(action: Action, effect: Effect | None) -> str:
    """What one effect is, by the agent's own summary where there is one."""
    if effect is None:
        return f"{action.tool_words} happened"
    if effect.summary:
        return formatting.quoted(effect.summary)
    did = "may have changed" if action.state in IN_DOUBT else "changed"
    return f"{action.tool_words} {did} {target_words(effect.target_type, effect.target_id)}"


def _until(effect: Effect) -> str:
    """Until when it can be undone; of what is undone nobody asks."""
    if effect.undo_until is None or effect.compensated in OVER:
        return ""
    closes = "closes" if effect.undo_until > clock.now() else "closed"
    return format_html("undo {} {}", closes, formatting.moment(effect.undo_until))


ITEMS_SHOWN_MAX = 300
NEWEST_SHOWN_MAX = 100
"""Of a run of more actions those before the newest are shown that a fold would not hide."""
FIELDS_SHOWN_MAX = 40
FIELDS_OF_A_WHOLE_MAX = 8  # of a thing that came or went as a whole
VALUE_CHARACTERS_MAX = 300
MARKS = {  # how a state is marked in the margin: tone and sign
    "succeeded": ("ok", "✓"),
    "failed": ("bad", "✕"),
    "unknown": ("wait", "?"),
    "running": ("busy", "◔"),
}
WORDS = {"read_only": "read-only", "draft": "draft"}


def of(case: Case, facts: RunFacts, *, sensitive: bool) -> dict[str, Any]:
    """The story for a page. Without `sensitive` it holds no payload, only what was done to what."""
    items: list[tuple[tuple[int, int], dict[str, Any]]] = []
    shown = _shown(case, facts.actions)
    attempts: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in Attempt.objects.filter(action__in=[one.pk for one in shown]).order_by("pk"):
        attempts[attempt.action_id].append(attempt)
    settled = settlements_of(facts.run, shown)
    traces = traces_of(facts.run, shown)
    asked = _asked(case, shown)
    for action in shown:
        item = _action(case, facts, action, attempts[action.pk], sensitive=sensitive)
        item |= _settled(settled.get(action.action), attempts[action.pk], sensitive=sensitive)
        item |= asked.get(action.pk, {})
        item["trace"] = traces.get(action.action)
        items.append(((action.n or 0, action.first_place), item))
    items += [((one.n or 0, one.place), _checkpoint(one)) for one in facts.checkpoints]
    items.sort(key=lambda entry: entry[0])
    whole, count = facts.whole, len(facts.actions) + facts.more_actions
    changing = sum(bool(facts.effects.get(action.pk)) for action in facts.actions)
    changing, more = whole.changing if whole else changing, count - len(shown)
    return {
        "summary": f"{many(count, 'action')} · {formatting.count(changing)} with effects",
        "items": folded([item for _, item in items], _went_well, _in_short),
        "outline": tallied(action.tool or UNNAMED for action in facts.actions)
        if len(items) > LONG_FROM and not whole
        else "",
        "left_out": many(more, f"{'other' if whole else 'earlier'} action") if more else "",
    }


def _shown(case: Case, actions: Sequence[Action]) -> list[Action]:
    newest = min(NEWEST_SHOWN_MAX, ITEMS_SHOWN_MAX)
    marked = [one for one in actions[:-newest] if _is_marked(case, one)]
    return [*marked[max(0, len(marked) + newest - ITEMS_SHOWN_MAX) :], *actions[-newest:]]


def _is_marked(case: Case, action: Action) -> bool:
    """Whether its item is none that `_went_well`, as far as the action itself says."""
    checks_hold = all(check["ok"] for check in _checks(action, sensitive=False))
    is_plain = action.state == ActionState.SUCCEEDED and checks_hold and action.saga != "pivot"
    return not is_plain or bool(action.settled_by) or action.pk == case.failed_action_id


def _asked(case: Case, actions: Iterable[Action]) -> dict[int, dict[str, Any]]:
    """Of calls that never began, what people were asked about them and what came of it."""
    never = [one.pk for one in actions if one.state in {ActionState.PLANNED, ActionState.APPROVED}]
    found = Approval.objects.filter(action__in=never).select_related("closed_by", "workspace")
    told = found.order_by("pk").prefetch_related("decisions")  # of one that expired
    return {
        one.action_id or 0: {
            "state": card_context.shown_state(one),
            "asked": {
                "url": reverse("approvals:card", args=[case.workspace.slug, one.pk]),
                "words": call_context.ended(one) or "Waits for approval.",
            },
        }
        for one in told
    }


def _went_well(item: dict[str, Any]) -> bool:
    """Whether a person who looks for what went wrong may pass over it."""
    if item["kind"] == "checkpoint":
        return True
    troubled = item["open"] or item["error"] or item["pivot"] or item.get("settled")
    checks_hold = all(check["ok"] for check in item["verification"])
    return not troubled and checks_hold and item["state"] in {"", ActionState.SUCCEEDED}


def _in_short(items: Sequence[dict[str, Any]]) -> str:
    tools = [item["tool"] for item in items if item["kind"] == "action"]
    return f"{plural(len(items), 'step')} that went well: {tallied(tools)}"


def _checkpoint(one: Checkpoint) -> dict[str, Any]:
    return {
        "kind": "checkpoint",
        "tool": one.name,
        "sign": "⚑",
        "tone": "calm",
        "text": one.summary,
        "time": formatting.moment(one.at, "clock"),
    }


def _action(
    case: Case,
    facts: RunFacts,
    action: Action,
    attempts: Iterable[Attempt],
    *,
    sensitive: bool,
) -> dict[str, Any]:
    effects, action_class = facts.effects.get(action.pk, ()), facts.class_of(action)
    tone, sign = MARKS.get(action.state, ("calm", "○"))
    targets = action.targets_words
    failed = case.failed_action_id == action.pk and case.outcome != CaseOutcome.RESUMED
    reads = action_class in WORDS
    summary = "; ".join(effect.summary for effect in effects if effect.summary)
    return {
        "kind": "action",
        "tool": action.tool or UNNAMED,
        "word": WORDS.get(action_class, ""),
        "tone": "bad" if failed else tone if not reads else "calm",
        "sign": "!" if failed and sign == "✓" else sign if not reads or failed else "○",
        "state": "" if reads and action.state == ActionState.SUCCEEDED else action.state,
        "reversibility": _weakest(facts, action, effects),
        "pivot": action.saga == "pivot",
        "target": targets,
        "text": summary or targets,
        "error": _error(action),
        "time": formatting.moment(action.started_at or action.planned_at, "clock"),
        "diff": differences(
            effects,
            sensitive=sensitive,
            slug=case.workspace.slug,
            money=_sum_of(facts, action) if sensitive else None,
        ),
        "verification": _checks(action, sensitive=sensitive),
        "intent": _intent(action) if sensitive else "",
        "attempts": [
            {"words": _attempt(one), "time": formatting.moment(one.started_at, "clock")}
            for one in attempts
        ],
        "key": short_key(action.key),
        "open": failed,
        "url": f"{reverse('ledger:run', args=[case.workspace.slug, case.run.run])}#{action.action}",
    }


def _settled(
    found: Settlement | None, attempts: Iterable[Attempt], *, sensitive: bool
) -> dict[str, Any]:
    """How a settled outcome is told: by whom and on what, never as if the agent had reported it."""
    if found is None:
        return {}
    state = {"state": found.state} if found.state else {}
    return state | {
        "settled": {
            "words": capitalised(found.words),
            "evidence": found.text,
            "saw": seen_words(found.saw) if sensitive else "",
            "time": formatting.moment(found.at),
        },
        "attempts": [
            {
                "words": f"{_retry(one)}: {found.words}"
                if found.covers(one.attempt)
                else _attempt(one),
                "time": formatting.moment(one.started_at, "clock"),
            }
            for one in attempts
        ],
    }


def short_key(key: str) -> str:
    """A digest by its ends, as people compare them; any other key as it is."""
    return f"{key[:15]}…{key[-6:]}" if key.startswith("sha256:") else key


def _weakest(facts: RunFacts, action: Action, effects: Sequence[Effect]) -> str:
    found = {facts.reversibility_of(action, effect) for effect in effects} - {""}
    return weakest(map(Reversibility, found)) if found else ""


def _error(action: Action) -> str:
    error = action.error if isinstance(action.error, dict) else {}
    words = without_addresses(f"{error.get('type', '')}: {error.get('message', '')}".strip(": "))
    if action.state == ActionState.FAILED:
        return f"{words} · outcome: nothing happened" if words else "Failed; nothing happened"
    if action.state == ActionState.UNKNOWN:
        return f"{words} · outcome: unknown, it may have happened".lstrip(" ·")
    return ""


def _attempt(one: Attempt) -> str:
    stale = ", stale: it settles nothing" if one.stale else ""
    return f"{_retry(one)}: {one.get_state_display().lower().replace('_', ' ')}{stale}"


def _retry(one: Attempt) -> str:
    return f"retry {one.retry}" if one.retry else "first try"


def _intent(action: Action) -> str:
    intent = action.intent if isinstance(action.intent, dict) else {}
    parts = [str(intent[name]) for name in ("goal", "reason") if intent.get(name)]
    if intent.get("confidence") is not None:
        parts.append(f"confidence {intent['confidence']}")
    return " · ".join(parts)


def _checks(action: Action, *, sensitive: bool) -> list[dict[str, Any]]:
    checks = [one for one in action.checks or [] if isinstance(one, dict)]
    return [
        {
            "name": one.get("name", ""),
            "ok": bool(one.get("ok")),
            "expected": formatting.value_text(one.get("expected")) if sensitive else HIDDEN,
            "actual": formatting.value_text(one.get("actual")) if sensitive else HIDDEN,
        }
        for one in checks
    ]


def differences(
    effects: Sequence[Effect],
    *,
    sensitive: bool,
    slug: str,
    money: tuple[str, str] | None = None,
) -> list[dict[str, Any]]:
    """What several effects changed, field by field; nothing of those without both snapshots.

    `money`: the field that holds the sum of the call, and its currency.
    """
    rows: list[dict[str, Any]] = []
    for effect in effects:
        if effect.has_before and effect.has_after:
            found = difference(effect.before, effect.after, sensitive=sensitive, slug=slug)
            rows += [_with_money(row, effect, money) for row in found]
    return rows[:FIELDS_SHOWN_MAX]


def _sum_of(facts: RunFacts, action: Action) -> tuple[str, str] | None:
    """By the tool's preview in the policy: only that says which number is a sum."""
    moved = money_of(facts, action)
    name = call_context.sum_named(action.args, moved) if moved else ""
    return (name, moved.currency) if moved and name else None


def _with_money(
    row: dict[str, Any], effect: Effect, money: tuple[str, str] | None
) -> dict[str, Any]:
    """The row, and beside a value that is a sum what it is as money. The currency is the one that
    stands in the same snapshot; a snapshot without one has the call's.
    """
    is_sum = money is not None and row["field"] == money[0]
    if not is_sum and not str(row["field"]).endswith(wording.IN_SMALLEST_UNIT):
        return row
    for side, state in (("was", effect.before), ("now", effect.after)):
        own = state.get("currency") if isinstance(state, dict) else None
        currency = own or (money[1] if money is not None and is_sum else "")
        row[f"{side}_money"] = call_context.money_beside(row.get(side), currency)
    return row


def difference(
    before: object, after: object, *, sensitive: bool, slug: str
) -> list[dict[str, Any]]:
    """Was and now, field by field; only what differs. What is too large is linked, side by side."""
    if is_ref(before) or is_ref(after):
        row = too_large(before, after, slug)
        row |= {} if sensitive else {"was": HIDDEN, "now": HIDDEN}
        return [] if before == after else [row]
    if before is None or after is None:
        return whole(before, after, sensitive=sensitive)
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return []
    return [
        {
            "field": name,
            "was": before.get(name) if sensitive else HIDDEN,
            "now": after.get(name) if sensitive else HIDDEN,
            "kind": "changed",
            "note": "masked" if holds_mask([before.get(name), after.get(name)]) else "",
        }
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def whole(before: object, after: object, *, sensitive: bool) -> list[dict[str, Any]]:
    """What came or went, field by field while they are few; without `sensitive` only that."""
    kind, side = ("added", "now") if before is None else ("removed", "was")
    state = after if before is None else before
    if not sensitive or not isinstance(state, dict):
        word = "made" if kind == "added" else "there"
        return [{"field": "the whole", side: word, "kind": kind}]
    named = [name for name, value in state.items() if value is not None]
    rows = [
        {"field": name, side: _at_a_glance(state[name]), "kind": kind}
        for name in named[:FIELDS_OF_A_WHOLE_MAX]
    ]
    if more := len(named) - len(rows):
        rows.append({"field": "…", side: plural(more, "field") + " more", "kind": kind})
    return rows


def _at_a_glance(value: object) -> object:
    """A value in one line; of a long text only how long it is, for the raw call has it."""
    if isinstance(value, str) and (value.count("\n") > 1 or len(value) > VALUE_CHARACTERS_MAX):
        return f"a text of {plural(len(value.splitlines()), 'line')}"
    return value


ACTS: dict[str, str] = {
    EventType.APPROVAL_DENIED: "said no: a rule never allows it",
    EventType.APPROVAL_DRAWN: "let a call pass under a bounded grant",
    EventType.APPROVAL_EXPIRED: "let the question expire",
    EventType.APPROVAL_GRANTED: "said yes",
    EventType.APPROVAL_REJECTED: "said no",
    EventType.APPROVAL_REMINDED: "reminded those who are asked",
    EventType.APPROVAL_REQUESTED: "asked for approval",
    EventType.APPROVAL_USED: "let the approved call go on",
    EventType.APPROVAL_WITHDRAWN: "took the question back",
    EventType.CORRECTION_EDITED: "wrote the correction’s draft",
    EventType.CORRECTION_HANDED_ON: "told the person of the correction",
    EventType.CORRECTION_UNDELIVERED: "could not deliver the correction",
    EventType.PLAN_STARTING: "began to start the plan",
}
"""Where the event's name alone would not say it."""


def act_words(event: Event) -> str:
    """`claimed the case`; a case that was put off is also brought back, by the same event."""
    of, _, did = event.type.partition(".")
    if words := ACTS.get(event.type):
        return words
    if event.type == EventType.APPROVAL_TOLD:
        return told_words(event)
    if event.type == EventType.CASE_SNOOZED:
        return "put the case off" if (event.data or {}).get("until") else "brought the case back"
    return f"{did.replace('_', ' ')} the {of}"


ACTIVITY_MAX = 100


def activity(case: Case, most: int = ACTIVITY_MAX) -> list[dict[str, Any]]:
    """What people and the desk did about the case, newest first, from the ledger."""
    told = Event.objects.filter(workspace=case.workspace, run=case.run.run, action="")
    events = list(told.exclude(actor_kind="agent").order_by("-place")[:most])
    people = desk_events.people_of(events)
    return [
        {
            "who": str(people.get(int(event.actor), "somebody"))
            if is_number(event.actor)
            else f"The desk ({event.actor})",
            "words": act_words(event),
            "comment": (event.data or {}).get("text") or (event.data or {}).get("reason") or "",
            "at": event.received_at,
            "time": formatting.moment(event.received_at),
        }
        for event in events
    ]
