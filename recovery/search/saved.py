"""Saved views: a query with a name, kept on the server, for its owner or for everybody."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.text import slugify

from recovery.models import SavedView
from recovery.search.keys import parse
from recovery.search.lists import matching
from workspaces import row_locks
from workspaces.access import may, require
from workspaces.models import User, Workspace

VIEWS_MAX = 50
"""Of one person in one workspace; whoever needs more has a query language."""

NAME_CHARACTERS_MAX = 80
SLUG_CHARACTERS_MAX = 50
SHOWN_MAX = 200


class CannotSave(ValueError):
    """We stopped because the view has no name, or its owner has too many; the message says it."""


def visible_to(workspace: Workspace, person: User) -> QuerySet[SavedView]:
    """The person's own views and those that others share, by name."""
    views = SavedView.objects.filter(Q(shared=True) | Q(owner=person), workspace=workspace)
    return views.select_related("owner").order_by("name", "pk")


@transaction.atomic
def save(workspace: Workspace, *, by: User, name: str, query: str, shared: bool) -> SavedView:
    """Keep a query under a name; raises CannotSave, QueryError, or NotAllowed where it is shared.

    A name that its owner has already is the same view with another query.
    """
    name = " ".join(name.split())[:NAME_CHARACTERS_MAX]
    if not name:
        raise CannotSave("A view needs a name.")
    matching(workspace, parse(query), by=by)
    if shared:
        require(by, "recover", workspace)
    row_locks.locked(Workspace.objects.all()).get(pk=workspace.pk)  # one slug at a time
    own = SavedView.objects.filter(workspace=workspace, owner=by)
    view = own.filter(name=name).first()
    if view is None:
        if own.count() >= VIEWS_MAX:
            raise CannotSave(f"You have {VIEWS_MAX} views already. Remove one first.")
        view = SavedView(workspace=workspace, owner=by, name=name, slug=_slug(workspace, name))
    view.query, view.shared = query.strip(), shared
    view.save()
    return view


def may_remove(view: SavedView, person: User) -> bool:
    """Its owner, and of a shared one whoever administers the workspace."""
    return view.owner_id == person.pk or (view.shared and may(person, "administer", view.workspace))


def _slug(workspace: Workspace, name: str) -> str:
    """The name for an address, with a number where another view has it."""
    base = slugify(name)[:SLUG_CHARACTERS_MAX] or "view"
    taken = set(
        SavedView.objects.filter(workspace=workspace, slug__startswith=base).values_list(
            "slug", flat=True
        )
    )
    numbered = (f"{base}-{number}" for number in range(2, len(taken) + 3))
    return next(one for one in (base, *numbered) if one not in taken)
