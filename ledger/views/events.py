"""The ledger: every event, one with its proof, what people did, and the log checked in the page."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.staticfiles import finders
from django.db.models import Case, QuerySet, When
from django.db.models.fields.json import KT
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import (
    condition,
    require_GET,
    require_http_methods,
    require_POST,
    require_safe,
)

from amends.protocol.vocabulary import EventType
from ledger import (
    audit,
    audit_sentences,
    desk_events,
    disclosure,
    logkeys,
    proofs,
    snapshots,
    timestamps,
)
from ledger.models import Action, Event, Run
from ledger.replaying import pretty, words_of
from workspaces import exporting, formatting, outbox, replica
from workspaces.access import may, require
from workspaces.models import User, Workspace
from workspaces.pages import (
    Request,
    chips,
    is_number,
    page,
    page_by_number,
    workspace_or_404,
    workspace_to,
)

KINDS = {
    "run": "Runs", "action": "Actions", "approval": "Approvals", "case": "Cases", "plan": "Plans",
    "step": "Steps", "correction": "Corrections", "policy": "Policies", "key": "Keys",
}  # fmt: skip
AGENTS_KINDS = ("run", "action")
"""Of the others agents may not speak, and what they did not say has an index of its own."""


@login_required
@require_GET
@replica.reads
def events(request: Request, workspace: str) -> HttpResponseBase:
    """Everything that was recorded, newest first."""
    here = workspace_or_404(request, workspace)
    kind, run = request.GET.get("kind", ""), request.GET.get("run", "")[:120]
    found = Event.objects.filter(workspace=here).defer("data", "salt", "trace")
    found = found.annotate(name=Case(When(type=EventType.RUN_CHECKPOINT, then=KT("data__name"))))
    if kind in KINDS:
        found = found.filter(type__startswith=f"{kind}.")
        if kind not in AGENTS_KINDS:
            found = found.exclude(actor_kind="agent")
    if run:
        found = found.filter(run=run)
    if exporting.is_asked(request):
        return _export(request, here, found.order_by("-place"))
    shown, pager = page_by_number(request, found, "place")
    people, tools = _people(shown), _tools(here, shown)
    context = {
        "workspace": here,
        "views": chips(request, "kind", [("", "All"), *KINDS.items()], kind),
        "run": run,
        "rows": [
            _row(here, event, people)
            | {"words": _named(event), "tool": tools.get((event.run, event.action), "")}
            for event in shown
        ],
        "pager": pager,
        "verify_url": reverse("ledger:verify", args=[here.slug]),
        "empty": {"title": "Nothing is recorded", "text": "No event fits what you look for."},
    }
    return page(request, "ledger/events.html", context)


def _export(request: Request, here: Workspace, found: QuerySet[Event]) -> HttpResponseBase:
    columns = ("entry", "received_at", "what", "type", "tool", "who", "run", "action", "event")

    def read(keys: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        events = exporting.in_order(found, keys)
        people, tools = _people(events), _tools(here, events)
        for one in events:
            yield (one.place, one.received_at, _named(one), one.type,
                   tools.get((one.run, one.action), ""), actor_words(one, people), one.run,
                   one.action, one.event_id)  # fmt: skip

    clean = disclosure.cleaner(request.user, here)
    export = exporting.Export("ledger", columns, exporting.keys(found), read, clean)
    return exporting.answer(request, export)


def _people(events: list[Event]) -> dict[str, str]:
    ids = {event.actor for event in events if event.actor_kind == "person"}
    people = User.objects.filter(pk__in=[int(one) for one in ids if is_number(one)])
    return {str(person.pk): str(person) for person in people}


def _tools(here: Workspace, events: list[Event]) -> dict[tuple[str, str], str]:
    """The tool of each action that the events tell of, by run and action."""
    said = [event for event in events if event.action]
    runs = Run.objects.filter(workspace=here, run__in={event.run for event in said})
    names = dict(runs.values_list("pk", "run"))
    alike = Counter(names.values())  # agents name their runs themselves
    names = {pk: run for pk, run in names.items() if alike[run] == 1}
    found = Action.objects.filter(run__in=names, action__in={event.action for event in said})
    rows = found.values_list("run_id", "action", "tool")
    return {(names[run], action): tool for run, action, tool in rows}


def _named(event: Event) -> str:
    """What happened; of a checkpoint with the name that the agent gave it."""
    name = getattr(event, "name", None)
    return f"{words_of(event)} {formatting.quoted(name)}" if name else words_of(event)


def actor_words(event: Event, people: dict[str, str]) -> str:
    if event.actor_kind == "person":
        return people.get(event.actor, f"person {event.actor}")
    return f"agent {event.actor}" if event.actor_kind == "agent" else f"the desk ({event.actor})"


def _row(here: Workspace, event: Event, people: dict[str, str]) -> dict[str, Any]:
    return {
        "place": event.place,
        "url": reverse("ledger:event", args=[here.slug, event.event_id]),
        "words": words_of(event),
        "type": event.type,
        "actor": actor_words(event, people),
        "run": event.run,
        "run_url": reverse("ledger:run", args=[here.slug, event.run]) if event.run else "",
        "action": event.action,
        "received": formatting.moment(event.received_at),
    }


@login_required
@require_GET
def event(request: Request, workspace: str, event: str) -> HttpResponse:
    """One event: who said it, when, and the proof that it is in the log."""
    here = workspace_or_404(request, workspace)
    return _show(request, here, _event_or_404(here, event), sensitive=False)


@login_required
@require_POST
def reveal(request: Request, workspace: str, event: str) -> HttpResponse:
    here = workspace_to("view_sensitive", request, workspace)
    found = _event_or_404(here, event)
    outbox.record(here, EventType.PAYLOAD_REVEALED, by=request.user, data={"event": found.event_id})
    return _show(request, here, found, sensitive=True)


def _event_or_404(here: Workspace, event_id: str) -> Event:
    found = proofs.event_of(here, event_id)
    if found is None:
        raise Http404("There is no such event here, or its time of retention is over.")
    return found


def _show(
    request: Request, here: Workspace, found: Event, *, sensitive: bool, status: int = 200
) -> HttpResponse:
    try:
        proof, fault = proofs.inclusion_of(here, found), ""
    except proofs.Tampered as tampered:
        proof, fault = None, str(tampered)
    if not proofs.is_as_digested(found):
        fault = "The payload is not the one whose digest was sealed."
    people = _people([found])
    context = {
        "workspace": here,
        "event": _row(here, found, people) | {"id": found.event_id, "erased": found.data is None},
        "facts": _facts(found, people),
        "data": pretty(found.data) if sensitive else "",
        "proof": proof,
        "fault": fault,
        "sealed": formatting.moment(proof.head.signed_at) if proof else "",
        "may_reveal": not sensitive and may(request.user, "view_sensitive", here),
        "public_keys": logkeys.published(here),
        "verifier_digest": verifier_digest(),
    }
    return page(request, "ledger/event.html", context, status=status)


def _facts(found: Event, people: dict[str, str]) -> list[dict[str, Any]]:
    said_at, received_at = found.time, found.received_at
    moments = [{"name": "Received", "time": formatting.moment(received_at, "full")}]
    if said_at is not None:
        astray = timestamps.astray(said_at, received_at)
        moments += [
            {
                "name": "By the agent’s clock",
                "time": formatting.moment(said_at, "full"),
                "note": f"({astray})" if astray else "",
            }
        ]
    values = (
        ("Said by", actor_words(found, people), False),
        ("With key", f"{found.key_prefix}…" if found.key_prefix else "", True),
        ("Number in its run", found.n, False),
        ("Place in the ledger", found.place, False),
        ("Digest", f"sha256:{bytes(found.digest).hex()}", True),
    )
    told = [
        {"name": name, "value": value, "mono": mono} for name, value, mono in values
        if value not in {None, ""}
    ]  # fmt: skip
    return [told[0], *moments, *told[1:]]


@login_required
@require_GET
def proof(request: Request, workspace: str, event: str) -> HttpResponse:
    """The tlog-proof file of an event; of one that was changed, its page that says so."""
    here = workspace_or_404(request, workspace)
    row = _event_or_404(here, event)
    try:
        found = proofs.inclusion_of(here, row)
    except proofs.Tampered:
        return _show(request, here, row, sensitive=False, status=409)
    if found is None:
        raise Http404("The event is not sealed yet: try again in a second.")
    answer = HttpResponse(found.text, content_type="text/plain; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{found.index}.tlog-proof"'
    return answer


@login_required
@require_POST
def download(request: Request, workspace: str, event: str) -> HttpResponse:
    """Facts, salt and proof in one file, for those who may see payloads. It is recorded who took
    it, so only a person's click does: whatever follows links (a prefetch, a scanner) does not.
    """
    here = workspace_to("view_sensitive", request, workspace)
    try:
        found = proofs.download_of(here, event)
    except proofs.Tampered:
        return _show(request, here, _event_or_404(here, event), sensitive=False, status=409)
    if found is None:
        raise Http404("There is no such event, or it is not sealed yet, or its facts are erased.")
    outbox.record(here, EventType.PAYLOAD_REVEALED, by=request.user, data={"event": event})
    answer = JsonResponse(found, json_dumps_params={"indent": 2, "ensure_ascii": False})
    answer["Content-Disposition"] = 'attachment; filename="event-with-proof.json"'
    return answer


@login_required
@require_http_methods(["GET", "POST"])
def verify(request: Request, workspace: str) -> HttpResponse:
    """The log's head and keys; a proof that somebody brings is checked, and the log itself."""
    here = workspace_or_404(request, workspace)
    findings, verdict = [], None
    if request.method == "POST" and request.POST.get("check") == "rotate":
        require(request.user, "administer", here)
        logkeys.rotate(here, by=request.user)
        messages.success(request, "From now on heads are signed with the key that stands first.")
        return redirect("ledger:verify", workspace=here.slug)
    if request.method == "POST" and request.POST.get("check") == "log":
        findings = audit.audit(here)
    elif request.method == "POST":
        verdict = audit.check_file(here, request.POST.get("proof", ""))
    head = proofs.newest_head(here)
    context = {
        "workspace": here,
        "head": head,
        "size": formatting.count(head.size) if head else "",
        "signed": formatting.moment(head.signed_at) if head else "",
        "public_keys": logkeys.published(here),
        "findings": findings,
        "proof": request.POST.get("proof", ""),
        "all_well": bool(findings) and all(finding.ok for finding in findings),
        "verdict": verdict,
        "may_administer": may(request.user, "administer", here),
        "verifier_digest": verifier_digest(),
        "ledger_url": reverse("ledger:events", args=[here.slug]),
    }
    return page(request, "ledger/verify.html", context)


