"""Notifications: who hears that an approval waits, what was asked back, and how it ended.

Messages are written in the transaction of the deed they tell of and sent by `connectors.channels`,
with its own retries. What became of each is put on the record when it is known.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from amends.protocol.vocabulary import EventType
from approvals import deciders, messages
from approvals.digests import say
from approvals.models import (
    Approval,
    Clarification,
    ConsentRequest,
    NotificationKind,
    NotificationRecord,
)
from connectors import channels
from connectors.models import Delivery
from connectors.models.channels import DeliveryState
from workspaces import access
from workspaces.models import User

PEOPLE_MAX = 50
"""So many are written to personally; where more may decide, a channel of theirs is the better."""

BATCH = 200


def asked(approval: Approval) -> None:
    """Tell who may decide, and the channels. The caller holds the transaction."""
    _tell(approval, NotificationKind.ASKED, deciders.can_still_decide(approval))


def reminded(approval: Approval, people: Sequence[User]) -> None:
    """Tell those who could still answer, and the channels, that half of the time is over."""
    lacking = sum(count for _, count in deciders.standing(approval).missing())
    _tell(approval, NotificationKind.REMINDED, people, stuck=len(people) < lacking)


def ended(approval: Approval) -> None:
    """Tell whoever asked how it ended, and the channels. An agent hears it at the gate, too."""
    asker = None if approval.requested_by == approval.closed_by else approval.requested_by
    _tell(approval, NotificationKind.ENDED, _readers(approval, asker))


def questioned(approval: Approval, enquiry: Clarification) -> None:
    """Tell whoever could answer best, and the channels. The agent hears it where it waits."""
    asker = approval.requested_by or approval.agent_owner
    _tell(approval, NotificationKind.QUESTIONED, _readers(approval, asker), mark=enquiry.pk)


def answered(approval: Approval, enquiry: Clarification) -> None:
    """Tell whoever wanted to know, and the channels."""
    asker = None if enquiry.asked_by_id == enquiry.answered_by_id else enquiry.asked_by
    _tell(approval, NotificationKind.ANSWERED, _readers(approval, asker), mark=enquiry.pk)


def wished(wish: ConsentRequest, link: str) -> None:
    """Write to the affected person, if an address of theirs is known."""
    if "@" not in wish.contact:
        return
    approval, about = wish.approval, NotificationKind.WISH
    delivery = channels.write_to(
        approval.workspace,
        wish.contact,
        f"approval.{about}",
        messages.to_affected(approval, link),
        key=f"approval/{approval.pk}/{about}/{wish.pk}",
    )
    NotificationRecord.objects.create(
        approval=approval, about=about, to=wish.contact, delivery=delivery
    )


def heard(wish: ConsentRequest) -> None:
    """Tell those who may decide, and the channels, that the affected person has answered."""
    people = deciders.can_still_decide(wish.approval)
    _tell(wish.approval, NotificationKind.HEARD, people, mark=wish.pk)


def _readers(approval: Approval, person: User | None) -> list[User]:
    return [person] if person and access.may(person, "view", approval.workspace) else []


def _tell(
    approval: Approval,
    about: NotificationKind,
    people: Iterable[User],
    *,
    mark: int = 0,
    stuck: bool = False,
) -> None:
    """`mark` tells apart several messages of one kind about one approval."""
    subject = f"approval.{about}"
    key = f"approval/{approval.pk}/{about}" + (f"/{mark}" if mark else "")
    message = messages.outline(approval, about, stuck=stuck)
    wanting = [person for person in people if person.mail_approvals][:PEOPLE_MAX]
    named = {f"{key}/person/{person.pk}": person for person in wanting}
    addresses = {name: person.email for name, person in named.items()}
    fuller = messages.fuller(approval, about, stuck=stuck)
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


def note_due() -> int:
    """Put on the record what became of messages that arrived or were given up; how many."""
    over = NotificationRecord.objects.filter(noted_at=None).exclude(
        delivery__state=DeliveryState.WAITING
    )
    return sum(_note(pk) for pk in list(over.order_by("pk").values_list("pk", flat=True)[:BATCH]))


@transaction.atomic
def _note(pk: int) -> bool:
    if not NotificationRecord.objects.filter(pk=pk, noted_at=None).update(noted_at=Now()):
        return False
    one = NotificationRecord.objects.select_related(
        "delivery", "approval__workspace", "approval__action"
    ).get(pk=pk)
    approval = one.approval
    said: dict[str, Any] = {"about": one.about}
    said |= {"person": one.person_id} if one.person_id else {"channel": one.to}
    if one.delivery is not None:
        at = one.delivery.sent_at
        said |= {"way": one.delivery.kind, "tries": one.delivery.tries}
        said |= {"arrived": at.isoformat() if at else None}
    say(approval, EventType.APPROVAL_TOLD, **said)
    return True
