"""Witnesses: signed heads sent to somebody else, so that no one here can go back behind them.

A webhook channel that names the subject `ledger.head` gets the newest signed head of its
workspace's log at most once a minute, as a signed, repeated delivery like any other; the head
stands verbatim in its text. Channels for everything are not witnesses: nobody wants a mail a
minute. A folder of files is the other kind (AMENDS_HEADS_FOLDER), written by the sealer itself.
"""

from fnmatch import fnmatchcase

from django.conf import settings

from connectors.channels import Message
from connectors.models import Channel, Delivery
from connectors.models.channels import ChannelKind
from ledger import proofs
from workspaces import formatting

SUBJECT = "ledger.head"
CHANNELS_MAX = 1_000


def send_heads() -> int:
    """Put the newest heads on their way to the witnesses; returns how many are new."""
    channels = Channel.objects.filter(kind=ChannelKind.WEBHOOK, disabled_at=None)
    made = [
        delivery
        for channel in channels.exclude(subjects=[]).select_related("workspace")[:CHANNELS_MAX]
        if any(fnmatchcase(SUBJECT, glob) for glob in channel.subjects)
        and (delivery := _delivery(channel)) is not None
    ]
    Delivery.objects.bulk_create(made, ignore_conflicts=True)
    return len(made)


def _delivery(channel: Channel) -> Delivery | None:
    """The newest head for a witness, unless it is on its way already."""
    head = proofs.newest_head(channel.workspace)
    key = f"head {head.pk}/{channel.pk}" if head else ""
    if head is None or Delivery.objects.filter(workspace=channel.workspace, key=key).exists():
        return None
    page = f"{settings.AMENDS_URL}/w/{channel.workspace.slug}/ledger/verify/"
    message = Message(f"{formatting.count(head.size)} entries of {head.origin}", head.note, page)
    return Delivery(
        workspace=channel.workspace, channel=channel, kind=channel.kind, subject=SUBJECT, key=key,
        message=message.cut(),
    )  # fmt: skip
