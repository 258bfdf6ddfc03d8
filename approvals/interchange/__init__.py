"""Approval protocols of others, in front of our inbox: `aap` (Agent Approval Protocol). Only people
decide, and where a protocol is weaker than our law, ours holds.
"""

from approvals.interchange import aap
from approvals.interchange.aap import in_its_words
from edge.asgi import route

__all__ = ["routes"]

REQUESTS = r"/aap/v1/requests"
ONE = REQUESTS + r"/(?P<id>[0-9a-f-]{36})"

routes = [
    route("POST", REQUESTS, in_its_words(aap.create)),
    route("GET", ONE, in_its_words(aap.read)),
    route("DELETE", ONE, in_its_words(aap.cancel)),
    route("POST", ONE + "/consume", in_its_words(aap.consume)),
    route("POST", ONE + "/outcome", in_its_words(aap.outcome)),
]
