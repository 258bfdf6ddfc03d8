"""The tabs of approvals: the inbox and what is new in it, what was decided, and their health."""

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.contrib.auth.decorators import login_required
from django.db.models import Case, F, IntegerField, JSONField, When, prefetch_related_objects
from django.db.models.expressions import RawSQL
from django.http import HttpResponse, HttpResponseBase, JsonResponse
from django.urls import reverse
from django.utils.html import format_html
from django.views.decorators.http import require_GET

from approvals import awaiting, card_context, deciders, digests, dry_run, finding
from approvals.gate.changed_arguments import in_words as changed_words
from approvals.models import Approval, ApprovalState, Decision, SubjectKind
from approvals.models.approvals import ApprovalQuerySet
from approvals.news import ANSWERED, WENT
from approvals.policy import active
from ledger import disclosure
from workspaces import clock, delegations, exporting, formatting, independence, news
from workspaces.access import colleagues
from workspaces.models import User, Workspace
from workspaces.pages import (
    COUNT_MAX,
    Request,
    counted,
    is_number,
    page,
    place_of,
    read_place,
    whole,
    workspace_or_404,
)

PAGE = 50

# What a line does not show; each is large, and read anew as JSON.
UNLISTED = ("subject", "calls", "targets", "rules", "previews", "agent_text")
# How many answers it takes, and how many said yes.
WANTED = RawSQL(
    "SELECT coalesce(sum(count), 0) FROM approvals_requirement"
    " WHERE approval_id = approvals_approval.id",
    (),
    output_field=IntegerField(),
)  # fmt: skip
GIVEN = RawSQL(
    "SELECT count(*) FROM approvals_decision WHERE approval_id = approvals_approval.id AND granted",
    (),
    output_field=IntegerField(),
)  # fmt: skip

# What was asked for, and what somebody has made of it; of most nobody has.
CHANGED = {
    name: Case(When(replaces__isnull=False, then=F(path)), output_field=JSONField())
    for name, path in (("args", "calls__0__args"), ("asked_args", "calls__0__more__asked__args"))
}


def approvals_of(here: Workspace) -> ApprovalQuerySet:
    found: ApprovalQuerySet = Approval.objects.filter(workspace=here).select_related(
        "workspace", "agent", "requested_by", "closed_by", "action__run"
    )
    return found


def wanted(request: Request, here: Workspace) -> tuple[ApprovalQuerySet, str]:
    """The list that the URL asks for: mine to decide, or everything that waits."""
    view = "all" if request.GET.get("view") == "all" else "mine"
    # A line shows nothing of action and run, and all that waits is sorted before a page is cut.
    rows = approvals_of(here).select_related(None).select_related("agent", "requested_by")
    rows = rows.defer(*UNLISTED)
    if view == "all":
        rows = rows.open()
    else:
        rows = awaiting.listed(rows, here, request.user, COUNT_MAX + 1)
    sees = disclosure.sees(request.user, here, deciding=True)
    return finding.narrowed(rows, finding.asked(request.GET), sees=sees), view


def context_of_list(
    request: Request, here: Workspace, current: int | None = None
) -> dict[str, Any]:
    rows, view = wanted(request, here)
    after = read_place(request.GET.get("after", ""))
    ordered = rows.order_by("expires_at", "pk")
    if after is not None:
        at, pk = after
        ordered = ordered.filter(expires_at__gte=at).exclude(expires_at=at, pk__lte=pk)
    found = list(ordered.annotate(wanted=WANTED, given=GIVEN, **CHANGED)[: PAGE + 1])
    for one in found:
        one.workspace = here
    _count_those_who_still_may(found)
    keep = {name: request.GET[name] for name in ("view", "q") if request.GET.get(name)}
    more = None
    if len(found) > PAGE:
        last = found[PAGE - 1]
        token = place_of(last.expires_at, last.pk)
        more = "?" + urlencode(keep | {"after": token})
    query = f"?{urlencode(keep)}" if keep else ""
    root = reverse("approvals:inbox", args=[here.slug])
    sees = disclosure.sees(request.user, here, deciding=True)
    views = views_of(here, request.user, view)
    if more or after:
        oldest = rows.order_by("asked_at").values_list("asked_at", flat=True).first()
        shown = next(one["count"] for one in views if one["current"])
        number = counted(rows) if "q" in keep else shown
    else:
        oldest = min((one.asked_at for one in found), default=None)
        number = formatting.count(len(found), COUNT_MAX)
    return {
        "workspace": here,
        "approvals": [
            _line(one, root, query, current) | (_values(one) if sees else {})
            for one in found[:PAGE]
        ],
        "views": views,
        "find": _find(rows, root, keep),
        "files": [one | {"url": root + one["url"]} for one in exporting.links(request)],
        "pager": {"label": number, "next": more, "previous": ""},
        "oldest": format_html("oldest waits {}", formatting.moment(oldest, "span"))
        if oldest
        else "",
        "empty": None if found else _empty(request, here, keep.get("q", "")),
        "fresh_url": reverse("approvals:fresh", args=[here.slug]) + query,
        "since": clock.now().isoformat(),
        "prove_url": _prove_url(here, request.user),
    }


