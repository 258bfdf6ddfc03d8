"""Bearer tokens: made once, shown once, proven by digest; and who calls the HTTP API with one.

What opens the desk is decided in one place, `opens`. Django's part of the API asks it here, the
edge in front of Django in `ledger.agent_keys`.

An agent calls by its key, a person's script by its token. The call's workspace is the key's own:
nothing else can be named.
"""

import hashlib
import hmac
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, TypeVar

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from ninja.security import HttpBearer

from amends.protocol.vocabulary import EventType
from workspaces import access, clock, encryption, outbox, rates
from workspaces.models import (
    Agent,
    APIKey,
    BearerToken,
    DirectoryToken,
    PersonToken,
    User,
    Workspace,
)

PREFIX_CHARACTERS = 10
SECRET_BYTES = 32
TOKEN_CHARACTERS_MAX = 120
LINK_TOKEN_BYTES = 24
LINK_TOKEN_CHARACTERS_MAX = 64

Key = TypeVar("Key", bound=BearerToken)


def split(token: str) -> str | None:
    """The prefix of `amends_<prefix>_<secret>`, or None if it does not look like one."""
    if len(token) > TOKEN_CHARACTERS_MAX:
        return None
    parts = token.split("_", 2)
    if len(parts) != len(("amends", "prefix", "secret")) or parts[0] != "amends":
        return None
    return parts[1] if parts[1].isalnum() else None


def digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def new_link_token() -> tuple[str, str, bytes]:
    """A new token for the address of a link, its digest, and the sealed copy for operators."""
    token = secrets.token_urlsafe(LINK_TOKEN_BYTES)
    return token, link_digest(token), encryption.seal(token)


def link_digest(token: str) -> str:
    """What is kept of a token that stands in the address of a link."""
    return digest_of(token).hex()


def token_of_link(sealed: bytes | memoryview, digest: str) -> str:
    """The token of a link, of which a sealed copy and the digest are kept; empty where another
    secret was put in the copy's place. Raises `encryption.CannotOpen`.
    """
    token = encryption.open_sealed(bytes(sealed))
    return token if hmac.compare_digest(link_digest(token), digest) else ""


def shown_token(sealed: bytes | memoryview, digest: str) -> str:
    """The same for a page that shows the link beside all else: empty where no key opens the copy.
    The link itself goes on to work, by its digest.
    """
    try:
        return token_of_link(sealed, digest)
    except encryption.CannotOpen:
        return ""


def proves(token: str, digest: bytes | memoryview) -> bool:
    return hmac.compare_digest(digest_of(token), bytes(digest))


class LacksScope(PermissionDenied):
    """We stopped because the key is known and does not have the scope that this needs."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"It lacks the scope “{scope}”.")


class StoredKey(NamedTuple):
    """What the database has of a key, and the moment by its clock at which it was read."""

    digest: bytes
    revoked_at: datetime | None
    expires_at: datetime | None
    read_at: datetime
    scopes: Collection[str] = ()

    @property
    def is_living(self) -> bool:
        is_over = self.expires_at is not None and self.expires_at <= self.read_at
        return self.revoked_at is None and not is_over


def opens(token: str, stored: StoredKey | None, scope: str = "") -> bool:
    """Whether `token` is this key, and the key is living; raises LacksScope if it is without the
    `scope`.
    """
    if stored is None or not proves(token, stored.digest) or not stored.is_living:
        return False
    if scope and scope not in stored.scopes:
        raise LacksScope(scope)
    return True


def _mint() -> tuple[str, str]:
    prefix = secrets.token_hex(PREFIX_CHARACTERS // 2)
    return prefix, f"amends_{prefix}_{secrets.token_urlsafe(SECRET_BYTES)}"


@transaction.atomic
def create_agent(
    workspace: Workspace, *, by: User, owner: User, name: str, description: str = ""
) -> Agent:
    """Add an agent; its `owner` never counts as an approver of what it asks."""
    data = {"agent": name, "owner": owner.email}
    outbox.record(workspace, EventType.AGENT_CREATED, by=by, data=data)
    return Agent.objects.create(
        workspace=workspace, name=name, owner=owner, description=description
    )


def in_days(days: int | None) -> datetime | None:
    """When a key ends that is given so many days; never, if it is not said."""
    return clock.now() + timedelta(days=days) if days else None


@transaction.atomic
def create_key(
    agent: Agent,
    *,
    by: User | None,
    name: str,
    scopes: Sequence[str] = APIKey.OF_AGENTS,
    trusted_runtime: bool = False,
    expires_at: datetime | None = None,
) -> tuple[APIKey, str]:
    """Make a key for `agent`; the token in clear is the second value and is never seen again."""
    unknown = set(scopes) - set(APIKey.SCOPES)
    if unknown:
        raise ValueError(f"no such scope: {', '.join(sorted(unknown))}")
    if {"begin", "import"} <= set(scopes):
        raise ValueError("one key does not both act and import")
    if APIKey.ALONE in scopes and len(scopes) > 1:
        raise ValueError("a key that reads the audit does nothing else")
    prefix, token = _mint()
    key = APIKey.objects.create(
        workspace=agent.workspace,
        agent=agent,
        name=name,
        prefix=prefix,
        digest=digest_of(token),
        scopes=list(scopes),
        trusted_runtime=trusted_runtime,
        created_by=by,
        expires_at=expires_at,
    )
    outbox.record(
        agent.workspace,
        EventType.KEY_CREATED,
        by=by,
        data={
            "key": prefix,
            "agent": agent.name,
            "scopes": list(scopes),
            "trusted": trusted_runtime,
        },
    )
    return key, token


@transaction.atomic
def create_token(
    workspace: Workspace, *, by: User, name: str, expires_at: datetime | None = None
) -> tuple[PersonToken, str]:
    """Make an API token for the person `by`; shown once."""
    prefix, token = _mint()
    kept = PersonToken.objects.create(
        workspace=workspace,
        person=by,
        name=name,
        prefix=prefix,
        digest=digest_of(token),
        created_by=by,
        expires_at=expires_at,
    )
    outbox.record(workspace, EventType.KEY_CREATED, by=by, data={"key": prefix, "person": by.email})
    return kept, token


@transaction.atomic
def create_directory_token(
    workspace: Workspace, *, by: User, name: str
) -> tuple[DirectoryToken, str]:
    """Make a token for the company's directory (config/scim.py); shown once."""
    prefix, token = _mint()
    kept = DirectoryToken.objects.create(
        workspace=workspace, name=name, prefix=prefix, digest=digest_of(token), created_by=by
    )
    data = {"key": prefix, "directory": name}
    outbox.record(workspace, EventType.KEY_CREATED, by=by, data=data)
    return kept, token


