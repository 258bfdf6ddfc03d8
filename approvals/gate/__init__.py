"""The gate: where agents ask whether a call may be made, and wait for people to say so."""

from amends.protocol.vocabulary import CLASSES, RISKS, EventType
from approvals.gate.begin import begin
from approvals.gate.policy_document import policy
from approvals.gate.waiting import approval, reply, waiters
from edge.asgi import answering, route
from edge.openapi import ANYTHING, NUMBER, TEXT, body, items, one_of, operation, path, query, shape

# What the OpenAPI page says of the gate, which django-ninja does not serve.

TARGETS_MAX = 100
QUESTIONS_MAX = 20
REFUSALS = {
    401: "No key, or one that was revoked",
    403: "The key lacks the scope",
    503: "Overloaded",
}
WAIT = query("wait", NUMBER | {"minimum": 0, "maximum": 30}, "Seconds to wait for a change")
PLANNED = shape(
    "tool",
    tool=TEXT,
    targets=items(shape("type id", type=TEXT, id=TEXT), most=TARGETS_MAX),
    args=shape(),
    key=TEXT,
    op=TEXT,
    saga=one_of("pivot", "retriable"),
    risk=one_of(*RISKS),
    intent=shape(goal=TEXT, reason=TEXT, model=TEXT),
    before={"type": "array"},
) | {"description": f"`class`: one of {', '.join(CLASSES)}"}  # fmt: skip

documented = {
    "/api/v1/actions/begin": {
        "post": operation(
            "begin",
            "Ask before acting: go on, wait for people, or no",
            parameters=[query("explain", one_of("1"), "Answer without writing anything")],
            said=body(
                shape(
                    "id type run action attempt data",
                    id=TEXT,
                    type=one_of(EventType.ACTION_PLANNED),
                    run=TEXT,
                    action=TEXT,
                    n=NUMBER,
                    attempt=TEXT,
                    retry=one_of("model", "tool", "workflow", "human"),
                    data=PLANNED,
                )
            ),
            answer=shape(
                "answer",
                answer=one_of("proceed", "wait", "denied", "in_doubt", "replay", "compensated"),
                action=TEXT,
                run=TEXT,
                fence=NUMBER,
                lease_until=TEXT,
                approval=TEXT,
                url=TEXT,
                expires_at=TEXT,
                reason=TEXT,
                code=TEXT,
                result=ANYTHING,
                next_key=TEXT,
            ),
            refusals=REFUSALS
            | {
                400: "Not JSON",
                409: "Another attempt is under way",
                413: "Above 64 KiB",
                422: "The key was used with other arguments, or the event does not hold",
            },
        )
    },
    "/api/v1/approvals/{id}": {
        "get": operation(
            "approval",
            "Wait for a decision; an agent's key never decides",
            parameters=[
                path("id", NUMBER),
                WAIT,
                query("heard", NUMBER, "Questions known; a further one ends the wait, too"),
            ],
            answer=shape(
                "id state",
                id=TEXT,
                state=TEXT,
                expires_at=TEXT,
                decided_at={"type": ["string", "null"]},
                reason=TEXT,
                url=TEXT,
                asked=NUMBER,
                questions=items(shape("id question", id=TEXT, question=TEXT), most=QUESTIONS_MAX),
            ),
            refusals=REFUSALS | {404: "No such approval of this agent"},
        )
    },
    "/api/v1/approvals/{id}/answers": {
        "post": operation(
            "reply",
            "Answer what a person asked back; it is shown to them and decides nothing",
            parameters=[path("id", NUMBER)],
            said=body(shape("question answer", question=NUMBER, answer=TEXT)),
            answer=shape("question answered", question=TEXT, answered={"type": "boolean"}),
            refusals=REFUSALS
            | {404: "No such question", 409: "Decided or answered", 422: "It does not fit"},
        )
    },
    "/api/v1/policy": {
        "get": operation(
            "policy",
            "The active policy, for judging while the desk is away",
            answer=shape(
                "workspace agent",
                workspace=TEXT,
                agent=TEXT,
                digest=TEXT,
                document=shape(),
                masking=shape(form=TEXT, key=TEXT),
            ),
            refusals=REFUSALS,
        )
    },
}

__all__ = ["closing", "documented", "routes"]

routes = [
    route("POST", r"/api/v1/actions/begin", answering(begin)),
    route("GET", r"/api/v1/approvals/(?P<approval>[0-9]{1,18})", answering(approval)),
    route("POST", r"/api/v1/approvals/(?P<approval>[0-9]{1,18})/answers", answering(reply)),
    route("GET", r"/api/v1/policy", answering(policy)),
]


async def closing() -> None:
    await waiters.stop()