def line_now(request: Request, here: Workspace, pk: int) -> dict[str, Any]:
    """The line of one that was just answered beside its card, as it stands now: it is no longer
    among those that wait for this person, and stays where it is until they go on.
    """
    lines = approvals_of(here).select_related(None).select_related("agent", "requested_by")
    one = lines.defer(*UNLISTED).annotate(wanted=WANTED, given=GIVEN, **CHANGED).get(pk=pk)
    one.workspace = here
    _count_those_who_still_may([one])
    root = reverse("approvals:inbox", args=[here.slug])
    query = urlsplit(request.htmx.current_url or "").query
    line = _line(one, root, f"?{query}" if query else "", pk)
    if disclosure.sees(request.user, here, deciding=True):
        line |= _values(one)
    is_over = one.state != ApprovalState.WAITING
    mine = Decision.objects.filter(approval=one, person=request.user).exists()
    became = card_context.shown_state(one) if is_over else ""
    return line | {"became": became, "is_mine": mine and not is_over}


def _find(rows: ApprovalQuerySet, root: str, keep: dict[str, str]) -> dict[str, Any]:
    """The field, and by what the list can be narrowed, each with the number that it leaves."""
    q = keep.get("q", "")

    def choice(key: str, value: str, count: int) -> dict[str, str]:
        words = f"{q} {finding.word(key, value)}".strip()
        return {
            "name": value,
            "count": formatting.count(count, COUNT_MAX),
            "url": f"{root}?{urlencode(keep | {'q': words})}",
        }

    groups = [
        {"name": name, "choices": [choice(key, *one) for one in found]}
        for key, name, found in finding.groups(rows)
    ]
    return {"url": root, "q": q, "view": keep.get("view", ""), "groups": groups}


def _prove_url(here: Workspace, person: User) -> str:
    """Where to prove one's address, for who may approve and has not; who is asked anything has."""
    is_asked = awaiting.count(here, person, COUNT_MAX + 1) > 0
    if is_asked or independence.is_proven(person) or not delegations.may_decide(person, here):
        return ""
    return reverse("workspaces:address")


def views_of(here: Workspace, person: User, view: str) -> list[dict[str, Any]]:
    root = reverse("approvals:inbox", args=[here.slug])
    mine = awaiting.count(here, person, COUNT_MAX + 1)
    return [
        {
            "name": "Waiting for you",
            "count": formatting.count(mine, COUNT_MAX),
            "counts": "approvals",
            "url": root,
            "current": view == "mine",
        },
        {
            "name": "All waiting",
            "count": counted(approvals_of(here).open()),
            "url": f"{root}?view=all",
            "current": view == "all",
        },
        {
            "name": "Decided",
            "count": None,
            "url": reverse("approvals:history", args=[here.slug]),
            "current": view == "history",
        },
        {
            "name": "Bounded grants",
            "count": None,
            "url": reverse("approvals:grants", args=[here.slug]),
            "current": view == "grants",
        },
        {
            "name": "Health",
            "count": None,
            "url": reverse("approvals:health", args=[here.slug]),
            "current": view == "health",
        },
    ]


def _empty(request: Request, here: Workspace, q: str) -> dict[str, Any]:
    root = reverse("approvals:inbox", args=[here.slug])
    if q:
        return {
            "icon": "search",
            "title": f"Nothing that waits fits “{q}”.",
            "links": [{"label": "Drop the search", "url": root, "main": True}],
        }
    waits = approvals_of(here).open().exists()
    others = [{"label": "Show what waits for others", "url": f"{root}?view=all"}] if waits else []
    if not delegations.may_decide(request.user, here):
        members = reverse("workspaces:members", args=[here.slug])
        return {
            "icon": "lock",
            "title": "You do not decide here.",
            "text": "It needs the permission “approve”, which administrators give.",
            "links": [*others, {"label": "Who administers", "url": members}],
        }
    if waits:
        text = "What waits now is asked of others."
        if not colleagues(request.user).exists():
            text = (
                "What waits now needs somebody else than who asked and whose agent it is, and"
                " nobody else is here yet. Invite somebody under Settings, or let a rule say"
                " selfApproval."
            )
        return {"icon": "clear", "title": "Nothing waits for you.", "text": text, "links": others}
    last = Approval.objects.filter(workspace=here, decided_at__isnull=False)
    at = last.order_by("-decided_at").values_list("decided_at", flat=True).first()
    text = f"The last one was decided {formatting.ago(at)}." if at else "No agent has asked yet."
    return {"icon": "clear", "title": "Nothing waits for you.", "text": text}


