"""The preview of a compensation: exactly what would run, and the one button that commits it."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.views.decorators.http import require_http_methods

from approvals.argument_fields import as_text
from connectors.contract import Preview
from ledger import disclosure
from ledger.models import Checkpoint, Reversibility
from recovery.cases.lifecycle import REFUSALS
from recovery.models import Case, PlanState
from recovery.planning import plans, previews
from recovery.planning.drafting import UNTOUCHED, DraftStep, DriftState, NotUndoable
from recovery.run_facts.sentences import listed, many
from recovery.views import request_context, story, teach
from recovery.views.request_context import case_to_recover
from workspaces import formatting
from workspaces.pages import LONG_FROM, Request, folded, is_number, tallied

OUTLOOK_STEPS_MAX = 20
"""As many targets are read for it, too."""

FULL_STEPS_MAX = 100
"""Shown with their calls; of the others only what wants an answer, and how many they are."""

CHOICES = {
    "rebase": ("Keep the later change", "writes back only what the agent changed and nobody since"),
    "override": ("Restore everything", "needs one person more; the later change is lost"),
    "skip": ("Leave it as it is", "this effect stays; the case says so"),
}
SUBMITTED = {
    PlanState.WAITING: "It waits for approval.",
    PlanState.STARTING: "It runs now.",
    PlanState.RUNNING: "It runs now.",
}
# Of a target that is not there any more there is nothing to keep.
GONE_CHOICES = {
    "override": ("Make it again", "as it was before the agent; needs one person more"),
    "skip": ("Leave it gone", "this effect stays; the case says so"),
}
DRIFT_WORDS = {
    DriftState.UNCHANGED: "unchanged since the agent",
    DriftState.DRIFTED: "drifted",
    DriftState.ALREADY: "already as it should be",
    DriftState.LATER: "a newer step comes first",
    DriftState.UNOBSERVABLE: "cannot be read beforehand",
    DriftState.UNTOLD: "nobody told how it was left: a later change would be lost",
}
NOT_SENT = "not sent yet"
TO_COME = frozenset({NOT_SENT, DRIFT_WORDS[DriftState.LATER]})  # no finding, so without a tick
ALIKE_MAX = 1_000
FIELDS_OF_A_WHOLE_MAX = 40


@login_required
@require_http_methods(["GET", "POST"])
def compensate(request: Request, workspace: str, pk: int) -> HttpResponse:
    """GET shows the plan; POST with `act=commit` submits exactly the plan that was shown."""
    case = case_to_recover(request, workspace, pk)
    params = request.POST or request.GET
    commits = request.method == "POST" and params.get("act") == "commit"
    # `reach` is of the plan that is shown, `back` what was chosen to be shown next.
    wanted = params.get("reach", "") if commits else params.get("back", params.get("reach", ""))
    reach, choices = _reach(case, wanted), _choices(params)
    if not commits:
        return _show(request, case, reach, choices)
    try:
        plan = plans.submit(
            case,
            digest=params.get("digest", ""),
            restores=params.get("restores", ""),
            revision=request_context.seen_revision(request),
            by=request.user,
            reason=params.get("why", ""),
            reach=reach,
            choices=choices,
        )
    except REFUSALS as refusal:
        return _show(request, case, reach, choices, problem=refusal)
    words = SUBMITTED.get(PlanState(plan.state), "It has ended by now.")
    return request_context.preview_done(request, case, f"Plan {plan.number} is submitted. {words}")


def _reach(case: Case, wanted: str) -> Checkpoint | None:
    return Checkpoint.objects.filter(run=case.run, pk=wanted).first() if is_number(wanted) else None


def _choices(params: Mapping[str, str]) -> dict[int, str]:
    """What was chosen for drifted effects: `effect-<id>` → rebase, override or skip; one answer
    for all alike, `all-changed` or `all-gone`, goes to those that are named with it.
    """
    chosen = {
        int(name.removeprefix("effect-")): params[name]
        for name in params
        if name.startswith("effect-") and is_number(name[7:]) and params[name] in CHOICES
    }
    for alike in ("changed", "gone"):
        answer = params.get(f"all-{alike}", "")
        if answer in CHOICES:
            of_these = params.get(f"alike-{alike}", "").split(",")[:ALIKE_MAX]
            chosen |= {int(pk): answer for pk in of_these if is_number(pk)}
    return chosen


def _show(
    request: Request,
    case: Case,
    reach: Checkpoint | None,
    choices: dict[int, str],
    *,
    problem: Exception | None = None,
) -> HttpResponse:
    draft = plans.draft(case, reach=reach, choices=choices)
    sensitive = disclosure.sees(request.user, case.workspace)
    act = previews.brief(draft)
    wanted = (request.POST or request.GET).get("from", "")
    first = int(wanted) if is_number(wanted) and 0 < int(wanted) <= len(draft.steps) else 1
    stay = [*draft.cannot, *draft.skipped]
    taught = teach.urls(draft.facts, [one.effect for one in stay], request.user)
    context = {
        "plan_number": draft.number,
        "digest": draft.digest,
        "restores": draft.restores,
        "digest_short": formatting.digest(draft.digest),
        "checked": formatting.moment(draft.checked_at),
        "title": draft.headline,
        "lead": draft.lead,
        "steps": folded(
            list(_shown(draft.steps, first, sensitive=sensitive)),
            lambda step: not step["choices"] and not step.get("gap"),
            _stretch,
        ),
        "steps_count": formatting.count(len(draft.steps)),
        "windows": _windows(len(draft.steps), first),
        "outline": _outline(draft) if len(draft.steps) > LONG_FROM else [],
        "alike": _alike(draft),
        "cannot": [
            {
                "title": one.title,
                "text": one.text,
                "teach_url": url,
                "leads": bool(url) and not draft.steps and not any(taught[:i]),
                "choices": _kept(draft, one),
            }
            for i, (one, url) in enumerate(zip(stay, taught, strict=True))
        ],
        "teachers": teach.teachers(case.workspace)
        if any(map(previews.lacks_twin, draft.cannot)) and not any(taught)
        else "",
        "told": _before_it_runs(draft),
        "reach": _reaches(case, reach),
        "commit_label": f"Ask for approval: {act[:1].lower()}{act[1:]}" if draft.approval else act,
        "is_idle": not draft.steps,
        "why_not": "" if draft.why_not == f"{previews.nothing(draft)}." else draft.why_not,
        **({"why_goes": request_context.TO_THE_APPROVERS_TOO} if draft.approval else {}),
    }
    return request_context.show_preview(request, "Compensate", draft.case, context, problem=problem)


def _windows(count: int, first: int) -> list[dict[str, Any]]:
    """Which steps of a long plan can be shown in full at once."""
    starts = range(1, count + 1, FULL_STEPS_MAX) if count > FULL_STEPS_MAX else []
    return [
        {
            "value": start,
            "label": f"{formatting.count(start)} to {formatting.count(last)}",
            "selected": start <= first <= last,
        }
        for start in starts
        for last in [min(count, start + FULL_STEPS_MAX - 1)]
    ]


def _shown(steps: Sequence[DraftStep], first: int, *, sensitive: bool) -> Iterator[dict[str, Any]]:
    """The steps around number `first` in full, and besides each that wants an answer or has one; in
    place of all that are between, how many there are and how they stand.
    """
    first -= (first - 1) % FULL_STEPS_MAX
    between: list[dict[str, Any]] = []
    for number, one in enumerate(steps, 1):
        is_near = first <= number < first + FULL_STEPS_MAX
        if not (is_near or one.needs_choice or one.chosen):
            between.append(
                {"number": number, "choices": [], "is_gone": previews.is_gone(one), **_drifted(one)}
            )
            continue
        if between:
            yield _gap(between)
            between = []
        yield _step(number, one, sensitive=sensitive)
    if between:
        yield _gap(between)


def _gap(steps: Sequence[dict[str, Any]]) -> dict[str, Any]:
    words = tallied(one["drift_words"] for one in steps)
    numbers = dict.fromkeys(formatting.count(steps[end]["number"]) for end in (0, -1))
    return {"choices": [], "gap": f"Step{'s' * (len(numbers) > 1)} {' to '.join(numbers)}: {words}"}


def _outline(draft: plans.PlanDraft) -> list[dict[str, Any]]:
    """A long plan in short: how many steps of which kind, and how many of them want an answer."""
    kinds: dict[str, list[DraftStep]] = {}
    for one in draft.steps:
        what = f"{one.step.connection.name}.{one.step.operation} {one.step.target_type}"
        kinds.setdefault(what, []).append(one)
    return [
        {
            "count": formatting.count(len(found)),
            "what": what,
            "waits": f"{n} drifted" if (n := sum(one.needs_choice for one in found)) else "",
        }
        for what, found in kinds.items()
    ]


def _is_unchanged(step: dict[str, Any]) -> bool:
    return step["drift_tone"] in {"ok", "calm"} and not step["choices"]


def _is_as_most_are(steps: Sequence[dict[str, Any]]) -> Callable[[dict[str, Any]], bool]:
    """Whether a step is as the agent left it, or gone where most are: neither stands out."""
    most_are_gone = sum(one["is_gone"] for one in steps) * 2 > len(steps)
    return lambda step: _is_unchanged(step) or (most_are_gone and step["is_gone"])


def _stretch(steps: Sequence[dict[str, Any]]) -> str:
    numbers = f"Steps {steps[0]['number']} to {steps[-1]['number']}"
    if all(map(_is_unchanged, steps)):
        return numbers
    return f"{numbers}: {tallied(one['drift_words'] for one in steps)}"


def outlook(draft: plans.PlanDraft, *, sensitive: bool) -> dict[str, Any]:
    """The plan in short, for the page of its case."""
    short = draft.steps[:OUTLOOK_STEPS_MAX]
    steps = [_step(number, one, sensitive=sensitive) for number, one in enumerate(short, 1)]
    for shown in steps:
        changed = [
            f"{row['field']} is now {formatting.quoted(as_text(row['now']))}"
            for row in shown["drift"]
        ]
        if shown["is_gone"]:
            shown["since"] = "It is gone: somebody deleted it since."
        else:
            shown["since"] = f"Since the agent: {listed(changed)}." if changed else ""
    return {
        "checked": formatting.moment(draft.checked_at),
        "part": previews.part_words(draft, draft.part),
        "steps": folded(steps, _is_as_most_are(steps), _stretch),
        "more": formatting.count(more) if (more := len(draft.steps) - len(steps)) else "",
        "cannot": [{"title": one.title, "text": one.text} for one in draft.cannot],
        "approval": draft.approval,
    }


def _before_it_runs(draft: plans.PlanDraft) -> list[dict[str, str]]:
    failing = (
        "stop everything that is not sent"
        if draft.policy.halt_on_failure
        else "alert, go on with steps on other targets; the case stays open"
    )
    approval = f"for the whole plan: {draft.approval}" if draft.approval else "none is needed"
    reached = previews.recipients(draft.steps)
    by_mail = f"{listed(reached)} by this plan itself; " if reached else ""
    left = sum(one.drift_state == DriftState.UNKNOWN for one in draft.steps)
    later = "A step reads its own before it is sent, and waits for a person if somebody changed it"
    unread = [{"name": "Not read now", "value": f"{many(left, 'target')}. {later}"}][:left]
    person = "the affected person only through the correction"
    if previews.asks_affected(draft.judgement):
        person = "the affected person at once, who is asked before anybody may approve it"
    return [
        {"name": "Approval", "value": approval},
        *unread,
        {"name": "If a step fails", "value": failing},
        {
            "name": "Who is told",
            "value": f"{by_mail}{person}",
        },
    ]


def _reaches(case: Case, reach: Checkpoint | None) -> dict[str, Any]:
    points = Checkpoint.objects.filter(run=case.run).order_by("-place")
    return {
        "value": reach.pk if reach else "",
        "options": [
            {"value": "", "label": "to the start", "selected": reach is None},
            *(
                {
                    "value": one.pk,
                    "label": f"to checkpoint {formatting.named(one.name)}",
                    "selected": reach is not None and one.pk == reach.pk,
                }
                for one in points
            ),
        ],
    }


def _step(number: int, one: DraftStep, *, sensitive: bool) -> dict[str, Any]:
    connection, action = one.step.connection, one.action
    when = action.started_at or action.planned_at
    verb = "corrects" if one.step.reversibility == Reversibility.IRREVERSIBLE else "undoes"
    by = [connection.name, one.step.operation, *([" ".join(one.notes)] if one.notes else [])]
    drifted = one.drift_state == DriftState.DRIFTED
    return {
        "number": number,
        "title": one.preview.title,
        "reversibility": one.step.reversibility,
        "undoes": f"{verb} {action.tool_words}",
        "at": formatting.moment(when, "clock") if when else "",
        "by": " · ".join(by),
        "call": _call(one, sensitive=sensitive),
        "diff": [] if drifted or not sensitive else _difference(one),
        "same": [] if drifted or not sensitive else _same(one),
        "drift": disclosure.fields(
            _drift(one),
            sensitive=True,
            paths=one.action.run.workspace.mask,
            among=("was", "wrote", "now", "becomes"),
        )
        if drifted and sensitive
        else [],
        **_drifted(one),
        "choices": _offered(one) if drifted or one.chosen else [],
        "is_gone": previews.is_gone(one),
        "target": " ".join(map(formatting.named, (one.step.target_type, one.step.target_id))),
        "approval": "" if one.judgement.approval == "AUTO" else "asks for approval",
    }


def _drifted(one: DraftStep) -> dict[str, str]:
    """How the target stands to what the agent left; what is overwritten is not called unchanged."""
    if one.step.override_drift:
        return {"drift_tone": "wait", "drift_words": "overwrites a later change"}
    tone = "ok" if one.drift_state in UNTOUCHED else "wait" if one.drift_state else ""
    words = _drift_words(one)
    return {"drift_tone": "calm" if words in TO_COME else tone, "drift_words": words}


def _drift_words(one: DraftStep) -> str:
    """What a correction is held against is what it would send, which the agent never made."""
    if previews.is_gone(one):
        return "gone"
    corrects = one.step.reversibility == Reversibility.IRREVERSIBLE
    was_left_so = one.effect.has_after and one.effect.after is None
    if corrects and not was_left_so and (one.drift_state, one.seen) == (DriftState.UNCHANGED, None):
        return NOT_SENT
    return DRIFT_WORDS.get(one.drift_state, "was not read")


def _call(one: DraftStep, *, sensitive: bool) -> dict[str, Any] | None:
    """What will be sent. A row's columns stand in its diff; the raw call has everything."""
    if not sensitive:
        return {"sends": [{"name": "Payload", "value": "hidden: needs view_sensitive"}]}
    preview = one.preview
    sends = [{"name": name, "value": value} for name, value in preview.rows]
    raw = json.dumps(preview.will_send, indent=2, ensure_ascii=False, default=str)
    return {"sends": sends, "afterwards": _afterwards(preview), "raw": raw}


