"""SCIM 2.0 (RFC 7643, RFC 7644): by which a company's directory says who works here.

`scim2-server` reads requests, applies PATCH and PUT, and writes answers and errors; here is where
it reads and writes. What is said of people is kept as far as it is of use: name, addresses, ids.
Everything else of the schema is let pass unread, and never kept.
"""

import json
import logging
import re
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from http import HTTPStatus
from typing import Annotated, Any, cast
from urllib.parse import parse_qsl

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from pydantic import Field
from scim2_models import (
    URN,
    AuthenticationScheme,
    Bulk,
    ChangePassword,
    ComplexAttribute,
    Error,
    ETag,
    External,
    Filter,
    InvalidValueException,
    Meta,
    Mutability,
    NotFoundException,
    Patch,
    PreconditionFailedException,
    Reference,
    Required,
    Resource,
    ResourceType,
    SCIMException,
    ScimPolicy,
    ScimProvider,
    SearchRequest,
    ServiceProviderConfig,
    Sort,
    UnauthorizedException,
    Uniqueness,
    UniquenessException,
)
from scim2_models.resources.user import Email, Name
from scim2_server.handler import ScimHandler
from scim2_server.memory import InMemoryStorage
from scim2_server.requests import ScimRequest
from scim2_server.responses import ScimResponse
from scim2_server.service import ScimService
from scim2_server.storage import ScimStorage, SearchPage

from workspaces import directory, keys, locks, rates
from workspaces.models import DirectoryGroup, DirectoryPerson, DirectoryToken, Workspace

logger = logging.getLogger(__name__)

RESULTS_MAX = 200
LOCK = 7643
"""Of advisory locks: what one directory says is written one after the other."""
ADDRESS = re.compile(r"[^@\s]+@[^@\s]+")
ONE = re.compile(r'\s*(userName|externalId|displayName)\s+eq\s+"([^"\\]*)"\s*', re.IGNORECASE)
"""What directories ask before each write; the rows are found without reading the others."""


class GroupOfUser(ComplexAttribute):
    value: Annotated[str | None, Mutability.read_only] = None
    ref: Annotated[Reference["Group"] | None, Mutability.read_only] = Field(
        None, serialization_alias="$ref", validation_alias="$ref"
    )
    display: Annotated[str | None, Mutability.read_only] = None


class User(Resource[Any]):
    """A person, as far as the desk keeps what a directory says."""

    __schema__ = URN("urn:ietf:params:scim:schemas:core:2.0:User")

    user_name: Annotated[str | None, Uniqueness.server, Required.true] = None
    name: Name | None = None
    display_name: str | None = None
    emails: list[Email] | None = None
    active: bool | None = None
    groups: Annotated[list[GroupOfUser] | None, Mutability.read_only] = None


class Member(ComplexAttribute):
    value: Annotated[str | None, Mutability.immutable, Required.true] = None
    ref: Annotated[Reference["User"] | None, Mutability.immutable] = Field(
        None, serialization_alias="$ref", validation_alias="$ref"
    )


class Group(Resource[Any]):
    """A team of the workspace that is the directory's."""

    __schema__ = URN("urn:ietf:params:scim:schemas:core:2.0:Group")

    display_name: Annotated[str | None, Required.true, Uniqueness.server] = None
    members: list[Member] | None = None


@cache
def service() -> ScimService:
    config = ServiceProviderConfig(
        documentation_uri=Reference[External]("https://www.rfc-editor.org/rfc/rfc7644"),
        patch=Patch(supported=True),
        bulk=Bulk(supported=False, max_operations=0, max_payload_size=0),
        filter=Filter(supported=True, max_results=RESULTS_MAX),
        change_password=ChangePassword(supported=False),
        sort=Sort(supported=True),
        etag=ETag(supported=True),
        authentication_schemes=[
            AuthenticationScheme(
                type=AuthenticationScheme.Type.oauthbearertoken,
                name="Bearer token",
                description="A token of the workspace, made on its page “Directory”",
                primary=True,
            )
        ],
    )
    tolerant = ScimPolicy(unknown=ScimPolicy.Unknown.ignore)
    return ScimService(ScimProvider(models=[User, Group], config=config, policy=tolerant))


