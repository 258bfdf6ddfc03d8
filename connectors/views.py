"""The connections' pages: health, settings, credentials that can only be written, and try-it."""

from collections.abc import Iterator
from typing import Any, cast

import msgspec
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.html import format_html
from django.views.decorators.http import require_GET, require_POST

from connectors import calls, connections, registry
from connectors.contract import CannotRead, Purpose, Refused, Target
from connectors.forms import (
    CredentialForm,
    NewConnectionForm,
    RehearseForm,
    SettingsForm,
    TryForm,
)
from connectors.models import CallLog, Connection
from ledger import disclosure
from workspaces import formatting
from workspaces.access import may, require
from workspaces.models import Secret, Workspace
from workspaces.pages import Request, page, workspace_or_404, workspace_to

# What the connections' pages show of a connection, an operation and a call.

# What a second try does, and whether a lost answer can be found, as shapes.Operation has them.
TWICE = {
    "native_key": "sent twice it is done once: the system remembers our key",
    "natural_key": "sent twice it is done once: the second changes nothing more",
    "conditional": "sent twice it is done once: it is done only to the state that was seen",
    "marker": "sent twice it is done once: a mark is left and looked for",
    "none": "sent twice it may be done twice, so it is sent once",
}
LOST = {
    "strong": "a lost answer is found at once",
    "eventual": "a lost answer is found after a while",
    "none": "a lost answer is left to a person",
}


def row_of(one: Connection) -> dict[str, Any]:
    state = "paused" if one.is_disabled else "failed" if one.is_failing else "active"
    health = one.last_error if one.is_failing else "answers" if one.last_ok_at else "not called yet"
    last = max(filter(None, (one.last_ok_at, one.last_error_at)), default=None)
    return {
        "name": one.name,
        "url": f"/w/{one.workspace.slug}/connectors/{one.name}/",
        "connector": one.connector,
        "version": calls.connector_version(one),
        "account": f"revision {one.revision} · settings {formatting.digest(one.settings_digest)}",
        "state": state,
        "health": "disabled: nothing is called over it" if one.is_disabled else health,
        "last": formatting.moment(last) if last else None,
        "observe": _secret(one.observe_secret),
        "compensate": _secret(one.compensate_secret),
    }


def _secret(secret: Secret | None) -> Any:
    if secret is None:
        return "missing"
    return format_html("set {}", formatting.moment(secret.rotated_at or secret.created_at))


def told(operation: Any) -> dict[str, Any]:
    return {
        "name": operation.name,
        "words": f"{operation.title}; at most {operation.limit_seconds:g} s a call",
        "reversibility": operation.reversibility,
        "twice": TWICE.get(operation.idempotency, operation.idempotency),
        "lost": LOST.get(operation.probe, operation.probe),
    }


def takes(name: str) -> dict[str, str]:
    """The names that a connector's settings have, those that may be missing in brackets."""
    connector = registry.get(name)
    fields = msgspec.structs.fields(connector.settings_schema)
    names = [one.encode_name if one.required else f"[{one.encode_name}]" for one in fields]
    return {"name": connector.title, "value": ", ".join(names) or "nothing"}


def line_of(call: CallLog) -> dict[str, Any]:
    words = f"{call.method} {call.operation} on {call.target}, {call.milliseconds} ms"
    return {
        "words": f"{words}: {call.detail}" if call.detail else words,
        "state": str(call.outcome),
        "time": formatting.moment(call.at),
    }


CALLS_SHOWN_MAX = 30
FIELDS_SHOWN_MAX = 60


@login_required
@require_GET
def connection_list(request: Request, workspace: str) -> HttpResponse:
    return _list(request, workspace_or_404(request, workspace), None)


def _list(request: Request, here: Workspace, form: NewConnectionForm | None) -> HttpResponse:
    administers = may(request.user, "administer", here)
    context = {
        "workspace": here,
        "tab": "connectors",
        "title": "Connectors",
        "lead": "The outside systems that compensations reach, and how they are doing.",
        "connections": [row_of(one) for one in Connection.objects.in_workspace(here)],
        "new": {
            "form": form or NewConnectionForm(),
            "url": f"/w/{here.slug}/connectors/new/",
            "takes": [takes(name) for name in registry.names()],
        }
        if administers
        else None,
    }
    wrong = form is not None and form.errors
    return page(request, "workspaces/connections.html", context, status=422 if wrong else 200)