def _afterwards(preview: Preview) -> list[dict[str, str]]:
    """What reading back must find; of a row its diff says it already."""
    wanted = preview.must_be_true
    if not wanted.get("exists", True):
        return [{"name": "It is there", "value": "no"}]
    fields = {} if preview.kind == "row" else wanted.get("fields") or {}
    if wanted and not fields and preview.kind != "row":
        return [{"name": "It is found there", "value": "yes"}]
    return [{"name": name, "value": formatting.value_text(value)} for name, value in fields.items()]


def _difference(one: DraftStep) -> list[dict[str, Any]]:
    """What the step writes over: as it is now, and as it will be."""
    if one.drift_state == DriftState.ALREADY:
        return []
    if one.preview.must_be_true.get("exists") is False:
        return story.whole(one.step.expected, None, sensitive=True)
    if one.preview.kind not in ("row", "calendar"):
        return []
    return [
        {"field": row.field, "was": row.agent_wrote, "now": row.was, "kind": "changed"}
        for row in one.preview.diff
        if row.was != row.agent_wrote
    ]


def _same(one: DraftStep) -> list[dict[str, Any]]:
    """The other fields that the step writes: with the value that the agent left."""
    if one.preview.kind not in ("row", "calendar"):
        return []
    changed = {row["field"] for row in _difference(one)}
    return [
        {"field": name, "was": value, "now": value, "kind": "same"}
        for name, value in (one.preview.must_be_true.get("fields") or {}).items()
        if name not in changed
    ]


