"""What people and programs are told of an approval, in two lengths.

The outline names who asks, with which tool, how risky and until when; it may leave by any channel.
The headline adds what would happen, its amount and the reason, and leaves only by channels whose
tier allows it. Neither holds an argument, a snapshot, what was asked back, or a word of an agent.
"""

from dataclasses import replace
from datetime import UTC
from zoneinfo import ZoneInfo

from django.conf import settings

from approvals.models import Approval, ApprovalState, NotificationKind, SubjectKind
from connectors.channels import Message
from workspaces import formatting

STUCK = "Fewer people can answer than must: somebody has to join a team, or it expires."
NO_DECISION = "Opening this decides nothing; you answer on the page."
ENDS = {
    ApprovalState.GRANTED: "approved",
    ApprovalState.REJECTED: "rejected",
    ApprovalState.EXPIRED: "expired: nobody answered in time, or the grant was not used",
    ApprovalState.WITHDRAWN: "withdrawn",
}
TITLES = {
    NotificationKind.ASKED: "Approval asked",
    NotificationKind.REMINDED: "Still waiting for approval",
    NotificationKind.QUESTIONED: "A decider asks back",
    NotificationKind.ANSWERED: "A question is answered",
    NotificationKind.HEARD: "The affected person has answered",
}
REASON_CHARACTERS_MAX = 400


def outline(approval: Approval, about: NotificationKind, *, stuck: bool = False) -> Message:
    """What may leave by every channel; `stuck` where nobody is left who could answer."""
    text = _text(approval, about)
    if stuck:
        text = f"{STUCK}\n{text}"
    return Message(_title(approval, about, stuck), text, url(approval), facts(approval))


def fuller(approval: Approval, about: NotificationKind, *, stuck: bool = False) -> Message:
    """What channels of the higher tier carry besides."""
    lines = [formatting.plain(approval.headline)]
    if approval.amount_minor is not None:
        lines.append(f"Amount: {formatting.money(approval.amount_minor, approval.currency)}")
    if approval.reason:
        lines.append(f"Because: {formatting.quoted(approval.reason, REASON_CHARACTERS_MAX)}")
    if about == NotificationKind.ENDED and approval.closing_reason:
        lines.append(
            f"Reason given: {formatting.quoted(approval.closing_reason, REASON_CHARACTERS_MAX)}"
        )
    short = outline(approval, about, stuck=stuck)
    return replace(short, text="\n".join([*lines, "", short.text]))


def to_affected(approval: Approval, link: str) -> Message:
    """The mail to the affected person: that there is a question, and where it stands."""
    name = approval.workspace.name
    text = (
        f"{name} would like to know what you want before something of yours is changed.\n"
        "Opening the page changes nothing; your answer is read by a person."
    )
    return Message(f"{name} has a question for you", text, link)


def url(approval: Approval) -> str:
    """The card; following it opens a page and nothing else."""
    return f"{settings.AMENDS_URL}/w/{approval.workspace.slug}/approvals/{approval.pk}/"


def facts(approval: Approval) -> dict[str, str]:
    """For programs, such as the customer's own service: ids, and how it stands."""
    key = str(approval.subject.get("key", ""))
    found = {
        "approval": str(approval.pk),
        "state": str(approval.state),
        "risk": str(approval.risk),
        "agent": approval.agent.name if approval.agent else "",
        "run": approval.run_ref,
        "key": key,
        "case": approval.case_ref,
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
    return f"one call of {formatting.named(approval.calls[0]['operation'])}"


def _title(approval: Approval, about: NotificationKind, stuck: bool) -> str:  # noqa: FBT001 - ours alone
    what = f"{subject(approval)}, {approval.risk} risk"
    if about == NotificationKind.ENDED:
        return f"{ENDS[ApprovalState(approval.state)].split(':')[0].capitalize()}: {what}"
    return f"{'Nobody can answer' if stuck else TITLES[about]}: {what}"


def _text(approval: Approval, about: NotificationKind) -> str:
    who = str(approval.requested_by or approval.agent or "the policy itself")
    lines = [f"{who} asks in {approval.workspace.name} for {subject(approval)}."]
    if about == NotificationKind.ENDED:
        by = f" by {approval.closed_by}" if approval.closed_by else ""
        return f"{lines[0]}\nIt was {ENDS[ApprovalState(approval.state)]}{by}."
    lines += [f"Rule: {rule['words']}" for rule in approval.rules if rule.get("words")]
    zone = ZoneInfo(approval.workspace.timezone or "UTC")
    until = formatting.absolute(approval.expires_at.astimezone(UTC), zone)
    lines.append(f"Without an answer it expires at {until}, and nothing is done.")
    return "\n".join([*lines, NO_DECISION])
