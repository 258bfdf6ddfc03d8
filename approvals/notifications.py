"""Notifications: who hears that an approval waits, what was asked back, how it ended; and one
mail a day of what waits, for whoever wants it.

Messages are written in the transaction of what they tell of and sent by `connectors.channels`,
with its own retries. What became of each is put on the record when it is known. Of the daily mail,
the row moves on to the day in the transaction that writes it, and its key names person and day:
whatever breaks, a day has one at most. It says of each question as much as its reader may see.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core import signing
from django.db import connection, transaction
from django.db.models.functions import Now
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext as _

from amends.protocol.vocabulary import EventType
from approvals import awaiting, deciders
from approvals.digests import record
from approvals.models import (
    Approval,
    ApprovalState,
    Clarification,
    ConsentRequest,
    DailySummary,
    NotificationKind,
    NotificationRecord,
    SubjectKind,
)
from approvals.policy import PolicyUnreadable, active
from connectors import channels
from connectors.channels import Message
from connectors.models import Delivery, DeliveryState
from ledger import disclosure
from workspaces import access, clock, formatting
from workspaces.models import User, Workspace
from workspaces.pages import offer_of_languages
from workspaces.periodic import Turns, each

# What people and programs are told of an approval, in two lengths.
#
# The outline names who asks, with which tool, how risky and until when, and the question by its
# number, by which two that are alike are told apart; it may leave by any channel. The headline adds
# what would happen, its amount and the reason, and leaves only by channels whose tier allows it.
# Neither holds an argument, a snapshot, what was asked back, or a word of an agent.

STUCK = "Fewer people can answer than must: somebody has to join a team, or it expires."
NO_DECISION = "Opening this decides nothing; you answer on the page."
ENDS = {
    ApprovalState.GRANTED: "approved",
    ApprovalState.REJECTED: "rejected",
    ApprovalState.EXPIRED: "expired",
    ApprovalState.USED: "used: the time for its calls is over",
    ApprovalState.WITHDRAWN: "withdrawn",
}
TITLES = {
    NotificationKind.ASKED: "Approval asked",
    NotificationKind.REMINDED: "Still waiting for approval",
    NotificationKind.QUESTIONED: "A decider asks back",
    NotificationKind.ANSWERED: "A question is answered",
    NotificationKind.CONSENT_ANSWERED: "The affected person has answered",
}
REASON_TOLD_MAX = 400


def outline(approval: Approval, about: NotificationKind, *, stuck: bool) -> Message:
    """What may leave by every channel; `stuck` where nobody is left who could answer."""
    text = _text(approval, about)
    if stuck:
        text = f"{STUCK}\n{text}"
    return Message(_title(approval, about, stuck), text, url(approval), facts(approval))


def in_full(approval: Approval, about: NotificationKind, *, stuck: bool = False) -> Message:
    """What channels of the higher tier carry besides."""
    lines = [formatting.plain(approval.headline)]
    if approval.amount_minor is not None:
        lines.append(f"Amount: {formatting.money(approval.amount_minor, approval.currency)}")
    if approval.reason:
        lines.append(f"Because: {formatting.quoted(approval.reason, REASON_TOLD_MAX)}")
    if about == NotificationKind.ENDED and approval.closing_reason:
        lines.append(f"Reason given: {formatting.quoted(approval.closing_reason, REASON_TOLD_MAX)}")
    short = outline(approval, about, stuck=stuck)
    return replace(short, text="\n".join([*lines, "", short.text]))


def to_affected(approval: Approval, link: str, language: str) -> Message:
    """The mail to the affected person: that there is a question, and where it stands. Where their
    language is not known, in English, with a line in each other one.
    """
    named = {"name": approval.workspace.name}
    with translation.override(language or "en"):
        title = _("%(name)s has a question for you") % named
        text = [
            _("%(name)s would like to know what you want before something of yours is changed.")
            % named,
            _("Opening the page changes nothing; your answer is read by a person."),
        ]
    more = [] if language else ["", offer_of_languages()]
    return Message(title, "\n".join([*text, *more]), link)


def url(approval: Approval) -> str:
    """The card; following it opens a page and nothing else."""
    return f"{settings.AMENDS_URL}/w/{approval.workspace.slug}/approvals/{approval.pk}/"


def facts(approval: Approval) -> dict[str, str]:
    """For programs, such as the customer's own service: ids, digest, and how it stands."""
    key = str(approval.subject.get("key", ""))
    calls = approval.calls
    found = {
        "approval": str(approval.pk),
        "kind": str(approval.subject_kind),
        "state": str(approval.state),
        "digest": f"sha256:{approval.digest}",
        "tool": str(calls[0]["operation"]) if approval.action and calls else "",
        "action": approval.action.action if approval.action else "",
        "plan": str(approval.plan_id or ""),
        "risk": str(approval.risk),
        "agent": approval.agent.name if approval.agent else "",
        "run": approval.run_ref,
        "key": key,
        "case": approval.case_ref,
        "asked_at": approval.asked_at.isoformat(),
        "expires_at": approval.expires_at.isoformat(),
    }
    return {name: value for name, value in found.items() if value}