def _drift(one: DraftStep) -> list[dict[str, Any]]:
    """Where the target is not as the agent left it, and what the plan as shown would make of it; of
    one that came or went as a whole, field by field. What it does not write stays; of a row that is
    made again that is its key.
    """
    fields = one.preview.must_be_true.get("fields") or {}
    rows = [each for row in one.drift for each in _by_field(row, one.effect.before)]
    return [
        {
            "field": row["field"] or "the whole",
            "was": row["was"],
            "wrote": row["agent_wrote"],
            "now": row["now"],
            "becomes": fields.get(row["field"], untouched if fields else None),
            "kind": "drifted",
        }
        for row in rows
        for untouched in [row["was"] if row["now"] is None else row["now"]]
    ]


def _by_field(row: dict[str, Any], before: Any) -> list[dict[str, Any]]:
    wrote, now = row["agent_wrote"], row["now"]
    whole = wrote if isinstance(wrote, dict) else now
    if row["field"] or not isinstance(whole, dict):
        return [row]
    sides = [one if isinstance(one, dict) else {} for one in (before, wrote, now)]
    named = list(whole)[:FIELDS_OF_A_WHOLE_MAX]
    return [
        {
            "field": name,
            "was": sides[0].get(name),
            "agent_wrote": sides[1].get(name),
            "now": sides[2].get(name),
        }
        for name in named
    ]