@login_required
@require_GET
def snapshot(request: Request, workspace: str, sha256: str) -> HttpResponse:
    """A snapshot that was kept apart, as it is; that somebody saw it is on the record."""
    here = workspace_to("view_sensitive", request, workspace)
    found = snapshots.content_of(here.pk, sha256)
    if found is None:
        raise Http404("There is no such snapshot here, or it was erased.")
    outbox.record(here, EventType.PAYLOAD_REVEALED, by=request.user, data={"snapshot": sha256})
    answer = HttpResponse(found, content_type="application/json")
    answer["Content-Disposition"] = f'attachment; filename="{sha256[:12]}.json"'
    answer["Cache-Control"] = "no-store"
    return answer


# The audit: what people did, newest first, read from the ledger itself.

PAGE = 50
# What the chips above the list stand for: types that begin so.
ACTS = {
    "all": (),
    "recovery": ("case.", "plan.", "step.", EventType.ACTION_SETTLED, "resume.", "correction."),
    "approvals": ("approval.",),
    "members and keys": ("member.", "team.", "invitation.", "key.", "agent."),
    "rules": ("policy.", "connection.", "pause.", "workspace."),
    "kept": ("ledger.", "payload.", "data."),
}


@login_required
@require_GET
@replica.reads
def acts(request: Request, workspace: str) -> HttpResponseBase:
    """Acts of people, by keyset on the ledger's place; `?kind=` narrows, `?before=` goes on."""
    here = workspace_or_404(request, workspace)
    kind = request.GET.get("kind", "all")
    kind = kind if kind in ACTS else "all"
    if exporting.is_asked(request):
        return _export_acts(request, here, kind)
    before = request.GET.get("before", "")
    events = list(_acts(here, kind, int(before) if is_number(before) else None)[: PAGE + 1])
    people = desk_events.people_of(events)
    older = f"?kind={kind}&before={events[PAGE - 1].place}" if len(events) > PAGE else ""
    context = {
        "workspace": here,
        "tab": "audit",
        "title": "Audit",
        "lead": "Who did what. Each line is an entry of the ledger, with its proof behind it.",
        "filters": chips(request, "kind", [(name, name.capitalize()) for name in ACTS], kind),
        "acts": [_told(here, event, people) for event in events[:PAGE]],
        "pager": {
            "label": f"{formatting.count(min(len(events), PAGE))} shown",
            "previous": "",
            "next": older,
            "files": exporting.links(request),
        },
    }
    return page(request, "workspaces/audit.html", context)


