"""The HTTP API of the policy: read it and its versions, check a document, try it on what happened,
save it, run it in the shadow, put it in force; and what approval health says and proposes.

It is for repositories: a document that people review where they review code, applied by a program
with the token of somebody who administers. Whoever waits for people goes on waiting for them.
"""

from statistics import median
from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from ninja import Field, Router, Schema

from approvals import dry_run, health, proposals, team_coverage, versions
from approvals.api import answering, in_turn, page_of
from approvals.gate.policy_since import answering_none
from approvals.models import PolicyVersion
from approvals.policy import Policy, PolicyUnreadable, active, default, load
from approvals.policy.reading import DOCUMENT_CHARACTERS_MAX, read
from ledger import disclosure
from workspaces import access
from workspaces.free_text import NOTE_CHARACTERS_MAX
from workspaces.keys import AsPerson, ByPerson
from workspaces.models import Workspace
from workspaces.pages import problem_response

router = Router(auth=ByPerson(), tags=["policies"])
FROM_A_FILE = "from a file"
DAYS_MAX = 90


def _text(characters_max: int, **more: Any) -> Any:
    """A text whose length is looked at where it is kept, for there it is said in words; a bound of
    its own keeps half a pair out.
    """
    return Field(min_length=0, json_schema_extra={"maxLength": characters_max}, **more)


class PolicyIn(Schema):
    """A document as it is written, JSON or YAML."""

    source: str = _text(DOCUMENT_CHARACTERS_MAX)


class VersionIn(PolicyIn):
    """`after` is the number of the newest version that its author knew."""

    note: str = _text(NOTE_CHARACTERS_MAX, default="")
    after: int | None = None


class ActivateIn(Schema):
    """`seen` is the digest of the version that was seen in force; empty where none was."""

    seen: str = Field(max_length=64)


class ShadowIn(Schema):
    end: bool = False


@router.get("/policies", summary="Versions of the policy, the newest first, a page at a time")
def listed(request: AsPerson, after: str = "", limit: int = 50) -> Any:
    """`in_force` is the digest of the one in force, empty where there is none; `unmet` what nobody
    can meet of it.
    """
    here = _allowed(request, "view")
    found, more = page_of(_versions(here).order_by("-pk"), after, limit)
    current = versions.in_force(here)
    try:
        unmet = team_coverage.unmet_now(here)
    except PolicyUnreadable as wrong:
        unmet = wrong.problems
    return {
        "in_force": current.digest if current else "",
        "number": current.number if current else None,
        "newest": versions.newest_number(here),
        "unmet": [one.as_json() for one in unmet],
        "policies": [_version(one) for one in found],
        "after": more,
    }


@router.get("/policies/in-force", summary="The policy in force, as it was written")
def in_force(request: AsPerson) -> Any:
    """Where there is none: the defaults, with `number` null and an empty `digest`."""
    current = versions.in_force(_allowed(request, "view"))
    if current is not None:
        return _whole(current)
    return {
        "number": None,
        "digest": "",
        "source": versions.source_of(None),
        "document": default().document,
    }


@router.get("/policies/starters", summary="Policies to begin with, for kinds of agents")
def starters(request: AsPerson) -> Any:
    _allowed(request, "view")
    return {
        "starters": [
            {"name": name, "title": title, "source": versions.starter(name)}
            for name, title in versions.STARTERS.items()
        ]
    }


@router.get("/policies/{int:number}", summary="One version, as it was written")
def one_version(request: AsPerson, number: int) -> Any:
    return _whole(_version_of(_allowed(request, "view"), number))


@router.get(
    "/policies/{int:number}/dry-run", summary="How a version differs, and what it would have said"
)
@answering
def dry_run_of(request: AsPerson, number: int) -> Any:
    """Beside the policy in force, over the last 30 days; of one in the shadow since it is there.
    `problems` keep it from being put in force.
    """
    here = _allowed(request, "view")
    one = _version_of(here, number)
    problems = [] if one.active else [wrong.as_json() for wrong in versions.refusals(one)]
    return _against(here, load(one.document), since=one.shadow_since) | {"problems": problems}


@router.post("/policies/check", summary="Whether a document is a policy, and its dry run")
@answering
def check(request: AsPerson, body: PolicyIn) -> Any:
    """Writes nothing. What is wrong with it is 422, `problems` with line and column of each."""
    here = _allowed(request, "administer")
    return _against(here, versions.check_new(here, body.source))


@router.post("/policies", summary="Save a document as the next version, not yet in force")
@answering
def save(request: AsPerson, body: VersionIn) -> Any:
    """The text of the newest version once more is that version, so that a lost answer may be asked
    for again.
    """
    here = _allowed(request, "administer")
    by, note = request.auth.person, body.note
    with in_turn(here):
        newest = _versions(here).order_by("-number").first()
        if newest is not None and newest.source == body.source:
            return _version(newest)
        return _version(versions.save(here, body.source, by=by, note=note, after=body.after))


@router.post("/policies/{int:number}/activate", summary="Put a version in force")
@answering
def activate(request: AsPerson, number: int, body: ActivateIn) -> Any:
    """From the next judgement on. 409 where another is in force than was seen, and where a call
    would go on that people are asked about: a token decides nothing.
    """
    here = _allowed(request, "administer")
    with in_turn(here):
        one = _version_of(here, number)
        if not one.active:
            with answering_none(here):
                versions.activate(one, by=request.auth.person, seen=body.seen)
        return _version(one)


