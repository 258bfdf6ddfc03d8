"""The gate: where agents ask whether a call may be made, and wait for people to say so."""

from approvals.gate.begin import BeginAnswer, begin
from approvals.gate.begin_request import BeginBody
from approvals.gate.policy_document import PolicyInForce, policy
from approvals.gate.waiting import Answered, ApprovalStatus, QuestionReply, approval, reply, waiters
from edge.asgi import WAIT, Operation, answering, route

__all__ = ["closing", "routes"]

JSON = ("application/json",)

routes = [
    route(
        "POST", r"/api/v1/actions/begin", answering(begin),
        Operation(
            "begin",
            "Ask before acting: go on, wait for people, or no",
            answer=BeginAnswer, body=BeginBody, media=JSON,
            query={"explain": ({"enum": ["1"]}, "Answer without writing anything")},
            refusals={
                400: "", 409: "Another attempt is under way", 413: "",
                422: "The key was used with other arguments, or the event does not hold",
            },
        ),
    ),
    route(
        "GET", r"/api/v1/approvals/(?P<id>[0-9]{1,18})", answering(approval),
        Operation(
            "approval",
            "Wait for a decision; an agent's key never decides",
            answer=ApprovalStatus,
            query={
                "wait": WAIT,
                "heard": ({"type": "integer"}, "Questions known; a further one ends the wait, too"),
            },
            refusals={404: "No such approval of this agent"},
        ),
    ),
    route(
        "POST", r"/api/v1/approvals/(?P<id>[0-9]{1,18})/answers", answering(reply),
        Operation(
            "reply",
            "Answer what a person asked back; it is shown to them and decides nothing",
            answer=Answered, body=QuestionReply, media=JSON,
            refusals={404: "No such question", 409: "Decided or answered", 422: ""},
        ),
    ),
    route(
        "GET", r"/api/v1/policy", answering(policy),
        Operation(
            "policy",
            "The active policy, for judging while the desk is away",
            answer=PolicyInForce,
        ),
    ),
]  # fmt: skip


async def closing() -> None:
    await waiters.stop()