def _export_acts(request: Request, here: Workspace, kind: str) -> HttpResponseBase:
    columns = ("entry", "at", "who", "did", "details", "run", "event", "type")

    def read(keys: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        events = exporting.in_order(Event.objects.filter(workspace=here), keys)
        people = desk_events.people_of(events)
        for one in events:
            told = _told(here, one, people)
            details = "; ".join(map(str, told["fields"]))
            yield (one.place, one.received_at, told["who"], told["words"], details, one.run,
                   one.event_id, one.type)  # fmt: skip

    chosen = exporting.keys(_acts(here, kind, None))
    return exporting.answer(
        request,
        exporting.Export("audit", columns, chosen, read, disclosure.cleaner(request.user, here)),
    )


def _acts(here: Workspace, kind: str, before: int | None) -> QuerySet[Event]:
    acts = Event.objects.filter(workspace=here, actor_kind="person").order_by("-place")
    if before is not None:
        acts = acts.filter(place__lt=before)
    if ACTS[kind]:
        pattern = "^(" + "|".join(word.replace(".", r"\.") for word in ACTS[kind]) + ")"
        acts = acts.filter(type__regex=pattern)
    return acts


def _told(here: Workspace, event: Event, people: dict[int, User]) -> dict[str, Any]:
    who = people.get(int(event.actor)) if is_number(event.actor) else None
    return {
        "time": formatting.moment(event.received_at),
        "who": str(who) if who else event.actor,
        "words": audit_sentences.sentence(event),
        "fields": audit_sentences.fields(event),
        "seeded": audit_sentences.is_seeded(event),
        "subject": event.run,
        "subject_url": reverse("ledger:run", args=[here.slug, event.run]) if event.run else "",
        "entry": str(event.place),
        "entry_url": reverse("ledger:event", args=[here.slug, event.event_id]),
    }


# The verifier: one file that anybody saves, and checks a record with on a machine of their own. It
# is made of `sdk-js/verifier` and lies in `static/`. Here it is a download, because opened on the
# desk's own page it would be worth no more than that page.
VERIFIER = "verifier.html"


@cache
def verifier_bytes() -> bytes:
    return Path(str(finders.find(VERIFIER))).read_bytes()


@cache
def verifier_digest() -> str:
    """SHA-256 in hex, by which two copies are compared."""
    return hashlib.sha256(verifier_bytes()).hexdigest()


@require_safe
@condition(etag_func=lambda _request: f'"{verifier_digest()}"')
def verifier(_request: HttpRequest) -> HttpResponse:
    """For everybody. A copy is kept and asked for by its tag: it fits the digest on the pages."""
    answer = HttpResponse(verifier_bytes(), content_type="text/html; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{VERIFIER}"'
    answer["Cache-Control"] = "public, no-cache"
    return answer
