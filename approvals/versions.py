"""Versions of a workspace's policy: saved by a person, one of them in force.

The settings that the lower floors read (mask, capture, retention, stuck-after, probation) are
copied onto the workspace when a version is activated; everything else is read from the active
version itself.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from typing import Any

from django.db import transaction
from django.db.models import Max
from django.db.models.functions import Now
from django.dispatch import receiver
from django.http import QueryDict

from amends.protocol.vocabulary import EventType
from approvals import approval_requests, grants, team_coverage
from approvals.models import LIVING, PolicyVersion
from approvals.policy import Invalid, Mistake, Policy, default, load_new
from approvals.policy.reading import read
from ledger import desk_events, disclosure
from workspaces import locks
from workspaces.entrance import workspace_set_up
from workspaces.free_text import NOTE_CHARACTERS_MAX, kept_text
from workspaces.models import User, Workspace
from workspaces.moves import CannotMove
from workspaces.pages import is_number

LEFT_OUT = (
    "a card or account number stood here, which is shown to whoever holds view_sensitive: have them"
    " write this version, or write the number in"
)


class SavedMeanwhile(Exception):
    """We stopped because somebody saved `version` since the author began; look at it first."""

    def __init__(self, version: PolicyVersion) -> None:
        super().__init__(f"version {version.number} was saved meanwhile")
        self.version = version

    def notice(self) -> dict[str, Any]:
        """What a page tells of it, once, with all that was typed (approvals/_notice.html)."""
        who, number = self.version.author or "A file", self.version.number
        return {
            "tone": "wait",
            "title": f"Nothing was saved: {who} saved version {number} since you began.",
            "text": "What you wrote stands below. Look at theirs; saving once more keeps yours as"
            " the next version, without their changes.",
            "url": "approvals:version",
            "number": number,
        }


class InForceMeanwhile(Exception):
    """We stopped because another version came into force since the page was drawn: look again."""


def newest_number(workspace: Workspace) -> int:
    """Of the newest version, in force or not; 0 where there is none."""
    rows = PolicyVersion.objects.filter(workspace=workspace).order_by("-number")
    return rows.values_list("number", flat=True).first() or 0


def seen_by(posted: QueryDict) -> int | None:
    """Which version was the newest as its author began, as their page says; None: it does not."""
    said = posted.get("seen")
    if said is None:
        return None
    return int(said) if is_number(said) else 0


def in_force(workspace: Workspace) -> PolicyVersion | None:
    return PolicyVersion.objects.filter(workspace=workspace, active=True).first()


def source_of(version: PolicyVersion | None) -> str:
    """The text of a version as its author wrote it; of none the defaults."""
    if version is None:
        return json.dumps(default().document, indent=2) + "\n"
    return version.source or json.dumps(version.document, indent=2) + "\n"


@transaction.atomic
def save(
    workspace: Workspace, source: str, *, by: User | None, note: str = "", after: int | None = None
) -> PolicyVersion:
    """Keep a document as the next version, not yet in force. Raises Invalid with every problem,
    InvalidInput for a note that is too long, and, where the author says `after` which number they
    write, SavedMeanwhile if there is a newer one.
    """
    note = kept_text(note, NOTE_CHARACTERS_MAX)
    policy = check_new(workspace, source)
    locks.locked(Workspace.objects.all()).get(pk=workspace.pk)  # numbers in order
    versions = PolicyVersion.objects.filter(workspace=workspace)
    last = versions.aggregate(last=Max("number"))["last"] or 0
    if after is not None and last > after:
        raise SavedMeanwhile(versions.select_related("author").get(number=last))
    version = PolicyVersion.objects.create(
        workspace=workspace,
        number=last + 1,
        document=policy.document,
        source=source,
        digest=policy.digest,
        author=by,
        note=note,
    )
    desk_events.record(workspace, EventType.POLICY_SAVED, by=by, part="policy", data=named(version))
    return version


@transaction.atomic
def activate(version: PolicyVersion, *, by: User | None, seen: str | None = None) -> PolicyVersion:
    """Put a version in force from the next judgement on; nothing needs a restart. `seen` is the
    digest of the one that a page showed in force, empty for none. Raises Invalid, or
    InForceMeanwhile where it is another by now.
    """
    workspace = locks.locked(Workspace.objects.all()).get(pk=version.workspace_id)
    policy = check(workspace, source_of(version))
    versions = PolicyVersion.objects.filter(workspace=workspace)
    previous = versions.filter(active=True).first()
    if seen is not None and seen != (previous.digest if previous else ""):
        raise InForceMeanwhile("Another version was put in force since this page was drawn.")
    versions.filter(active=True).exclude(pk=version.pk).update(active=False)
    versions.filter(pk=version.pk).update(
        active=True, activated_at=Now(), shadow_since=None, unmet=[], looked_at=Now()
    )
    _copy_settings(workspace, policy)
    _end_grants_of_other_rules(workspace, policy, version)
    data = named(version) | {"previous": named(previous) if previous else None}
    desk_events.record(workspace, EventType.POLICY_ACTIVATED, by=by, part="policy", data=data)
    version.refresh_from_db()
    return version


@transaction.atomic
def shadow(version: PolicyVersion, *, by: User | None) -> PolicyVersion:
    """Judge with this version beside the one in force, without a say; a second time changes
    nothing. Raises Invalid.
    """
    workspace = locks.locked(Workspace.objects.all()).get(pk=version.workspace_id)
    check(workspace, source_of(version))
    version.refresh_from_db()
    if version.shadow_since is not None:
        return version
    if version.active:
        raise Invalid([Mistake("it is in force already")])
    end_shadow(workspace, by=by)
    PolicyVersion.objects.filter(pk=version.pk).update(shadow_since=Now())
    desk_events.record(
        workspace, EventType.POLICY_SHADOWED, by=by, part="policy", data=named(version)
    )
    version.refresh_from_db()
    return version


@transaction.atomic
def end_shadow(workspace: Workspace, *, by: User | None) -> None:
    """Let no version be judged in the shadow any more; a second time changes nothing."""
    standing = PolicyVersion.objects.filter(workspace=workspace, shadow_since__isnull=False)
    for version in standing:
        standing.filter(pk=version.pk).update(shadow_since=None)
        desk_events.record(
            workspace, EventType.POLICY_SHADOW_ENDED, by=by, part="policy", data=named(version)
        )


def _end_grants_of_other_rules(
    workspace: Workspace, policy: Policy, version: PolicyVersion
) -> None:
    """Bounded grants, and what is asked for them, of a tool that this version never allows, or
    under a rule that it does not have as it was: they cover nothing, and do not come back with it.
    """
    bounded = grants.bounded_in(workspace)
    living = bounded.filter(state__in=LIVING, expires_at__gt=Now()).select_related("workspace")
    for one in living.order_by("pk"):
        tool = str(one.calls[0]["operation"]) if one.calls else ""
        of_tool = policy.of_tool(tool)
        rules = (*of_tool.rules, *of_tool.always)
        known = {grants.rules_digest([rule.as_json()]) for rule in rules}
        is_denied = any(rule.approval == "DENY" and rule.when is None for rule in rules)
        if is_denied or any(grants.rules_digest([rule]) not in known for rule in one.rules):
            why = f"Its rule was changed by version {version.number} of the policy."
            with suppress(CannotMove):  # it ended by itself a moment ago
                approval_requests.void(one, why=why)


def named(version: PolicyVersion) -> dict[str, object]:
    return {"number": version.number, "digest": version.digest, "note": version.note}


def _copy_settings(workspace: Workspace, policy: Policy) -> None:
    workspace.mask = list(policy.audit.mask)
    workspace.mask_shows_last4 = policy.audit.shows_last4
    workspace.capture_intent = policy.audit.capture_intent
    workspace.capture_snapshot = policy.audit.capture_snapshot
    workspace.retention_days = policy.audit.retention_days
    workspace.stuck_after_seconds = policy.stuck_after_seconds
    workspace.probation_seconds = policy.probation_seconds
    workspace.save(
        update_fields=[
            "mask",
            "mask_shows_last4",
            "capture_intent",
            "capture_snapshot",
            "retention_days",
            "stuck_after_seconds",
            "probation_seconds",
        ]
    )


def check_new(workspace: Workspace, source: str) -> Policy:
    """As `check`, of what somebody is about to save: no new version misleads, and none has lost a
    number that its author was not shown. Raises Invalid.
    """
    before, is_cut, _ = source.partition(disclosure.TAKEN_OUT)
    if is_cut:
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise Invalid([Mistake(LEFT_OUT, "", line, column)])
    policy = check(workspace, source)
    if problems := team_coverage.misleading(workspace, policy, read(source)):
        raise Invalid(problems)
    return policy


def check(workspace: Workspace, source: str) -> Policy:
    """The policy of `source`, if it fits the format and the people. Raises Invalid."""
    policy = load_new(source)
    problems = team_coverage.unmet(workspace, policy, read(source))
    if problems:
        raise Invalid(problems)
    return policy


def refusals(version: PolicyVersion) -> list[Mistake]:
    """What keeps a version that is not in force from coming into it, as people and rules are now;
    it may have been saved by an older desk.
    """
    try:
        check(version.workspace, source_of(version))
    except Invalid as wrong:
        return wrong.problems
    return []


def diff(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Two documents line by line, as a unified diff of their sorted JSON: each line after its sign,
    and an ellipsis where what both say was left out.
    """
    before, after = (json.dumps(one, indent=2, sort_keys=True).splitlines() for one in (old, new))
    lines = list(unified_diff(before, after, lineterm="", n=3))[2:]  # not the names of two files
    return ["…" if line.startswith("@@") else line for line in lines]


