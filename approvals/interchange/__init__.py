"""Approval protocols of others, in front of our inbox: `aap` (Agent Approval Protocol) and `aais`
(documents of agent-approval-interchange). Only people decide, and where a protocol is weaker than
our law, ours holds.
"""

from typing import Any, Literal

import msgspec

from approvals.interchange import aais, aap
from approvals.interchange.aais import in_problems
from approvals.interchange.aap import in_its_words
from edge.asgi import Operation, Route, route

__all__ = ["routes"]

REQUESTS = r"/aap/v1/requests"
INSTANCE = r"/aap/v1/instances/(?P<id>[0-9a-f-]{36})"
ONE = REQUESTS + r"/(?P<id>[0-9a-f-]{36})"
DOCUMENTS = r"/aais/v1/documents"
ASKED = r"/aais/v1/requests/(?P<id>[A-Za-z0-9][A-Za-z0-9._:-]{0,199})"
JSON = ("application/json",)
WAIT = {"wait": ({"type": "string", "pattern": "^[0-9]{1,4}s?$"}, "Seconds to wait, at most 60")}


class Outcome(msgspec.Struct, forbid_unknown_fields=True):
    """What became of a call, for the page of the API."""

    status: Literal["succeeded", "failed"]
    note: str = ""


class Submission(msgspec.Struct, forbid_unknown_fields=True):
    """What a client of the Agent Approval Protocol asks, for the page of the API."""

    tool: str
    arguments: dict[str, Any]
    timeout: str
    server: str | msgspec.UnsetType = msgspec.UNSET
    agent_reasoning: str | msgspec.UnsetType = msgspec.UNSET
    context: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


def _aap(method: str, path: str, handler: Any, summary: str, **more: Any) -> Route:
    told = Operation(
        f"aap_{handler.__name__}", summary, answer=dict[str, Any], tag="aap",
        failure="The protocol's error document", **more,
    )  # fmt: skip
    return route(method, path, in_its_words(handler), told)


def _aais(method: str, path: str, handler: Any, summary: str, **more: Any) -> Route:
    told = Operation(
        f"aais_{handler.__name__}", summary, answer=dict[str, Any], tag="aais",
        refusals={400: "", 404: "No such request of this agent", 409: "It does not stand so",
                  413: "", 422: ""}, **more,
    )  # fmt: skip
    return route(method, path, in_problems(handler), told)


class Delivery(msgspec.Struct, forbid_unknown_fields=True):
    """Where a receiver is told, for the page of the API."""

    type: Literal["webhook"]
    url: str
    registration_id: str
    signing_secret: str


class Instance(msgspec.Struct, forbid_unknown_fields=True):
    """A receiver that registers itself, for the page of the API."""

    instance_name: str | msgspec.UnsetType = msgspec.UNSET
    delivery: Delivery | msgspec.UnsetType = msgspec.UNSET


class InstanceChange(msgspec.Struct, forbid_unknown_fields=True):
    """What changes of a receiver, for the page of the API."""

    instance_name: str | msgspec.UnsetType = msgspec.UNSET
    delivery: Delivery | msgspec.UnsetType | None = msgspec.UNSET


NEW: Any = {"answers": {201: "Asked", 200: "The same request again"}, "media": JSON}
REPORT: Any = {"body": Outcome, "media": JSON}

routes = [
    _aap(
        "POST",
        "/aap/v1/instances",
        aap.provision,
        "Register a receiver of webhooks",
        body=Instance,
        **NEW,
    ),
    _aap("GET", INSTANCE, aap.read_instance, "A receiver, without its secret"),
    _aap(
        "PATCH",
        INSTANCE,
        aap.change_instance,
        "Another name or another receiver, which is verified; null takes it away",
        body=InstanceChange,
        media=JSON,
    ),
    _aap(
        "DELETE",
        INSTANCE,
        aap.remove_instance,
        "Tell it nothing more",
        answers={204: "It is gone"},
    ),
    _aap("POST", REQUESTS, aap.create, "Ask; needs an Idempotency-Key", body=Submission, **NEW),
    _aap("GET", ONE, aap.read, "The request as it stands, or is decided", query=WAIT),
    _aap("DELETE", ONE, aap.cancel, "Take a waiting request back"),
    _aap("POST", ONE + "/consume", aap.consume, "Make the call, once; needs an Idempotency-Key"),
    _aap("POST", ONE + "/outcome", aap.outcome, "Say what became of the call", **REPORT),
    _aais(
        "POST", DOCUMENTS, aais.take_in, "Bring a document that asks", body=dict[str, Any], **NEW
    ),
    _aais("GET", ASKED, aais.read, "What became of it, as a document", query=WAIT),
    _aais("DELETE", ASKED, aais.cancel, "Take it back"),
    _aais(
        "POST", ASKED + "/consume", aais.consume, "Make the call, once; needs an Idempotency-Key"
    ),
    _aais("POST", ASKED + "/outcome", aais.outcome, "Say what became of the call", **REPORT),
]
