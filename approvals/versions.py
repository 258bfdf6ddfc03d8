"""Versions of a workspace's policy: saved by a person, one of them in force.

The settings that the lower floors read (mask, capture, retention, stuck-after) are copied onto the
workspace when a version is activated; everything else is read from the active version itself.
"""

import json
from collections.abc import Mapping, Sequence
from difflib import unified_diff

from django.db import transaction
from django.db.models import Max
from django.db.models.functions import Now

from approvals.matching import assign
from approvals.models import PolicyVersion
from approvals.policy import Invalid, Need, Policy, Problem, active, load
from approvals.policy.judging import needs
from approvals.policy.problems import spelled
from approvals.policy.reading import Text, read
from connectors.canonical import digest
from ledger import desk
from workspaces.access import people_with
from workspaces.models import Team, User, Workspace

NOTE_CHARACTERS_MAX = 400


@transaction.atomic
def save(workspace: Workspace, source: str, *, by: User | None, note: str = "") -> PolicyVersion:
    """Keep a document as the next version, not yet in force. Raises Invalid with every problem."""
    policy = check(workspace, source)
    Workspace.objects.select_for_update(of=("self",)).get(pk=workspace.pk)  # numbers in order
    versions = PolicyVersion.objects.filter(workspace=workspace)
    last = versions.aggregate(last=Max("number"))["last"] or 0
    version = PolicyVersion.objects.create(
        workspace=workspace,
        number=last + 1,
        document=policy.document,
        source=source,
        digest=policy.digest,
        author=by,
        note=note[:NOTE_CHARACTERS_MAX],
    )
    desk.say(workspace, "policy.saved", by=by, part="policy", data=named(version))
    return version


@transaction.atomic
def activate(version: PolicyVersion, *, by: User | None) -> PolicyVersion:
    """Put a version in force from the next judgement on; nothing needs a restart."""
    workspace = Workspace.objects.select_for_update(of=("self",)).get(pk=version.workspace_id)
    policy = check(workspace, version.source or json.dumps(version.document))
    versions = PolicyVersion.objects.filter(workspace=workspace)
    previous = versions.filter(active=True).first()
    versions.filter(active=True).exclude(pk=version.pk).update(active=False)
    versions.filter(pk=version.pk).update(active=True, activated_at=Now())
    _copy_settings(workspace, policy)
    told = named(version) | {"previous": named(previous) if previous else None}
    desk.say(workspace, "policy.activated", by=by, part="policy", data=told)
    version.refresh_from_db()
    return version


def named(version: PolicyVersion) -> dict[str, object]:
    return {"number": version.number, "digest": version.digest, "note": version.note}


def _copy_settings(workspace: Workspace, policy: Policy) -> None:
    workspace.mask = list(policy.audit.mask)
    workspace.capture_intent = policy.audit.capture_intent
    workspace.capture_snapshot = policy.audit.capture_snapshot
    workspace.retention_days = policy.audit.retention_days
    workspace.stuck_after_seconds = policy.stuck_after_seconds
    workspace.save(
        update_fields=[
            "mask",
            "capture_intent",
            "capture_snapshot",
            "retention_days",
            "stuck_after_seconds",
        ]
    )


def check(workspace: Workspace, source: str) -> Policy:
    """The policy of `source`, if it fits the format and the people. Raises Invalid."""
    policy = load(source)
    problems = unmet(workspace, policy, read(source))
    if problems:
        raise Invalid(problems)
    return policy


def unmet(workspace: Workspace, policy: Policy, text: Text) -> list[Problem]:
    """The requirements that nobody can meet as the teams stand now."""
    people = People(workspace)
    return [
        text.problem((*rule.path, "requires"), why, spelled((*rule.path, "requires")))
        for rule in policy.rules
        if rule.requires and (why := people.cannot_meet(needs([rule.requires])))
    ]


def unmet_now(workspace: Workspace) -> list[Problem]:
    """What the policy in force asks and nobody can meet any more, since teams have changed."""
    policy = active(workspace)
    return unmet(workspace, policy, Text(policy.document))


class People:
    """Who may approve in a workspace, and in which teams they stand; read once, asked often."""

    def __init__(self, workspace: Workspace) -> None:
        self._able = set(people_with("approve", workspace).values_list("pk", flat=True))
        self._members: dict[str, set[int]] = {}
        for name, person in Team.objects.filter(workspace=workspace).values_list(
            "name", "group__user"
        ):
            self._members.setdefault(name, set()).update({person} & self._able)

    def cannot_meet(self, asked: Sequence[Need]) -> str:
        """Why these requirements cannot all be met, in words; empty if they can."""
        for need in asked:
            if need.team and need.team not in self._members:
                return f"there is no team “{need.team}”"
        fits = {
            person: [
                place
                for place, need in enumerate(asked)
                if need.team is None or person in self._members[need.team]
            ]
            for person in sorted(self._able)
        }
        places = [need.count for need in asked]
        if len(assign(fits, places)) == sum(places):
            return ""
        wanted = " and ".join(map(str, asked))
        return f"nobody can meet this: it takes {wanted}, each of whom may approve"


def diff(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Two documents line by line, as a unified diff of their sorted JSON."""
    before, after = (json.dumps(one, indent=2, sort_keys=True).splitlines() for one in (old, new))
    return list(unified_diff(before, after, "before", "after", lineterm="", n=3))


def digest_of(document: Mapping[str, object]) -> str:
    return digest(dict(document))
