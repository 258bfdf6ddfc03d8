"""The daily summary: one mail a day of the questions that wait for a person, for whoever wants it.

The row moves on to the day and the message is written in one transaction, and the message's key
names person and day: whatever breaks, a day has one message at most. A day on which nothing waits
has none. It says of each question as much as its reader may see, and no argument.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import date
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core import signing
from django.db import connection, transaction
from django.urls import reverse

from approvals import deciders, notifications
from approvals.models import Approval, DailySummary
from approvals.policy import Unreadable, active
from connectors import channels
from connectors.channels import Message
from ledger import disclosure
from workspaces import clock, formatting
from workspaces.models import User, Workspace
from workspaces.periodic import each

LINES_MAX = 20
QUESTIONS_MAX = 1_000
BATCH = 100
"""Mails in one turn of the job; the next turn goes on."""

SUBJECT = "approval.summary"
ZONE = "coalesce(nullif(person.timezone, ''), nullif(here.timezone, ''), 'UTC')"
# A day of theirs begins at the hour that they chose.
DAY = f"((statement_timestamp() AT TIME ZONE {ZONE}) - %s * interval '1 hour')::date"
TODAY = f"""
SELECT {DAY} FROM workspaces_workspace here, workspaces_user person
WHERE here.id = %s AND person.id = %s"""  # noqa: S608 - our own words
DUE = f"""
SELECT wish.id, wish.workspace_id, {DAY.replace("%s", "wish.hour")}
FROM approvals_dailysummary wish
JOIN workspaces_workspace here ON here.id = wish.workspace_id
JOIN workspaces_user person ON person.id = wish.person_id AND person.is_active
WHERE wish.written_for < {DAY.replace("%s", "wish.hour")}
ORDER BY wish.workspace_id, wish.id"""  # noqa: S608 - our own words


def zone_for(person: User, workspace: Workspace) -> ZoneInfo:
    """By whose hours the person's day goes."""
    return ZoneInfo(person.timezone or workspace.timezone or "UTC")


def hour_of(workspace: Workspace, person: User) -> int | None:
    """The hour at which the person gets theirs; None: they want none."""
    wish = DailySummary.objects.filter(workspace=workspace, person=person).first()
    return wish.hour if wish else None


@transaction.atomic
def choose(workspace: Workspace, person: User, hour: int | None) -> None:
    """Want it at this hour (0 to 23) from the next time on, or no more."""
    wishes = DailySummary.objects.filter(workspace=workspace, person=person)
    if hour is None:
        wishes.delete()
        return
    with connection.cursor() as cursor:
        cursor.execute(TODAY, [hour, workspace.pk, person.pk])
        today: date = cursor.fetchone()[0]
    DailySummary.objects.update_or_create(
        workspace=workspace, person=person, defaults={"hour": hour, "written_for": today}
    )


STOP_SALT = "approvals.summaries.stop"


def stop_token(workspace: Workspace, person: User) -> str:
    """Names one person's mail in one workspace; whoever has it can end that mail, and no more.

    It has no end of its own: who finds an old mail can still stop those to come.
    """
    return signing.Signer(salt=STOP_SALT).sign(f"{workspace.pk}.{person.pk}")


def wanted_by(token: str) -> tuple[Workspace, User] | None:
    """Whose mail it is; None where the token is not ours, or one of both is gone."""
    try:
        here, whom = signing.Signer(salt=STOP_SALT).unsign(token).split(".")
    except signing.BadSignature:
        return None
    workspace = Workspace.objects.filter(pk=here).first()
    person = User.objects.filter(pk=whom).first()
    return (workspace, person) if workspace and person else None


def write_due() -> int:
    """Write what is due, where somebody is at work now; how many days were dealt with."""
    with connection.cursor() as cursor:
        cursor.execute(DUE)
        due: list[tuple[int, int, date]] = cursor.fetchall()
    at_work = {pk: _is_at_work(pk) for pk in {workspace for _, workspace, _ in due}}
    now = [(pk, day) for pk, workspace, day in due if at_work[workspace]]
    return each(now[:BATCH], lambda one: _write(*one))


def _is_at_work(workspace: int) -> bool:
    """Within the policy's working hours; where it has none, always."""
    try:
        hours = active(Workspace.objects.get(pk=workspace)).working_hours
    except Unreadable:
        return True
    return hours is None or hours.covers(clock.database_time())


@transaction.atomic
def _write(pk: int, day: date) -> bool:
    moved = DailySummary.objects.filter(pk=pk, written_for__lt=day).update(written_for=day)
    if not moved:  # somebody was faster, or it was given up
        return False
    wish = DailySummary.objects.select_related("workspace", "person").get(pk=pk)
    rows = Approval.objects.filter(workspace=wish.workspace).select_related(
        "workspace", "agent", "action", "requested_by"
    )
    waiting = deciders.awaiting(rows, wish.person).order_by("asked_at", "pk")[:QUESTIONS_MAX]
    if questions := list(waiting):
        key = f"summary/{wish.person_id}/{day}"
        message = told(wish.workspace, wish.person, questions)
        channels.write_to_each(wish.workspace, {key: wish.person.email}, SUBJECT, message)
    return True


def told(workspace: Workspace, person: User, questions: Sequence[Approval]) -> Message:
    """The mail: how many wait, since when and for how much, then each with its link."""
    sees = disclosure.sees(person, workspace, deciding=True)
    now = clock.database_time()
    count, sums = len(questions), _sums(questions) if sees else ""
    one = count == 1
    first = (
        f"{formatting.count(count)} question{'' if one else 's'} in {workspace.name}"
        f" wait{'s' if one else ''} for you"
        f", {'' if one else 'the oldest '}for {formatting.span(now - questions[0].asked_at)}."
    )
    lines = [first + (f" It is about {sums}." if sums else ""), ""]
    for number, question in enumerate(questions[:LINES_MAX], start=1):
        who = formatting.plain(str(question.requested_by or question.agent or "the policy itself"))
        moves = f", {_amount(question)}" if sees and question.amount_minor is not None else ""
        lines.append(
            f"{number}. {notifications.subject(question)}{moves}, {question.risk} risk,"
            f" asked by {who} {formatting.ago(question.asked_at, now)},"
            f" expires {formatting.ago(question.expires_at, now)}"
        )
        lines.append(f"   {notifications.url(question)}")
    if count > LINES_MAX:
        lines.append(f"And {formatting.count(count - LINES_MAX)} more in the inbox.")
    root = settings.AMENDS_URL
    where = reverse("approvals:summary", args=[workspace.slug])
    stop = f"{root}{reverse('approvals:stop_summary', args=[stop_token(workspace, person)])}"
    lines += [
        "",
        notifications.NO_DECISION,
        f"To have it at another hour: {root}{where}",
        f"To stop this mail: {stop}",
    ]
    title = f"{formatting.count(count)} question{'' if one else 's'} for you in {workspace.name}"
    inbox = f"{root}{reverse('approvals:inbox', args=[workspace.slug])}"
    return Message(title, "\n".join(lines), inbox, stop_url=stop)


def _amount(question: Approval) -> str:
    return formatting.money(question.amount_minor or 0, question.currency)


def _sums(questions: Sequence[Approval]) -> str:
    """What they move together, per currency."""
    sums: Counter[str] = Counter()
    for one in questions:
        if one.amount_minor is not None:
            sums[one.currency] += one.amount_minor
    return " and ".join(formatting.money(minor, code) for code, minor in sorted(sums.items()))
