"""The HTTP API of named lists, bounded grants and pauses: what their pages do, with a person's
token. It takes permission away as they do; it gives none to a call about which people are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Annotated, Any, TypeVar

from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from ninja import Field, Router, Schema

from approvals import grants, inbox, named_lists, pauses, versions
from approvals.gate.policy_since import AnswersQuestions, answering_none
from approvals.models import Approval, ListChange, ListEntry, NamedList, Pause
from approvals.models.policy import PauseKind
from approvals.policy import Invalid, PolicyUnreadable
from ledger import desk_events, disclosure
from workspaces import access, locks
from workspaces.free_text import NOTE_CHARACTERS_MAX, REASON_CHARACTERS_MAX, InvalidInput
from workspaces.keys import AsPerson, ByPerson
from workspaces.models import User, Workspace
from workspaces.moves import CannotMove
from workspaces.pages import is_number, problem_response

LIMIT_MAX = 1_000
PAUSES_TOLD_MAX = 100
GRANTS_TOLD_MAX = 100
CHANGES_TOLD_MAX = 100
VALUES_TOLD_MAX = 50
USES_TOLD_MAX = 200
Row = TypeVar("Row", bound=Model)
F = TypeVar("F", bound=Callable[..., Any])
router = Router(auth=ByPerson())


def answering(operation: F) -> F:
    """Say what stopped us as a problem, with what the caller needs to try again."""

    @wraps(operation)
    def answered(*args: Any, **given: Any) -> Any:
        try:
            return operation(*args, **given)
        except PolicyUnreadable:
            raise  # of the one in force: told for the whole API
        except AnswersQuestions as decides:
            kind, numbers = "urn:amends:problem:answers-questions", decides.approvals
            title = "It would answer what people are asked"
            return problem_response(409, title, str(decides), type=kind, approvals=numbers)
        except versions.SavedMeanwhile as other:
            told = f"{other.version.author or 'A file'} saved version {other.version.number}."
            return problem_response(409, "Out of date", told, newest=other.version.number)
        except (named_lists.Stale, versions.InForceMeanwhile) as stale:
            return problem_response(409, "Out of date", str(stale))
        except Invalid as wrong:
            problems = [one.as_json() for one in wrong.problems]
            return problem_response(
                422, "This cannot be the policy", str(wrong)[:1000], problems=problems
            )
        except InvalidInput as wrong:
            return problem_response(422, "Not possible", str(wrong))

    return answered  # type: ignore[return-value]


@contextmanager
def in_turn(workspace: Workspace) -> Iterator[None]:
    """In one transaction, while nobody else changes policies and lists of the workspace: what is
    asked for twice at once finds the second time what the first has done.
    """
    with transaction.atomic():
        locks.locked(Workspace.objects.all()).get(pk=workspace.pk)
        yield


# Named lists.


class ListIn(Schema):
    """`kind` left out is that of the list of this name, or the policy's for it, else `text`."""

    name: str = Field(min_length=1, max_length=60)
    kind: str = Field(default="", max_length=6)


class ListEntryIn(Schema):
    value: str = Field(min_length=1, max_length=300)
    label: str = Field(default="", max_length=200)


class ListChangeIn(Schema):
    """`add` are put on, `remove` taken off, by their values or as the list shows them; `version` is
    the one that was seen.
    """

    add: list[ListEntryIn] = Field(default_factory=list, max_length=named_lists.AT_ONCE_MAX)
    remove: list[Annotated[str, Field(max_length=300)]] = Field(
        default_factory=list, max_length=named_lists.AT_ONCE_MAX
    )
    note: str = Field(default="", max_length=NOTE_CHARACTERS_MAX)
    version: int | None = None


class WholeListIn(Schema):
    """What stands on the list afterwards, and nothing else; `version` is the one that was seen."""

    entries: list[ListEntryIn] = Field(max_length=named_lists.AT_ONCE_MAX)
    note: str = Field(default="", max_length=NOTE_CHARACTERS_MAX)
    version: int | None = None


@router.get("/lists", tags=["lists"], summary="The named lists, each with its version")
def lists(request: AsPerson) -> Any:
    access.require(request.auth.person, "view", request.auth.workspace)
    rows = NamedList.objects.filter(workspace=request.auth.workspace).order_by("name")
    return {"lists": [named_lists.as_json(one) for one in rows]}


@router.post(
    "/lists", tags=["lists"], summary="Make a list; one that is there is answered as it is"
)
@answering
def make(request: AsPerson, body: ListIn) -> Any:
    here = request.auth.workspace
    access.require(request.auth.person, "edit_lists", here)
    kept = NamedList.objects.filter(workspace=here, name=body.name).first()
    known = kept or named_lists.policy_now(here).named_lists.get(body.name)
    kind = body.kind or (known.kind if known else "text")
    return named_lists.as_json(named_lists.create(here, body.name, kind))


