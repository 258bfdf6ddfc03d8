"""Who calls the HTTP API: an agent by its key, or a person's script by its token.

For django-ninja's `auth=`. The call's workspace is the key's own: nothing else can be named.
"""

from dataclasses import dataclass, field

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from ninja.security import HttpBearer

from workspaces import keys
from workspaces.models import Agent, User, Workspace


@dataclass(frozen=True)
class Caller:
    """Exactly one of `agent` and `person` is set."""

    workspace: Workspace
    agent: Agent | None = None
    person: User | None = None
    scopes: frozenset[str] = field(default_factory=frozenset)


class ByPerson(HttpBearer):
    """A person's API token; it may do what the person may, and never decide an approval."""

    def authenticate(self, request: HttpRequest, token: str) -> Caller | None:
        found = keys.person_of(token)
        return Caller(found.workspace, person=found.person) if found else None


class LacksScope(PermissionDenied):
    """We stopped because the key is known and does not have the scope that this needs."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"It lacks the scope “{scope}”.")


class ByAgent(HttpBearer):
    """An agent's key with one scope; raises LacksScope for one that is without."""

    def __init__(self, scope: str) -> None:
        super().__init__()
        self.scope = scope

    def authenticate(self, request: HttpRequest, token: str) -> Caller | None:
        found = keys.agent_of(token)
        if found is None:
            return None
        if self.scope not in found.scopes:
            raise LacksScope(self.scope)
        return Caller(found.workspace, agent=found.agent, scopes=frozenset(found.scopes))


def caller_of(request: HttpRequest) -> Caller:
    caller = getattr(request, "auth", None)
    assert isinstance(caller, Caller), "the route lacks its auth"  # noqa: S101
    return caller