def _alike(draft: plans.PlanDraft) -> list[dict[str, Any]]:
    """One question for all that drifted alike, where several wait for an answer."""
    found = []
    for name, legend in (("changed", "changed since the agent wrote them"), ("gone", "are gone")):
        waiting = [one for one in draft.undecided if previews.is_gone(one) == (name == "gone")]
        if len(waiting) < 2:  # noqa: PLR2004 - one alone is asked for at its step
            continue
        found.append(
            {
                "name": f"all-{name}",
                "legend": f"{len(waiting)} targets {legend}. One answer for all of them?",
                "alike": f"alike-{name}",
                "ids": ",".join(str(one.effect.pk) for one in waiting),
                "choices": [
                    {"value": value, "label": label, "note": note}
                    for value, (label, note) in _choices_of(is_gone=name == "gone").items()
                ],
            }
        )
    return found


def _choices_of(*, is_gone: bool) -> dict[str, tuple[str, str]]:
    return GONE_CHOICES if is_gone else CHOICES


def _offered(one: DraftStep) -> list[dict[str, Any]]:
    return [
        {
            "name": f"effect-{one.effect.pk}",
            "value": value,
            "label": label,
            "note": note,
            "selected": one.chosen == value,
        }
        for value, (label, note) in _choices_of(is_gone=previews.is_gone(one)).items()
    ]


def _kept(draft: plans.PlanDraft, one: NotUndoable) -> list[dict[str, Any]]:
    """What was chosen for it, which goes with the plan that is shown as do the choices of steps."""
    chosen = draft.choices.get(one.effect.pk)
    if chosen is None:
        return []
    label, _ = CHOICES[chosen]
    ways = ((chosen, label, ""), ("", "Ask again", "the plan says what would undo it"))
    return [
        {
            "name": f"effect-{one.effect.pk}",
            "value": value,
            "label": words,
            "note": note,
            "selected": value == chosen,
        }
        for value, words, note in ways
    ]