@router.get(
    "/lists/{name}", tags=["lists"], summary="What stands on a list, newest first, a page at a time"
)
def entries(request: AsPerson, name: str, q: str = "", after: str = "", limit: int = 100) -> Any:
    token = request.auth
    access.require(token.person, "view", token.workspace)
    if not named_lists.reader_sees(token.person, token.workspace):
        raise access.NotAllowed("edit_lists", token.workspace)
    kept = get_object_or_404(NamedList, workspace=token.workspace, name=name)
    rows = named_lists.search(kept, q, desk_events.masking_key(token.workspace))
    found, more = page_of(rows, after, limit)
    return named_lists.as_json(kept) | {"items": [_entry(one) for one in found], "after": more}


@router.get(
    "/lists/{name}/history",
    tags=["lists"],
    summary="Who changed a list, when and why, newest first",
)
def history(request: AsPerson, name: str, after: str = "", limit: int = 50) -> Any:
    """Of each version up to 50 values that came and that went, for whoever is shown the list."""
    token = request.auth
    access.require(token.person, "view", token.workspace)
    kept = get_object_or_404(NamedList, workspace=token.workspace, name=name)
    rows = named_lists.history(kept).order_by("-pk")
    changes, more = page_of(rows, after, min(limit, CHANGES_TOLD_MAX))
    told = [_change(one) for one in changes]
    if named_lists.reader_sees(token.person, token.workspace):
        versions_shown = [one.version for one in changes]
        came, went = named_lists.of_versions(kept, versions_shown, VALUES_TOLD_MAX)
        told = [
            one
            | {"came": [_entry(entry) for entry in came.get(one["version"], ())]}
            | {"went": [_entry(entry) for entry in went.get(one["version"], ())]}
            for one in told
        ]
    return named_lists.as_json(kept) | {"changes": told, "after": more}


@router.post(
    "/lists/{name}", tags=["lists"], summary="Put entries on and take others off, as one version"
)
@answering
def change(request: AsPerson, name: str, body: ListChangeIn) -> Any:
    kept = _to_edit(request, name)
    remove = named_lists.keys_of(kept, body.remove)
    more: dict[str, Any] = {"note": body.note, "seen": body.version}
    return _edited(request, kept, named_lists.change, add=_new(body.add), remove=remove, **more)


@router.post(
    "/lists/{name}/replace", tags=["lists"], summary="Have exactly these entries, as one version"
)
@answering
def replace(request: AsPerson, name: str, body: WholeListIn) -> Any:
    kept = _to_edit(request, name)
    more: dict[str, Any] = {"note": body.note, "seen": body.version}
    return _edited(request, kept, named_lists.replace, entries=_new(body.entries), **more)


def _to_edit(request: AsPerson, name: str) -> NamedList:
    """The list of this name, which is made where only the policy has named it until now."""
    here = request.auth.workspace
    access.require(request.auth.person, "edit_lists", here)
    kept = NamedList.objects.filter(workspace=here, name=name).first()
    declared = None if kept else named_lists.policy_now(here).named_lists.get(name)
    if kept is None and declared is None:
        raise Http404(f"There is no list {name}.")
    return kept or named_lists.create(here, name, declared.kind if declared else "")


def _edited(
    request: AsPerson, kept: NamedList, act: Callable[..., ListChange | None], **what: Any
) -> Any:
    """The list after this act, which lets no call pass that waits for people."""
    here, by = request.auth.workspace, request.auth.person
    with in_turn(here):  # no rule begins to ask meanwhile
        asks = named_lists.rules_about(named_lists.policy_now(here), kept.name)
        with answering_none(here) if asks else nullcontext():
            act(kept, by=by, **what)
    kept.refresh_from_db()
    return named_lists.as_json(kept)


def _new(given: list[ListEntryIn]) -> list[named_lists.NewEntry]:
    return [named_lists.NewEntry(one.value, one.label) for one in given]


def _entry(one: ListEntry) -> dict[str, Any]:
    return {"value": one.shown, "label": one.label, "since": one.since}


def _change(one: ListChange) -> dict[str, Any]:
    return {
        "version": one.version, "digest": one.digest, "by": str(one.by or "the desk"),
        "at": one.at, "note": one.note, "added": one.added, "removed": one.removed,
    }  # fmt: skip


# Bounded grants. One is made with a yes on a card, so there is no way to ask for one here.


class RevokeIn(Schema):
    reason: str = Field(default="", max_length=REASON_CHARACTERS_MAX)


@router.get("/grants", tags=["grants"], summary="Bounded grants, newest first, a page at a time")
def bounded(request: AsPerson, after: str = "", limit: int = 100) -> Any:
    access.require(request.auth.person, "view", request.auth.workspace)
    found, more = page_of(_grants(request).order_by("-pk"), after, min(limit, GRANTS_TOLD_MAX))
    return {"grants": [_grant(one) for one in found], "after": more}


