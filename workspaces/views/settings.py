"""Settings of a workspace: its name and zone, members and teams, agents and keys."""

from datetime import timedelta

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from workspaces import acts, look
from workspaces.access import may, require
from workspaces.forms import (
    PersonForm,
    WorkspaceForm,
)
from workspaces.models import Workspace
from workspaces.pages import Request, page, workspace_or_404

LIST_MAX = 500
OWN = ("name", "single_keys", "mail_approvals")
"""What a person says of themselves, in every workspace."""


@login_required
@require_http_methods(["GET", "POST"])
def settings(request: Request, workspace: str) -> HttpResponse:
    """The workspace's own settings, and the person's."""
    here = workspace_or_404(request, workspace)
    form = WorkspaceForm(
        request.POST if "timezone" in request.POST else None,
        initial={"name": here.name, "timezone": here.timezone},
    )
    person = PersonForm(
        request.POST if "single_keys_known" in request.POST else None,
        initial={name: getattr(request.user, name) for name in OWN},
    )
    if person.is_valid():
        for name in OWN:
            setattr(request.user, name, person.cleaned_data[name])
        request.user.save(update_fields=OWN)
        messages.success(request, "Saved for you, in every workspace.")
        return redirect("workspaces:settings", workspace=here.slug)
    if form.is_valid():
        require(request.user, "administer", here)
        changed = {name: form.cleaned_data[name] for name in ("name", "timezone")}
        Workspace.objects.filter(pk=here.pk).update(**changed)
        acts.record(here, "workspace.changed", by=request.user, data=changed)
        messages.success(request, "Saved.")
        return redirect("workspaces:settings", workspace=here.slug)
    return page(
        request,
        "workspaces/settings.html",
        {
            "workspace": here,
            "form": form,
            "person_form": person,
            "stuck_after": look.span(timedelta(seconds=here.stuck_after_seconds)),
            "may_administer": may(request.user, "administer", here),
        },
        status=422 if form.errors or person.errors else 200,
    )