# The policies that a new workspace starts with (workspaces/entrance.py names them).
#
# Both ask people of a tool that nobody has listed: a name that an agent made up, or that only
# looks like another, does not go on by its class alone.

ASKS = """\
# A tool that stands neither under `policies` nor under `tools` asks a person who may approve.
# List yours: https://cel.dev is for conditions, the page Tools shows what agents have called.
# Whoever owns an agent does not approve its calls. While you are alone, this lets you:
# selfApproval: true
unknownTools: ASK
"""
QUICK_START = """
policies:
  update_flight: {approval: AUTO, compensation: SNAPSHOT}   # the ten lines of the guide
  notes.write: {approval: AUTO}                             # the program that comes with a key
"""
SOURCES = {"quick-start": ASKS + QUICK_START, "ask-all": ASKS}


# Policies to start a new version from, for kinds of agents: the editor offers them, and
# `python -m bench attacks` says what they do to hijacked runs.

STARTERS = {
    "support-desk": "Support desk",
    "finance": "Finance",
    "office-assistant": "Office assistant",
    "code-agent": "Code agent",
}
STARTERS_FOLDER = Path(__file__).parent / "starters"


def starter(name: str) -> str:
    """The text of a starter; nothing where there is none of this name."""
    return (STARTERS_FOLDER / f"{name}.yaml").read_text() if name in STARTERS else ""


@receiver(workspace_set_up, dispatch_uid="approvals.versions")
def first_policy(
    sender: object, workspace: Workspace, by: User, starter: str, **more: object
) -> None:
    """Put the chosen policy in force, as the founder's own first version."""
    saved = save(workspace, SOURCES[starter], by=by, note="To start with")
    activate(saved, by=by)
