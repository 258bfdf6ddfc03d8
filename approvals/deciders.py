"""Who may answer an approval, and whether what was answered is enough.

Entitled is who is active, may approve in the workspace, has proven their address, stands in the
team that is asked, and is neither requester nor the agent's owner nor of their circle
(workspaces/independence.py), unless the rule says selfApproval. Superuser status never counts.

Whoever was handed a right (workspaces/delegations.py) answers with it as far as its owner could at
that moment, and neither of the two may have asked or own the agent, whatever the rule says. The two
are one person of an approval: whoever answers in a right and its owner have answered together.

Address and circle are looked at when a person decides, as the database does with each decision;
what was decided stands, whoever is put into a team later.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from django.contrib.auth.models import AnonymousUser
from django.db.models import BooleanField, prefetch_related_objects
from django.db.models.expressions import RawSQL

from approvals.models import Approval, ApprovalState, Requirement, SubjectKind
from ledger.models import Run
from workspaces import delegations, independence, locks
from workspaces.access import people_with
from workspaces.independence import Newcomer
from workspaces.models import Delegation, DelegationEnd, Team, User, Workspace
from workspaces.request_cache import cached

Person = TypeVar("Person", bound=Hashable)


# The lock under which an approval is answered, asked about, expired or taken back.


def locked(approval: Approval) -> Approval:
    """The approval under a lock; its run first, for that is the order in which everybody locks."""
    runs = Run.objects.filter(workspace=approval.workspace_id, run=approval.run_ref)
    list(locks.locked(runs).values_list("pk"))
    row: Approval = (
        locks.locked(Approval.objects.all())
        .select_related("workspace", "action")
        .get(pk=approval.pk)
    )
    return row


# Whether the ledger tells that a right was handed over.
HANDED_OVER = "approvals_is_handed_over({0}.id)"


def _handed_over() -> RawSQL:
    told = HANDED_OVER.format("workspaces_delegation")
    return RawSQL(told, (), output_field=BooleanField())  # noqa: S611 - our own words


# Which decision fills which requirement.
#
# One decision fills one requirement, and a person may stand in several teams; so the assignment is
# a bipartite matching between people and places, found by augmenting paths (Kuhn 1955). A greedy
# choice would say "not enough" where exchanging two people would do.


def assign(fits: Mapping[Person, Sequence[int]], places: Sequence[int]) -> dict[Person, int]:
    """A largest assignment person → requirement.

    `fits` says which requirements (by index into `places`) each person can fill, `places` how many
    people each requirement takes. People who come first keep a place if they had one.
    """
    filled: list[list[Person]] = [[] for _ in places]
    for person in fits:
        _seat(person, fits, places, filled, set())
    return {person: place for place, people in enumerate(filled) for person in people}


def _seat(
    person: Person,
    fits: Mapping[Person, Sequence[int]],
    places: Sequence[int],
    filled: list[list[Person]],
    tried: set[int],
) -> bool:
    for place in fits[person]:
        if place in tried:
            continue
        tried.add(place)
        if len(filled[place]) < places[place]:
            filled[place].append(person)
            return True
        for sitting in filled[place]:
            if _seat(sitting, fits, places, filled, tried):
                filled[place].remove(sitting)
                filled[place].append(person)
                return True
    return False


@dataclass(frozen=True, slots=True)
class ApprovalProgress:
    """The requirements of an approval, and which entitled person fills which of them."""

    requirements: list[Requirement]
    fits: dict[int, list[int]]
    filled: dict[int, int]

    @property
    def complete(self) -> bool:
        return len(self.filled) == sum(one.count for one in self.requirements)

    def missing(self) -> list[tuple[Requirement, int]]:
        """How many people each requirement still lacks."""
        taken = list(self.filled.values())
        lacking = [(one, one.count - taken.count(i)) for i, one in enumerate(self.requirements)]
        return [(one, count) for one, count in lacking if count]


class Mandate(NamedTuple):
    """In whose right a person answers, and which requirements (by index) that right fills."""

    person: int
    places: list[int]
    delegation: Delegation | None = None

    @property
    def both(self) -> set[int]:
        """Who has answered once this is used: a delegate and their delegator are one."""
        return {self.person} | ({self.delegation.delegator_id} if self.delegation else set())


def entitled(approval: Approval, people: Iterable[int] | None = None) -> dict[int, list[int]]:
    """Person's id → the requirements (by index) they can fill, as the teams stand now; in their own
    right or in one that was handed to them.
    """
    people = None if people is None else list(people)
    found = themselves(approval, people)
    for one in _lent(approval, people):
        found[one.person] = sorted({*found.get(one.person, ()), *one.places})
    return found


def themselves(approval: Approval, people: Iterable[int] | None = None) -> dict[int, list[int]]:
    """The same in their own right alone; more people than these never count."""
    requirements = required(approval)
    barred = set() if approval.self_approval else approval.askers
    among = None if people is None else frozenset(people)
    able = cached(("able", approval.workspace_id, among), lambda: _able(approval.workspace, among))
    ids = [pk for pk in able if pk not in barred]
    kept_back = _kept_back(approval, ids)
    ids = [pk for pk in ids if pk not in kept_back]
    asked = [pk for one in requirements for pk in (one.team_id, one.escalated_to_id)]
    teams = [pk for pk in asked if pk]
    members: dict[int, set[int]] = {team: set() for team in teams}
    stand = ("stand", frozenset(teams), frozenset(ids))
    for team, person in cached(stand, lambda: _stand(teams, ids)):
        members[team].add(person)
    fits = {
        person: [
            place
            for place, one in enumerate(requirements)
            if one.team_id is None or person in members[one.team_id] | _second(members, one)
        ]
        for person in ids
    }
    return {person: places for person, places in fits.items() if places}


def _able(here: Workspace, people: Collection[int] | None) -> list[int]:
    able = people_with("approve", here)
    found = able if people is None else able.filter(pk__in=people)
    return list(found.values_list("pk", flat=True))


def _stand(teams: Collection[int], people: Collection[int]) -> list[tuple[int, int]]:
    stand = Team.objects.filter(pk__in=teams, group__user__in=people)
    return list(stand.values_list("pk", "group__user"))


def is_asked_first(approval: Approval, person: User) -> bool:
    """Whether this person answers in their own right and for a team that was asked from the first:
    not in a right that was handed to them, or as one of a second team.
    """
    requirements = required(approval)
    places = themselves(approval, [person.pk]).get(person.pk, [])
    teams = {requirements[at].team_id for at in places}
    first = Team.objects.filter(pk__in=[pk for pk in teams if pk], group__user=person)
    return None in teams or first.exists()


def _lent(approval: Approval, people: list[int] | None) -> list[Mandate]:
    """The rights that others have handed to these people for now, as far as those could answer."""
    if approval.subject_kind == SubjectKind.GRANT:  # it may live for longer than who lends a right
        return []
    rows = Delegation.objects.filter(delegations.living(), workspace=approval.workspace_id)
    if people is not None:
        rows = rows.filter(delegate__in=people)
    if not rows.exists():  # as nearly always
        return []
    rows = rows.filter(_handed_over(), delegate__in=people_with("view", approval.workspace))
    held = list(rows.select_related("delegator", "team").order_by("pk"))
    if not held:
        return []
    both = {pk for row in held for pk in (row.delegator_id, row.delegate_id)}
    standings = independence.standings(both, approval.askers, approval.workspace)
    owners = themselves(approval, {row.delegator_id for row in held})
    found = []
    for row in held:
        of_both = [standings[row.delegator_id], standings[row.delegate_id]]
        places = _of_team(approval, row, owners.get(row.delegator_id, []))
        if places and all(one.is_proven and one.is_independent for one in of_both):
            found.append(Mandate(row.delegate_id, places, row))
    return found


def _of_team(approval: Approval, row: Delegation, places: list[int]) -> list[int]:
    """Of what the delegator can fill, what they have handed over."""
    if row.team_id is None:
        return places
    if not Team.objects.filter(pk=row.team_id, group__user=row.delegator_id).exists():
        return []
    requirements = required(approval)
    asked = [(requirements[at].team_id, requirements[at].escalated_to_id) for at in places]
    return [at for at, teams in zip(places, asked, strict=True) if row.team_id in teams]


def mandates(approval: Approval, people: Iterable[int] | None = None) -> list[Mandate]:
    """In which rights these people could still answer, each one's own before those of others."""
    people = None if people is None else list(people)
    answered = {
        pk for one in approval.decisions.all() for pk in (one.person_id, one.principal_id) if pk
    }
    own = [Mandate(pk, places) for pk, places in themselves(approval, people).items()]
    return [one for one in [*own, *_lent(approval, people)] if not one.both & answered]


