"""The gate: where agents ask whether a call may be made, and wait for people to say so."""

from approvals.gate.begin import begin
from approvals.gate.documented import documented
from approvals.gate.policy_document import policy
from approvals.gate.replying import reply
from approvals.gate.waiting import approval, waiters
from ledger.door import answering
from workspaces.hot import route

__all__ = ["closing", "documented", "routes"]

routes = [
    route("POST", r"/api/v1/actions/begin", answering(begin)),
    route("GET", r"/api/v1/approvals/(?P<approval>[0-9]{1,18})", answering(approval)),
    route("POST", r"/api/v1/approvals/(?P<approval>[0-9]{1,18})/answers", answering(reply)),
    route("GET", r"/api/v1/policy", answering(policy)),
]


async def closing() -> None:
    await waiters.stop()
