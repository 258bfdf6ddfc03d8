"""What the connections' pages show of a connection, an operation and a call."""

from typing import Any

import msgspec
from django.utils.html import format_html

from connectors import calls, registry
from connectors.models import CallLog, Connection
from workspaces import look
from workspaces.models import Secret

# What a second try does, and whether a lost answer can be found, as shapes.Operation has them.
TWICE = {
    "native_key": "sent twice it is done once: the system remembers our key",
    "natural_key": "sent twice it is done once: the second changes nothing more",
    "conditional": "sent twice it is done once: it is done only to the state that was seen",
    "marker": "sent twice it is done once: a mark is left and looked for",
    "none": "sent twice it may be done twice, so it is sent once",
}
LOST = {
    "strong": "a lost answer is found at once",
    "eventual": "a lost answer is found after a while",
    "none": "a lost answer is left to a person",
}


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
        "twice": TWICE.get(operation.idempotency, operation.idempotency),
        "lost": LOST.get(operation.probe, operation.probe),
    }


def takes(name: str) -> dict[str, str]:
    """The names that a connector's settings have, those that may be missing in brackets."""
    connector = registry.get(name)
    fields = msgspec.structs.fields(connector.settings_schema)
    names = [one.encode_name if one.required else f"[{one.encode_name}]" for one in fields]
    return {"name": connector.title, "value": ", ".join(names) or "nothing"}


def line_of(call: CallLog) -> dict[str, Any]:
    words = f"{call.method} {call.operation} on {call.target}, {call.milliseconds} ms"
    return {
        "words": f"{words}: {call.detail}" if call.detail else words,
        "state": str(call.outcome),
        "time": look.moment(call.at),
    }