def _second(members: Mapping[int, set[int]], one: Requirement) -> set[int]:
    """Who stands in the team that was asked since nobody had decided in time."""
    return members[one.escalated_to_id] if one.escalated_to_id else set()


def _kept_back(approval: Approval, people: Iterable[int]) -> set[int]:
    """Who has not decided yet and does not count as a second pair of eyes, or proved no address."""
    decided = {one.principal_id or one.person_id for one in approval.decisions.all()}
    asked = [pk for pk in people if pk not in decided]
    found = independence.standings(asked, approval.askers, approval.workspace) if asked else {}
    return {
        pk
        for pk, one in found.items()
        if not one.is_proven or not (one.is_independent or approval.self_approval)
    }


def newcomers(approval: Approval) -> list[Newcomer]:
    """Who could answer, but is new and was brought in by those who ask, or with them."""
    if approval.self_approval:
        return []
    able = people_with("approve", approval.workspace).values_list("pk", flat=True)
    asking = approval.askers
    people = [pk for pk in able if pk not in asking]
    return independence.newcomers(people, asking, approval.workspace)


def progress(approval: Approval) -> ApprovalProgress:
    """How far the approval is, counting only deciders who are still entitled."""
    return _progress(approval, _granted(approval))


def with_yes(approval: Approval, person: int) -> tuple[ApprovalProgress, Mandate] | None:
    """How far it would be with this person's yes, and in whose right they would give it; None where
    it would bring the approval no further. What it rests on is read once, and stays with the row.
    """
    prefetch_related_objects([approval], "decisions", "requirements")
    fits = _granted(approval)
    mandate = chosen(approval, person, fits)
    if mandate is None:
        return None
    return _progress(approval, fits | {person: mandate.places}), mandate