@router.get("/grants/{pk}", tags=["grants"], summary="A bounded grant, and what it has let pass")
def one_grant(request: AsPerson, pk: int) -> Any:
    """`terms` are for whoever decides, recovers or holds `view_sensitive`; so are the amounts of
    `uses`, of which the newest 200 stand here.
    """
    token = request.auth
    access.require(token.person, "view", token.workspace)
    grant = get_object_or_404(_grants(request), pk=pk)
    sees = disclosure.sees(token.person, token.workspace, deciding=True)
    terms = grant.calls[0]["more"]["bounded"] if grant.calls else {}  # none once it is erased
    uses = grants.drawn(grant).order_by("-pk")[:USES_TOLD_MAX]
    return _grant(grant) | {
        "terms": dict(grant.previews[0]["rows"]) if sees and grant.previews else None,
        "uses": [
            {
                "run": one.run_ref,
                "action": one.action,
                "amount": grants.amount(terms, one.amount) if sees and one.amount else None,
                "at": one.at,
            }
            for one in uses
        ],
    }


@router.post("/grants/{pk}/revoke", tags=["grants"], summary="End a bounded grant at once")
@answering
def revoke(request: AsPerson, pk: int, body: RevokeIn) -> Any:
    access.require(request.auth.person, "view", request.auth.workspace)
    grant = get_object_or_404(_grants(request), pk=pk)
    try:
        return _grant(inbox.withdraw(grant, by=request.auth.person, reason=body.reason))
    except CannotMove as refusal:
        return problem_response(409, "Nothing was revoked", str(refusal))


def _grants(request: AsPerson) -> QuerySet[Approval]:
    return grants.bounded_in(request.auth.workspace).select_related("workspace", "agent")


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


# Pauses.


class PauseIn(Schema):
    """`name` is an agent's, a connection's, a tool's (a glob) or a run's; of a workspace none."""

    kind: PauseKind
    name: str = Field(default="", max_length=200)
    reason: str = Field(min_length=1, max_length=NOTE_CHARACTERS_MAX)


@router.get("/pauses", tags=["pauses"], summary="What is stopped, by whom and why, newest first")
def standing(request: AsPerson, after: str = "", limit: int = 100) -> Any:
    access.require(request.auth.person, "view", request.auth.workspace)
    rows = Pause.objects.standing().filter(workspace=request.auth.workspace)
    rows = rows.select_related("paused_by").order_by("-pk")
    found, more = page_of(rows, after, min(limit, PAUSES_TOLD_MAX))
    return {"pauses": _pauses(found), "after": more}


@router.post("/pauses", tags=["pauses"], summary="Stop a workspace, an agent, a tool or a run")
@answering
def pause(request: AsPerson, body: PauseIn) -> Any:
    """By whoever recovers or administers. 409 where it is stopped already; `warning` says where
    nothing here has this name.
    """
    here, by = _pausing(request)
    try:
        made = pauses.pause(here, body.kind, body.name.strip(), by=by, reason=body.reason)
    except InvalidInput:
        raise
    except ValueError as wrong:
        return problem_response(422, "Not possible", str(wrong))
    return _pauses([made])[0] | {"warning": pauses.unknown(made)}


@router.post("/pauses/{pk}/lift", tags=["pauses"], summary="Let it go on")
@answering
def lift(request: AsPerson, pk: int) -> Any:
    """By whoever recovers or administers. A pause of the desk itself is lifted on its page alone:
    that is the word of an administrator who has looked.
    """
    here, by = _pausing(request)
    one = get_object_or_404(Pause.objects.select_related("paused_by"), workspace=here, pk=pk)
    if one.paused_by_id is None:
        told = "The desk itself stopped this: an administrator looks, and lifts it on the page."
        return problem_response(409, "Somebody has to look", told)
    pauses.lift(one, by=by)
    return {"id": one.pk, "lifted": True}


def _pausing(request: AsPerson) -> tuple[Workspace, User]:
    """Where, and who stops it or lets it go on. Raises NotAllowed."""
    here, by = request.auth.workspace, request.auth.person
    if not access.may(by, "administer", here):
        access.require(by, "recover", here)
    return here, by


def _pauses(found: list[Pause]) -> list[dict[str, Any]]:
    return [
        {
            "id": one.pk,
            "kind": one.kind,
            "name": one.name,
            "reason": one.reason,
            "by": pauses.placed_by(one),
            "since": one.paused_at,
            "holds_runs": held.runs,
            "or_more": held.or_more,
        }
        for one, held in zip(found, pauses.held_runs(found), strict=True)
    ]


def page_of(rows: QuerySet[Row], after: str, limit: int) -> tuple[list[Row], str]:
    """Those behind the number `after`, newest first, and what is asked for the next page."""
    rows = rows.filter(pk__lt=int(after)) if is_number(after) else rows
    size = min(max(1, limit), LIMIT_MAX)
    found = list(rows[: size + 1])
    return found[:size], str(found[size - 1].pk) if len(found) > size else ""
