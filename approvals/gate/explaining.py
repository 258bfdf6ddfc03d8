"""`?explain=1` on `begin`: what would be answered and why; nothing is written.

Beside the judgement it names each rule that fits the tool: its condition, whether that is met, what
was looked up for it, and what that cost. So whoever writes a policy sees why a rule does not ask,
and what a question is worth; an agent hears nothing that it would not learn by asking.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from time import perf_counter
from typing import Any

import msgspec

from approvals import grants
from approvals.gate import covered_questions
from approvals.gate.begin_context import as_approved
from approvals.gate.begin_request import BeginRequest
from approvals.gate.decision_table import (
    BY_RULE,
    KEY_REUSED,
    ApprovalRequired,
    BeginResponse,
    ChangedReplay,
    Denied,
    InDoubt,
    InProgress,
    KeyReused,
    KnownAnswer,
    LostInRestore,
    Proceed,
    UseGrant,
    order_breach,
)
from approvals.gate.slow_path_statements import Decided, judged_as_asked
from approvals.models import Approval, ApprovalState
from approvals.policy import CannotEvaluate, Rule, fitting_rules
from approvals.policy.conditions import FINDINGS, of_call
from ledger import drivers

RULES_TOLD_MAX = 100
NOT_ASKED = "Not asked: the rest of the condition says it"


def explained(
    request: BeginRequest,
    found: Decided,
    why_not: Callable[[BeginRequest, Decided, Approval], str],
) -> BeginResponse:
    """What `begin` would answer, and why; `why_not` says what keeps a grant from being used."""
    would: dict[str, Any] = {}
    match found.decision:
        case KnownAnswer(body=body) | ChangedReplay(body=body):
            would = dict(body)
        case Proceed() as proceed:
            would = {"answer": "proceed", "action": proceed.action}
        case UseGrant(approval=approval):
            asked = Approval.objects.select_related("workspace", "action").get(pk=approval)
            fits = not why_not(request, found, asked)
            if not fits and asked.replaces_id is not None:
                found = drivers.run(judged_as_asked(request, found), drivers.plain_connection())
            would = _with_question(found, asked, fits=fits)
        case ApprovalRequired():
            would = {"answer": "wait"}
        case Denied() as denied:
            would = denied.as_body()
        case LostInRestore(proceed=proceed):
            would = {"answer": "in_doubt", "action": proceed.action}
        case InDoubt(known=known):
            would = {"answer": "in_doubt", "action": known.action}
        case InProgress() as progress:
            return progress.as_reply()
        case KeyReused():
            would = {"answer": "refused", "problem": msgspec.to_builtins(KEY_REUSED)}
    why = asdict(found.judgement) | {
        "key": request.key,
        "policy": found.context.policy_digest,
        "conditions": _conditions(request, found),
    }
    if isinstance(found.decision, ApprovalRequired):
        would, why["grants"] = _granted(request, found, would)
    return BeginResponse(would | {"explain": why})


def _with_question(found: Decided, approval: Approval, *, fits: bool) -> dict[str, Any]:
    """The answer where people were asked: they may not have answered, or have said yes for later;
    where it no longer `fits`, they are asked anew, or nobody is.
    """
    if not fits and found.judgement.approval == "DENY":
        return Denied(BY_RULE, found.judgement.why).as_body()
    if not fits:
        return {"answer": "proceed" if found.judgement.approval == "AUTO" else "wait"}
    is_waiting = approval.state == ApprovalState.WAITING
    waits = is_waiting or grants.is_early(approval, found.context.now)
    would: dict[str, Any] = {
        "answer": "wait" if waits else "proceed",
        "approval": str(approval.pk),
    }
    if found.context.change is not None and not waits:
        would["arguments"] = found.context.change["args"]
    return would


def _granted(
    request: BeginRequest, found: Decided, would: dict[str, Any]
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The bounded grants of this agent for the tool, and why each does not cover the call; the
    answer is another where one does.
    """
    breach = order_breach(request, found.context, found.policy, found.judgement)
    told = [
        {"approval": str(pk), "why_not": breach or why}
        for pk, why in covered_questions.would_cover(request, found.judgement)
    ]
    covering = next((one["approval"] for one in told if not one["why_not"]), "")
    return {"answer": "proceed", "approval": covering} if covering else would, told


def _conditions(request: BeginRequest, found: Decided) -> list[dict[str, Any]]:
    call = as_approved(request, found.context)
    tool_call = call.tool_call(found.context.labels, found.gathered.findings)
    rules, facts = fitting_rules(found.policy, tool_call)
    return [
        _condition(rule, facts, found.gathered.milliseconds, holds=rule in found.policy.always)
        for rule in rules[:RULES_TOLD_MAX]
    ]


def _condition(
    rule: Rule, facts: Mapping[str, Any], milliseconds: Mapping[str, float], *, holds: bool
) -> dict[str, Any]:
    """One rule: what its condition comes to; `value` is null where it cannot be evaluated."""
    told: dict[str, Any] = {"glob": rule.glob, "always": holds, "approval": rule.approval}
    if rule.when is None:
        return told | {"when": None, "value": True, "met": True, "milliseconds": 0.0, "asked": []}
    began, why = perf_counter(), ""
    try:
        each = [rule.when.evaluate(one) for one in rule.when.of_each_target(facts)]
        value = each[0] if all(one == each[0] for one in each) else None
        why = "it is so for one target and not for another" if value is None else ""
    except CannotEvaluate as cannot:
        value, why = None, str(cannot)
    took = (perf_counter() - began) * 1000
    findings = facts.get(FINDINGS) or {}
    asked: list[dict[str, Any]] = []
    for one in rule.when.lookups:
        seen = findings.get(one.key) or of_call(one, facts)
        plain = seen is not None and isinstance(seen.value, bool | int | float)
        asked.append(
            {
                "question": one.source,
                "value": seen.value if seen and plain else None,
                "words": seen.words if seen else NOT_ASKED,
                "milliseconds": round(milliseconds.get(one.key, 0.0), 3),
            }
        )
    return told | {
        "when": rule.when.source,
        "value": value if isinstance(value, bool) else None,
        "met": rule.met(facts, rule.approval or "MANUAL"),
        "milliseconds": round(took + sum(one["milliseconds"] for one in asked), 3),
        "asked": asked,
        **({"why": why} if why else {}),
    }