def _progress(approval: Approval, fits: dict[int, list[int]]) -> ApprovalProgress:
    requirements = required(approval)
    return ApprovalProgress(requirements, fits, assign(fits, [one.count for one in requirements]))


def _granted(approval: Approval) -> dict[int, list[int]]:
    """Who has said yes → what that fills, as the teams stand now, in the order of their answers.

    An answer under a delegation stands as long as its owner is entitled and the delegate a member.
    That its time is over takes nothing back; that it was revoked does.
    """
    answers = (one for one in approval.decisions.all() if one.granted and not one.break_glass)
    granted = sorted(answers, key=lambda one: one.pk)
    lent = [one for one in granted if one.delegation_id]
    own = themselves(approval, {one.principal_id or one.person_id for one in granted})
    here: set[int] = set()
    if lent:
        members = people_with("view", approval.workspace)
        asked = members.filter(pk__in=[one.person_id for one in lent])
        here = set(asked.values_list("pk", flat=True))
    fits = {}
    for one in granted:
        places = own.get(one.principal_id or one.person_id, [])
        if (row := one.delegation) is not None:
            stands = one.person_id in here and row.end in {"", DelegationEnd.TIME}
            places = _of_team(approval, row, places) if stands else []
        if places:
            fits[one.person_id] = places
    return fits


def chosen(
    approval: Approval, person: int, before: Mapping[int, list[int]] | None = None
) -> Mandate | None:
    """In whose right this person's yes would bring the approval further; None where in nobody's."""
    fits = dict(_granted(approval) if before is None else before)
    places = [one.count for one in required(approval)]
    far = len(assign(fits, places))
    for one in mandates(approval, [person]):
        if len(assign(fits | {person: one.places}, places)) > far:
            return one
    return None


def counts(approval: Approval, person: User | AnonymousUser) -> bool:
    """Whether this person's yes would bring the approval further."""
    return person.pk is not None and chosen(approval, person.pk) is not None


def required(approval: Approval) -> list[Requirement]:
    """The requirements in their order, from what was prefetched if it was."""
    return sorted(approval.requirements.all(), key=lambda one: one.position)


def can_complete(standing: ApprovalProgress, mandates: Iterable[Mandate]) -> bool:
    """Whether those who have said yes and those who could still answer fill every place; whoever
    holds a right for somebody adds none.
    """
    still = {one.person: one.places for one in mandates if one.delegation is None}
    places = [one.count for one in standing.requirements]
    return len(assign(standing.fits | still, places)) == sum(places)


def names(mandates: Iterable[Mandate]) -> list[str]:
    """Whose these are, each once, with for whom they decide."""
    lent: dict[int, list[Delegation]] = {}
    own = set()
    for one in mandates:
        if one.delegation is None:
            own.add(one.person)
        else:
            lent.setdefault(one.person, []).append(one.delegation)
    people = User.objects.filter(pk__in={*own, *lent}).order_by("name", "email")
    return [
        str(person)
        if person.pk in own
        else f"{person} (for {', '.join(str(row.delegator) for row in lent[person.pk])})"
        for person in people
    ]


def can_still_decide(approval: Approval) -> list[User]:
    """The people who could decide now, for "who else can"."""
    ids = {one.person for one in mandates(approval)}
    return list(User.objects.filter(pk__in=ids).order_by("name", "email"))


def asking_rules(approval: Approval) -> list[dict[str, Any]]:
    """A rule that asks nobody is no reason, and stands among them only where there is no other."""
    asking = [rule for rule in approval.rules if rule.get("approval") != "AUTO"]
    return asking or ([] if approval.reason else approval.rules)


def why_expired(approval: Approval) -> str:
    """What did not come in time, of one that has expired."""
    if approval.was == ApprovalState.GRANTED:
        return "it was approved, and not used in time"
    if any(one.granted for one in approval.decisions.all()):
        return "not everybody who had to agree did so in time"
    return "nobody answered in time"