def _asked_by(one: Any) -> str:
    if one.replaces_id is not None:
        return f"asked by {one.agent}, changed by {one.requested_by}"
    return f"asked by {one.asker}"


def _count_those_who_still_may(found: Sequence[Any]) -> None:
    """Of WANTED and GIVEN the yes that counts no more, as of one who has left the team. Of the few
    that some have said yes to and others still must.
    """
    waiting = (one for one in found if one.state == ApprovalState.WAITING)
    partly = [one for one in waiting if one.wanted > 1 and one.given]
    prefetch_related_objects(partly, "decisions__delegation", "requirements")
    for one in partly:
        one.given = len(deciders.progress(one).filled)


def _line(one: Any, root: str, query: str, current: int | None) -> dict[str, Any]:
    """One approval with WANTED and GIVEN; `root` is the inbox, below which each has its card."""
    asked_by = _asked_by(one)
    if one.escalated_at is not None:
        asked_by += ", escalated: nobody had decided in time"
    return {
        "id": one.pk,
        "url": f"{root}{one.pk}/{query}",
        "title": one.headline,
        "risk": one.risk,
        "from": f"{asked_by}, case {one.case_ref}" if one.case_ref else asked_by,
        "expires": format_html("expires {}", formatting.moment(one.expires_at)),
        "progress": f"{one.given} of {one.wanted} agreed" if one.wanted > 1 else "",
        "current": one.pk == current,
        "is_mine": False,
        "became": "",
    }


def _values(one: Any) -> dict[str, str]:
    """What it moves, unless its title says so already; what was asked for, where it was changed."""
    made = digests.changes(one.asked_args, one.args) if one.replaces_id is not None else []
    return {"amount": card_context.amount_of(one), "changed": changed_words(made, one)}


@login_required
@require_GET
def inbox_list(request: Request, workspace: str) -> HttpResponseBase:
    here = workspace_or_404(request, workspace)
    if exporting.is_asked(request):
        return _export(request, here, wanted(request, here)[0].order_by("expires_at", "pk"))
    return page(request, "approvals/inbox.html", context_of_list(request, here))


EXPORTED = (
    "approval", "state", "risk", "title", "asked_by", "agent", "run", "case", "amount_minor",
    "currency", "asked_at", "expires_at", "decided_at", "used_at", "decisions",
)  # fmt: skip