class Storage(ScimStorage):
    """The people and groups of one workspace's directory."""

    def __init__(self, workspace: Workspace, token: DirectoryToken) -> None:
        self.workspace = workspace
        self.token = token

    @contextmanager
    def operation(self) -> Generator[None]:
        with transaction.atomic():
            locks.advisory(LOCK, self.workspace.pk)
            try:
                with transaction.atomic():
                    yield
            except directory.NameTaken as taken:
                raise UniquenessException(detail=str(taken)) from taken
            except directory.DirectoryFull as many:
                raise InvalidValueException(detail=str(many)) from many

    def get(
        self, resource_type: ResourceType, resource_id: str, **_projection: Any
    ) -> Resource[Any]:
        return self._shown(resource_type, [self._row(resource_type, resource_id)])[0]

    def search(
        self,
        resource_types: list[ResourceType],
        search_request: SearchRequest[Any],
        *,
        position: Any = None,
    ) -> SearchPage:
        one = ONE.fullmatch(str(search_request.filter or ""))
        memory = InMemoryStorage()
        memory.resources = [
            resource
            for kind in resource_types
            for resource in self._shown(kind, self._rows(kind, one))
        ]
        return memory.search(resource_types, search_request, position=position)

    def create(self, resource_type: ResourceType, resource: Resource[Any]) -> Resource[Any]:
        if isinstance(resource, User):
            if directory.people_of(self.workspace).count() >= directory.PEOPLE_MAX:
                raise directory.DirectoryFull(f"more than {directory.PEOPLE_MAX} people")
            person = DirectoryPerson(workspace=self.workspace)
            self._write_person(person, resource)
            return self.get(resource_type, person.scim_id)
        group = cast(Group, resource)
        name = self._name_of(group)
        row = directory.new_group(self.workspace, name, by=self.token)
        self._write_group(row, group)
        return self.get(resource_type, row.scim_id)

    def update(
        self,
        resource_type: ResourceType,
        resource: Resource[Any],
        *,
        expected_version: str | None = None,
    ) -> Resource[Any]:
        row = self._row(resource_type, str(resource.id), expected_version)
        if isinstance(row, DirectoryPerson):
            self._write_person(row, cast(User, resource))
        else:
            name = self._name_of(cast(Group, resource))
            if name != row.name:
                directory.rename(row, name)
            self._write_group(row, cast(Group, resource))
        return self.get(resource_type, str(resource.id))

    def delete(
        self,
        resource_type: ResourceType,
        resource_id: str,
        *,
        expected_version: str | None = None,
    ) -> None:
        row = self._row(resource_type, resource_id, expected_version)
        if isinstance(row, DirectoryPerson):
            directory.forget(row)
        else:
            directory.drop_group(row)

    # Rows.

    def _row(
        self, kind: ResourceType, scim_id: str, expected_version: str | None = None
    ) -> DirectoryPerson | DirectoryGroup:
        rows: Any = self._all(kind).filter(scim_id=scim_id)
        row: DirectoryPerson | DirectoryGroup | None = rows.first()
        if row is None:
            raise NotFoundException(detail=f"{kind.name} {scim_id!r} not found")
        if expected_version is not None and expected_version != _version(row):
            raise PreconditionFailedException
        return row

    def _all(self, kind: ResourceType) -> Any:
        if kind.name == "User":
            return directory.people_of(self.workspace).order_by("pk")
        groups = DirectoryGroup.objects.filter(workspace=self.workspace, gone_at=None)
        return groups.select_related("team").order_by("pk")

    def _rows(self, kind: ResourceType, one: re.Match[str] | None) -> list[Any]:
        rows = self._all(kind)
        if one is None:
            return list(rows)
        name, value = one[1].lower(), one[2]
        if name == "externalid":
            return list(rows.filter(external_id=value))
        if name == "username" and kind.name == "User":
            return list(rows.filter(user_name__iexact=value))
        if name == "displayname" and kind.name == "Group":
            return [row for row in rows if row.name.casefold() == value.casefold()]
        return list(rows)

    def _shown(self, kind: ResourceType, rows: list[Any]) -> list[Resource[Any]]:
        if kind.name == "User":
            shown = {row.pk for row in rows}
            groups_of: dict[int, list[DirectoryGroup]] = {pk: [] for pk in shown}
            for group in directory.groups_of(self.workspace):
                for pk in shown.intersection(group.members):
                    groups_of[pk].append(group)
            return [_user(row, groups_of[row.pk]) for row in rows]
        named = {pk for row in rows for pk in row.members}
        people = DirectoryPerson.objects.in_bulk(named)
        return [_group(row, people) for row in rows]

    def _write_person(self, row: DirectoryPerson, said: User) -> None:
        if not said.user_name:
            raise InvalidValueException(detail="userName is missing")
        row.user_name = said.user_name[:254]
        row.external_id = (said.external_id or "")[:254]
        row.active = said.active is not False
        kept = said.model_dump(include={"name", "display_name", "emails"}, mode="json")
        row.document = {name: kept.get(name) for name in ("name", "displayName", "emails")}
        row.document["active"] = said.active  # that nothing was said of it is kept, too
        if len(json.dumps(row.document)) > DOCUMENT_CHARACTERS_MAX:
            raise InvalidValueException(detail="names and addresses are too long")
        row.version = F("version") + 1 if row.pk else 1
        row.changed_at = Now()
        try:
            with transaction.atomic():
                row.save()
        except IntegrityError as wrong:
            raise UniquenessException(detail="this userName is taken") from wrong
        row.refresh_from_db()
        directory.settle(row, address=_address(said), name=_called(said), by=self.token)

    def _write_group(self, row: DirectoryGroup, said: Group) -> None:
        wanted = {one.value for one in said.members or [] if one.value}
        people = directory.people_of(self.workspace).filter(scim_id__in=wanted)
        found = {one.scim_id: one for one in people.select_related("person", "workspace")}
        if unknown := wanted - set(found):
            raise InvalidValueException(detail=f"no such member: {min(unknown)}")
        before = set(row.members)
        row.members = sorted(one.pk for one in found.values())
        row.external_id = (said.external_id or "")[:254]
        row.version, row.changed_at = F("version") + 1, Now()
        row.save()
        changed = before ^ set(row.members)
        moved = DirectoryPerson.objects.filter(pk__in=changed)
        for one in moved.select_related("person", "workspace").order_by("pk"):
            directory.settle(one, address="", name="", by=self.token)

    @staticmethod
    def _name_of(said: Group) -> str:
        name = " ".join((said.display_name or "").split())
        if not name or len(name) > TEAM_CHARACTERS_MAX:
            raise InvalidValueException(
                detail=f"displayName has 1 to {TEAM_CHARACTERS_MAX} characters"
            )
        return name