@login_required
@require_POST
def make(request: Request, workspace: str) -> HttpResponse:
    here = workspace_to("administer", request, workspace)
    form = NewConnectionForm(request.POST)
    if not form.is_valid():
        return _list(request, here, form)
    said = form.cleaned_data
    try:
        made = connections.create(
            here, said["name"], said["connector"], said["settings"], by=request.user
        )
    except connections.BadSettings as wrong:
        form.add_error("settings", str(wrong))
        return _list(request, here, form)
    messages.success(request, "The connection is made. It needs its credentials next.")
    return redirect("connectors:connection", workspace=here.slug, name=made.name)


def _found(request: Request, workspace: str, name: str) -> Connection:
    here = workspace_or_404(request, workspace)
    return get_object_or_404(
        Connection.objects.select_related("workspace", "observe_secret", "compensate_secret"),
        workspace=here,
        name=name,
    )


@login_required
@require_GET
def connection(request: Request, workspace: str, name: str) -> HttpResponse:
    return _one(request, _found(request, workspace, name))


def _one(
    request: Request,
    one: Connection,
    *,
    settings: SettingsForm | None = None,
    attempt: TryForm | None = None,
    result: list[dict[str, Any]] | None = None,
    rehearsal_form: RehearseForm | None = None,
    beats: list[connections.Beat] | None = None,
) -> HttpResponse:
    here, row = one.workspace, row_of(one)
    operations = calls.operations_of(one)
    trial = attempt or TryForm(operations=list(operations))
    context = {
        "workspace": here,
        "tab": "connectors",
        "title": one.name,
        "lead": registry.get(one.connector).title,
        "connection": row,
        "facts": [
            {"name": "Connector", "value": row["version"]},
            {"name": "Health", "value": row["health"]},
            {"name": "Digest of settings", "value": one.settings_digest, "mono": True},
            *(
                {"name": f"Credential to {purpose}", "value": "set" if secret else "missing"}
                for purpose, secret in _secrets(one)
            ),
        ],
        "operations": [told(operation) for operation in operations.values()],
        "calls": [
            line_of(call)
            for call in CallLog.objects.filter(connection=one).order_by("-id")[:CALLS_SHOWN_MAX]
        ],
        "switch": {"url": f"{row['url']}switch/", "disabled": one.is_disabled}
        if may(request.user, "administer", here)
        else None,
        "forms": _forms(one, settings) if may(request.user, "administer", here) else [],
        "try": {"form": trial, "url": f"{row['url']}try/", "result": result}
        if may(request.user, "recover", here)
        else None,
        "rehearse": {
            "form": rehearsal_form
            or RehearseForm(operations=list(operations), auto_id="rehearse_%s"),
            "url": f"{row['url']}rehearse/",
            "beats": beats,
        }
        if one.sandbox_settings and may(request.user, "administer", here)
        else None,
    }
    wrong = (settings is not None and settings.errors) or (attempt is not None and attempt.errors)
    return page(request, "workspaces/connection.html", context, status=422 if wrong else 200)


def _secrets(one: Connection) -> Iterator[tuple[str, Secret | None]]:
    return zip(connections.PURPOSES, (one.observe_secret, one.compensate_secret), strict=True)


def _forms(one: Connection, settings: SettingsForm | None) -> list[dict[str, Any]]:
    url = f"/w/{one.workspace.slug}/connectors/{one.name}/"
    shown = settings or SettingsForm(
        initial={
            "settings": one.settings,
            "sandbox_settings": one.sandbox_settings,
            "concurrency": one.concurrency,
            "revision": one.revision,
        }
    )
    return [
        {
            "title": "Settings",
            "note": "a change voids approvals that were given over the old ones; another scheme,"
            " host or port removes the credentials, too",
            "form": shown,
            "url": f"{url}settings/",
            "act": "Change the settings",
            "folded": "" if settings else "Read or change them…",
        },
        *(
            {
                "title": f"Credential to {purpose}",
                "note": "written, never shown",
                "form": CredentialForm(connector=registry.get(one.connector), prefix=purpose),
                "url": f"{url}credentials/{purpose}/",
                "act": f"Set the credential to {purpose}",
                "folded": "It is set. Replace it…" if secret else "",
            }
            for purpose, secret in _secrets(one)
        ),
    ]


