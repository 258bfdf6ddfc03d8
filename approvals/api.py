"""The HTTP API of named lists and of bounded grants: what their pages do, with a person's token."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from ninja import Field, Router, Schema

from approvals import grants, inbox, named_lists
from approvals.models import Approval, ListEntry, NamedList, SubjectKind
from approvals.policy.named_lists import key_of, normal
from ledger import desk_events
from workspaces import access
from workspaces.free_text import REASON_CHARACTERS_MAX, InvalidInput
from workspaces.keys import AsPerson, ByPerson
from workspaces.moves import CannotMove
from workspaces.pages import is_number, problem_response

LIMIT_MAX = 1_000
Row = TypeVar("Row", Approval, ListEntry)


class ListEntryIn(Schema):
    value: str = Field(min_length=1, max_length=300)
    label: str = Field(default="", max_length=200)


class ListChangeIn(Schema):
    """`add` are put on, `remove` taken off, by their values; `version` is the one that was seen."""

    add: list[ListEntryIn] = Field(default_factory=list, max_length=named_lists.AT_ONCE_MAX)
    remove: list[str] = Field(default_factory=list, max_length=named_lists.AT_ONCE_MAX)
    note: str = Field(default="", max_length=400)
    version: int | None = None


router = Router(auth=ByPerson(), tags=["lists"])


@router.get("/lists", summary="The named lists, each with its version")
def lists(request: AsPerson) -> Any:
    access.require(request.auth.person, "view", request.auth.workspace)
    rows = NamedList.objects.filter(workspace=request.auth.workspace).order_by("name")
    return {"lists": [named_lists.as_json(one) for one in rows]}


@router.get("/lists/{name}", summary="What stands on a list, newest first, a page at a time")
def entries(request: AsPerson, name: str, q: str = "", after: str = "", limit: int = 100) -> Any:
    access.require(request.auth.person, "edit_lists", request.auth.workspace)
    kept = _list(request, name)
    rows = named_lists.search(kept, q, desk_events.masking_key(request.auth.workspace))
    found, more = _page(rows, after, limit)
    told = [{"value": one.shown, "label": one.label, "since": one.since} for one in found]
    return named_lists.as_json(kept) | {"items": told, "after": more}


@router.post("/lists/{name}", summary="Put entries on a list and take others off, as one version")
def change(request: AsPerson, name: str, body: ListChangeIn) -> Any:
    access.require(request.auth.person, "edit_lists", request.auth.workspace)
    kept = _list(request, name)
    key = desk_events.masking_key(request.auth.workspace)
    forms = [normal(kept.kind, one) for one in body.remove]
    try:
        named_lists.change(
            kept,
            by=request.auth.person,
            add=[named_lists.NewEntry(one.value, one.label) for one in body.add],
            remove=[key_of(kept.kind, one, key) for one in forms if one],
            note=body.note,
            seen=body.version,
        )
    except named_lists.Stale as stale:
        return problem_response(409, "Out of date", str(stale))
    except InvalidInput as wrong:
        return problem_response(422, "Not possible", str(wrong))
    kept.refresh_from_db()
    return named_lists.as_json(kept)


class RevokeIn(Schema):
    reason: str = Field(default="", max_length=REASON_CHARACTERS_MAX)


@router.get("/grants", tags=["grants"], summary="Bounded grants, newest first, a page at a time")
def bounded(request: AsPerson, after: str = "", limit: int = 100) -> Any:
    access.require(request.auth.person, "view", request.auth.workspace)
    found, more = _page(_grants(request).order_by("-pk"), after, limit)
    return {"grants": [_grant(one) for one in found], "after": more}


@router.post("/grants/{pk}/revoke", tags=["grants"], summary="End a bounded grant at once")
def revoke(request: AsPerson, pk: int, body: RevokeIn) -> Any:
    access.require(request.auth.person, "view", request.auth.workspace)
    grant = get_object_or_404(_grants(request), pk=pk)
    try:
        return _grant(inbox.withdraw(grant, by=request.auth.person, reason=body.reason))
    except CannotMove as refusal:
        return problem_response(409, "Nothing was revoked", str(refusal))
    except InvalidInput as wrong:
        return problem_response(422, "Not possible", str(wrong))


def _page(rows: QuerySet[Row], after: str, limit: int) -> tuple[list[Row], str]:
    """Those behind the number `after`, newest first, and what is asked for the next page."""
    rows = rows.filter(pk__lt=int(after)) if is_number(after) else rows
    size = min(max(1, limit), LIMIT_MAX)
    found = list(rows[: size + 1])
    return found[:size], str(found[size - 1].pk) if len(found) > size else ""


def _grants(request: AsPerson) -> QuerySet[Approval]:
    rows = Approval.objects.filter(workspace=request.auth.workspace, subject_kind=SubjectKind.GRANT)
    return rows.select_related("workspace", "agent")


def _grant(one: Approval) -> dict[str, Any]:
    """What the page of grants shows of it to everybody."""
    return {
        "id": str(one.pk),
        "title": one.headline,
        "agent": str(one.agent or ""),
        "state": one.state,
        "used": grants.drawn_words(one),
        "expires_at": one.expires_at,
    }


def _list(request: AsPerson, name: str) -> NamedList:
    return get_object_or_404(NamedList, workspace=request.auth.workspace, name=name)
