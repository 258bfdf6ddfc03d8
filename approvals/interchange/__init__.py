"""Approval protocols of others, in front of our inbox: `aap` (Agent Approval Protocol) and `aais`
(documents of agent-approval-interchange). Only people decide, and where a protocol is weaker than
our law, ours holds.
"""

from approvals.interchange import aais, aap
from approvals.interchange.aais import in_problems
from approvals.interchange.aap import in_its_words
from edge.asgi import route

__all__ = ["routes"]

REQUESTS = r"/aap/v1/requests"
ONE = REQUESTS + r"/(?P<id>[0-9a-f-]{36})"
DOCUMENTS = r"/aais/v1/documents"
ASKED = r"/aais/v1/requests/(?P<id>[A-Za-z0-9][A-Za-z0-9._:-]{0,199})"

routes = [
    route("POST", REQUESTS, in_its_words(aap.create)),
    route("GET", ONE, in_its_words(aap.read)),
    route("DELETE", ONE, in_its_words(aap.cancel)),
    route("POST", ONE + "/consume", in_its_words(aap.consume)),
    route("POST", ONE + "/outcome", in_its_words(aap.outcome)),
    route("POST", DOCUMENTS, in_problems(aais.take_in)),
    route("GET", ASKED, in_problems(aais.read)),
    route("DELETE", ASKED, in_problems(aais.cancel)),
    route("POST", ASKED + "/consume", in_problems(aais.consume)),
    route("POST", ASKED + "/outcome", in_problems(aais.outcome)),
]
