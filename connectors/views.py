"""The connections' pages: health, settings, credentials that can only be written, and try-it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.utils.html import format_html
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from connectors import accounts, calllog, calls, connections, registry
from connectors.contract import CannotRead, Operation, Purpose, Refused, Target
from connectors.forms import (
    CredentialForm,
    NewConnectionForm,
    RehearseForm,
    SettingsForms,
    TryForm,
)
from connectors.models import CallLog, Connection
from connectors.schema_forms import SchemaForm
from ledger import disclosure
from workspaces import clock, exporting, formatting
from workspaces.access import may, require, teams_with
from workspaces.models import Secret
from workspaces.pages import Request, page, whole, workspace_or_404, workspace_to

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
    plug = registry.installed(one.connector)
    state, health = _health(one)
    last = max(filter(None, (one.last_ok_at, one.last_error_at)), default=None)
    return {
        "name": one.name,
        "url": f"/w/{one.workspace.slug}/connectors/{one.name}/",
        "connector": one.connector,
        "kind": plug.title if plug else one.connector,
        "version": calls.connector_version(one) if plug else f"{one.connector}, not installed",
        "account": f"revision {one.revision} · settings {formatting.digest(one.settings_digest)}",
        "state": state,
        "health": health,
        "last": formatting.moment(last) if last else None,
        "observe": _secret(one.observe_secret),
        "compensate": _secret(one.compensate_secret),
    }


def _health(one: Connection) -> tuple[str, str]:
    """Its state for a badge, and in words. What was never called is not known to work."""
    plug = registry.installed(one.connector)
    if one.is_disabled:
        return "paused", "disabled: nothing is called over it"
    if plug is None or _operations(one)[1]:
        why = (
            "settings are not what its connector takes"
            if plug
            else "connector is not installed here"
        )
        return "failed", f"its {why}: nothing can be called over it"
    if one.is_failing:
        return _since_it_failed(one)
    secrets = [one.observe_secret, one.compensate_secret]
    if not any(secrets) and connections.credential_fields(plug):
        return "incomplete", "nothing can be called over it"
    if one.last_ok_at:
        return "active", "answers"
    return "uncalled" if all(secrets) else "incomplete", "nobody has called it yet"


def _since_it_failed(one: Connection) -> tuple[str, str]:
    secrets = (one.observe_secret, one.compensate_secret)
    failed_at = one.last_error_at
    if failed_at and any(secret and secret.created_at > failed_at for secret in secrets):
        return "uncalled", "nobody has called it since its credential was set"
    if one.open_until and one.open_until > clock.now():
        words = calllog.pause_words(one.failures_in_a_row, one.open_until)
        return "failed", f"{words}. The last time: {one.last_error}"
    return "failed", one.last_error


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


def line_of(call: CallLog) -> dict[str, Any]:
    words = f"{call.method} {call.operation} on {call.target}, {call.milliseconds} ms"
    return {
        "words": f"{words}: {call.detail}" if call.detail else words,
        "state": str(call.outcome),
        "time": formatting.moment(call.at),
    }


CALLS_SHOWN_MAX = 30
FIELDS_SHOWN_MAX = 60


EXPORTED: exporting.Columns = {
    "name": "name",
    "connector": "connector",
    "version": calls.connector_version,
    "revision": "revision",
    "settings_digest": "settings_digest",
    "state": lambda one: _health(one)[0],
    "health": lambda one: _health(one)[1],
    "last_ok_at": "last_ok_at",
    "last_error_at": "last_error_at",
    "may_observe": lambda one: one.observe_secret is not None,
    "may_compensate": lambda one: one.compensate_secret is not None,
}


@login_required
@require_GET
def connection_list(request: Request, workspace: str) -> HttpResponseBase:
    here = workspace_or_404(request, workspace)
    administers = may(request.user, "administer", here)
    found = Connection.objects.in_workspace(here)
    if exporting.is_asked(request):
        clean = disclosure.cleaner(request.user, here)
        return exporting.sheet(request, "connections", list(found), EXPORTED, clean)
    rows = [row_of(one) for one in found]
    context = {
        "workspace": here,
        "tab": "connectors",
        "title": "Connectors",
        "lead": "The outside systems that compensations reach, and how they are doing.",
        "connections": rows,
        "pager": whole(request, rows),
        "kinds": [
            {
                "title": registry.get(name).title,
                "summary": registry.get(name).summary,
                "url": f"/w/{here.slug}/connectors/new/?{urlencode({'connector': name})}",
            }
            for name in registry.names()
        ]
        if administers
        else [],
    }
    return page(request, "workspaces/connections.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def make(request: Request, workspace: str) -> HttpResponse:
    """The form of one connector: what it asks for, a field each."""
    here = workspace_to("administer", request, workspace)
    name = (request.POST or request.GET).get("connector", "")
    if name not in registry.names():
        return redirect("connectors:connections", workspace=here.slug)
    plug, posted = registry.get(name), request.POST or None
    form = NewConnectionForm(posted)
    settings = SchemaForm(
        posted, schema=plug.settings_schema, offered=plug.offered(), prefix="settings"
    )
    if posted and "more" in posted:
        form = NewConnectionForm(initial={"name": posted.get("name", "")})
        settings.without_errors()
    elif posted and form.is_valid() & settings.is_valid():
        try:
            made = connections.create(
                here, form.cleaned_data["name"], name, settings.value(), by=request.user
            )
        except connections.BadSettings as wrong:
            settings.add_error(None, str(wrong))
        else:
            messages.success(request, "The connection is made. It needs its credentials next.")
            return redirect("connectors:connection", workspace=here.slug, name=made.name)
    context = {
        "workspace": here,
        "tab": "connectors",
        "title": "New connection",
        "lead": f"{plug.title}. {plug.summary}",
        "connector": name,
        "url": request.path,
        "form": form,
        "settings": settings,
        "operations": list(plug.operations.values()),
    }
    status = 422 if posted and "more" not in posted else 200
    return page(request, "workspaces/connection_new.html", context, status=status)


def _found(request: Request, workspace: str, name: str, *, installed: bool = False) -> Connection:
    """Raises Http404, also where its connector has to be `installed` and is not."""
    here = workspace_or_404(request, workspace)
    rows = Connection.objects.select_related("workspace", "observe_secret", "compensate_secret")
    rows = rows.filter(connector__in=registry.names()) if installed else rows
    return get_object_or_404(rows, workspace=here, name=name)


@login_required
@require_GET
def connection(request: Request, workspace: str, name: str) -> HttpResponseBase:
    one = _found(request, workspace, name)
    if exporting.is_asked(request):
        tables: dict[str, exporting.Table] = {"last-calls": (_calls(one), CALLED)}
        return exporting.table(request, tables, disclosure.cleaner(request.user, one.workspace))
    return _one(request, one)


def _calls(one: Connection) -> QuerySet[CallLog]:
    return CallLog.objects.filter(connection=one).order_by("-id")


CALLED: exporting.Columns = {
    name: name
    for name in ("at", "method", "operation", "target", "milliseconds", "outcome", "detail")
}


def _one(
    request: Request,
    one: Connection,
    *,
    settings: SettingsForms | None = None,
    attempt: TryForm | None = None,
    result: list[dict[str, Any]] | None = None,
    rehearsal: RehearsalForms | None = None,
    beats: list[connections.Beat] | None = None,
) -> HttpResponse:
    here, row, relying = one.workspace, row_of(one), connections.dependents_of(one)
    administers = may(request.user, "administer", here)
    plug, (operations, why_none) = registry.installed(one.connector), _operations(one)
    trial = attempt or TryForm(operations=list(operations))
    mend = "Its settings have to be changed." if plug else "Its package has to be installed."
    context = {
        "workspace": here,
        "tab": "connectors",
        "title": one.name,
        "lead": row["kind"],
        "problem": {
            "tone": "bad",
            "title": "Nothing can be called over it.",
            "text": f"{why_none.removesuffix('.')}. {mend}",
        }
        if why_none
        else None,
        "connection": row,
        "facts": [
            {"name": "Connector", "value": row["version"]},
            {"name": "Health", "value": row["health"]},
            *_relying_facts(relying),
            *_settings_facts(one),
        ],
        "relying": len(relying.undone),
        "operations": [
            told(operation)
            | {"url": f"{row['url']}?{urlencode({'operation': operation.name})}#rehearse-title"}
            for operation in operations.values()
        ],
        "calls": [line_of(call) for call in _calls(one)[:CALLS_SHOWN_MAX]],
        "switch": {"url": f"{row['url']}switch/", "disabled": one.is_disabled}
        if administers
        else None,
        "settings": _settings(one, settings, why_none) if administers and plug else None,
        "forms": _credentials(one) if administers and plug else [],
        "try": {"form": trial, "url": f"{row['url']}try/", "result": result}
        if operations and may(request.user, "recover", here)
        else None,
        "tried_by": [team.name for team in teams_with("recover", here)] if operations else [],
        "rehearse": {
            "forms": rehearsal or RehearsalForms(one, request.GET.get("operation", "")),
            "url": f"{row['url']}rehearse/",
            "beats": beats,
        }
        if operations and one.sandbox_settings and administers
        else None,
    }
    wrong = (settings and settings.is_wrong) or (attempt is not None and attempt.errors)
    return page(request, "workspaces/connection.html", context, status=422 if wrong else 200)


def _operations(one: Connection) -> tuple[Mapping[str, Operation], str]:
    """What can be done over it, or why nothing can: its connector is gone, or its settings are of
    another version of it.
    """
    try:
        return calls.operations_of(one), ""
    except Refused as refused:
        return {}, str(refused)


def _relying_facts(relying: connections.Dependents) -> Iterator[dict[str, Any]]:
    if relying.undone or not relying.probed:
        undone = ", ".join(sorted(relying.undone))
        yield {"name": "Undoes", "value": undone or "nothing yet: no twin names it"}
    if relying.probed:
        yield {"name": "Finds out about", "value": ", ".join(sorted(relying.probed))}


def _settings_facts(one: Connection) -> Iterator[dict[str, Any]]:
    """What is known of the settings without being shown them."""
    digest = formatting.digest(one.settings_digest)
    yield {"name": "Digest of settings", "value": digest, "mono": True}
    if one.link:
        yield {"name": "Link for people", "value": one.link, "mono": True}
    for purpose, secret in _secrets(one):
        yield {"name": f"Credential to {purpose}", "value": "set" if secret else "missing"}


def _secrets(one: Connection) -> Iterator[tuple[Purpose, Secret | None]]:
    return zip(connections.PURPOSES, (one.observe_secret, one.compensate_secret), strict=True)


def _settings(one: Connection, forms: SettingsForms | None, why_none: str) -> dict[str, Any]:
    return {
        "forms": forms or SettingsForms(one),
        "open": forms is not None or bool(why_none),
        "url": f"/w/{one.workspace.slug}/connectors/{one.name}/settings/",
    }


def _credentials(one: Connection) -> list[dict[str, Any]]:
    url = f"/w/{one.workspace.slug}/connectors/{one.name}/"
    return [
        {
            "title": f"Credential to {purpose}",
            "note": f"{accounts.in_words(one, purpose)}written, never shown",
            "form": CredentialForm(
                connector=registry.get(one.connector),
                prefix=purpose,
                initial={CredentialForm.SHOWN: one.revision},
            ),
            "url": f"{url}credentials/{purpose}/",
            "act": f"Set the credential to {purpose}",
            "folded": "It is set. Replace it…" if secret else "",
        }
        for purpose, secret in _secrets(one)
    ]


class RehearsalForms:
    """What one operation is tried on, and the arguments that it takes."""

    def __init__(self, one: Connection, operation: str, posted: Any = None) -> None:
        known, _ = _operations(one)
        self.operation = known.get(operation) or next(iter(known.values()))
        names = list(known)
        self.target = RehearseForm(
            posted,
            operations=names,
            auto_id="rehearse_%s",
            initial={"operation": self.operation.name},
        )
        self.args = SchemaForm(posted, schema=self.operation.args_schema, prefix="args")


@login_required
@require_POST
def change_settings(request: Request, workspace: str, name: str) -> HttpResponse:
    one = _found(request, workspace, name, installed=True)
    require(request.user, "administer", one.workspace)
    forms = SettingsForms(one, request.POST)
    if forms.asks_for_more or forms.is_wrong:
        return _one(request, one, settings=forms)
    said = forms.controls.cleaned_data
    had, digest = dict(_secrets(one)), one.settings_digest
    try:
        connections.update(
            one,
            forms.settings.value(),
            sandbox_settings=forms.sandbox.value(),
            concurrency=said["concurrency"],
            link=said["link"],
            by=request.user,
            revision=said["revision"],
        )
    except (connections.BadSettings, connections.OutOfDate) as wrong:
        forms.settings.add_error(None, str(wrong))
        return _one(request, one, settings=forms)
    stops = " Plans that were approved over the old settings will stop."
    messages.success(request, f"Saved.{stops if one.settings_digest != digest else ''}")
    if any(had[purpose] and not left for purpose, left in _secrets(one)):
        messages.warning(
            request,
            "It reaches another server now, so its credentials are removed: enter them anew.",
        )
    return redirect("connectors:connection", workspace=one.workspace.slug, name=one.name)


@login_required
@require_POST
def set_credential(request: Request, workspace: str, name: str, purpose: str) -> HttpResponse:
    one = _found(request, workspace, name, installed=True)
    require(request.user, "administer", one.workspace)
    form = CredentialForm(request.POST, connector=registry.get(one.connector), prefix=purpose)
    had_one = dict(_secrets(one)).get(cast("Purpose", purpose))
    if not form.is_valid():
        messages.error(request, "This does not fit. Enter the credential anew, please.")
    else:
        kind, seen = cast("Purpose", purpose), form.revision()
        try:
            value = form.value()
            leads = connections.set_secret(one, kind, value, by=request.user, revision=seen)
        except (connections.BadSettings, connections.OutOfDate) as wrong:
            messages.error(request, str(wrong))
        else:
            gone = "; the old one is gone" if had_one else ""
            stops = f" {accounts.counts_as(one, kind)}" if leads else ""
            messages.success(request, f"The credential to {purpose} is set{gone}.{stops}")
    return redirect("connectors:connection", workspace=one.workspace.slug, name=one.name)


@login_required
@require_POST
def switch(request: Request, workspace: str, name: str) -> HttpResponse:
    """Disable the connection, or enable it again, as `act` says."""
    one = _found(request, workspace, name)
    require(request.user, "administer", one.workspace)
    verb = connections.enable if request.POST.get("act") == "enable" else connections.disable
    verb(one, by=request.user)
    goes = "Calls go over it again." if verb is connections.enable else "Nothing is called over it."
    messages.success(request, goes)
    return redirect("connectors:connection", workspace=one.workspace.slug, name=one.name)


@login_required
@require_POST
def attempt(request: Request, workspace: str, name: str) -> HttpResponse:
    """Read one target now, with the credential to observe. Nothing is written out there."""
    one = _found(request, workspace, name, installed=True)
    require(request.user, "recover", one.workspace)
    form = TryForm(request.POST, operations=list(_operations(one)[0]))
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
    one = _found(request, workspace, name, installed=True)
    require(request.user, "administer", one.workspace)
    if not _operations(one)[0]:
        return _one(request, one)
    forms = RehearsalForms(one, request.POST.get("operation", ""), request.POST)
    if not (forms.target.is_valid() & forms.args.is_valid()):
        return _one(request, one, rehearsal=forms)
    said, args = forms.target.cleaned_data, forms.args.value()
    target = Target(said["target_type"], said["target_id"])
    try:
        beats = connections.rehearse(one, said["operation"], args, target, by=request.user)
    except connections.NoSandbox as none:
        forms.target.add_error(None, str(none))
        return _one(request, one, rehearsal=forms)
    return _one(request, one, rehearsal=forms, beats=beats)
