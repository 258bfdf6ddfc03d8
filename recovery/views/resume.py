"""The preview of a resume: what the agent would skip, repeat and do anew. The desk runs nothing."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.views.decorators.http import require_http_methods

from ledger import disclosure
from ledger.api import trace_url
from ledger.models import Checkpoint
from recovery.cases.lifecycle import REFUSALS
from recovery.casework import resuming
from recovery.models import Case
from recovery.run_facts.sentences import listed, many, shortened
from recovery.views import request_context
from recovery.views.request_context import case_to_recover
from workspaces import formatting
from workspaces.pages import Request, folded

LEAD = "The agent is told where to go on; it acts itself, through the same gate."
STATE_CHARACTERS_MAX = 500
SUMMARY_CHARACTERS_MAX = 80
LABELS = {
    "skip": "done",
    "repeat_same_key": "same_key",
    "repeat_may_duplicate": "may_duplicate",
    "repeat_new_key": "new_key",
    "new": "new",
}
COUNTED = {
    "done": "skipped",
    "same_key": "repeated",
    "may_duplicate": "repeated, may duplicate",
    "new_key": "repeated under a new key",
    "new": "new",
}


@login_required
@require_http_methods(["GET", "POST"])
def resume(request: Request, workspace: str, pk: int) -> HttpResponse:
    case = case_to_recover(request, workspace, pk)
    params = request.POST or request.GET
    points = list(Checkpoint.objects.filter(run=case.run).order_by("-place"))
    wanted = params.get("checkpoint")
    chosen = next((one for one in points if str(one.pk) == wanted), None)
    if wanted is None and points:
        chosen = points[0]
    if request.method == "GET":
        return _show(request, case, points, chosen)
    try:
        resuming.commit(
            case,
            digest=params.get("digest", ""),
            revision=request_context.seen_revision(request),
            by=request.user,
            reason=params.get("why", ""),
            checkpoint=chosen,
        )
    except REFUSALS as refusal:
        return _show(request, case, points, chosen, problem=refusal)
    words = "The run is told to go on. If the agent does not answer, it returns."
    return request_context.preview_done(request, case, words)


def _show(
    request: Request,
    case: Case,
    points: list[Checkpoint],
    chosen: Checkpoint | None,
    *,
    problem: Exception | None = None,
) -> HttpResponse:
    resume_preview = resuming.preview(case, checkpoint=chosen)
    name = f"checkpoint {formatting.named(chosen.name)}" if chosen else "the start"
    told = chosen.instructions if chosen else ""
    sensitive = disclosure.sees(request.user, case.workspace)
    unknown = resume_preview.facts.unknown()
    steps = [_step(one) for one in resume_preview.steps]
    counts = Counter(COUNTED[one["label"]] for one in steps)
    context: dict[str, Any] = {
        "title": f"Resume from {name}",
        "lead": LEAD,
        "digest": resume_preview.digest,
        "digest_short": formatting.digest(resume_preview.digest),
        "checked": formatting.moment(resume_preview.checked_at),
        "checkpoints": _points(resume_preview, points, chosen),
        "reach": chosen.pk if chosen else "",
        "steps": folded(steps, lambda one: one["label"] == "done", _skipped),
        "counts": " · ".join(f"{formatting.count(n)} {words}" for words, n in counts.items()),
        "left_out": many(resume_preview.left_out, "later call") if resume_preview.left_out else "",
        "standing": [
            {
                "title": formatting.quoted(effect.summary) if effect.summary else action.tool_words,
                "text": ("may stand on " if action in unknown else "stands on ")
                + f"{formatting.named(effect.target_type)} {formatting.named(effect.target_id)}",
            }
            for action, effect in resume_preview.standing
        ],
        "agent": [
            {"name": "Run", "value": case.run.run},
            {"name": "From", "value": name},
            {"name": "Agent", "value": case.agent.name if case.agent else ""},
        ],
        "known": _known(resume_preview, chosen, sensitive=sensitive),
        "instructions": (told if sensitive else disclosure.HIDDEN) if told else "",
        "why_not": resume_preview.why_not,
        "commit_label": f"Resume from {name}",
    }
    return request_context.show_preview(
        request, "Resume", resume_preview.case, context, problem=problem
    )


def _known(
    resume_preview: resuming.Resume, chosen: Checkpoint | None, *, sensitive: bool
) -> list[dict[str, Any]]:
    """What the ledger holds of the moment at which the checkpoint was told."""
    if chosen is None:
        return []
    then = resuming.known_at(resume_preview.facts.run, chosen)
    trace = trace_url(then.trace)
    found: list[dict[str, Any]] = [
        {"name": "It says", "value": _said(chosen)},
        {"name": "Its state", "value": _state(chosen) if sensitive else "", "mono": True},
        {"name": "Recovery mode", "value": chosen.recovery_mode.replace("_", " ")},
        {"name": "Told", "time": formatting.moment(chosen.at)},
        {"name": "Approvals in force", "value": listed(then.approvals) or "none"},
        {
            "name": "Last verified",
            **(
                {"time": formatting.moment(then.verified_at)}
                if then.verified_at
                else {"value": "never"}
            ),
        },
        {"name": "Trace", "value": trace or then.trace_id, "mono": True},
    ]
    return [one for one in found if one.get("value") or one.get("time")]


def _state(one: Checkpoint) -> str:
    """What the agent goes on from, as it told it."""
    told = json.dumps(one.state, ensure_ascii=False, sort_keys=True) if one.state else ""
    return shortened(told, STATE_CHARACTERS_MAX)


def _said(one: Checkpoint) -> str:
    """The agent's own summary of what stood then."""
    return formatting.quoted(one.summary, SUMMARY_CHARACTERS_MAX) if one.summary else ""


def _points(
    resume_preview: resuming.Resume, points: list[Checkpoint], chosen: Checkpoint | None
) -> list[dict[str, Any]]:
    return [
        *(
            {
                "value": one.pk,
                "label": f"{formatting.named(one.name)} {_said(one)}".strip(),
                "selected": chosen is not None and one.pk == chosen.pk,
                "stale": "stale" if resuming.staleness(resume_preview.facts, one) else "",
            }
            for one in points
        ),
        {"value": "", "label": "the start", "selected": chosen is None, "stale": ""},
    ]


def _skipped(steps: Sequence[dict[str, Any]]) -> str:
    return f"{formatting.count(len(steps))} more: all skipped"


def _step(one: resuming.ResumeStep) -> dict[str, Any]:
    targets = ", ".join(f"{t.get('type')} {t.get('id')}" for t in one.targets)
    return {
        "title": resuming.step_title(one),
        "tool": one.tool,
        "target": targets,
        "label": LABELS[one.label],
        "words": one.why,
    }
