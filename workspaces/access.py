"""Who may do what: grants on the workspace, to groups, one codename per question.

Guardian's own `has_perm` lets a superuser through everywhere; here superuser status never counts.
"""

from collections.abc import Mapping
from typing import Literal

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.db.models import QuerySet

from workspaces.models import Team, User, Workspace
from workspaces.request_cache import cached

Codename = Literal["view", "view_sensitive", "recover", "approve", "administer", "edit_lists"]

# Guardian's own look-up asks for grants to single people, too, which nobody can give here, and
# building its query took longer than answering it.
HELD = """
FROM workspaces_workspacegrouppermission held
JOIN auth_permission allowed ON allowed.id = held.permission_id
JOIN django_content_type kind
    ON kind.id = allowed.content_type_id AND kind.app_label = 'workspaces'
JOIN workspaces_user_groups stands ON stands.group_id = held.group_id
JOIN workspaces_user person ON person.id = stands.user_id AND person.is_active
WHERE person.id = %s"""
GRANTED = f"SELECT held.content_object_id {HELD} AND allowed.codename = %s"
RIGHTS = f"""
SELECT held.content_object_id, array_agg(allowed.codename::text) {HELD}
GROUP BY held.content_object_id"""

Rights = Mapping[int, frozenset[str]]
"""Of a person: the codenames by workspace, as one statement saw them."""


class NotAllowed(PermissionDenied):
    """We stopped because the person's teams do not grant this; `codename` says what is missing."""

    def __init__(self, codename: str, workspace: Workspace) -> None:
        super().__init__(f"this needs the permission “{codename}” in {workspace.name}")
        self.codename = codename
        self.workspace = workspace


def workspaces_of(user: User | AnonymousUser) -> QuerySet[Workspace]:
    """The workspaces that an active person may view through a team."""
    return Workspace.objects.filter(pk__in=workspace_ids_of(user))


def workspace_ids_of(user: User | AnonymousUser) -> list[int]:
    if not user.is_authenticated or not user.is_active:
        return []
    return [pk for pk, held in _rights(user).items() if "view" in held]


def may(user: User | AnonymousUser, codename: Codename, workspace: Workspace) -> bool:
    if not user.is_authenticated or not user.is_active:
        return False
    return codename in _rights(user).get(workspace.pk, ())


def _rights(user: User) -> Rights:
    """As they are now; a page that only reads asks once."""
    return cached(("rights", user.pk), lambda: _held(user.pk))


def _held(person: int) -> Rights:
    with connection.cursor() as cursor:
        cursor.execute(RIGHTS, (person,))
        return {pk: frozenset(codenames) for pk, codenames in cursor.fetchall()}


def require(user: User | AnonymousUser, codename: Codename, workspace: Workspace) -> None:
    """Raise `NotAllowed` (403) unless the person holds `codename` in the workspace."""
    if not may(user, codename, workspace):
        raise NotAllowed(codename, workspace)


def people_with(codename: Codename, workspace: Workspace) -> QuerySet[User]:
    """The active people who hold `codename` in the workspace, each once."""
    return User.objects.filter(
        is_active=True,
        groups__workspacegrouppermission__content_object=workspace,
        groups__workspacegrouppermission__permission__codename=codename,
        groups__workspacegrouppermission__permission__content_type__app_label="workspaces",
    ).distinct()


def colleagues(person: User) -> QuerySet[User]:
    """The other active people of the workspaces that the person may view, each once."""
    return User.objects.filter(
        is_active=True,
        groups__workspacegrouppermission__content_object__in=workspaces_of(person),
        groups__workspacegrouppermission__permission__codename="view",
        groups__workspacegrouppermission__permission__content_type__app_label="workspaces",
    ).exclude(pk=person.pk).distinct()  # fmt: skip


def teams_with(codename: Codename, workspace: Workspace) -> QuerySet[Team]:
    """The teams whose role holds `codename` in their workspace."""
    return Team.objects.filter(
        workspace=workspace,
        group__workspacegrouppermission__content_object=workspace,
        group__workspacegrouppermission__permission__codename=codename,
        group__workspacegrouppermission__permission__content_type__app_label="workspaces",
    ).distinct()
