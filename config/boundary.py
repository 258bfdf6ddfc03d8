"""The boundary: the last look at what is answered to a person, before it leaves.

Views decide what of a payload they show (ledger/disclosure.py). Sentences that stand on pages are
written in a hundred places, by agents, customers and outside systems; whatever secret is in one of
them is taken out here for whoever lacks `view_sensitive`, on every page and at every endpoint of a
workspace, so that a new page needs to do nothing. A card of an approval is whole for those who
decide. Agents read only what they wrote, and public pages belong to the person whom they are about:
neither is changed. Only an answer that holds something asks for the permission.
"""

import json
from collections.abc import Callable
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from ledger import disclosure
from workspaces.keys import Caller
from workspaces.models import PersonToken, User, Workspace

Answer = Callable[[HttpRequest], HttpResponseBase]
TEXTS = ("text/", "application/json", "application/problem+json")


class Reader(NamedTuple):
    person: User
    workspace: Workspace


def disclosing(answer: Answer) -> Answer:
    """Django middleware; innermost, so that length and headers are those of what is sent."""

    def answered(request: HttpRequest) -> HttpResponseBase:
        response = answer(request)
        kind = response.headers.get("Content-Type", "")
        if not isinstance(response, HttpResponse) or not kind.startswith(TEXTS):
            return response
        text = response.content.decode(response.charset or "utf-8", "replace")
        if not disclosure.holds_secret(text):
            return response
        reader = reader_of(request)
        if reader is None or _sees(request, reader):
            return response
        if "json" in kind:
            response.content = json.dumps(disclosure.without_secrets(json.loads(text)))
        else:
            response.content = disclosure.without_secrets(text)
        return response

    return answered


def reader_of(request: HttpRequest) -> Reader | None:
    """The person who reads, and in which workspace; None where it is not one of a workspace."""
    caller = getattr(request, "auth", None)
    if isinstance(caller, PersonToken | Caller):
        return Reader(caller.person, caller.workspace) if caller.person else None
    match = request.resolver_match
    slug = match.kwargs.get("workspace") if match else None
    person = getattr(request, "user", None)
    if slug is None or not isinstance(person, User):
        return None
    here = Workspace.objects.filter(slug=slug).first()
    return Reader(person, here) if here else None


def _sees(request: HttpRequest, reader: Reader) -> bool:
    deciding = bool(getattr(request, "shows_a_call", False))
    return disclosure.sees(reader.person, reader.workspace, deciding=deciding)
