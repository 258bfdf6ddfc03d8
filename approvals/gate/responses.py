"""How the gate's answers read."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import msgspec
from django.conf import settings

from approvals.gate.begin_context import BeginContext
from approvals.gate.begin_request import BeginRequest
from approvals.gate.decision_table import (
    Answer,
    Decision,
    Denied,
    InDoubt,
    KeyReused,
    Proceed,
    Question,
    Use,
    proceeding,
)
from approvals.policy import PolicyDecision
from edge.asgi import Problem, problem

KEY_REUSED = problem(
    "key-reused",
    "Other arguments were sent under this key",
    422,
    "A second operation needs an “op” or a key of its own. A case was opened.",
)


@dataclass(frozen=True, slots=True)
class Reply:
    """What goes out: a body under 200, or a problem under its own status."""

    body: dict[str, Any] | Problem
    headers: tuple[tuple[str, str], ...] = ()


def of_proceed(decision: Proceed, until: datetime) -> dict[str, Any]:
    return proceeding(decision.fence, until) | {"action": decision.action, "run": decision.run}


def with_address(body: dict[str, Any], workspace: str) -> dict[str, Any]:
    """Where people answer, added to what waits for them."""
    if "approval" not in body:
        return body
    return body | {"url": f"{settings.AMENDS_URL}/w/{workspace}/approvals/{body['approval']}/"}


def explained(
    ask: BeginRequest, found: BeginContext, decision: Decision, judgement: PolicyDecision
) -> Reply:
    """What `begin` would answer, and why; nothing was written."""
    would: dict[str, Any] = {}
    match decision:
        case Answer(body=body):
            would = dict(body)
        case Proceed():
            would = {"answer": "proceed", "action": decision.action}
        case Use():
            would = {"answer": "proceed", "approval": str(decision.approval)}
        case Question():
            would = {"answer": "wait"}
        case Denied():
            would = decision.as_body()
        case InDoubt():
            would = {"answer": "in_doubt", "action": decision.known.action}
        case KeyReused():
            would = {"answer": "refused", "problem": msgspec.to_builtins(KEY_REUSED)}
    said = asdict(judgement)
    said["key"] = ask.key
    said["policy"] = found.policy_digest
    return Reply(would | {"explain": said})