def subject(approval: Approval) -> str:
    """What it is about without saying what: the tool, or how long the plan is."""
    if approval.subject_kind == SubjectKind.PLAN:
        calls = len(approval.calls)
        about = f"for case {approval.case_ref}" if approval.case_ref else ""
        return f"a plan of {calls} call{'s' if calls != 1 else ''} {about}".strip()
    if not approval.calls:
        return "one call"
    if approval.subject_kind == SubjectKind.GRANT:
        uses = approval.calls[0]["more"]["bounded"]["uses"]
        tool = formatting.named(approval.calls[0]["operation"])
        return f"a bounded grant for {uses} call{'s' if uses != 1 else ''} of {tool}"
    return f"one call of {formatting.named(approval.calls[0]['operation'])}"


def _title(approval: Approval, about: NotificationKind, stuck: bool) -> str:  # noqa: FBT001 - ours alone
    what = f"{subject(approval)}, {approval.risk} risk (no. {approval.pk})"
    if about == NotificationKind.ENDED:
        return f"{ENDS[ApprovalState(approval.state)].split(':')[0].capitalize()}: {what}"
    return f"{'Nobody can answer' if stuck else TITLES[about]}: {what}"


def _text(approval: Approval, about: NotificationKind) -> str:
    who = f"{approval.asker} asks in {approval.workspace.name}"
    lines = [f"{who} for {subject(approval)}: question {approval.pk}."]
    if about == NotificationKind.ENDED:
        if approval.state == ApprovalState.EXPIRED:
            return f"{lines[0]}\nIt expired: {deciders.why_expired(approval)}."
        by = f" by {approval.closed_by}" if approval.closed_by else ""
        return f"{lines[0]}\nIt was {ENDS[ApprovalState(approval.state)]}{by}."
    rules = deciders.asking_rules(approval)
    lines += [f"Rule: {rule['words']}" for rule in rules if rule.get("words")]
    zone = ZoneInfo(approval.workspace.timezone or "UTC")
    until = formatting.absolute(approval.expires_at, zone)
    lines.append(f"Without an answer it expires at {until}, and nothing is done.")
    return "\n".join([*lines, NO_DECISION])


PEOPLE_MAX = 50
"""So many are written to personally; where more may decide, a channel of theirs is the better."""


def asked(approval: Approval) -> None:
    """Tell who may decide, and the channels. The caller holds the transaction."""
    _tell(approval, NotificationKind.ASKED, deciders.can_still_decide(approval))


def reminded(approval: Approval, people: Sequence[User]) -> None:
    """Tell those who could still answer, and the channels, that half of the time is over."""
    standing, mandates = deciders.progress(approval), deciders.mandates(approval)
    stuck = not deciders.can_complete(standing, mandates)
    _tell(approval, NotificationKind.REMINDED, people, stuck=stuck)


def escalated(approval: Approval, people: Sequence[User]) -> None:
    """Tell the second team, and the channels, that nobody has decided yet."""
    mark = int(approval.asked_at.timestamp())
    _tell(approval, NotificationKind.REMINDED, people, mark=mark)


when_ended: list[Callable[[Approval], None]] = []
"""Who is told of each end besides, in its transaction; they stand above us and put themselves here.
"""


def ended(approval: Approval) -> None:
    """Tell whoever asked how it ended, and the channels. An agent hears it at the gate, too. What
    was approved may end once more, unused.
    """
    asker = None if approval.requested_by == approval.closed_by else approval.requested_by
    people = _readers(approval, asker)
    _tell(approval, NotificationKind.ENDED, people, mark=str(approval.state))
    for tell in when_ended:
        tell(approval)


