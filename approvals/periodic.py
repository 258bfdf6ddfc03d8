"""What approvals do again and again."""

from contextlib import suppress
from datetime import UTC, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.db.models.functions import Now, TruncDate

from amends.protocol.vocabulary import KEYS_KEPT_DAYS, EventType
from approvals import (
    approval_requests,
    deciders,
    glass_decisions,
    glass_eligibility,
    grants,
    inbox,
    memory,
    notifications,
    team_coverage,
)
from approvals.deciders import locked
from approvals.digests import record
from approvals.gate import covered_questions
from approvals.interchange import aap
from approvals.models import LIVING, Approval, ApprovalState, Decision, GateKey, Requirement
from approvals.signals import publish_on_commit
from workspaces import delegations
from workspaces.models import Team, User
from workspaces.moves import CannotMove
from workspaces.periodic import SWEEPER, each, every

# Expiry: a question that nobody answered in time is rejected, and an unused grant with it.
#
# Time is the database's alone. Nothing waits for this sweep: late answers and late uses are
# refused by their own conditional UPDATE; the sweep tells whoever asked, and clears the inbox's
# history.

BATCH = 200


def expire_due() -> int:
    """Expire what is due, oldest first; the number of approvals expired."""
    due = Approval.objects.filter(state__in=LIVING, expires_at__lte=Now()).order_by("expires_at")
    return each(due.only("pk", "workspace_id", "run_ref")[:BATCH], _expire)


@transaction.atomic
def _expire(approval: Approval) -> bool:
    row = locked(approval)
    due = Approval.objects.filter(
        pk=row.pk, state=row.state, state__in=LIVING, expires_at__lte=Now()
    )
    # A bounded grant that has let calls pass ends as what was used.
    end = ApprovalState.USED if row.uses.exists() else ApprovalState.EXPIRED
    at = {"used_at" if end == ApprovalState.USED else "decided_at": Now()}
    if not due.update(was=row.state, state=end, **at):
        return False
    record(row, EventType.APPROVAL_EXPIRED, granted=row.state == ApprovalState.GRANTED)
    row.was, row.state = row.state, end
    notifications.ended(row)
    publish_on_commit(row.pk, row.subject_kind)
    return True


def remind_due() -> int:
    """At half time, tell who could still answer; the number of reminders."""
    due = Approval.objects.open().filter(remind_at__lte=Now(), reminded_at=None)
    return each(due.order_by("remind_at")[:BATCH], _remind)


@transaction.atomic
def _remind(approval: Approval) -> bool:
    row = locked(approval)
    waiting = Approval.objects.open().filter(pk=row.pk, reminded_at=None)
    if not waiting.update(reminded_at=Now()):
        return False
    people = deciders.can_still_decide(row)
    record(row, EventType.APPROVAL_REMINDED, people=[one.pk for one in people], alarm=not people)
    notifications.reminded(row, people)
    return True


def escalate_due() -> int:
    """Ask the second team where nobody has decided in the rule's time; how many questions."""
    due = Approval.objects.open().filter(escalate_at__lte=Now(), escalated_at=None)
    return each(due.order_by("escalate_at")[:BATCH], _escalate)


@transaction.atomic
def _escalate(approval: Approval) -> bool:
    """Whoever stands in the second team may answer, too, wherever somebody is missing still; but
    for a team that a rule asks which does not escalate.
    """
    row = locked(approval)
    waiting = Approval.objects.open().filter(pk=row.pk, escalated_at=None)
    told = [one["escalate"] for one in row.rules if one.get("escalate")]
    later = min(told, key=lambda one: int(one["seconds"]), default=None)
    team = later and Team.objects.filter(workspace=row.workspace_id, name=later["team"]).first()
    asked = [one for one, _ in deciders.progress(row).missing() if _may_escalate(row, one)]
    if not team or not asked:
        waiting.update(escalate_at=None)
        return False
    if not waiting.update(escalated_at=Now()):
        return False
    Requirement.objects.filter(pk__in=[one.pk for one in asked]).update(escalated_to=team)
    members = set(User.objects.filter(groups__team=team).values_list("pk", flat=True))
    people = [one for one in deciders.can_still_decide(row) if one.pk in members]
    record(row, EventType.APPROVAL_ESCALATED, team=team.name, people=[one.pk for one in people])
    notifications.escalated(row, people)
    return True


def complete_due() -> int:
    """Grant what enough people have agreed to again, as the teams stand now; how many."""
    yes = Decision.objects.filter(approval=OuterRef("pk"), granted=True)
    begun = Approval.objects.open().filter(Exists(yes)).select_related("workspace")
    light = begun.only(*grants.LIGHT, "run_ref").prefetch_related(
        "decisions__delegation", "requirements"
    )
    return each(covered_questions.walked(light), _complete)


def _complete(approval: Approval) -> bool:
    with suppress(CannotMove):  # it expires, or the policy cannot be read
        again = inbox.complete_again
        if not deciders.progress(approval).complete:  # the usual case, which locks nothing
            again = glass_decisions.open_again
            broken = any(one.break_glass for one in approval.decisions.all())
            if not (broken and glass_eligibility.stands(approval)):
                return False
        with transaction.atomic():
            return again(locked(approval))
    return False


def _may_escalate(row: Approval, requirement: Requirement) -> bool:
    """Whether all the rules that ask this team let another one answer in its place."""
    name = requirement.team.name if requirement.team else None
    asking = [
        rule
        for rule in row.rules
        if name and any(need["group"] == name for need in rule.get("requires") or ())
    ]
    return all(rule.get("escalate") for rule in asking)


def forget_old_keys() -> int:
    """Forget keys that nobody has used for so long that they may be used anew."""
    oldest = TruncDate(Now() - timedelta(days=KEYS_KEPT_DAYS), tzinfo=UTC)
    old = GateKey.objects.alias(day=TruncDate("met_at", tzinfo=UTC)).filter(day__lt=oldest)
    keys = list(old.values_list("agent_id", "key")[:BATCH])
    for agent, key in keys:
        GateKey.objects.filter(agent_id=agent, key=key).delete()
    return len(keys)


every(2, name="approvals.expire", process=SWEEPER)(expire_due)
every(1, name="approvals.withdraw", process=SWEEPER)(approval_requests.sweep)
every(15, name="approvals.release", process=SWEEPER)(covered_questions.release_due)
every(30, name="approvals.remind")(remind_due)
every(5, name="approvals.escalate")(escalate_due)
every(15, name="approvals.complete")(complete_due)
every(5, name="approvals.note_told")(notifications.note_due)
every(5, name="approvals.delegations", where=[delegations.not_ended])(delegations.look)
every(60, name="approvals.summaries")(notifications.write_summaries)
every(10, name="approvals.look_at_teams")(team_coverage.sweep)
every(3600, name="approvals.forget_keys")(forget_old_keys)
every(3600, name="approvals.forget_requests")(aap.forget_old)
every(2, name="approvals.tell_put_off", where=[aap.put_off])(aap.tell_put_off)
every(10, name="approvals.take_back_requests")(aap.take_back_overdue)
every(600, name="approvals.forget_denials")(memory.forget_denials)
every(600, name="approvals.forget_memory")(memory.forget_old)
