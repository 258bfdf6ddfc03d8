"""Whether the people of a workspace can meet what its policy asks, now and after teams change.

Looked at when a version is saved, when somebody joins or leaves a team, and by a sweep that also
finds what no signal tells of (a person deactivated, a permission withdrawn).
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now
from django.db.models.signals import m2m_changed
from django.dispatch import receiver

from amends.protocol.vocabulary import EventType
from approvals import glass_eligibility
from approvals.deciders import assign
from approvals.models import PolicyVersion
from approvals.policy import Mistake, Policy, PolicyUnreadable, RequiredApprovers, active
from approvals.policy.document import BreakGlass
from approvals.policy.evaluation import needs
from approvals.policy.reading import LocatedDocument, spelled
from connectors import channels
from connectors.channels import Message
from ledger import desk_events
from workspaces.access import people_with
from workspaces.models import Team, User, Workspace

LOOK_EVERY_SECONDS = 30
BATCH = 50
SHOWN_MAX = 50
UNMEETABLE = EventType.POLICY_UNMEETABLE
"""The subject to which a channel subscribes."""


def unmet(workspace: Workspace, policy: Policy, text: LocatedDocument) -> list[Mistake]:
    """The requirements that nobody can meet as the teams stand now."""
    people = People(workspace)
    rules = (*policy.rules, *policy.always)
    found = [
        ((*rule.path, "requires"), people.cannot_meet(needs([rule.requires])))
        for rule in rules
        if rule.requires
    ]
    found += [
        (
            (*rule.path, "escalate", "group"),
            people.cannot_meet([RequiredApprovers(rule.escalate.team, 1)]),
        )
        for rule in rules
        if rule.escalate
    ]
    if policy.break_glass and policy.break_glass.group:
        found.append((("breakGlass", "group"), _cannot_break(workspace, policy.break_glass)))
    return [text.problem(path, why, spelled(path)) for path, why in found if why]


def _cannot_break(workspace: Workspace, said: BreakGlass) -> str:
    if glass_eligibility.team_of(said, workspace) is None:
        return f"there is no team “{said.group}”"
    people = glass_eligibility.able(workspace, said).count()
    needed = glass_eligibility.PEOPLE
    return "" if people >= needed else f"it takes {needed} people, and “{said.group}” has {people}"


def misleading(workspace: Workspace, policy: Policy, text: LocatedDocument) -> list[Mistake]:
    """What a new version does not say, though people could meet it: that a team which only looks
    on decides in place of others. A version that says so already stands as it is.
    """
    said = policy.break_glass
    team = glass_eligibility.team_of(said, workspace) if said else None
    if team is None or glass_eligibility.has_a_say(team):
        return []
    path = ("breakGlass", "group")
    why = f"“{team}” may only look on: name a team that may approve or administer"
    return [text.problem(path, why, spelled(path))]


def unmet_now(workspace: Workspace) -> list[Mistake]:
    """What the policy in force asks and nobody can meet any more, since teams have changed."""
    policy = active(workspace)
    return unmet(workspace, policy, LocatedDocument(policy.document))


class People:
    """Who may approve in a workspace, and in which teams they stand; read once, asked often."""

    def __init__(self, workspace: Workspace) -> None:
        self._able = set(people_with("approve", workspace).values_list("pk", flat=True))
        self._members: dict[str, set[int]] = {}
        for name, person in Team.objects.filter(workspace=workspace).values_list(
            "name", "group__user"
        ):
            self._members.setdefault(name, set()).update({person} & self._able)

    def cannot_meet(self, asked: Sequence[RequiredApprovers]) -> str:
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


def look(version: PolicyVersion) -> list[str]:
    """Look again whether the version in force can be met; tell, where it no longer can."""
    found = _wrong(version.workspace)[:SHOWN_MAX]
    with transaction.atomic():
        unchanged = PolicyVersion.objects.filter(pk=version.pk, active=True, unmet=version.unmet)
        if not unchanged.update(unmet=found, looked_at=Now()):
            return found  # somebody was faster
        new = [one for one in found if one not in version.unmet]
        if new:
            _alarm(version, new)
        elif version.unmet and not found:
            desk_events.record(
                version.workspace,
                EventType.POLICY_MEETABLE_AGAIN,
                part="policy",
                data=_named(version),
            )
    return found


def _wrong(workspace: Workspace) -> list[str]:
    """What the policy in force asks and nobody can meet; what is wrong with it, if all of it is."""
    try:
        return [str(problem) for problem in unmet_now(workspace)]
    except PolicyUnreadable as unreadable:
        return [f"{PolicyUnreadable.TOLD}{problem}" for problem in unreadable.problems]


def _alarm(version: PolicyVersion, new: list[str]) -> None:
    workspace = version.workspace
    data = _named(version) | {"problems": new}
    event = desk_events.record(workspace, UNMEETABLE, part="policy", data=data)
    title = f"Nobody can meet what the policy of {workspace.name} asks"
    outcome = "Whatever falls under these rules expires unanswered."
    if new[0].startswith(PolicyUnreadable.TOLD):
        title = f"The policy of {workspace.name} cannot be read by this version of the desk"
        outcome = "Agents are not let through there until a version that can be is in force."
    message = Message(
        title=title,
        text="\n".join([*new, outcome]),
        url=f"{settings.AMENDS_URL}/w/{workspace.slug}/policies/",
    )
    channels.announce(workspace, UNMEETABLE, message, key=f"{UNMEETABLE}/{event}")


def _named(version: PolicyVersion) -> dict[str, object]:
    return {"number": version.number, "digest": version.digest}


def look_at(workspace_id: int) -> None:
    """Look at one workspace now, since its teams have changed."""
    versions = PolicyVersion.objects.select_related("workspace")
    version = versions.filter(workspace=workspace_id, active=True).first()
    if version is not None:
        look(version)


def sweep() -> int:
    """Look at policies that nobody has looked at for a while; how many."""
    due = Q(looked_at=None) | Q(looked_at__lte=Now() - timedelta(seconds=LOOK_EVERY_SECONDS))
    versions = PolicyVersion.objects.filter(due, active=True).select_related("workspace")
    rows = list(versions.order_by(F("looked_at").asc(nulls_first=True))[:BATCH])
    for version in rows:
        look(version)
    return len(rows)


CHANGES = frozenset({"post_add", "post_remove", "post_clear"})


@receiver(m2m_changed, sender=User.groups.through, dispatch_uid="approvals.receivers")
def teams_changed(
    sender: object, action: str, instance: Any, pk_set: set[int] | None, **more: object
) -> None:
    """Somebody joined or left groups: look at the workspaces whose teams these are."""
    if action not in CHANGES:
        return
    groups = set(pk_set or ()) if isinstance(instance, User) else {instance.pk}
    found = Team.objects.filter(group__in=groups).values_list("workspace", flat=True)
    for workspace in set(found):
        transaction.on_commit(partial(look_at, workspace), robust=True)