def questioned(approval: Approval, clarification: Clarification) -> None:
    """Tell whoever could answer best, and the channels. The agent hears it where it waits."""
    asker = approval.requested_by or approval.agent_owner
    _tell(approval, NotificationKind.QUESTIONED, _readers(approval, asker), mark=clarification.pk)


def answered(approval: Approval, clarification: Clarification) -> None:
    """Tell whoever wanted to know, and the channels."""
    asker = (
        None
        if clarification.asked_by_id == clarification.answered_by_id
        else clarification.asked_by
    )
    _tell(approval, NotificationKind.ANSWERED, _readers(approval, asker), mark=clarification.pk)


def ask_affected(consent: ConsentRequest, link: str, language: str) -> None:
    """Write to the affected person, if an address of theirs is known."""
    if not channels.is_address(consent.contact):
        return
    approval, about = consent.approval, NotificationKind.CONSENT_ASKED
    delivery = channels.write_to(
        approval.workspace,
        consent.contact,
        f"approval.{about}",
        to_affected(approval, link, language),
        key=f"approval/{approval.pk}/{about}/{consent.pk}",
    )
    NotificationRecord.objects.create(
        approval=approval, about=about, to=consent.contact, delivery=delivery
    )


def consent_answered(consent: ConsentRequest) -> None:
    """Tell those who may decide, and the channels, that the affected person has answered."""
    people = deciders.can_still_decide(consent.approval)
    _tell(consent.approval, NotificationKind.CONSENT_ANSWERED, people, mark=consent.pk)


def _readers(approval: Approval, person: User | None) -> list[User]:
    return [person] if person and access.may(person, "view", approval.workspace) else []


def _tell(
    approval: Approval,
    about: NotificationKind,
    people: Iterable[User],
    *,
    mark: int | str = 0,
    stuck: bool = False,
) -> None:
    """`mark` tells apart several messages of one kind about one approval."""
    subject = f"approval.{about}"
    key = f"approval/{approval.pk}/{about}" + (f"/{mark}" if mark else "")
    message = outline(approval, about, stuck=stuck)
    wanting = [person for person in people if person.mail_approvals][:PEOPLE_MAX]
    named = {f"{key}/person/{person.pk}": person for person in wanting}
    addresses = {name: person.email for name, person in named.items()}
    fuller = in_full(approval, about, stuck=stuck)
    sent = channels.announce(approval.workspace, subject, message, key=key, fuller=fuller)
    if addresses:
        sent += channels.write_to_each(approval.workspace, addresses, subject, message)
    rows = [_told(approval, about, delivery, named.get(delivery.key)) for delivery in sent]
    NotificationRecord.objects.bulk_create(rows, ignore_conflicts=True)


def _told(
    approval: Approval, about: NotificationKind, delivery: Delivery, person: User | None
) -> NotificationRecord:
    channel = delivery.channel.name if delivery.channel else ""
    return NotificationRecord(
        approval=approval,
        about=about,
        person=person,
        to=channel or delivery.recipient,
        delivery=delivery,
    )


LOOKED_AT = Turns(1_000)
"""While a mail server is away all that was written waits, and was read anew every five seconds."""


def note_due() -> int:
    """Put on the record what became of messages that arrived or were given up; how many. So many
    that are not on it are looked at in a turn, and the next goes on behind them.
    """
    found = LOOKED_AT.next(NotificationRecord.objects.filter(noted_at=None).only("delivery"))
    waiting = Delivery.objects.filter(
        pk__in=[one.delivery_id for one in found if one.delivery_id], state=DeliveryState.WAITING
    )
    still = set(waiting.values_list("pk", flat=True))
    return each([one.pk for one in found if one.delivery_id not in still], _note)


@transaction.atomic
def _note(pk: int) -> bool:
    if not NotificationRecord.objects.filter(pk=pk, noted_at=None).update(noted_at=Now()):
        return False
    one = NotificationRecord.objects.select_related(
        "delivery", "approval__workspace", "approval__action"
    ).get(pk=pk)
    approval = one.approval
    data: dict[str, Any] = {"about": one.about}
    data |= {"person": one.person_id} if one.person_id else {"channel": one.to}
    if one.delivery is not None:
        at = one.delivery.sent_at
        data |= {"way": one.delivery.kind, "tries": one.delivery.tries}
        data |= {"arrived": at.isoformat() if at else None}
    record(approval, EventType.APPROVAL_TOLD, **data)
    return True