@transaction.atomic
def revoke(key: APIKey | PersonToken | DirectoryToken, *, by: User | None) -> None:
    """Refuse the key from now on; revoking twice changes nothing."""
    moved = type(key).objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=Now())
    if moved:
        outbox.record(key.workspace, EventType.KEY_REVOKED, by=by, data={"key": key.prefix})


def person_of(token: str) -> PersonToken | None:
    """The living person's token that `token` proves, with workspace and person loaded, or None."""
    theirs = PersonToken.objects.select_related("workspace", "person")
    return _opened(theirs.filter(person__is_active=True), token)


def directory_of(token: str) -> DirectoryToken | None:
    """The living token of a directory that `token` proves, with its workspace, or None."""
    return _opened(DirectoryToken.objects.select_related("workspace", "created_by"), token)


def agent_of(token: str, scope: str = "") -> APIKey | None:
    """The living agent's key that `token` proves, with workspace and agent loaded, or None; raises
    LacksScope if it is without the `scope`.
    """
    return _opened(APIKey.objects.select_related("workspace", "agent"), token, scope)


def living(keys: QuerySet[Key]) -> Key | None:
    """The first of these that is neither revoked nor over, by the database's clock."""
    found = keys.annotate(read_at=Now()).order_by("pk")
    return next((key for key in found if _stored(key).is_living), None)


def _opened(keys: QuerySet[Key], token: str, scope: str = "") -> Key | None:
    prefix = split(token)
    found = keys.annotate(read_at=Now()).filter(prefix=prefix).first() if prefix else None
    return found if found is not None and opens(token, _stored(found), scope) else None


def _stored(key: BearerToken) -> StoredKey:
    read_at: datetime = vars(key)["read_at"]
    scopes = key.scopes if isinstance(key, APIKey) else ()
    return StoredKey(bytes(key.digest), key.revoked_at, key.expires_at, read_at, scopes)


@dataclass(frozen=True)
class Caller:
    """Exactly one of `agent` and `person` is set."""

    workspace: Workspace
    agent: Agent | None = None
    person: User | None = None
    scopes: frozenset[str] = field(default_factory=frozenset)


class ByPerson(HttpBearer):
    """A person's API token; it may do what the person may, and never decide an approval. Raises
    `rates.TooFast`, as below.
    """

    def authenticate(self, request: HttpRequest, token: str) -> Caller | None:
        found = person_of(token)
        if found is None:
            return None
        rates.take(found.workspace, "", found.prefix)
        return Caller(found.workspace, person=found.person)


class TokenOwner(Protocol):
    """What `ByPerson` found: the owner of the token, and the workspace that it is for."""

    workspace: Workspace
    person: User


class AsPerson(HttpRequest):
    auth: TokenOwner
    shows_a_call: bool


class ByAgent(HttpBearer):
    """An agent's key with one scope; raises LacksScope for one that is without."""

    def __init__(self, scope: str) -> None:
        super().__init__()
        self.scope = scope

    def authenticate(self, request: HttpRequest, token: str) -> Caller | None:
        found = agent_of(token, self.scope)
        if found is None:
            return None
        rates.take(found.workspace, found.agent.name, found.prefix)
        return Caller(found.workspace, agent=found.agent, scopes=frozenset(found.scopes))


def caller_of(request: HttpRequest) -> Caller:
    caller = getattr(request, "auth", None)
    assert isinstance(caller, Caller), "the route lacks its auth"  # noqa: S101
    return caller


def reader_of(request: HttpRequest) -> Caller:
    """The caller: an agent, or a person who may look; raises NotAllowed for another person."""
    caller = caller_of(request)
    if caller.person is not None:
        access.require(caller.person, "view", caller.workspace)
    return caller
