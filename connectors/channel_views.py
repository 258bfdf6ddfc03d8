"""The channels' page: where people and programs are told, and whether it arrived."""

import secrets
from base64 import b64encode
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import F, OuterRef, QuerySet, Subquery
from django.http import HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_GET, require_POST

from connectors import channels
from connectors.forms import CARRIED, ChannelForm
from connectors.models import Channel, ChannelKind, Delivery, DeliveryState, Feed
from ledger import disclosure
from workspaces import exporting, formatting
from workspaces.access import may
from workspaces.models import Workspace
from workspaces.pages import Request, page, whole, workspace_or_404, workspace_to

DELIVERIES_SHOWN_MAX = 30
SECRET_BYTES = 24
"""Standard Webhooks asks for 24 to 64."""

TONES = {
    DeliveryState.WAITING: ("calm", "Queued"),
    DeliveryState.SENT: ("ok", "Sent"),
    DeliveryState.FAILED: ("bad", "Failed"),
}


@login_required
@require_GET
def channel_list(request: Request, workspace: str) -> HttpResponseBase:
    here = workspace_or_404(request, workspace)
    if exporting.is_asked(request):
        found = Delivery.objects.filter(workspace=here).select_related("channel").order_by("-id")
        clean = disclosure.cleaner(request.user, here)
        tables: dict[str, exporting.Table] = {
            "what-was-sent": (found, SENT),
            "channels": (_channels(here), EXPORTED),
        }
        return exporting.table(request, tables, clean)
    return _list(request, here)


def _list(
    request: Request,
    here: Workspace,
    *,
    form: ChannelForm | None = None,
    secret: str = "",
    status: int = 200,
) -> HttpResponse:
    administers = may(request.user, "administer", here)
    written = Delivery.objects.filter(workspace=here).select_related("channel").order_by("-id")
    deliveries = list(written[:DELIVERIES_SHOWN_MAX])
    context = {
        "workspace": here,
        "tab": "channels",
        "title": "Channels",
        "lead": "Where people and programs are told of approvals, alerts and corrections.",
        "channels": _rows(list(_channels(here)[: channels.CHANNELS_MAX])),
        "deliveries": [
            {
                "title": one.message.get("title", ""),
                "subject": one.subject,
                "to": _to(one),
                "state": TONES[DeliveryState(one.state)],
                "tries": one.tries,
                "at": formatting.moment(one.sent_at or one.created_at),
                "error": one.last_error if one.state != DeliveryState.SENT else "",
            }
            for one in deliveries
        ],
        "pager": whole(request, deliveries),
        "form": (form or ChannelForm()) if administers else None,
        "secret": secret,
        "may_administer": administers,
    }
    return page(request, "workspaces/channels.html", context, status=status)


def _channels(here: Workspace) -> QuerySet[Channel]:
    living_first = F("disabled_at").asc(nulls_first=True)
    return Channel.objects.filter(workspace=here).order_by(living_first, "name")


def _rows(found: list[Channel]) -> list[dict[str, Any]]:
    """Each with the delivery over it that came to an end last."""
    ended = Delivery.objects.filter(channel=OuterRef("pk")).exclude(state=DeliveryState.WAITING)
    newest = Subquery(ended.order_by("-id").values("pk")[:1])
    last = dict(
        Channel.objects.filter(pk__in=[one.pk for one in found])
        .annotate(last=newest)
        .values_list("pk", "last")
    )
    known = Delivery.objects.in_bulk([one for one in last.values() if one])
    feeds = {one.channel_id: one for one in Feed.objects.filter(channel__in=found)}
    return [_row(one, known.get(last.get(one.pk) or 0), feeds.get(one.pk)) for one in found]


def _row(one: Channel, last: Delivery | None, feed: Feed | None) -> dict[str, Any]:
    return {
        "id": one.pk,
        "name": one.name,
        "kind": one.get_kind_display(),
        "to": _address(one),
        "subjects": _carries(one),
        "tier": one.tier,
        "feed": _feed(feed) if feed else "",
        "disabled": one.disabled_at is not None,
        "last": formatting.moment(last.sent_at or last.created_at) if last else "",
        "last_state": TONES[DeliveryState(last.state)] if last else None,
    }


def _address(one: Channel) -> str:
    to = one.settings.get("to") if one.kind == ChannelKind.MAIL else None
    return ", ".join(to) if to else "an address that is kept secret"


def _carries(one: Channel) -> str:
    return "; ".join(CARRIED.get(each, each) for each in one.subjects) or "everything"


EXPORTED: exporting.Columns = {
    "name": "name",
    "kind": "kind",
    "to": _address,
    "carries": _carries,
    "says": "tier",
    "switched_off_at": "disabled_at",
}


def _feed(one: Feed) -> str:
    entries = "entry" if one.number == 1 else "entries"
    told = f"{formatting.count(one.number)} {entries} of the log taken"
    return f"{told}; try {one.failures}: {one.error}" if one.failures else told


def _to(one: Delivery) -> str:
    return str(one.channel or "") or one.recipient or "a channel that was removed"


SENT: exporting.Columns = {
    "title": lambda one: one.message.get("title", ""),
    "subject": "subject",
    "to": _to,
    "state": "state",
    "tries": "tries",
    "created_at": "created_at",
    "sent_at": "sent_at",
    "error": "last_error",
}


@login_required
@require_POST
def make(request: Request, workspace: str) -> HttpResponse:
    """Add a channel. A webhook's signing secret is made here if none is given, and shown once."""
    here = workspace_to("administer", request, workspace)
    form = ChannelForm(request.POST)
    if not form.is_valid():
        return _list(request, here, form=form, status=422)
    said = form.cleaned_data
    made = ""
    if said["kind"] == ChannelKind.WEBHOOK and not said["secret"]:
        made = said["secret"] = f"whsec_{b64encode(secrets.token_bytes(SECRET_BYTES)).decode()}"
    try:
        channels.create(
            here,
            said["name"],
            said["kind"],
            by=request.user,
            settings=form.kept_settings(),
            secret=form.kept_secret(),
            subjects=form.kept_subjects(),
            tier=said["tier"],
        )
    except channels.BadChannel as wrong:
        form.add_error(None, str(wrong))
        return _list(request, here, form=form, status=422)
    if made:
        return _list(request, here, secret=made)
    messages.success(request, f"“{said['name']}” is added. Send a test message to see it arrive.")
    return redirect("connectors:channels", workspace=here.slug)


def _found(request: Request, workspace: str, pk: int) -> Channel:
    here = workspace_to("administer", request, workspace)
    return get_object_or_404(Channel.objects.select_related("workspace"), workspace=here, pk=pk)


@login_required
@require_POST
def switch(request: Request, workspace: str, pk: int) -> HttpResponse:
    """Switch a channel off, or on again, as `act` says."""
    one = _found(request, workspace, pk)
    verb = channels.enable if request.POST.get("act") == "enable" else channels.disable
    verb(one, by=request.user)
    now = "on again" if verb is channels.enable else "off: nothing goes by it"
    messages.success(request, f"“{one.name}” is switched {now}.")
    return redirect("connectors:channels", workspace=one.workspace.slug)


@login_required
@require_POST
def try_out(request: Request, workspace: str, pk: int) -> HttpResponse:
    one = _found(request, workspace, pk)
    if one.disabled_at is not None:
        messages.error(request, f"“{one.name}” is switched off; nothing was sent.")
    else:
        channels.try_out(one, by=request.user)
        messages.success(request, "A test message is on its way; below stands what becomes of it.")
    return redirect("connectors:channels", workspace=one.workspace.slug)