@login_required
@require_POST
def change_settings(request: Request, workspace: str, name: str) -> HttpResponse:
    one = _found(request, workspace, name)
    require(request.user, "administer", one.workspace)
    form = SettingsForm(request.POST)
    if not form.is_valid():
        return _one(request, one, settings=form)
    said = form.cleaned_data
    had = one.observe_secret_id, one.compensate_secret_id
    try:
        connections.update(
            one,
            said["settings"],
            sandbox_settings=said["sandbox_settings"]
            if "sandbox_settings" in request.POST
            else None,
            concurrency=said["concurrency"],
            by=request.user,
            revision=said["revision"],
        )
    except (connections.BadSettings, connections.OutOfDate) as wrong:
        form.add_error("settings", str(wrong))
        return _one(request, one, settings=form)
    messages.success(request, "Saved. Plans that were approved over the old settings will stop.")
    if had != (one.observe_secret_id, one.compensate_secret_id):
        messages.warning(
            request,
            "It reaches another server now, so its credentials are removed: enter them anew.",
        )
    return redirect("connectors:connection", workspace=one.workspace.slug, name=one.name)


@login_required
@require_POST
def set_credential(request: Request, workspace: str, name: str, purpose: str) -> HttpResponse:
    one = _found(request, workspace, name)
    require(request.user, "administer", one.workspace)
    form = CredentialForm(request.POST, connector=registry.get(one.connector), prefix=purpose)
    if form.is_valid():
        try:
            connections.set_secret(one, cast("Purpose", purpose), form.value(), by=request.user)
        except connections.BadSettings as wrong:
            messages.error(request, str(wrong))
        else:
            messages.success(request, f"The credential to {purpose} is set; the old one is gone.")
    return redirect("connectors:connection", workspace=one.workspace.slug, name=one.name)


@login_required
@require_POST
def switch(request: Request, workspace: str, name: str) -> HttpResponse:
    """Disable the connection, or enable it again, as `act` says."""
    one = _found(request, workspace, name)
    require(request.user, "administer", one.workspace)
    verb = connections.enable if request.POST.get("act") == "enable" else connections.disable
    verb(one, by=request.user)
    return redirect("connectors:connection", workspace=one.workspace.slug, name=one.name)


@login_required
@require_POST
def attempt(request: Request, workspace: str, name: str) -> HttpResponse:
    """Read one target now, with the credential to observe. Nothing is written out there."""
    one = _found(request, workspace, name)
    require(request.user, "recover", one.workspace)
    form = TryForm(request.POST, operations=list(calls.operations_of(one)))
    if not form.is_valid():
        return _one(request, one, attempt=form)
    said = form.cleaned_data
    target = Target(said["target_type"], said["target_id"])
    try:
        seen = calls.observe(one, said["operation"], {}, target)
    except (Refused, CannotRead) as reason:
        form.add_error(None, str(reason))
        return _one(request, one, attempt=form)
    sensitive = disclosure.sees(request.user, one.workspace)
    facts = [{"name": "Found", "value": "yes" if seen.found else "no, it is not there"}]
    if sensitive:
        state = disclosure.value(dict(seen.state or {}), sensitive=True, paths=one.workspace.mask)
        fields = list(state.items())[:FIELDS_SHOWN_MAX] if isinstance(state, dict) else []
        facts += [{"name": key, "value": formatting.visible(value)} for key, value in fields]
    facts.append({"name": "Fingerprint", "value": seen.fingerprint})
    return _one(request, one, attempt=form, result=facts)


@login_required
@require_POST
def rehearse(request: Request, workspace: str, name: str) -> HttpResponse:
    """Try one twin in the sandbox; what it does there stays there."""
    one = _found(request, workspace, name)
    require(request.user, "administer", one.workspace)
    names = list(calls.operations_of(one))
    form = RehearseForm(request.POST, operations=names, auto_id="rehearse_%s")
    if not form.is_valid():
        return _one(request, one, rehearsal_form=form)
    said = form.cleaned_data
    target = Target(said["target_type"], said["target_id"])
    try:
        beats = connections.rehearse(one, said["operation"], said["args"], target, by=request.user)
    except connections.NoSandbox as none:
        form.add_error(None, str(none))
        return _one(request, one, rehearsal_form=form)
    return _one(request, one, rehearsal_form=form, beats=beats)