DOCUMENT_CHARACTERS_MAX = 8_000
TEAM_CHARACTERS_MAX = 80


def _address(said: User) -> str:
    """The name by which they log in, where it is an address, else the one that is said first."""
    if ADDRESS.fullmatch(said.user_name or ""):
        return str(said.user_name)
    emails = sorted(said.emails or [], key=lambda one: not one.primary)
    return next((str(one.value) for one in emails if one.value), "")


def _called(said: User) -> str:
    name = said.name
    parts = [name.given_name, name.family_name] if name else []
    whole = (name.formatted if name else "") or " ".join(filter(None, parts))
    return " ".join((said.display_name or whole or "").split())


def _version(row: DirectoryPerson | DirectoryGroup) -> str:
    return f'W/"{row.version}"'


def _meta(row: DirectoryPerson | DirectoryGroup, kind: str) -> Meta:
    return Meta(
        resource_type=kind, created=row.created_at, last_modified=row.changed_at,
        version=_version(row),
    )  # fmt: skip


def _user(row: DirectoryPerson, mine: list[DirectoryGroup]) -> User:
    said = {name: value for name, value in row.document.items() if value is not None}
    found = User.model_validate(
        {"schemas": [str(User.__schema__)], "userName": row.user_name, **said}
    )
    found.id, found.external_id, found.meta = (
        row.scim_id,
        row.external_id or None,
        _meta(row, "User"),
    )
    found.groups = [
        GroupOfUser(
            value=one.scim_id,
            ref=Reference["Group"](f"Groups/{one.scim_id}"),
            display=one.name,
        )
        for one in mine
    ] or None
    return found


def _group(row: DirectoryGroup, people: dict[int, DirectoryPerson]) -> Group:
    members = [people[pk] for pk in row.members if pk in people]
    found = Group(
        display_name=row.name,
        members=[
            Member(value=one.scim_id, ref=Reference["User"](f"Users/{one.scim_id}"))
            for one in members
        ]
        or None,
    )
    found.id, found.external_id = row.scim_id, row.external_id or None
    found.meta = _meta(row, "Group")
    return found


# The endpoint.


def endpoint(request: HttpRequest, workspace: str, rest: str) -> HttpResponse:
    """Everything below `/scim/v2/<workspace>/`, by a token of that workspace."""
    try:
        answer = _answered(request, workspace, rest)
    except SCIMException as refusal:
        answer = service().error_response(refusal)
    except rates.TooFast as fast:
        headers = {"Retry-After": str(fast.seconds)}
        answer = ScimResponse(HTTPStatus.TOO_MANY_REQUESTS, _too_fast(fast), headers)
    except Exception as error:  # the protocol wants its own form of an error
        logger.exception("SCIM: %s %s", request.method, rest)
        answer = service().error_response(error)
    body = b"" if answer.body is None else json.dumps(answer.body).encode()
    response = HttpResponse(body, status=answer.status.value)
    for name, value in answer.headers.items():
        response[name] = value
    response["Cache-Control"] = "no-store"
    return response


def _too_fast(fast: rates.TooFast) -> dict[str, Any]:
    status = str(HTTPStatus.TOO_MANY_REQUESTS.value)
    return {"schemas": [str(Error.__schema__)], "status": status, "detail": str(fast)}


def _answered(request: HttpRequest, workspace: str, rest: str) -> ScimResponse:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    found = keys.directory_of(token) if kind.lower() == "bearer" else None
    if found is None or found.workspace.slug != workspace:
        raise UnauthorizedException(detail="This takes a living token of this workspace.")
    rates.take(found.workspace, "", found.prefix)
    base = f"{settings.AMENDS_URL}/scim/v2/{workspace}"
    asked = ScimRequest(
        method=request.method or "GET",
        base_url=base,
        path=f"/{rest}",
        query=dict(parse_qsl(request.META.get("QUERY_STRING", ""), keep_blank_values=True)),
        headers=dict(request.headers),
        body=request.body,
        subject=found,
    )
    return ScimHandler(service(), Storage(found.workspace, found)).handle(asked)
