"""Telling: who hears that an approval waits, that half of its time is over, and how it ended.

Messages are written in the transaction of the deed they tell of and sent by `connectors.channels`,
with its own retries. What became of each is put on the record when it is known.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from approvals import deciders, tidings
from approvals.models import About, Approval, Told
from connectors import channels
from connectors.models import Delivery
from connectors.models.channels import DeliveryState
from ledger import desk
from workspaces import access
from workspaces.models import User

PEOPLE_MAX = 50
"""So many are written to personally; where more may decide, a channel of theirs is the better."""

BATCH = 200


def asked(approval: Approval) -> None:
    """Tell who may decide, and the channels. The caller holds the transaction."""
    _tell(approval, About.ASKED, deciders.can_still_decide(approval))


def reminded(approval: Approval, people: Sequence[User]) -> None:
    """Tell those who could still answer, and the channels, that half of the time is over."""
    _tell(approval, About.REMINDED, people)


def ended(approval: Approval) -> None:
    """Tell whoever asked how it ended, and the channels. An agent hears it at the gate, too."""
    asker = approval.requested_by
    if asker is None or asker == approval.closed_by:
        people = []
    else:
        people = [asker] if access.may(asker, "view", approval.workspace) else []
    _tell(approval, About.ENDED, people)


def _tell(approval: Approval, about: About, people: Iterable[User]) -> None:
    subject, key = f"approval.{about}", f"approval/{approval.pk}/{about}"
    message = tidings.outline(approval, about)
    wanting = [person for person in people if person.mail_approvals][:PEOPLE_MAX]
    named = {f"{key}/person/{person.pk}": person for person in wanting}
    addresses = {name: person.email for name, person in named.items()}
    fuller = tidings.fuller(approval, about)
    sent = channels.announce(approval.workspace, subject, message, key=key, fuller=fuller)
    if addresses:
        sent += channels.write_to_each(approval.workspace, addresses, subject, message)
    rows = [_told(approval, about, delivery, named.get(delivery.key)) for delivery in sent]
    Told.objects.bulk_create(rows, ignore_conflicts=True)


def _told(approval: Approval, about: About, delivery: Delivery, person: User | None) -> Told:
    channel = delivery.channel.name if delivery.channel else ""
    return Told(
        approval=approval,
        about=about,
        person=person,
        to=channel or delivery.recipient,
        delivery=delivery,
    )


def note_due() -> int:
    """Put on the record what became of messages that arrived or were given up; how many."""
    over = Told.objects.filter(noted_at=None).exclude(delivery__state=DeliveryState.WAITING)
    return sum(_note(pk) for pk in list(over.order_by("pk").values_list("pk", flat=True)[:BATCH]))


@transaction.atomic
def _note(pk: int) -> bool:
    if not Told.objects.filter(pk=pk, noted_at=None).update(noted_at=Now()):
        return False
    one = Told.objects.select_related("delivery", "approval__workspace", "approval__action").get(
        pk=pk
    )
    approval = one.approval
    said: dict[str, Any] = {"approval": approval.pk, "digest": approval.digest, "about": one.about}
    said |= {"person": one.person_id} if one.person_id else {"channel": one.to}
    if one.delivery is not None:
        at = one.delivery.sent_at
        said |= {"way": one.delivery.kind, "tries": one.delivery.tries}
        said |= {"arrived": at.isoformat() if at else None}
    desk.say(
        approval.workspace,
        "approval.told",
        run=approval.run_ref,
        action=approval.action.action if approval.action else "",
        part="gate",
        data=said,
    )
    return True