LINES_MAX = 20
QUESTIONS_MAX = 1_000
SUMMARIES_BATCH = 100
"""Mails in one turn of the job; the next turn goes on."""

SUMMARY_SUBJECT = "approval.summary"
ZONE = "coalesce(nullif(person.timezone, ''), nullif(here.timezone, ''), 'UTC')"
# A day of theirs begins at the hour that they chose.
DAY = f"((statement_timestamp() AT TIME ZONE {ZONE}) - %s * interval '1 hour')::date"
TODAY = f"""
SELECT {DAY} FROM workspaces_workspace here, workspaces_user person
WHERE here.id = %s AND person.id = %s"""  # noqa: S608 - our own words
SUMMARIES_DUE = f"""
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
def choose_hour(workspace: Workspace, person: User, hour: int | None) -> None:
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


def write_summaries() -> int:
    """Write what is due, where somebody is at work now; how many days were dealt with."""
    with connection.cursor() as cursor:
        cursor.execute(SUMMARIES_DUE)
        due: list[tuple[int, int, date]] = cursor.fetchall()
    at_work = {pk: _is_at_work(pk) for pk in {workspace for _, workspace, _ in due}}
    now = [(pk, day) for pk, workspace, day in due if at_work[workspace]]
    return each(now[:SUMMARIES_BATCH], lambda one: _write_summary(*one))


def _is_at_work(workspace: int) -> bool:
    """Within the policy's working hours; where it has none, always."""
    try:
        hours = active(Workspace.objects.get(pk=workspace)).working_hours
    except PolicyUnreadable:
        return True
    return hours is None or hours.covers(clock.database_time())


@transaction.atomic
def _write_summary(pk: int, day: date) -> bool:
    moved = DailySummary.objects.filter(pk=pk, written_for__lt=day).update(written_for=day)
    if not moved:  # somebody was faster, or it was given up
        return False
    wish = DailySummary.objects.select_related("workspace", "person").get(pk=pk)
    rows = Approval.objects.filter(workspace=wish.workspace).select_related(
        "workspace", "agent", "action", "requested_by"
    )
    waiting = awaiting.among(rows, wish.person).order_by("asked_at", "pk")[:QUESTIONS_MAX]
    if questions := list(waiting):
        key = f"summary/{wish.person_id}/{day}"
        message = summary_of(wish.workspace, wish.person, questions)
        channels.write_to_each(wish.workspace, {key: wish.person.email}, SUMMARY_SUBJECT, message)
    return True


def summary_of(workspace: Workspace, person: User, questions: Sequence[Approval]) -> Message:
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
        who = formatting.plain(question.asker)
        moves = ""
        if sees and question.amount_minor is not None:
            moves = f", {formatting.money(question.amount_minor, question.currency)}"
        lines.append(
            f"{number}. {subject(question)}{moves}, {question.risk} risk,"
            f" asked by {who} {formatting.ago(question.asked_at, now)},"
            f" expires {formatting.ago(question.expires_at, now)}"
        )
        lines.append(f"   {url(question)}")
    if count > LINES_MAX:
        lines.append(f"And {formatting.count(count - LINES_MAX)} more in the inbox.")
    root = settings.AMENDS_URL
    where = reverse("approvals:summary", args=[workspace.slug])
    stop = f"{root}{reverse('approvals:stop_summary', args=[stop_token(workspace, person)])}"
    lines += [
        "",
        NO_DECISION,
        f"To have it at another hour: {root}{where}",
        f"To stop this mail: {stop}",
    ]
    title = f"{formatting.count(count)} question{'' if one else 's'} for you in {workspace.name}"
    inbox = f"{root}{reverse('approvals:inbox', args=[workspace.slug])}"
    return Message(title, "\n".join(lines), inbox, stop_url=stop)


def _sums(questions: Sequence[Approval]) -> str:
    """What they move together, per currency."""
    sums: Counter[str] = Counter()
    for one in questions:
        if one.amount_minor is not None:
            sums[one.currency] += one.amount_minor
    return " and ".join(formatting.money(minor, code) for code, minor in sorted(sums.items()))
