"""Who may do what: grants on the workspace, to groups, one codename per question.

Guardian's own `has_perm` lets a superuser through everywhere; here superuser status never counts.
"""

from typing import Literal

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from guardian.shortcuts import get_objects_for_user

from workspaces.models import User, Workspace

Codename = Literal["view", "view_sensitive", "recover", "approve", "administer"]


class NotAllowed(PermissionDenied):
    """We stopped because the person's teams do not grant this; `codename` says what is missing."""

    def __init__(self, codename: str, workspace: Workspace) -> None:
        super().__init__(f"this needs the permission “{codename}” in {workspace.name}")
        self.codename = codename
        self.workspace = workspace


def workspaces_of(user: User | AnonymousUser, codename: Codename = "view") -> QuerySet[Workspace]:
    """The workspaces in which an active person holds `codename` through a team."""
    if not user.is_authenticated or not user.is_active:
        return Workspace.objects.none()
    found: QuerySet[Workspace] = get_objects_for_user(
        user,
        f"workspaces.{codename}",
        klass=Workspace,
        use_groups=True,
        with_superuser=False,
        accept_global_perms=False,
    )
    return found


def may(user: User | AnonymousUser, codename: Codename, workspace: Workspace) -> bool:
    return workspaces_of(user, codename).filter(pk=workspace.pk).exists()


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
