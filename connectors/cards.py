"""What the connections' pages show of a connection, an operation and a call."""

from typing import Any

from django.utils.html import format_html

from connectors import calls
from connectors.models import CallLog, Connection
from workspaces import look
from workspaces.models import Secret


def row_of(one: Connection) -> dict[str, Any]:
    state = "paused" if one.is_disabled else "failed" if one.is_failing else "active"
    health = one.last_error if one.is_failing else "answers" if one.last_ok_at else "not called yet"
    last = max(filter(None, (one.last_ok_at, one.last_error_at)), default=None)
    return {
        "name": one.name,
        "url": f"/w/{one.workspace.slug}/connectors/{one.name}/",
        "connector": one.connector,
        "version": calls.connector_version(one),
        "account": f"revision {one.revision} · settings {one.settings_digest[:12]}",
        "state": state,
        "health": "disabled: nothing is called over it" if one.is_disabled else health,
        "last": look.moment(last) if last else None,
        "observe": _secret(one.observe_secret),
        "compensate": _secret(one.compensate_secret),
    }


def _secret(secret: Secret | None) -> Any:
    if secret is None:
        return "missing"
    return format_html("set {}", look.moment(secret.rotated_at or secret.created_at))


def told(operation: Any) -> dict[str, Any]:
    return {
        "name": operation.name,
        "words": f"{operation.title}; at most {operation.limit_seconds:g} s a call",
        "reversibility": operation.reversibility,
        "idempotency": operation.idempotency.replace("_", " "),
        "probe": operation.probe,
    }


def line_of(call: CallLog) -> dict[str, Any]:
    words = f"{call.method} {call.operation} on {call.target}, {call.milliseconds} ms"
    return {
        "words": f"{words}: {call.detail}" if call.detail else words,
        "state": str(call.outcome),
        "time": look.moment(call.at),
    }