@router.post("/policies/{int:number}/shadow", summary="Judge with a version that has no say")
@answering
def shadow(request: AsPerson, number: int, body: ShadowIn) -> Any:
    """Beside the one in force, until `end`; asked for once more it changes nothing."""
    here = _allowed(request, "administer")
    with in_turn(here):
        one = _version_of(here, number)
        if one.active:
            told = "What is in force has its say, and is not judged in the shadow."
            return problem_response(409, "It is in force", told)
        if body.end is (one.shadow_since is None):
            return _version(one)
        if body.end:
            versions.end_shadow(here, by=request.auth.person)
            return _version(_version_of(here, number))
        return _version(versions.shadow(one, by=request.auth.person))


# Whether asking is worth something, and what is proposed of that.


@router.get("/approval-health", summary="How people are asked: figures, rules and false alarms")
def approval_health(request: AsPerson, days: int = health.DAYS) -> Any:
    """Of approvals asked in so many days, 1 to 90; the newest 2,000 (`capped`: there were more)."""
    here = _allowed(request, "view")
    found = health.of(here, days=min(max(1, days), DAYS_MAX))
    return {
        "days": found.days,
        "capped": found.capped,
        "asked": found.asked,
        "ends": dict(found.ends),
        "median_seconds": found.median_seconds,
        "p95_seconds": found.p95_seconds,
        "near_instant": found.fast,
        "never_used": found.never_used,
        "taken_back": found.taken_back,
        "undone_later": found.undone_later,
        "rules": [
            {
                "words": one.words,
                "tools": one.glob,
                "asked": one.asked,
                "granted": one.granted,
                "near_instant": one.fast,
                "false_alarms": one.false_alarms,
                "always_at_once": one.always_fast,
            }
            for one in found.rules
        ],
        "reviews": [
            {
                "words": one.words,
                "tools": one.glob,
                "calls": one.calls,
                "looked_at": one.looked_at,
                "false_alarms": one.false_alarms,
            }
            for one in found.reviews
        ],
        "people": [
            {
                "name": one.name,
                "yes": one.yes,
                "no": one.no,
                "near_instant": one.fast,
                "median_seconds": one.median_seconds,
            }
            for one in found.people
        ],
        "by_day": {day: median(times) for day, times in sorted(found.by_day.items())},
    }


@router.get("/proposals", summary="What is proposed of the policy, asking more first")
def proposed(request: AsPerson) -> Any:
    """For whoever administers and is shown payloads, out of which the limits are taken."""
    here, current = _proposing(request)
    return {
        "proposals": [
            {"key": one.key, "kind": one.kind, "tool": one.tool, "words": one.words}
            for one in proposals.of(here, current)
        ]
    }


@router.get("/proposals/{path:key}", summary="One proposal: its document and its dry run")
@answering
def proposal(request: AsPerson, key: str) -> Any:
    """`source` is the whole document with it, to be saved as a version by whoever agrees."""
    here, current = _proposing(request)
    request.shows_a_call = True  # else its text would be saved without a number in it
    found = proposals.find(here, current, key)
    if found is None:
        raise Http404("This is not proposed, or no longer: what it rested on has changed.")
    return {
        "key": found.key,
        "kind": found.kind,
        "tool": found.tool,
        "words": found.words,
        "source": found.source,
        "lost_comments": found.lost,
    } | _against(here, load(read(found.source).value))


def _proposing(request: AsPerson) -> tuple[Workspace, Policy]:
    here = _allowed(request, "administer")
    if not disclosure.sees(request.auth.person, here, deciding=True):
        raise access.NotAllowed("view_sensitive", here)
    return here, active(here)


def _allowed(request: AsPerson, codename: access.Codename) -> Workspace:
    """The caller's workspace; raises NotAllowed unless they hold the permission there."""
    access.require(request.auth.person, codename, request.auth.workspace)
    return request.auth.workspace


def _versions(here: Workspace) -> QuerySet[PolicyVersion]:
    """Without their documents, of which a page of a thousand would be hundreds of megabytes."""
    rows = PolicyVersion.objects.filter(workspace=here).select_related("author", "workspace")
    return rows.defer("document", "source")


def _version_of(here: Workspace, number: int) -> PolicyVersion:
    return get_object_or_404(_versions(here), number=number)


def _version(one: PolicyVersion) -> dict[str, Any]:
    return {
        "number": one.number,
        "digest": one.digest,
        "note": one.note,
        "by": str(one.author or FROM_A_FILE),
        "made_at": one.created_at,
        "in_force": one.active,
        "activated_at": one.activated_at,
        "shadow_since": one.shadow_since,
    }


def _whole(one: PolicyVersion) -> dict[str, Any]:
    return _version(one) | {"source": versions.source_of(one), "document": one.document}


def _against(here: Workspace, policy: Policy, **over: Any) -> dict[str, Any]:
    """A policy beside the one in force; without a dry run where that one cannot be read."""
    current = versions.in_force(here)
    before = current.document if current else default().document
    try:
        found = dry_run.rehearse(here, policy, active(here), **over)
    except PolicyUnreadable:
        found = None
    return {
        "digest": policy.digest,
        "in_force": current.digest if current else "",
        "number": current.number if current else None,
        "newest": versions.newest_number(here),
        "diff": versions.diff(before, policy.document),
        "dry_run": None if found is None else _dry_run(found),
    }


def _dry_run(found: dry_run.PolicyDryRun) -> dict[str, Any]:
    return {
        "words": found.words(),
        "days": found.days,
        "since": found.since,
        "judged": found.judged,
        "capped": found.capped,
        "would": dict(found.sums),
        "did": dict(found.before),
        "asked_most": [{"tool": tool, "times": times} for tool, times in found.top_tools()],
        "changes": [
            {
                "run": one.run,
                "action": one.action,
                "tool": one.tool,
                "was": one.was,
                "becomes": one.becomes,
                "why": one.why,
            }
            for one in found.examples
        ],
        "open_questions": found.open_changes,
        "cannot_run": found.cannot_run,
    }