def _export(request: Request, here: Workspace, found: ApprovalQuerySet) -> HttpResponseBase:
    sees = disclosure.sees(request.user, here, deciding=True)
    related = ("agent", "requested_by", "closed_by")
    rows = approvals_of(here).select_related(None).select_related(*related).defer(*UNLISTED)

    def read(keys: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        for one in exporting.in_order(
            rows.prefetch_related("decisions__person", "decisions__principal"), keys
        ):
            yield (
                one.pk, card_context.shown_state(one), one.risk, one.headline,
                str(one.requested_by or one.agent or "the policy"),
                one.agent.name if one.agent else "", one.run_ref, one.case_ref,
                one.amount_minor if sees else None, one.currency if sees else "", one.asked_at,
                one.expires_at, one.decided_at, one.used_at, _decisions(one),
            )  # fmt: skip

    export = exporting.Export(
        "approvals",
        EXPORTED,
        exporting.keys(found),
        read,
        disclosure.cleaner(request.user, here, deciding=True),
    )
    return exporting.answer(request, export)


@login_required
@require_GET
def fresh(request: Request, workspace: str) -> HttpResponse:
    """How much is new since the page was drawn, and which rows are gone since it was last told."""
    here = workspace_or_404(request, workspace)
    since = news.moment(request.GET.get("since", ""))
    if since is None:
        return HttpResponse(status=204)
    last = news.moment(request.GET.get("heard", "")) or since
    found = Approval.objects.filter(workspace=here)
    ended, heard = news.left(found, "decided_at", last, how="state")
    gone = {pk: WENT[state] for pk, state in ended.items()}
    answered = Decision.objects.filter(person=request.user, at__gt=last, approval__workspace=here)
    rows, view = wanted(request, here)
    if view == "mine":
        mine = answered.values_list("approval", flat=True)[: news.LEFT_MAX]
        gone = dict.fromkeys(map(str, mine), ANSWERED) | gone
    new = rows.filter(asked_at__gt=since).order_by()[: COUNT_MAX + 1].count()
    waiting = awaiting.count(here, request.user, COUNT_MAX + 1)
    counts = {"approvals": formatting.count(waiting, COUNT_MAX)}
    return JsonResponse({"new": new, "heard": heard, "counts": counts, "gone": gone})


@login_required
@require_GET
def history(request: Request, workspace: str) -> HttpResponseBase:
    """What was decided, newest first."""
    here = workspace_or_404(request, workspace)
    rows = approvals_of(here).exclude(state=ApprovalState.WAITING).order_by("-pk")
    q = finding.asked(request.GET)
    rows = finding.narrowed(rows, q, sees=disclosure.sees(request.user, here, deciding=True))
    if exporting.is_asked(request):
        return _export(request, here, rows)
    before = request.GET.get("after", "")
    if is_number(before):
        rows = rows.filter(pk__lt=int(before))
    unlisted = [one for one in UNLISTED if one != "calls"]  # a plan says how many it has
    shown = rows.select_related(None).select_related("agent", "requested_by", "closed_by")
    found = list(
        shown.defer(*unlisted).prefetch_related("decisions__person", "decisions__principal")[
            : PAGE + 1
        ]
    )
    keep = {"q": q} if q else {}
    more = "?" + urlencode(keep | {"after": found[PAGE - 1].pk}) if len(found) > PAGE else ""
    root = reverse("approvals:inbox", args=[here.slug])
    sees = disclosure.sees(request.user, here, deciding=True)
    context = {
        "workspace": here,
        "q": q,
        "rows": [
            _past(one, root) | {"amount": card_context.amount_of(one) if sees else ""}
            for one in found[:PAGE]
        ],
        "views": views_of(here, request.user, "history"),
        "find": {"url": request.path, "q": q},
        "files": exporting.links(request),
        "oldest": "",
        "pager": {"label": f"{len(found[:PAGE])} shown", "next": more, "previous": ""},
        "empty": {
            "icon": "clear",
            "title": f"Nothing fits “{q}”." if q else "Nothing has been decided yet.",
            "text": "What was approved, rejected, or not answered in time stands here.",
            "links": [{"url": request.path, "label": "Drop the search", "main": True}] if q else [],
        },
    }
    return page(request, "approvals/history.html", context)


def _decisions(one: Approval) -> str:
    return ", ".join(
        f"{decision.who}: {'yes' if decision.granted else 'no'}" for decision in one.decisions.all()
    )


def _past(one: Approval, root: str) -> dict[str, Any]:
    used: dict[str, str] = {ApprovalState.USED: formatting.moment(one.used_at)}
    if one.subject_kind == SubjectKind.GRANT:  # again and again; its own page says how often
        used = {ApprovalState.GRANTED: "while it lasts", ApprovalState.USED: "until it ended"}
    took = formatting.span(one.decided_at - one.asked_at) if one.decided_at else ""
    return {
        "url": f"{root}{one.pk}/",
        "title": one.headline,
        "risk": one.risk,
        "state": card_context.shown_state(one),
        "subject": ", ".join(
            [card_context.subject(one), *([_asked_by(one)] if one.requested_by else [])]
        ),
        "decisions": _decisions(one) or (str(one.closed_by) if one.closed_by else "nobody"),
        "decided": formatting.moment(one.decided_at),
        "took": took,
        "used": used.get(ApprovalState(one.state), "no"),
    }


# What the gate would have asked for, of runs that were imported past it.


@login_required
@require_GET
def would_have_asked(request: Request, workspace: str) -> HttpResponseBase:
    here = workspace_or_404(request, workspace)
    found = dry_run.would_have_asked(here, active(here))
    if exporting.is_asked(request):
        columns = {name: name for name in ("tool", "answer", "why", "run", "action", "at")}
        clean = disclosure.cleaner(request.user, here)
        return exporting.sheet(request, "would-have-asked", found.rows, columns, clean)
    rows = [
        {
            "line": one,
            "url": reverse("ledger:run", args=[here.slug, one.run]),
            "at": formatting.moment(one.at) if one.at else "",
        }
        for one in found.rows
    ]
    empty = {
        "icon": "tool",
        "title": "Nothing would have been asked." if found.runs else "No run was imported yet",
        "text": "Here stand calls of imported runs for which the policy asks people, or which it"
        " denies. A key with the scope “import” sends runs that happened elsewhere.",
        "links": [
            {"label": "Agents and keys", "url": reverse("workspaces:keys", args=[here.slug])}
        ],
    }
    context = {"workspace": here, "rows": rows, "found": found, "empty": empty}
    context["pager"] = whole(request, rows)
    return page(request, "approvals/reported.html", context)
